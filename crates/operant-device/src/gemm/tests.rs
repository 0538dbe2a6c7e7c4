//! Products against plain loops in f64, for every instruction set that this CPU has.

use super::*;
use operant_lanes::{Math, Width};
use proptest::prelude::*;

fn backends() -> Vec<Backend> {
    vec![
        Backend::portable(Width::One),
        Backend::new(Width::Eight, Math::Fast),
        Backend::new(Width::Sixteen, Math::Fast),
        Backend::new(Width::Auto, Math::Strict),
    ]
}

/// Values in -1..1 (a multiplicative congruential generator: L'Ecuyer 1999).
fn noise(len: usize, seed: u64) -> Vec<f32> {
    let mut state = 2 * seed + 1;
    let mut next = || {
        state = state.wrapping_mul(3_935_559_000_370_003_845);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Begin {
    Zero,
    Bias,
    Accumulate,
}

const BEGINS: [Begin; 3] = [Begin::Zero, Begin::Bias, Begin::Accumulate];

impl Begin {
    fn init(self, bias: &[f32]) -> Init<'_> {
        match self {
            Begin::Zero => Init::Zero,
            Begin::Bias => Init::Bias(bias),
            Begin::Accumulate => Init::Accumulate,
        }
    }
}

/// The sum, and the sum of its terms' sizes, to which rounding errors are relative.
fn expected(
    p: &Product,
    i: usize,
    j: usize,
    a: impl Fn(usize) -> f32,
    b: impl Fn(usize) -> f32,
    first: f32,
) -> (f64, f64) {
    let (mut sum, mut size) = (f64::from(first), f64::from(first).abs());
    for o in 0..p.outer {
        for q in 0..p.inner {
            let left = f64::from(a(i * p.a_row + o * p.a_outer + q * p.a_inner));
            let term = left * f64::from(b(o * p.b_outer + q * p.b_inner + j));
            sum += term;
            size += term.abs();
        }
    }
    (sum, size)
}

/// Compares C with plain loops, and what lies between its rows with what was there.
fn check(
    p: &Product,
    begin: Begin,
    bias: &[f32],
    before: &[f32],
    c: &[f32],
    term: impl Fn(usize, usize, f32) -> (f64, f64),
    unit: f64,
) {
    for (at, &got) in c.iter().enumerate() {
        let (i, j) = (at / p.c_row, at % p.c_row);
        if i >= p.m || j >= p.n {
            assert_eq!(got, before[at], "outside of C at row {i}, column {j}: {p:?}");
            continue;
        }
        let first = match begin {
            Begin::Zero => 0.0,
            Begin::Bias => bias[j],
            Begin::Accumulate => before[at],
        };
        let (want, size) = term(i, j, first);
        let error = (f64::from(got) - want).abs();
        assert!(error <= unit * size, "C[{i}, {j}] = {got}, wanted {want} ± {}: {p:?} {begin:?}", unit * size);
    }
}

/// Runs a product packed and unpacked on every backend. All must agree with f64; the two of a backend, bit for bit.
fn check_product(p: &Product, begin: Begin, seed: u64) {
    let k = p.outer * p.inner;
    let a = noise(reach(&[(p.m, p.a_row), (p.outer, p.a_outer), (p.inner, p.a_inner)]), seed);
    let b = noise(reach(&[(p.outer, p.b_outer), (p.inner, p.b_inner), (p.n, 1)]), seed + 1);
    let bias = noise(p.n, seed + 2);
    let before = noise(p.m * p.c_row + 3, seed + 3);
    let rows: Vec<f32> =
        (0..k * p.n).map(|at| b[at / p.n / p.inner * p.b_outer + at / p.n % p.inner * p.b_inner + at % p.n]).collect();
    let columns: Vec<f32> = (0..k * p.n).map(|at| rows[at % k * p.n + at / k]).collect();
    for backend in backends() {
        let mut c = before.clone();
        product(backend, p, &a, &b, begin.init(&bias), &mut c);
        // k roundings of half a unit in the last place, or two each where the CPU does not fuse.
        let unit = (k + 1) as f64 * f64::from(f32::EPSILON);
        check(p, begin, &bias, &before, &c, |i, j, first| expected(p, i, j, |at| a[at], |at| b[at], first), unit);
        for (src, row, col) in [(&rows, p.n, 1), (&columns, 1, k)] {
            let mut packed = vec![f32::NAN; packed_len(k, p.n)];
            pack(backend, k, p.n, src, row, col, &mut packed);
            let mut again = before.clone();
            product_packed(backend, p, &a, &packed, begin.init(&bias), &mut again);
            assert_eq!(c, again, "{} packed with row {row}, col {col}: {p:?}", backend.name());
        }
    }
}

/// A plain product with packed operands.
fn plain(m: usize, k: usize, n: usize) -> Product {
    Product { m, n, outer: 1, inner: k, a_row: k, a_inner: 1, b_inner: n, c_row: n, ..Default::default() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn any_strides(
        (m, n) in (1..30_usize, 1..150_usize),
        (outer, inner) in (1..5_usize, 1..40_usize),
        (a_row, a_outer, a_inner) in (1..60_usize, 0..90_usize, 1..60_usize),
        (b_outer, b_gap, c_gap) in (0..300_usize, 0..9_usize, 0..9_usize),
        begin in 0..3_usize,
        seed in any::<u32>(),
    ) {
        let p = Product { m, n, outer, inner, a_row, a_outer, a_inner, b_outer, b_inner: n + b_gap, c_row: n + c_gap };
        check_product(&p, BEGINS[begin], seed.into());
    }

    #[test]
    fn long_sums(m in 1..50_usize, k in 100..700_usize, n in 1..80_usize, begin in 0..3_usize, seed in any::<u32>()) {
        check_product(&plain(m, k, n), BEGINS[begin], seed.into());
    }

    #[test]
    fn few_columns(
        (m, n) in (1..40_usize, 1..10_usize),
        (outer, inner) in (1..5_usize, 1..50_usize),
        (a_row, a_outer) in (1..60_usize, 0..90_usize),
        (b_outer, b_gap, c_gap) in (0..300_usize, 0..9_usize, 0..9_usize),
        begin in 0..3_usize,
        seed in any::<u32>(),
    ) {
        let (b_inner, c_row) = (n + b_gap, n + c_gap);
        let p = Product { m, n, outer, inner, a_row, a_outer, a_inner: 1, b_outer, b_inner, c_row };
        check_product(&p, BEGINS[begin], seed.into());
    }

    #[test]
    fn strips_have_the_bits_of_products(
        (m, n, count) in (1..30_usize, 1..40_usize, 1..7_usize),
        (outer, inner, a_row) in (1..4_usize, 1..30_usize, 1..40_usize),
        (a_gap, c_gap) in (0..9_usize, 0..9_usize),
        (begin, relu) in (0..3_usize, any::<bool>()),
        seed in any::<u32>(),
    ) {
        // Strips of C interleave: a row of each in turn.
        let c_row = count * (n + c_gap);
        let p = Product { m, n, outer, inner, a_row, a_outer: a_gap + 7, a_inner: 1, b_outer: 0, b_inner: 0, c_row };
        let strips = Strips { count, a: inner + a_gap, c: n + c_gap };
        let a_len = reach(&[(count, strips.a), (m, a_row), (outer, p.a_outer), (inner, 1)]);
        let (a, b, bias) = (noise(a_len, seed.into()), noise(outer * inner * n, 1), noise(n, 2));
        let before = noise(m * c_row, 3);
        for backend in backends() {
            let mut packed = vec![f32::NAN; packed_len(outer * inner, n)];
            pack(backend, outer * inner, n, &b, n, 1, &mut packed);
            let (mut together, mut alone) = (before.clone(), before.clone());
            let init = BEGINS[begin].init(&bias);
            let raised = product_strips(backend, &p, strips, &a, &packed, init, relu, &mut together);
            for s in 0..count {
                product_packed(backend, &p, &a[s * strips.a..], &packed, init, &mut alone[s * strips.c..]);
            }
            prop_assert!(relu || !raised);
            for (_, x) in alone.iter_mut().enumerate().filter(|(at, _)| raised && at % strips.c < n) {
                *x = if *x < 0.0 { 0.0 } else { *x };
            }
            prop_assert_eq!(&together, &alone, "{}: {:?} {:?}", backend.name(), p, strips);
        }
    }

    #[test]
    fn tiles_any_strides(
        (m, n) in (1..100_usize, 1..90_usize),
        (outer, inner) in (1..4_usize, 1..100_usize),
        (a_row, a_outer) in (1..120_usize, 0..200_usize),
        c_gap in 0..9_usize,
        begin in 0..3_usize,
        by_columns in any::<bool>(),
        seed in any::<u32>(),
    ) {
        let c_row = n + c_gap;
        let p = Product { m, n, outer, inner, a_row, a_outer, a_inner: 1, b_outer: inner * n, b_inner: n, c_row };
        check_tiles(&p, BEGINS[begin], by_columns, seed.into());
    }

    #[test]
    fn rounding_rows_and_columns(rows in 1..70_usize, cols in 1..70_usize, gap in 0..5_usize, seed in any::<u32>()) {
        if !amx::available_to_tests() {
            return Ok(());
        }
        let src_row = cols + gap;
        let src = noise(rows * src_row, seed.into());
        let (wide, tall) = (cols.next_multiple_of(32), rows.next_multiple_of(32) + 32);
        let mut straight = vec![1; rows * wide];
        let mut turned = vec![1; cols * tall];
        amx::rows_to_bf16(rows, cols, &src, src_row, &mut straight, wide);
        amx::transpose_to_bf16(rows, cols, &src, src_row, &mut turned, tall);
        for (at, &got) in straight.iter().enumerate() {
            let (r, c) = (at / wide, at % wide);
            prop_assert_eq!(got, if c < cols { nearest(src[r * src_row + c]) } else { 0 });
        }
        for (at, &got) in turned.iter().enumerate() {
            let (c, r) = (at / tall, at % tall);
            let filled = rows.next_multiple_of(32);
            prop_assert_eq!(got, if r < rows { nearest(src[r * src_row + c]) } else { u16::from(r >= filled) });
        }
    }
}

#[test]
fn edges_of_blocks() {
    for m in [1, 2, 6, 7, 12, 13, 15, 29] {
        for n in [1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 127, 128, 130, 200] {
            check_product(&plain(m, 5, n), Begin::Bias, (m * n) as u64);
        }
    }
}

#[test]
fn no_terms_leave_the_start() {
    for (outer, inner) in [(0, 3), (3, 0)] {
        let p = Product { m: 3, n: 20, outer, inner, c_row: 20, ..Default::default() };
        for begin in BEGINS {
            check_product(&p, begin, 1);
            if amx::available_to_tests() {
                let (bias, before) = (noise(20, 1), noise(60, 2));
                let mut c = before.clone();
                amx::product(&p, &[], &[], begin.init(&bias), &mut c);
                check(&p, begin, &bias, &before, &c, |_, _, first| (first.into(), 1.0), 0.0);
            }
        }
    }
    product(Backend::new(Width::Auto, Math::Fast), &plain(0, 3, 3), &[], &[0.0; 9], Init::Zero, &mut []);
}

/// A convolution of a padded image with 3 by 3 taps and a stride of 2, from the definition.
#[test]
fn convolution_in_place() {
    let (height, width, channels, taps, stride, n) = (9, 11, 5, 3, 2, 20);
    let (rows, columns) = ((height - taps) / stride + 1, (width - taps) / stride + 1);
    let image = noise(height * width * channels, 1);
    let kernel = noise(taps * taps * channels * n, 2);
    let p = Product {
        m: columns,
        n,
        outer: taps,
        inner: taps * channels,
        a_row: stride * channels,
        a_outer: width * channels,
        a_inner: 1,
        b_outer: taps * channels * n,
        b_inner: n,
        c_row: n,
    };
    for backend in backends() {
        let mut packed = vec![0.0; packed_len(taps * taps * channels, n)];
        pack(backend, taps * taps * channels, n, &kernel, n, 1, &mut packed);
        let mut out = vec![0.0; rows * columns * n];
        for (y, row) in out.chunks_exact_mut(columns * n).enumerate() {
            product_packed(backend, &p, &image[y * stride * width * channels..], &packed, Init::Zero, row);
        }
        for (at, got) in out.iter().enumerate() {
            let (y, x, j) = (at / n / columns, at / n % columns, at % n);
            let mut want = 0.0;
            for (dy, dx, channel) in
                (0..taps * taps * channels).map(|t| (t / channels / taps, t / channels % taps, t % channels))
            {
                let pixel = image[((y * stride + dy) * width + x * stride + dx) * channels + channel];
                want += f64::from(pixel) * f64::from(kernel[((dy * taps + dx) * channels + channel) * n + j]);
            }
            assert!((f64::from(*got) - want).abs() < 1e-5, "pixel {y}, {x}, channel {j}: {got}, wanted {want}");
        }
    }
}

/// The same bits whether rows are computed together or alone, in short stretches of k or in one.
#[test]
fn splitting_rows_changes_no_bits() {
    for (k, n) in [(64, 64), (300, 70), (1000, 144), (3, 2), (31, 6)] {
        let p = plain(37, k, n);
        let (a, b) = (noise(37 * k, 1), noise(k * n, 2));
        for backend in backends() {
            let mut together = vec![0.0; 37 * n];
            product(backend, &p, &a, &b, Init::Zero, &mut together);
            let mut packed = vec![0.0; packed_len(k, n)];
            pack(backend, k, n, &b, n, 1, &mut packed);
            for (i, row) in together.chunks_exact(n).enumerate() {
                let mut alone = vec![0.0; n];
                product_packed(backend, &plain(1, k, n), &a[i * k..], &packed, Init::Zero, &mut alone);
                assert_eq!(row, alone, "{} row {i} of k {k}, n {n}", backend.name());
            }
        }
        if amx::available_to_tests() {
            let wide = k.next_multiple_of(32);
            let mut left = vec![0; 37 * wide];
            amx::rows_to_bf16(37, k, &a, k, &mut left, wide);
            let mut packed = vec![0; amx::packed_len(1, k, n)];
            amx::pack(1, k, n, &b, 0, n, 1, &mut packed);
            let mut together = vec![0.0; 37 * n];
            amx::product(&Product { a_row: wide, ..p }, &left, &packed, Init::Zero, &mut together);
            for (i, row) in together.chunks_exact(n).enumerate() {
                let mut alone = vec![0.0; n];
                amx::product(&plain(1, k, n), &left[i * wide..], &packed, Init::Zero, &mut alone);
                assert_eq!(row, alone, "tiles, row {i} of k {k}, n {n}");
            }
        }
    }
}

#[test]
#[should_panic(expected = "A holds 11 elements, wanted 12")]
fn short_operands_are_refused() {
    product(Backend::new(Width::Auto, Math::Fast), &plain(3, 4, 2), &[0.0; 11], &[0.0; 8], Init::Zero, &mut [0.0; 6]);
}

#[test]
#[should_panic(expected = "rows of C overlap")]
fn overlapping_results_are_refused() {
    let p = Product { c_row: 1, ..plain(3, 4, 2) };
    product(Backend::new(Width::Auto, Math::Fast), &p, &[0.0; 12], &[0.0; 8], Init::Zero, &mut [0.0; 6]);
}

/// The nearest bf16 by f64 arithmetic: ties go to the even one.
fn nearest(x: f32) -> u16 {
    let low = (x.to_bits() >> 16) as u16;
    let distance = |bits: u16| (f64::from(value(bits)) - f64::from(x)).abs();
    let high = low + 1;
    match distance(low).total_cmp(&distance(high)) {
        std::cmp::Ordering::Less => low,
        std::cmp::Ordering::Greater => high,
        std::cmp::Ordering::Equal => low + low % 2,
    }
}

fn value(bf16: u16) -> f32 {
    f32::from_bits(u32::from(bf16) << 16)
}

/// Tiles against plain loops over operands rounded to bf16.
fn check_tiles(p: &Product, begin: Begin, by_columns: bool, seed: u64) {
    if !amx::available_to_tests() {
        return;
    }
    let k = p.outer * p.inner;
    // Beyond what the sum takes, A is read in whole chunks.
    let a = noise(reach(&[(p.m, p.a_row), (p.outer, p.a_outer), (p.inner.next_multiple_of(32), 1)]), seed);
    let mut left = vec![0; a.len().next_multiple_of(32)];
    amx::rows_to_bf16(1, a.len(), &a, 0, &mut left, 0);
    let b = noise(k * p.n, seed + 1);
    let mut packed = vec![u16::MAX; amx::packed_len(p.outer, p.inner, p.n)];
    if by_columns {
        let columns: Vec<f32> = (0..k * p.n).map(|at| b[at % k * p.n + at / k]).collect();
        amx::pack(p.outer, p.inner, p.n, &columns, p.inner, 1, k, &mut packed);
    } else {
        amx::pack(p.outer, p.inner, p.n, &b, p.inner * p.n, p.n, 1, &mut packed);
    }
    // Strides of which neither is one: every other element of a source with gaps.
    let gaps: Vec<f32> = b.iter().flat_map(|&x| [x, f32::NAN]).collect();
    let mut again = vec![u16::MAX; packed.len()];
    amx::pack(p.outer, p.inner, p.n, &gaps, 2 * p.inner * p.n, 2 * p.n, 2, &mut again);
    assert_eq!(packed, again, "{p:?}");
    let (bias, before) = (noise(p.n, seed + 2), noise(p.m * p.c_row + 3, seed + 3));
    let mut c = before.clone();
    amx::product(p, &left, &packed, begin.init(&bias), &mut c);
    let left = |at: usize| value(nearest(a[at]));
    let right = |at: usize| value(nearest(b[at]));
    // Products of two bf16 are exact in f32; sums round as f32 does.
    let unit = (k + 2) as f64 * f64::from(f32::EPSILON) / 2.0;
    check(p, begin, &bias, &before, &c, |i, j, first| expected(p, i, j, left, right, first), unit);
}

#[test]
fn tiles_at_the_edges() {
    for m in [1, 15, 16, 17, 31, 32, 33, 64, 79, 128, 150] {
        for n in [1, 16, 17, 32, 40, 48, 64, 80] {
            check_tiles(&plain(m, 33, n), Begin::Accumulate, false, (m * n) as u64);
        }
    }
}

/// Products of different heights and nested holds, which configure tiles anew or keep them.
#[test]
fn held_tiles_serve_any_product() {
    if !amx::available_to_tests() {
        return;
    }
    let _tiles = amx::hold();
    for m in [32, 5, 16, 37, 5] {
        let _more = amx::hold();
        check_tiles(&plain(m, 70, 20), Begin::Bias, false, m as u64);
    }
    std::thread::spawn(|| check_tiles(&plain(20, 40, 33), Begin::Zero, true, 1)).join().unwrap();
    check_tiles(&plain(20, 300, 33), Begin::Accumulate, true, 2);
}

#[test]
fn long_sums_of_tiles() {
    for (outer, inner) in [(1, 700), (3, 290), (40, 20)] {
        let p = Product { outer, inner, a_outer: inner, b_outer: inner * 40, ..plain(70, outer * inner + 32, 40) };
        check_tiles(&p, Begin::Bias, true, inner as u64);
    }
}

#[test]
fn tiles_add_pairs_in_order() {
    if !amx::available_to_tests() {
        return;
    }
    // Sums of even and of odd terms of a chunk, each in f32, then their sum, then C (Intel SDM volume 2, TDPBF16PS).
    let (m, k, n) = (5, 96, 7);
    let (a, b) = (noise(m * k, 5), noise(k * n, 6));
    let (mut left, mut packed) = (vec![0; m * k], vec![0; amx::packed_len(1, k, n)]);
    amx::rows_to_bf16(m, k, &a, k, &mut left, k);
    amx::pack(1, k, n, &b, 0, n, 1, &mut packed);
    let mut c = noise(m * n, 7);
    let before = c.clone();
    amx::product(&plain(m, k, n), &left, &packed, Init::Accumulate, &mut c);
    for (at, got) in c.iter().enumerate() {
        let (i, j) = (at / n, at % n);
        let mut want = before[at];
        for chunk in (0..k).step_by(32) {
            let mut sums = [0.0_f32; 2];
            for q in chunk..chunk + 32 {
                sums[q % 2] = value(nearest(a[i * k + q])).mul_add(value(nearest(b[q * n + j])), sums[q % 2]);
            }
            want += sums[0] + sums[1];
        }
        assert_eq!(*got, want, "C[{i}, {j}]");
    }
}

/// Products of f32 on tiles against f64, with errors of sums in f32; the rows and columns that a product may have.
#[test]
fn thirds_are_as_exact_as_f32() {
    if !amx::available_to_tests() {
        return;
    }
    let shapes = [
        (1, 1, 32, 32),
        (5, 1, 33, 43),
        (16, 1, 64, 64),
        (37, 1, 64, 7),
        (96, 2, 40, 89),
        (70, 3, 192, 64),
        (33, 5, 32, 32),
    ];
    for (number, (m, outer, inner, n)) in shapes.into_iter().enumerate() {
        let (k, seed) = (outer * inner, number as u64 * 7);
        let p = Product {
            m,
            n,
            outer,
            inner,
            a_row: inner / 2,
            a_outer: m * inner,
            a_inner: 1,
            b_outer: inner * n,
            b_inner: n,
            c_row: n + 3,
        };
        let a = noise(reach(&[(p.m, p.a_row), (p.outer, p.a_outer), (p.inner, 1)]), seed);
        let b = noise(k * n, seed + 1);
        let columns: Vec<f32> = (0..k * n).map(|at| b[at % k * n + at / k]).collect();
        let spread: Vec<f32> = b.iter().flat_map(|x| [*x, f32::NAN]).collect();
        let (bias, before) = (noise(n, seed + 2), noise(m * p.c_row + 3, seed + 3));
        for begin in BEGINS {
            let packings = [(&b, inner * n, n, 1), (&columns, inner, 1, k), (&spread, 2 * inner * n, 2 * n, 2)];
            for (src, outer_stride, row, col) in packings {
                let mut packed = crate::Aligned::zeros(amx::thirds_len(outer, inner, n));
                amx::pack_thirds(outer, inner, n, src, outer_stride, row, col, &mut packed);
                let mut c = before.clone();
                amx::product_thirds(&p, &a, &packed, begin.init(&bias), &mut c);
                let unit = (k + 6) as f64 * f64::from(f32::EPSILON) / 2.0;
                check(
                    &p,
                    begin,
                    &bias,
                    &before,
                    &c,
                    |i, j, first| expected(&p, i, j, |at| a[at], |at| b[at], first),
                    unit,
                );
                // A row has the same bits whatever rows come with it.
                for i in [0, m / 2, m - 1] {
                    let mut alone = before[i * p.c_row..].to_vec();
                    amx::product_thirds(
                        &Product { m: 1, ..p },
                        &a[i * p.a_row..],
                        &packed,
                        begin.init(&bias),
                        &mut alone,
                    );
                    assert_eq!(alone[..n], c[i * p.c_row..][..n], "row {i} of {p:?}");
                }
            }
        }
    }
}

/// Every number is the sum of its parts to the last bit, so products by one are exact, and a large and a small term that meet
/// nothing else stay apart.
#[test]
fn thirds_lose_no_bit() {
    if !amx::available_to_tests() {
        return;
    }
    let (m, k, n) = (32, 32, 32);
    let mut one = vec![0.0; k * n];
    (0..k).for_each(|i| one[i * n + i] = 1.0);
    let mut packed = crate::Aligned::zeros(amx::thirds_len(1, k, n));
    amx::pack_thirds(1, k, n, &one, 0, n, 1, &mut packed);
    let bits = noise(m * k, 5);
    let a: Vec<f32> = bits.iter().enumerate().map(|(i, x)| x * 2f32.powi(i as i32 % 200 - 100)).collect();
    let mut c = vec![0.0; m * n];
    amx::product_thirds(&plain(m, k, n), &a, &packed, Init::Zero, &mut c);
    assert_eq!(c, a);
    for broken in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::from_bits(0x7fff_ffff), f32::from_bits(0xff80_0001)]
    {
        let mut a = a.clone();
        a[3 * k + 7] = broken;
        amx::product_thirds(&plain(m, k, n), &a, &packed, Init::Zero, &mut c);
        assert!(!c[3 * n + 7].is_finite(), "{broken:?} became {}", c[3 * n + 7]);
        assert_eq!(c[4 * n..], a[4 * k..], "other rows");
    }
}

#[test]
fn thirds_add_products_over_rows() {
    if !amx::available_to_tests() {
        return;
    }
    for (number, (rows, m, n)) in [
        (1, 16, 32),
        (31, 32, 16),
        (32, 64, 64),
        (97, 48, 80),
        (200, 16, 16),
        (0, 32, 32),
        (5, 0, 0),
        (5, 16, 0),
        (7, 32, 32),
        (128, 64, 32),
        (70, 64, 64),
        (65, 32, 96),
        (192, 128, 96),
        (33, 64, 128),
    ]
    .into_iter()
    .enumerate()
    {
        let (a_row, b_row, c_row) = (m + 5, n + 1, n + 2);
        let seed = 90 + number as u64;
        let (a, b, before) = (noise(rows * a_row, seed), noise(rows * b_row, seed + 1), noise(m * c_row, seed + 2));
        let p = Product {
            m,
            n,
            outer: 1,
            inner: rows,
            a_row: 1,
            a_inner: a_row,
            b_inner: b_row,
            c_row,
            ..Product::default()
        };
        for begin in [Begin::Zero, Begin::Accumulate] {
            let mut c = before.clone();
            let mut room = vec![u16::MAX; amx::outer_room(m, n)];
            let add = begin == Begin::Accumulate;
            amx::outer_thirds(add, rows, (m, n), (&a, a_row), (&b, b_row), &mut room, (&mut c, c_row));
            // Six products of parts, each rounded once.
            let unit = (rows + 6) as f64 * f64::from(f32::EPSILON) / 2.0;
            let term = |i, j, first| expected(&p, i, j, |at| a[at], |at| b[at], first);
            check(&p, begin, &[], &before, &c, term, unit);
        }
    }
}
