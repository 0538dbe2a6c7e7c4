//! Every lane operation gives the bits of the one-lane reference, on ordinary and on strange inputs, at every width.

use operant_lanes::{Backend, Float, Int, Kernel, Lanes, Math, PRELUDE, Recording, Select, Simd, Sym, Width};
use proptest::prelude::*;

static WORDS: [i32; 5] = [7, -1, i32::MAX, 0, 12];
static FLOATS: [f32; 40] = {
    let mut table = [0.0; 40];
    let mut i = 0;
    while i < 40 {
        table[i] = i as f32 * 1.25 - 3.0;
        i += 1;
    }
    table
};

/// All operations on three inputs of 16 words, each read as integers and as floats.
struct Operations<'a>([&'a [i32; 16]; 3]);

/// The results in order; `-> i` marks those that are integers and not floats or truth values.
#[rustfmt::skip]
const NAMES: [&str; 65] = [
    "add_f", "sub_f", "mul_f", "div_f", "neg", "lt_f", "le_f", "eq_f", "gt_f", "ge_f", "min", "max", "clamp", "abs",
    "sqrt", "floor", "round", "mul_add", "to_int -> i", "bits -> i", "from_bits", "select_f", "add_f scalar",
    "div_f scalar", "add_i -> i", "sub_i -> i", "mul_i -> i", "and -> i", "or -> i", "xor -> i", "eq_i -> i",
    "lt_i -> i", "gt_i -> i", "ge_i -> i", "le_i -> i", "lt_unsigned -> i", "shl -> i", "shr -> i", "sar -> i",
    "mul_high -> i", "mul_low -> i", "to_float", "lookup -> i", "lookup_f", "select_i -> i", "mask and", "mask or",
    "mask xor", "mask not", "sin", "cos", "exp", "log", "tanh", "pow", "reciprocal",
    "rsqrt", "exp_fast", "tanh_fast", "erf", "sigmoid", "silu", "softplus", "gelu", "gelu_grad",
];

/// Every operation on three words, each read as an integer and as a float.
#[inline(always)]
fn results<L: Lanes>(i: L::I, j: L::I, k: L::I) -> [L::I; NAMES.len()] {
    let (x, y, z) = (L::F::from_bits(i), L::F::from_bits(j), L::F::from_bits(k));
    let (high, low) = i.mul_wide(j);
    let (sin, cos) = x.sin_cos();
    let (p, q) = (x.lt(y), i.lt(k));
    [
        (x + y).bits(),
        (x - y).bits(),
        (x * y).bits(),
        (x / y).bits(),
        (-x).bits(),
        flag::<L>(x.lt(y)),
        flag::<L>(x.le(y)),
        flag::<L>(x.eq(y)),
        flag::<L>(x.gt(y)),
        flag::<L>(x.ge(y)),
        x.min(y).bits(),
        x.max(y).bits(),
        x.clamp(-1.5, z).bits(),
        x.abs().bits(),
        x.sqrt().bits(),
        x.floor().bits(),
        x.round().bits(),
        x.mul_add(y, z).bits(),
        x.to_int(),
        x.bits(),
        L::F::from_bits(j).bits(),
        L::F::select(p, y, z).bits(),
        (x + 0.1).bits(),
        (x / 3.0).bits(),
        i + j,
        i - j,
        i * j,
        i & j,
        i | j,
        i ^ j,
        flag::<L>(i.eq(j)),
        flag::<L>(i.lt(j)),
        flag::<L>(i.gt(j)),
        flag::<L>(i.ge(j)),
        flag::<L>(i.le(j)),
        flag::<L>(i.lt_unsigned(j)),
        i.shl(5),
        i.shr(5),
        i.sar(5),
        high,
        low,
        i.to_float().bits(),
        (i & 7).lookup(&WORDS),
        (j & 63).lookup_f(&FLOATS).bits(),
        L::I::select(q, j, k),
        flag::<L>(p & q),
        flag::<L>(p | q),
        flag::<L>(p ^ q),
        flag::<L>(!p),
        sin.bits(),
        cos.bits(),
        x.exp().bits(),
        x.log().bits(),
        x.tanh().bits(),
        x.pow(y).bits(),
        x.reciprocal().bits(),
        x.rsqrt().bits(),
        x.exp_fast().bits(),
        x.tanh_fast().bits(),
        x.erf().bits(),
        x.sigmoid().bits(),
        x.silu().bits(),
        x.softplus().bits(),
        x.gelu().bits(),
        x.gelu_grad().bits(),
    ]
}

impl Kernel for Operations<'_> {
    type Out = Vec<[i32; 16]>;
    type Home = Self;

    #[inline(always)]
    fn run<L: Simd>(self) -> Vec<[i32; 16]> {
        let mut all = vec![[0; 16]; NAMES.len()];
        for offset in (0..16).step_by(L::WIDTH) {
            let [i, j, k] = self.0;
            let values = results::<L>(L::load(&i[offset..]), L::load(&j[offset..]), L::load(&k[offset..]));
            for (out, value) in all.iter_mut().zip(values) {
                L::store(value, &mut out[offset..]);
            }
        }
        all
    }
}

#[inline(always)]
fn flag<L: Lanes>(mask: L::M) -> L::I {
    L::I::select(mask, L::I::from(1), L::I::from(0))
}

/// Widths of rows: each that has a way of its own, whole and broken tiles of 16.
const ROW_WIDTHS: [usize; 15] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 21, 32, 40];

/// What the adapters use: masks, packed stores, rows.
struct Stores<'a>([&'a [i32; 16]; 2]);

impl Kernel for Stores<'_> {
    type Out = (u32, Vec<u8>, Vec<i32>, Vec<Vec<f32>>);
    type Home = Self;

    #[inline(always)]
    fn run<L: Simd>(self) -> Self::Out {
        let (mut bits, mut bytes, mut packed) = (0, vec![9; 16], vec![0; 32]);
        let mut rows: Vec<Vec<f32>> = ROW_WIDTHS.map(|width| vec![0.0; 16 * width]).to_vec();
        let mut count = 0;
        for offset in (0..16).step_by(L::WIDTH) {
            let (i, j) = (L::load(&self.0[0][offset..]), L::load(&self.0[1][offset..]));
            let mask = i.lt(j);
            let lanes = L::mask_bits(mask);
            bits |= lanes << offset;
            L::store_mask(mask, &mut bytes[offset..]);
            count += L::store_packed(i, lanes, &mut packed[count..]);
            for (rows, width) in rows.iter_mut().zip(ROW_WIDTHS) {
                let mut columns = [L::F::from(0.0); 40];
                for (c, column) in columns.iter_mut().enumerate() {
                    *column = ((i & 0xffff) + c as i32 * 0x10000).to_float();
                }
                L::store_rows(&columns[..width], &mut rows[offset * width..(offset + L::WIDTH) * width]);
            }
        }
        packed.truncate(count);
        (bits, bytes, packed, rows)
    }
}

fn strict() -> [Backend; 4] {
    let wide = [Width::Eight, Width::Sixteen];
    [
        Backend::portable(wide[0]),
        Backend::portable(wide[1]),
        Backend::new(wide[0], Math::Strict),
        Backend::new(wide[1], Math::Strict),
    ]
}

/// NaNs may differ in sign and payload: x86 and LLVM choose freely which operand's to keep.
fn canonical(word: i32) -> i32 {
    if f32::from_bits(word as u32).is_nan() { 0x7fc0_0000 } else { word }
}

/// Whether a result may be a NaN.
fn is_float(name: &str) -> bool {
    !name.ends_with("-> i")
}

/// Words that are ordinary floats, small integers, any bits, or IEEE's strange corners.
fn word() -> impl Strategy<Value = i32> {
    let strange = [
        0.0f32,
        -0.0,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        f32::MIN_POSITIVE,
        1e-42,
        f32::MAX,
        2147483648.0,
        -2147483648.0,
        0.5,
        1.5,
        2.5,
    ];
    prop_oneof![
        4 => (-100.0f32..100.0).prop_map(|x| x.to_bits() as i32),
        2 => -20i32..20,
        2 => any::<i32>(),
        1 => proptest::sample::select(strange.to_vec()).prop_map(|x| x.to_bits() as i32),
    ]
}

fn words() -> impl Strategy<Value = [i32; 16]> {
    proptest::collection::vec(word(), 16).prop_map(|words| words.try_into().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn operations_agree(a in words(), b in words(), c in words()) {
        let reference = Backend::portable(Width::One).run(Operations([&a, &b, &c]));
        for backend in strict() {
            let results = backend.run(Operations([&a, &b, &c]));
            for ((name, wanted), got) in NAMES.iter().zip(&reference).zip(&results) {
                for lane in 0..16 {
                    let (wanted, got) = if is_float(name) { (canonical(wanted[lane]), canonical(got[lane])) } else { (wanted[lane], got[lane]) };
                    prop_assert_eq!(got, wanted, "{} on {} lanes ({}), inputs {:x} {:x} {:x}",
                        name, backend.width(), backend.name(), a[lane], b[lane], c[lane]);
                }
            }
        }
    }

    #[test]
    fn stores_agree(a in words(), b in words()) {
        let reference = Backend::portable(Width::One).run(Stores([&a, &b]));
        prop_assert_eq!(&reference.1, &(0..16).map(|i| u8::from(a[i] < b[i])).collect::<Vec<_>>());
        prop_assert_eq!(&reference.2, &(0..16).filter(|&i| a[i] < b[i]).map(|i| a[i]).collect::<Vec<_>>());
        for backend in strict() {
            prop_assert_eq!(&backend.run(Stores([&a, &b])), &reference, "{} lanes ({})", backend.width(), backend.name());
        }
    }
}

/// On a CPU with the wide instructions the widths above must really use them.
#[test]
#[cfg(target_arch = "x86_64")]
fn wide_instructions_are_used_where_there() {
    if is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("avx512vl") {
        assert_eq!(Backend::new(Width::Auto, Math::Strict).name(), "avx512");
    }
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        assert_eq!(Backend::new(Width::Eight, Math::Strict).name(), "avx2");
    }
}

/// x·x minus the rounded x·x is what rounding lost: only a fused operation sees it.
#[test]
#[cfg(target_arch = "x86_64")]
fn fast_mode_fuses_and_strict_mode_does_not() {
    let x = 1.0f32 + f32::EPSILON;
    let [a, c] = [[x.to_bits() as i32; 16], [(-(x * x)).to_bits() as i32; 16]];
    let at = NAMES.iter().position(|name| *name == "mul_add").unwrap();
    let result = |backend: Backend| f32::from_bits(backend.run(Operations([&a, &a, &c]))[at][0] as u32);
    let (fused, rounded) = (x.mul_add(x, -(x * x)), 0.0);
    assert_ne!(fused, rounded);
    assert_eq!(result(Backend::portable(Width::One)), rounded);
    for width in [Width::Eight, Width::Sixteen] {
        assert_eq!(result(Backend::new(width, Math::Strict)), rounded);
        if Backend::new(width, Math::Fast).name() != "portable" {
            assert_eq!(result(Backend::new(width, Math::Fast)), fused);
        }
    }
}

/// The recorder prints every operation as C that gives the reference's bits.
#[test]
fn printed_operations_agree() {
    type I = <Sym as Lanes>::I;
    let (recording, values) =
        Recording::record(|| results::<Sym>(I::input("in[0]"), I::input("in[1]"), I::input("in[2]")));
    let outputs: Vec<_> = values.iter().enumerate().map(|(n, &value)| (format!("out[{n}]"), value.into())).collect();
    let count = NAMES.len();
    let source = format!(
        "{PRELUDE}\n{}\n#include <stdio.h>\nstatic void run(const int32_t *in, int32_t *out) {{\n{}}}\n\
         int main(void) {{ int32_t in[3], out[{count}]; \
         while (fread(in, 4, 3, stdin) == 3) {{ run(in, out); fwrite(out, 4, {count}, stdout); }} return 0; }}\n",
        Recording::functions(),
        recording.print(&outputs)
    );
    let folder = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("lanes-c");
    std::fs::create_dir_all(&folder).unwrap();
    let (file, program, inputs) = (folder.join("ops.c"), folder.join("ops"), folder.join("inputs"));
    std::fs::write(&file, source).unwrap();
    let compiler = std::process::Command::new("cc")
        .args(["-std=c11", "-O2", "-ffp-contract=off", "-o"])
        .args([&program, &file])
        .arg("-lm")
        .output()
        .expect("the system's C compiler, cc, proves the printed code: install gcc or clang");
    assert!(compiler.status.success(), "{}", String::from_utf8_lossy(&compiler.stderr));

    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut draw = || proptest::strategy::ValueTree::current(&word().new_tree(&mut runner).unwrap());
    let triples: Vec<[i32; 3]> = (0..4000).map(|_| [draw(), draw(), draw()]).collect();
    let bytes: Vec<u8> = triples.iter().flatten().flat_map(|word| word.to_le_bytes()).collect();
    std::fs::write(&inputs, bytes).unwrap();
    let output = std::process::Command::new(program).stdin(std::fs::File::open(inputs).unwrap()).output().unwrap();
    assert_eq!(output.stdout.len(), triples.len() * count * 4);
    for (triple, printed) in triples.iter().zip(output.stdout.chunks_exact(count * 4)) {
        let [a, b, c] = triple.map(|word| [word; 16]);
        let reference = Backend::portable(Width::One).run(Operations([&a, &b, &c]));
        for ((name, wanted), got) in NAMES.iter().zip(&reference).zip(printed.as_chunks::<4>().0) {
            let (got, wanted) = (i32::from_le_bytes(*got), wanted[0]);
            let (got, wanted) = if is_float(name) { (canonical(got), canonical(wanted)) } else { (got, wanted) };
            assert_eq!(got, wanted, "{name} of {triple:x?}");
        }
    }
}
