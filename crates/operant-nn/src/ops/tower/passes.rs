//! Passes over the rows of a tower besides its products: first and last layers, activations, and the way back through them.

use operant_lanes::{Float, Int, Lanes, Vectors, select};
use crate::real::Real;
use std::array;

/// Elements of a row of n numbers as they are kept.
#[inline(always)]
pub(super) fn kept_len<const WORDS: bool>(n: usize) -> usize {
    if WORDS { n / 2 } else { n }
}

/// Reads numbers `at..` of a kept row: two registers, the second one register's width after the first.
#[inline(always)]
fn read_kept<R: Real, L: Vectors<R>, const WORDS: bool>(row: &[R], at: usize) -> [L::F; 2] {
    if WORDS {
        let words = L::read(&row[at / 2..]).bits();
        [L::F::from_bits(words.shl(16)), L::F::from_bits(words & L::I::from(HIGH))]
    } else {
        [L::read(&row[at..]), L::read(&row[at + L::LANES..])]
    }
}

/// The upper half of a word.
const HIGH: i32 = 0xffff_0000_u32 as i32;

/// Writes what [`read_kept`] reads; rounds to nearest, halves away from zero.
#[inline(always)]
fn write_kept<R: Real, L: Vectors<R>, const WORDS: bool>([a, b]: [L::F; 2], row: &mut [R], at: usize) {
    if WORDS {
        let half = L::I::from(0x8000);
        let word = (a.bits() + half).join_upper(b.bits() + half);
        L::write(L::F::from_bits(word), &mut row[at / 2..]);
    } else {
        L::write(a, &mut row[at..]);
        L::write(b, &mut row[at + L::LANES..]);
    }
}

/// The activation's derivative from its result.
#[inline(always)]
fn derivative<L: Lanes, const RELU: bool>(y: L::F) -> L::F {
    if RELU { select::<_, L::F>(y.le(0.0), 0.0, 1.0) } else { (-y).mul_add(y, 1.0) }
}

/// Keeps the activation of `x·W + b` for a few inputs; `weights` is `[k, n]`.
#[inline(always)]
pub(super) fn first_layer<R: Real, L: Vectors<R>, const WORDS: bool, const RELU: bool>(
    x: &[R],
    weights: &[R],
    bias: &[R],
    kept: &mut [R],
) {
    let (len, k) = (kept_len::<WORDS>(bias.len()), weights.len() / bias.len());
    let rows = x.len() / k;
    let whole = rows / 4 * 4;
    for row in (0..whole).step_by(4) {
        let kept = &mut kept[row * len..][..4 * len];
        few_inputs::<R, L, 4, WORDS, RELU>(&x[row * k..][..4 * k], weights, bias, kept);
    }
    for row in whole..rows {
        let kept = &mut kept[row * len..][..len];
        few_inputs::<R, L, 1, WORDS, RELU>(&x[row * k..][..k], weights, bias, kept);
    }
}

/// [`first_layer`] for so many rows.
#[inline(always)]
fn few_inputs<R: Real, L: Vectors<R>, const ROWS: usize, const WORDS: bool, const RELU: bool>(
    x: &[R],
    weights: &[R],
    bias: &[R],
    kept: &mut [R],
) {
    let (n, len, pair) = (bias.len(), kept_len::<WORDS>(bias.len()), 2 * L::LANES);
    let k = x.len() / ROWS;
    // What does not fit would be left out by the loops below, which have no bounds to check.
    debug_assert!(n.is_multiple_of(pair) && kept.len() == ROWS * len);
    let x: [&[R]; ROWS] = array::from_fn(|row| &x[row * k..][..k]);
    let mut kept = kept.chunks_exact_mut(len);
    let mut kept: [_; ROWS] =
        array::from_fn(|_| kept.next().unwrap_or_default().chunks_exact_mut(kept_len::<WORDS>(pair)));
    for (i, bias) in bias.chunks_exact(pair).enumerate() {
        let mut sums = [read_kept::<R, L, false>(bias, 0); ROWS];
        for q in 0..k {
            let weights = read_kept::<R, L, false>(&weights[q * n + i * pair..][..pair], 0);
            for (x, sums) in x.iter().zip(&mut sums) {
                let x = L::splat(x[q]);
                *sums = [x.mul_add(weights[0], sums[0]), x.mul_add(weights[1], sums[1])];
            }
        }
        for (kept, [a, b]) in kept.iter_mut().zip(sums) {
            let Some(kept) = kept.next() else { return };
            let pair = [activate::<L, WORDS, RELU>(a), activate::<L, WORDS, RELU>(b)];
            write_kept::<R, L, WORDS>(pair, kept, 0);
        }
    }
}

/// The activation; for words as exact as they need.
#[inline(always)]
fn activate<L: Lanes, const WORDS: bool, const RELU: bool>(x: L::F) -> L::F {
    if RELU {
        L::F::from(0.0).max(x)
    } else if WORDS {
        x.tanh_coarse()
    } else {
        x.tanh_fast()
    }
}

/// Keeps the activation of `z`: as words in `kept`, else in place; with `BOTH` in place too.
#[inline(always)]
pub(super) fn keep<R: Real, L: Vectors<R>, const WORDS: bool, const BOTH: bool, const RELU: bool>(
    z: &mut [R],
    kept: &mut [R],
) {
    debug_assert!(z.len().is_multiple_of(2 * L::LANES) && (!WORDS || 2 * kept.len() >= z.len()));
    let mut kept = kept.chunks_exact_mut(L::LANES);
    for z in z.chunks_exact_mut(2 * L::LANES) {
        let [a, b] = read_kept::<R, L, false>(z, 0);
        let pair = [activate::<L, WORDS, RELU>(a), activate::<L, WORDS, RELU>(b)];
        if WORDS {
            let Some(kept) = kept.next() else { return };
            write_kept::<R, L, true>(pair, kept, 0);
        }
        if BOTH || !WORDS {
            write_kept::<R, L, false>(pair, z, 0);
        }
    }
}

/// [`keep`], and a last layer of `C` outputs: `y = W·act(z) + b`. Activations and products take turns of a few rows: the constants of one
/// and the sums of the other do not fit in the registers together.
#[inline(always)]
pub(super) fn last_layer<R: Real, L: Vectors<R>, const C: usize, const WORDS: bool, const RELU: bool>(
    z: &mut [R],
    kept: &mut [R],
    weight: &[R],
    bias: &[R],
    y: &mut [R],
) {
    /// Rows of a turn.
    const TURN: usize = 8;
    let n = weight.len() / C;
    let (rows, len) = (y.len() / C, kept_len::<WORDS>(n));
    let bias: [R; C] = array::from_fn(|c| bias[c]);
    for first in (0..rows).step_by(TURN) {
        let turn = TURN.min(rows - first);
        let z = &mut z[first * n..][..turn * n];
        let y = &mut y[first * C..][..turn * C];
        keep::<R, L, WORDS, true, RELU>(z, if WORDS { &mut kept[first * len..][..turn * len] } else { &mut [] });
        match C {
            _ if turn < TURN => products::<R, L, C, 1>(z, weight, &bias, y),
            1 => products::<R, L, C, 8>(z, weight, &bias, y),
            2 => products::<R, L, C, 4>(z, weight, &bias, y),
            _ => products::<R, L, C, 2>(z, weight, &bias, y),
        }
    }
}

/// `y = W·x + b` for `C` outputs, so many rows at once: eight sums at most.
#[inline(always)]
fn products<R: Real, L: Vectors<R>, const C: usize, const ROWS: usize>(
    x: &[R],
    weight: &[R],
    bias: &[R; C],
    y: &mut [R],
) {
    let n = weight.len() / C;
    for (x, y) in x.chunks_exact(ROWS * n).zip(y.chunks_exact_mut(ROWS * C)) {
        products_of_rows::<R, L, C, ROWS>(x, weight, bias, y);
    }
}

/// [`products`] of so many rows.
#[inline(always)]
fn products_of_rows<R: Real, L: Vectors<R>, const C: usize, const ROWS: usize>(
    x: &[R],
    weight: &[R],
    bias: &[R; C],
    y: &mut [R],
) {
    let (n, pair) = (weight.len() / C, 2 * L::LANES);
    let mut sums = [[L::F::from(0.0); C]; ROWS];
    let mut rows: [_; ROWS] = array::from_fn(|row| x[row * n..][..n].chunks_exact(pair));
    let mut columns: [_; C] = array::from_fn(|c| weight[c * n..][..n].chunks_exact(pair));
    'all: loop {
        let mut weights = [[L::F::from(0.0); 2]; C];
        for (weights, column) in weights.iter_mut().zip(&mut columns) {
            let Some(column) = column.next() else { break 'all };
            *weights = read_kept::<R, L, false>(column, 0);
        }
        for (row, sums) in rows.iter_mut().zip(&mut sums) {
            let Some(row) = row.next() else { break 'all };
            let x = read_kept::<R, L, false>(row, 0);
            for (weights, sum) in weights.iter().zip(sums) {
                *sum = x[1].mul_add(weights[1], x[0].mul_add(weights[0], *sum));
            }
        }
    }
    let mut fours = [[L::F::from(0.0); 4]; 2];
    for i in 0..ROWS * C {
        fours[i / 4][i % 4] = sums[i / C][i % C];
    }
    for (i, (y, four)) in y.chunks_mut(4).zip(fours).enumerate() {
        let four = L::four_sums(four);
        for (j, y) in y.iter_mut().enumerate() {
            *y = bias[(4 * i + j) % C] + four[j];
        }
    }
}

/// The way back through a last layer of `C` outputs and the activation before it: from `dy` to the gradient `dz` before
/// the activation, with the last weight's gradient and that of the bias before the activation.
#[inline(always)]
pub(super) fn last_layer_back<R: Real, L: Vectors<R>, const C: usize, const WORDS: bool, const RELU: bool>(
    dy: &[R],
    weight: &[R],
    kept: &[R],
    dz: &mut [R],
    dweight: &mut [R],
    dbias: &mut [R],
) {
    let n = weight.len() / C;
    let len = kept_len::<WORDS>(n);
    for at in (0..n).step_by(2 * L::LANES) {
        let zero = [L::F::from(0.0); 2];
        let mut weights = [zero; C];
        for (c, w) in weights.iter_mut().enumerate() {
            *w = read_kept::<R, L, false>(&weight[c * n..], at);
        }
        let (mut dweights, mut sum) = ([zero; C], zero);
        for ((dy, kept), dz) in dy.chunks_exact(C).zip(kept.chunks_exact(len)).zip(dz.chunks_exact_mut(len)) {
            let y = read_kept::<R, L, WORDS>(kept, at);
            let mut g = zero;
            for c in 0..C {
                let d = L::splat(dy[c]);
                for i in 0..2 {
                    g[i] = if c == 0 { d * weights[c][i] } else { d.mul_add(weights[c][i], g[i]) };
                    dweights[c][i] = d.mul_add(y[i], dweights[c][i]);
                }
            }
            for i in 0..2 {
                g[i] = g[i] * derivative::<L, RELU>(y[i]);
                sum[i] = sum[i] + g[i];
            }
            write_kept::<R, L, WORDS>(g, dz, at);
        }
        for (c, sums) in dweights.into_iter().enumerate() {
            add_pair::<R, L>(sums, &mut dweight[c * n + at..]);
        }
        add_pair::<R, L>(sum, &mut dbias[at..]);
    }
}

#[inline(always)]
fn add_pair<R: Real, L: Vectors<R>>(sums: [L::F; 2], to: &mut [R]) {
    let was = read_kept::<R, L, false>(to, 0);
    write_kept::<R, L, false>([was[0] + sums[0], was[1] + sums[1]], to, 0);
}

/// The way back through an activation: `z` becomes the gradient before it, whose column sums are added to `dbias`; with
/// `WORDS` it is kept as words in `dz`, if there is room.
#[inline(always)]
pub(super) fn activation_back<R: Real, L: Vectors<R>, const WORDS: bool, const RELU: bool>(
    kept: &[R],
    z: &mut [R],
    dz: &mut [R],
    dbias: &mut [R],
) {
    let n = dbias.len();
    let len = kept_len::<WORDS>(n);
    let as_words = WORDS && !dz.is_empty();
    for at in (0..n).step_by(2 * L::LANES) {
        let mut sum = [L::F::from(0.0); 2];
        for (row, (kept, z)) in kept.chunks_exact(len).zip(z.chunks_exact_mut(n)).enumerate() {
            let y = read_kept::<R, L, WORDS>(kept, at);
            let mut g = read_kept::<R, L, false>(z, at);
            for i in 0..2 {
                g[i] = g[i] * derivative::<L, RELU>(y[i]);
                sum[i] = sum[i] + g[i];
            }
            if as_words {
                write_kept::<R, L, true>(g, &mut dz[row * len..][..len], at);
            } else {
                write_kept::<R, L, false>(g, z, at);
            }
        }
        add_pair::<R, L>(sum, &mut dbias[at..]);
    }
}

/// The way back through an activation after a first layer of `K` inputs: from the gradient `z` after it to those of the layer's
/// weights (`[K, n]`) and bias. What lies between is kept nowhere.
#[inline(always)]
pub(super) fn first_layer_back<R: Real, L: Vectors<R>, const K: usize, const WORDS: bool, const RELU: bool>(
    x: &[R],
    kept: &[R],
    z: &[R],
    dweight: &mut [R],
    dbias: &mut [R],
) {
    let n = dbias.len();
    let len = kept_len::<WORDS>(n);
    for at in (0..n).step_by(2 * L::LANES) {
        let zero = [L::F::from(0.0); 2];
        let (mut dweights, mut sum) = ([zero; K], zero);
        for ((x, kept), z) in x.chunks_exact(K).zip(kept.chunks_exact(len)).zip(z.chunks_exact(n)) {
            let y = read_kept::<R, L, WORDS>(kept, at);
            let mut g = read_kept::<R, L, false>(z, at);
            for i in 0..2 {
                g[i] = g[i] * derivative::<L, RELU>(y[i]);
                sum[i] = sum[i] + g[i];
            }
            for (q, dweight) in dweights.iter_mut().enumerate() {
                let x = L::splat(x[q]);
                *dweight = [x.mul_add(g[0], dweight[0]), x.mul_add(g[1], dweight[1])];
            }
        }
        for (q, sums) in dweights.into_iter().enumerate() {
            add_pair::<R, L>(sums, &mut dweight[q * n + at..]);
        }
        add_pair::<R, L>(sum, &mut dbias[at..]);
    }
}

/// Copies rows by the register.
#[inline(always)]
pub(super) fn copy_row<R: Real, L: Vectors<R>>(from: &[R], to: &mut [R]) {
    let whole = from.len() / L::LANES * L::LANES;
    for at in (0..whole).step_by(L::LANES) {
        L::write(L::read(&from[at..]), &mut to[at..]);
    }
    // A call that copies would take longer than the few numbers of an input or an output.
    let to = &mut to[whole..from.len()];
    L::write_part(L::read_part(&from[whole..]), to);
}
