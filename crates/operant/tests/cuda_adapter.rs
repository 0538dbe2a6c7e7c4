//! The GPU's adapter proven without a GPU: its CUDA C, compiled as C++ with one thread after another in place of a grid,
//! gives the bits of the vector env in every auto-reset mode, step by step and in rollouts. What only a GPU can show
//! (its arithmetic, warps, shared memory) is in `cuda.rs`.

mod drawn;

use drawn::drawn;
use operant::env::emit::Shape;
use operant::env::{ActionsBuf, AutoReset, Door, Entry, Options, RowBuf, Seeds, VARIANTS, all};
use operant::lanes::rng::HostRng;
use std::path::{Path, PathBuf};
use std::process::Command;

const ENVS: usize = 70;
const STEPS: usize = 600;
/// Steps per rollout: the stream of actions goes on in the middle of a draw.
const HORIZONS: [usize; 3] = [301, 298, 1];
const SEED: u64 = 0x1234_5678_9abc_def0;
const FIRST_ENV: u32 = 41;

/// CUDA's words in C++: each thread is a warp of its own.
const SHIM: &str = r#"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#define FAST 0
#define __device__
#define __forceinline__ inline
#define __global__
#define __launch_bounds__(threads)
#define __shared__ static
#undef INFINITY
#undef NAN
#define int64_t cuda_int64_t
#define uint64_t cuda_uint64_t
struct Index { unsigned x; };
static Index blockIdx, threadIdx;
struct float2 { float x, y; };
struct float4 { float x, y, z, w; };
struct int2 { int x, y; };
struct int4 { int x, y, z, w; };
static float2 make_float2(float x, float y) { return {x, y}; }
static float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static int2 make_int2(int x, int y) { return {x, y}; }
static int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
template <class T> static void __stcs(T *to, T value) { *to = value; }
template <class T> static T __ldcg(const T *from) { return *from; }
static int __float_as_int(float x) { int y; __builtin_memcpy(&y, &x, 4); return y; }
static float __int_as_float(int x) { float y; __builtin_memcpy(&y, &x, 4); return y; }
static unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
static float __fdividef(float a, float b) { return a / b; }
static long long __float2ll_rn(float x) { return llrintf(x); }
static int min(int a, int b) { return a < b ? a : b; }
static unsigned __ballot_sync(unsigned, int here) { return here ? 1u << threadIdx.x % 32 : 0; }
static unsigned __reduce_add_sync(unsigned, unsigned x) { return x; }
static long long __shfl_xor_sync(unsigned, long long, int) { return 0; }
static unsigned __popc(unsigned x) { return __builtin_popcount(x); }
static unsigned __ffs(unsigned x) { return __builtin_ffs(x); }
static void atomicAdd(unsigned long long *to, unsigned long long x) { *to += x; }
static unsigned atomicAdd(unsigned *to, unsigned x) { const unsigned was = *to; *to += x; return was; }
static unsigned __shfl_sync(unsigned, unsigned x, unsigned) { return x; }
static void __syncthreads() {}
static int __any_sync(unsigned, int here) { return here; }
"#;

/// Steps and rollouts as the host's side launches them; rows go to standard output.
const HARNESS: &str = r#"
template <typename T> static T *make(size_t count) { return (T *)calloc(count ? count : 1, sizeof(T)); }
template <typename T> static void show(const T *from, size_t count) { fwrite(from, sizeof(T), count, stdout); }
static void show_row(const Row &row, size_t t) {
    show(row.obs + t * N * OBS, N * OBS);
    show(row.reward + t * N, N);
    show(row.terminated + t * N, N);
    show(row.truncated + t * N, N);
    if (row.ends != nullptr) {
        const float *records = (const float *)row.ends;
        for (size_t i = 0; i < N; i++) show(records + i * END_WORDS, OBS);
        for (size_t k = OBS; k < OBS + 2; k++)
            for (size_t i = 0; i < N; i++) show(records + i * END_WORDS + k, 1);
    } else {
        show(row.final_obs + t * N * OBS, N * OBS);
        show(row.episode_return + t * N, N);
        show(row.episode_length + t * N, N);
    }
    show(row.legal + t * N * CHOICES, N * CHOICES);
}
static Row make_row(size_t rows) {
    return {make<float>(rows * N * OBS), make<float>(rows * N), make<uint8_t>(rows * N), make<uint8_t>(rows * N),
            make<float>(rows * N * OBS), make<float>(rows * N), make<int32_t>(rows * N), make<uint8_t>(rows * N * CHOICES)};
}
template <typename F> static void grid(F kernel) {
    for (unsigned i = 0; i < N + 3; i++) blockIdx.x = i / BLOCK, threadIdx.x = i % BLOCK, kernel();
}
int main(int, char **words) {
    const uint32_t pitch = N + 11;
    int32_t *columns = make<int32_t>((STATE + 6) * pitch + 4);
    Row row = make_row(1);
    Envs envs = {columns, SHOWN ? (int32_t *)row.obs : columns, make<Totals>(TOTALS_SLOTS), N, pitch, FIRST_ENV, 0};
    grid([&] { reset({envs, row, nullptr, nullptr, SEED, 1, 0}); });
    show_row(row, 0);
    if (words[1][0] == 's') {
        row.final_obs = nullptr, row.ends = make<float4>(N * END_WORDS / 4);
        int32_t *actions = make<int32_t>(N * ACTIONS);
        while (fread(actions, 4, N * ACTIONS, stdin) == N * ACTIONS) {
            grid([&] { step({envs, row, actions, 0, 0}); });
            show_row(row, 0);
        }
    } else {
        uint32_t first = 0;
        for (char **word = words + 2; *word; word++) {
            const uint32_t steps = atoi(*word);
            Row rows = make_row(steps);
            grid([&] { rollout({envs, rows, SEED + 1, steps, first}); });
            for (uint32_t t = 0; t < steps; t++) show_row(rows, t);
            first += steps;
        }
    }
    for (int c = 0; c < STATE; c++)
        for (uint32_t i = 0; i < N; i++) {
            int32_t s[STATE];
            load_state(envs, i, s);
            show(s + c, 1);
        }
    for (uint32_t i = 0; i < N; i++) {
        Own own = {};
        load_progress(envs, i, own);
        show(&own.elapsed, 1);
    }
    Totals all = {0, 0, 0, 0};
    for (int k = 0; k < TOTALS_SLOTS; k++)
        all.episodes += envs.totals[k].episodes, all.length += envs.totals[k].length, all.returned += envs.totals[k].returned;
    show(&all, 1);
    return 0;
}
"#;

fn compile(entry: &Entry, autoreset: AutoReset) -> PathBuf {
    let spec = entry.spec();
    // Blocks of one thread, which need not wait for each other; they list what ended in them, as large blocks do.
    let shape = Shape { time_limit: spec.time_limit, autoreset, block: 1 };
    let source = entry.cuda_source(&[], &shape).unwrap().unwrap().replace("#define LISTS 0", "#define LISTS 1");
    let numbers = format!("#define N {ENVS}u\n#define SEED {SEED}ull\n#define FIRST_ENV {FIRST_ENV}u\n");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("adapter-{}-{autoreset:?}", spec.name));
    std::fs::create_dir_all(&folder).unwrap();
    let (file, program) = (folder.join("env.cpp"), folder.join("env"));
    std::fs::write(&file, format!("{SHIM}{source}{numbers}{HARNESS}")).unwrap();
    let output = Command::new("c++")
        .args(["-std=c++17", "-O1", "-ffp-contract=off", "-w", "-o"])
        .args([&program, &file])
        .output()
        .expect("the system's C++ compiler, c++, proves the printed code: install g++ or clang");
    assert!(output.status.success(), "{}: {}", spec.name, String::from_utf8_lossy(&output.stderr));
    program
}

fn bytes_of(row: &RowBuf) -> Vec<u8> {
    let mut bytes = Vec::new();
    let floats = |x: &[f32], bytes: &mut Vec<u8>| x.iter().for_each(|x| bytes.extend(x.to_le_bytes()));
    floats(&row.obs, &mut bytes);
    floats(&row.reward, &mut bytes);
    bytes.extend(&row.terminated);
    bytes.extend(&row.truncated);
    floats(&row.final_obs, &mut bytes);
    floats(&row.episode_return, &mut bytes);
    row.episode_length.iter().for_each(|x| bytes.extend(x.to_le_bytes()));
    bytes.extend(&row.legal);
    bytes
}

/// Every row of the engine's vector env, its state at the end, and the totals of what ended.
fn expected(
    entry: &Entry,
    autoreset: AutoReset,
    actions: &[ActionsBuf],
    fresh_rows: bool,
) -> (Vec<Vec<u8>>, Vec<u8>, [i64; 3]) {
    let options = Options { autoreset, first_env: FIRST_ENV, ..Options::new(ENVS) };
    let mut envs = entry.build(&[], &options).unwrap();
    let mut row = RowBuf::new(envs.spec(), ENVS);
    envs.reset(Seeds::One(SEED), None, row.row());
    let (mut rows, mut totals) = (vec![bytes_of(&row)], [0; 3]);
    for actions in actions {
        if fresh_rows {
            row = RowBuf::new(envs.spec(), ENVS);
        }
        envs.step(actions.actions(), row.row());
        rows.push(bytes_of(&row));
        for env in (0..ENVS).filter(|&env| row.terminated[env] | row.truncated[env] != 0) {
            totals[0] += 1;
            totals[1] += i64::from(row.episode_length[env]);
            totals[2] += (row.episode_return[env] * 1_048_576.0).round_ties_even() as i64;
        }
    }
    let mut state = Vec::new();
    for column in 0..envs.columns().len() {
        let mut words = [0; ENVS];
        envs.read(column, &mut words);
        words.iter().for_each(|word| state.extend(word.to_le_bytes()));
    }
    (rows, state, totals)
}

fn check(name: &str, got: &[u8], (rows, state, totals): &(Vec<Vec<u8>>, Vec<u8>, [i64; 3])) {
    let size = rows[0].len();
    for (t, row) in rows.iter().enumerate() {
        let got = &got[t * size..(t + 1) * size];
        let differs = got.iter().zip(row).position(|(a, b)| a != b);
        assert_eq!(differs, None, "{name}: first different byte of {size} in row {t}");
    }
    let rest = &got[rows.len() * size..];
    assert!(rest.starts_with(state), "{name}: the state at the end");
    let sums: Vec<i64> = rest[rest.len() - 32..].as_chunks::<8>().0.iter().map(|x| i64::from_le_bytes(*x)).collect();
    assert_eq!(sums[..3], *totals, "{name}: totals");
}

fn run(entry: &Entry, autoreset: AutoReset) {
    let spec = entry.spec();
    let program = compile(entry, autoreset);
    let mut rng = HostRng::new(1, 2, 3, 4);
    let actions: Vec<ActionsBuf> = (0..STEPS).map(|_| ActionsBuf::random(&spec, ENVS, &mut rng)).collect();
    let mut input = Vec::new();
    for batch in &actions {
        match batch {
            ActionsBuf::Choices(a) => a.iter().for_each(|x| input.extend(x.to_le_bytes())),
            ActionsBuf::Numbers(a) => a.iter().for_each(|x| input.extend(x.to_le_bytes())),
        }
    }
    let file = program.with_file_name("actions");
    std::fs::write(&file, input).unwrap();
    let output = Command::new(&program).arg("step").stdin(std::fs::File::open(file).unwrap()).output().unwrap();
    assert!(output.status.success());
    let name = format!("{}, {autoreset:?}", spec.name);
    check(&format!("{name}, steps"), &output.stdout, &expected(entry, autoreset, &actions, false));

    let horizons = HORIZONS.map(|steps| steps.to_string());
    let output = Command::new(&program).arg("rollout").args(horizons).output().unwrap();
    assert!(output.status.success());
    let actions = drawn(&spec, SEED + 1, FIRST_ENV, ENVS, HORIZONS.iter().sum());
    check(&format!("{name}, rollouts"), &output.stdout, &expected(entry, autoreset, &actions, true));
}

fn run_all(autoreset: AutoReset) {
    let lanes = all().filter(|entry| entry.door() == Door::Lanes);
    lanes.chain(VARIANTS).for_each(|entry| run(entry, autoreset));
}

#[test]
fn resets_in_the_same_step() {
    run_all(AutoReset::SameStep);
}

#[test]
fn resets_in_the_next_step() {
    run_all(AutoReset::NextStep);
}

#[test]
fn resets_by_the_caller() {
    run_all(AutoReset::Disabled);
}
