//! The recorder proven on the CPU: for every env over lanes the printed C, compiled by the system's compiler, gives
//! the bits of the vector env over auto-resets and time limits; and the printed code is kept as snapshots.

use operant::env::emit::Shape;
use operant::env::{ActionsBuf, AutoReset, Door, Entry, Options, RowBuf, Seeds, Spec, VARIANTS, all};
use operant::lanes::rng::HostRng;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;

const ENVS: usize = 32;
const STEPS: usize = 1000;
const SEED: u64 = 0x1234_5678_9abc_def0;

fn over_lanes() -> impl Iterator<Item = &'static Entry> {
    all().filter(|entry| entry.door() == Door::Lanes)
}

/// A vector env in C around the printed functions: reads actions, writes every row of a SameStep run as words.
fn harness(spec: &Spec) -> String {
    let name = spec.name;
    let limit = spec.time_limit.map_or(i32::MAX, |limit| limit as i32);
    let (low, high) = (SEED as u32 as i32, (SEED >> 32) as u32 as i32);
    let choices = if spec.masked { spec.action.choices() } else { 0 };
    let legal = if spec.masked {
        format!("uint8_t legal[{choices}]; {name}_legal(s[i], legal); fwrite(legal, 1, {choices}, stdout);")
    } else {
        String::new()
    };
    format!(
        r#"
#include <stdio.h>
static int32_t s[{ENVS}][{name}_state], a[{ENVS}][{name}_actions], length[{ENVS}], episode[{ENVS}];
static void show(int i) {{ float obs[{name}_obs]; {name}_observe(s[i], obs); fwrite(obs, 4, {name}_obs, stdout); {legal} }}
int main(void) {{
    const int32_t seed[2] = {{{low}, {high}}};
    for (int i = 0; i < {ENVS}; i++) {{ {name}_reset(seed, i, 0, s[i]); show(i); }}
    for (int t = 0; t < {STEPS}; t++) {{
        if (fread(a, 4, {ENVS} * {name}_actions, stdin) != {ENVS} * {name}_actions) return 1;
        for (int i = 0; i < {ENVS}; i++) {{
            float reward;
            length[i]++;
            const int terminated = {name}_step(seed, i, episode[i], length[i], s[i], a[i], &reward);
            const int truncated = length[i] >= {limit};
            fwrite(&reward, 4, 1, stdout);
            fputc(terminated, stdout);
            fputc(truncated, stdout);
            if (terminated || truncated) {{ length[i] = 0; {name}_reset(seed, i, ++episode[i], s[i]); }}
            show(i);
        }}
    }}
    return 0;
}}
"#
    )
}

/// The bytes that the harness writes, from the engine.
fn expected(entry: &Entry) -> (Vec<u8>, Vec<u8>) {
    let mut envs = entry.build(&[], &Options::new(ENVS)).unwrap();
    let spec = envs.spec().clone();
    let (width, choices) = (spec.observation.len(), if spec.masked { spec.action.choices() } else { 0 });
    let mut row = RowBuf::new(&spec, ENVS);
    envs.reset(Seeds::One(SEED), None, row.row());
    let (mut actions, mut bytes) = (Vec::new(), Vec::new());
    let mut rng = HostRng::new(1, 2, 3, 4);
    let show = |row: &RowBuf, i: usize, bytes: &mut Vec<u8>| {
        row.obs[i * width..(i + 1) * width].iter().for_each(|x| bytes.extend(x.to_le_bytes()));
        bytes.extend(&row.legal[i * choices..(i + 1) * choices]);
    };
    (0..ENVS).for_each(|i| show(&row, i, &mut bytes));
    for _ in 0..STEPS {
        let batch = ActionsBuf::random(&spec, ENVS, &mut rng);
        match &batch {
            ActionsBuf::Choices(a) => a.iter().for_each(|x| actions.extend(x.to_le_bytes())),
            ActionsBuf::Numbers(a) => a.iter().for_each(|x| actions.extend(x.to_le_bytes())),
        }
        envs.step(batch.actions(), row.row());
        for i in 0..ENVS {
            bytes.extend(row.reward[i].to_le_bytes());
            bytes.extend([row.terminated[i], row.truncated[i]]);
            show(&row, i, &mut bytes);
        }
    }
    (actions, bytes)
}

/// A scratch folder of this test process.
fn scratch(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("emission-{name}"));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Compiles C with the system's compiler, or says why the test can't run.
fn compile(folder: &std::path::Path, source: &str) -> PathBuf {
    let (file, program) = (folder.join("env.c"), folder.join("env"));
    std::fs::write(&file, source).unwrap();
    let output = Command::new("cc")
        .args(["-std=c11", "-O2", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-o"])
        .args([&program, &file])
        .arg("-lm")
        .output()
        .expect("the system's C compiler, cc, proves the printed code: install gcc or clang");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

#[test]
fn printed_c_gives_the_same_bits() {
    for entry in over_lanes().chain(VARIANTS) {
        let spec = entry.spec();
        let folder = scratch(spec.name);
        let mut source = entry.c_source(&[]).unwrap().unwrap();
        source.push_str(&harness(&spec));
        let program = compile(&folder, &source);
        let (actions, expected) = expected(entry);
        std::fs::write(folder.join("actions"), actions).unwrap();
        let output =
            Command::new(program).stdin(std::fs::File::open(folder.join("actions")).unwrap()).output().unwrap();
        assert!(output.status.success());
        assert_eq!(output.stdout.len(), expected.len(), "{}", spec.name);
        let differs = output.stdout.iter().zip(&expected).position(|(a, b)| a != b);
        assert_eq!(differs, None, "{}: first different byte", spec.name);
    }
}

/// Parameters are printed as constants: another value is another program.
#[test]
fn parameters_reach_the_printed_code() {
    let entry = operant::env::find("cartpole").unwrap();
    let text = entry.c_source(&[("gravity", 3.5)]).unwrap().unwrap();
    assert!(text.contains("3.5f") && !entry.c_source(&[]).unwrap().unwrap().contains("3.5f"));
}

#[test]
fn printed_code_is_as_it_was() {
    let mut functions = String::new();
    for entry in over_lanes() {
        let source = entry.c_source(&[]).unwrap().unwrap();
        let (shared, own) = source.split_once("enum {").unwrap();
        functions = shared.to_owned();
        insta::assert_snapshot!(entry.spec().name, format!("enum {{{own}"));
    }
    let mut text = String::new();
    let _ = write!(text, "{functions}");
    insta::assert_snapshot!("prelude_and_functions", text);
}

/// Envs that are compiled without fast math have nothing that it could change.
#[test]
fn envs_without_fast_math_fuse_nothing() {
    // A reciprocal is printed as a division.
    const FUSED: [&str; 7] = ["mul_add_f(", "div_f(", "sin_f(", "cos_f(", "exp_f(", "log_f(", "tanh_f("];
    for entry in over_lanes().chain(VARIANTS) {
        let source = entry.c_source(&[]).unwrap().unwrap();
        let own = source.split_once("enum {").unwrap().1;
        let found = FUSED.iter().find(|name| own.contains(*name));
        assert_eq!(found.is_some(), entry.fuses(), "{}: {found:?}", entry.spec().name);
    }
}

/// Where an observation is the state, a GPU keeps the two in one place.
#[test]
fn states_that_are_observations_are_told() {
    let shape = Shape { time_limit: Some(200), autoreset: AutoReset::SameStep, block: 128 };
    for (name, shown) in [("cartpole", 1), ("mountaincar", 1), ("pendulum", 0), ("acrobot", 0)] {
        let source = operant::env::find(name).unwrap().cuda_source(&[], &shape).unwrap().unwrap();
        assert!(source.contains(&format!("#define SHOWN {shown}\n")), "{name}");
    }
}
