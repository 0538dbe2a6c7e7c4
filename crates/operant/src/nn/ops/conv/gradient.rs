//! Gradients of a convolution's image and weight.

use super::Sizes;
use super::padded::{Border, Padded, wrap};
use crate::device::gemm::Product;
use crate::nn::op::Packing;
use crate::nn::real::{Compute, Left, PackSet, Packed, PackedMut, Real, Room, Scratch, Start, View};

/// Bytes of a staged part of the image from which the gradient of the weight is made.
const PART_BYTES: usize = 256 << 10;

/// Along one axis: taps k = r + s·t, t < count, meet the input pixels u = s·q + r at the output pixels q − t.
#[derive(Clone, Copy, Debug)]
struct Phase {
    r: usize,
    count: usize,
    /// First q, and one past the last, whose u is wanted.
    first: usize,
    end: usize,
}

/// Along one axis: which padded pixels are wanted, and what is staged of the outputs for them.
#[derive(Clone, Copy, Debug)]
struct Axis {
    stride: usize,
    kernel: usize,
    low: usize,
    high: usize,
}

impl Axis {
    fn phase(&self, r: usize) -> Phase {
        let s = self.stride;
        let count = self.kernel.saturating_sub(r).div_ceil(s);
        let from = |u: usize| u.saturating_sub(r).div_ceil(s);
        Phase { r, count, first: from(self.low), end: from(self.high) }
    }

    /// Most taps of a phase.
    fn taps(&self) -> usize {
        self.kernel.div_ceil(self.stride)
    }

    /// One past the last q of any phase.
    fn end(&self) -> usize {
        self.high.div_ceil(self.stride)
    }
}

fn axis(s: &Sizes, i: usize) -> Axis {
    let (low, high) =
        if s.circular { (0, s.size[i] + 2 * s.padding) } else { (s.padding, s.padding + s.size[i]) };
    Axis { stride: s.stride, kernel: s.kernel[i], low, high }
}

/// For every group, for every phase of rows and of pixels, the taps in turned order as `[(ty), (tx, o), c]`.
pub(super) fn packings(s: &Sizes) -> Vec<Packing> {
    let (taps, step, kw) = (s.taps() as isize, s.stride as isize, s.kernel[1]);
    let mut list = Vec::new();
    for group in 0..s.groups {
        for (ry, rx) in (0..s.stride).flat_map(|ry| (0..s.stride).map(move |rx| (ry, rx))) {
            let (ty, tx) = (axis(s, 0).phase(ry).count, axis(s, 1).phase(rx).count);
            let last = (ry + s.stride * ty.saturating_sub(1)) * kw + rx + s.stride * tx.saturating_sub(1);
            list.push(Packing {
                input: 1,
                lens: [ty, tx, s.og, s.cg],
                strides: [-step * kw as isize, -step, s.cg as isize * taps, taps],
                offset: group * s.og * s.cg * s.taps() + last,
                backward: true,
                exact: s.exact(),
            });
        }
    }
    list
}

fn dz_border(s: &Sizes) -> Border {
    let (y, x) = (axis(s, 0), axis(s, 1));
    Border {
        size: s.out,
        channels: s.o,
        depth: s.og,
        before: [y.taps() - 1, x.taps() - 1],
        height: y.end() + y.taps() - 1,
        width: x.end() + x.taps() - 1,
        circular: false,
        rows: y.taps(),
    }
}

/// A row of the padded image's gradient, where it is not written in place.
fn fold_len(s: &Sizes) -> usize {
    if s.circular { (s.size[1] + 2 * s.padding) * s.cg } else { 0 }
}

pub(super) fn image_scratch<R: Real>(s: &Sizes, compute: Compute) -> Scratch {
    dz_border(s).scratch::<R>(compute).and(Scratch::real(fold_len(s)))
}

/// One row of one phase: pixels of the padded image's gradient that the same taps reach.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    group: usize,
    pub(super) ry: usize,
    pub(super) rx: usize,
    /// Taps down and across.
    pub(super) taps: [usize; 2],
    pub(super) pixels: usize,
    /// From a staged row to the next.
    pub(super) row_stride: usize,
    /// From a result to the next.
    pub(super) step: usize,
}

/// What multiplies staged gradients by the turned kernel.
pub(super) trait Turn<R> {
    /// Writes a part's pixels, or adds to them.
    fn run(&self, s: &Sizes, part: Part, left: Left<R>, add: bool, to: &mut [R]);
}

/// Turned kernels as packed matrices.
pub(super) struct Products<'a, R> {
    pub(super) compute: Compute,
    pub(super) packed: PackSet<'a, R>,
}

impl<R: Real> Turn<R> for Products<'_, R> {
    #[inline(always)]
    fn run(&self, s: &Sizes, part: Part, left: Left<R>, add: bool, to: &mut [R]) {
        let product = Product {
            m: part.pixels,
            n: s.cg,
            outer: part.taps[0],
            inner: part.taps[1] * s.og,
            a_row: s.og,
            a_outer: part.row_stride,
            a_inner: 1,
            b_outer: 0,
            b_inner: 0,
            c_row: part.step,
        };
        let matrix = s.groups + (part.group * s.stride + part.ry) * s.stride + part.rx;
        let start = if add { Start::Add } else { Start::Zero };
        R::product(self.compute, &product, left, self.packed.get(matrix), start, to);
    }
}

/// The gradient of the image, added to `dx` or replacing it.
#[inline(always)]
pub(super) fn image<R: Real, T: Turn<R>>(
    s: &Sizes,
    turn: &T,
    compute: Compute,
    dz: &[R],
    add: bool,
    mut room: Room<R>,
    dx: &mut [R],
) {
    let (y, x) = (axis(s, 0), axis(s, 1));
    let fold = room.take(Scratch::real(fold_len(s))).real;
    if s.circular && !add {
        dx.fill(R::default());
    }
    let row_len = s.size[1] * s.c;
    for (dz, dx) in dz.chunks_exact(s.y_len()).zip(dx.chunks_exact_mut(s.x_len())) {
        for group in 0..s.groups {
            let mut padded = Padded::new(dz_border(s), compute, dz, group * s.og, room.again());
            for q in y.low / s.stride..y.end() {
                let at = padded.rows(q, y.taps());
                for ry in 0..s.stride {
                    let u = q * s.stride + ry;
                    if u < y.low || u >= y.high {
                        continue;
                    }
                    let (pixel, channel) = if s.circular { (s.cg, 0) } else { (s.c, group * s.cg) };
                    let row = wrap(u, s.padding, s.size[0]) * row_len;
                    let to = if s.circular { &mut fold[..] } else { &mut dx[row..][..row_len] };
                    let rows = y.phase(ry).count;
                    for rx in 0..s.stride {
                        let Phase { r, count, first, end } = x.phase(rx);
                        if first >= end {
                            continue;
                        }
                        let to = &mut to[(first * s.stride + r - x.low) * pixel + channel..];
                        let add = add && !s.circular;
                        let step = s.stride * pixel;
                        if count == 0 || rows == 0 {
                            if !add {
                                to.chunks_mut(step).take(end - first).for_each(|p| p[..s.cg].fill(R::default()));
                            }
                            continue;
                        }
                        let place = at + (y.taps() - rows) * padded.stride + (first + x.taps() - count) * s.og;
                        let taps = [rows, count];
                        let part =
                            Part { group, ry, rx, taps, pixels: end - first, row_stride: padded.stride, step };
                        turn.run(s, part, padded.left().from(place), add, to);
                    }
                    if s.circular {
                        let to = &mut dx[row..][..row_len];
                        for (pixel, from) in fold.chunks_exact(s.cg).enumerate() {
                            let at = wrap(pixel, s.padding, s.size[1]) * s.c + group * s.cg;
                            to[at..at + s.cg].iter_mut().zip(from).for_each(|(to, from)| *to += *from);
                        }
                    }
                }
            }
        }
    }
}

/// Output rows from which one part of the weight's gradient is made.
fn part_rows(s: &Sizes) -> usize {
    let row = (s.size[1] + 2 * s.padding) * s.cg * 4 * s.stride;
    (PART_BYTES / row).clamp(1, s.out[0])
}

/// Padded rows that so many output rows see.
fn seen_rows(s: &Sizes, rows: usize) -> usize {
    (rows - 1) * s.stride + s.kernel[0]
}

/// For bf16: the padded image transposed, so that the pixels of a row lie together; those of each place modulo the stride
/// by themselves. `[row, phase, channel, pixel]`.
struct Turned {
    pixel_stride: usize,
    row_stride: usize,
}

fn turned(s: &Sizes) -> Turned {
    let pixel_stride = (s.size[1] + 2 * s.padding).div_ceil(s.stride).next_multiple_of(32);
    Turned { pixel_stride, row_stride: s.stride * s.cg * pixel_stride }
}

fn exact(compute: Compute) -> Compute {
    compute.or_exact(true)
}

pub(super) fn weight_scratch<R: Real>(s: &Sizes, compute: Compute) -> Scratch {
    let sum = Scratch::real(s.groups * s.taps() * s.cg * s.og);
    let rows = part_rows(s);
    let image = if R::tiled(compute) {
        let turned = R::pieces_scratch(compute, seen_rows(s, rows) * turned(s).row_stride);
        let row = s.x_border(s.cg, 1).scratch::<R>(exact(compute));
        turned.and(row).and(R::packed_len(compute, rows, s.out[1], s.og))
    } else {
        let right = R::left_scratch(compute, View::dense(rows, s.out[1] * s.o));
        s.x_border(s.cg, seen_rows(s, rows)).scratch::<R>(compute).and(right)
    };
    sum.and(image)
}

/// Adds to the gradient of the weight.
pub(super) fn weight<R: Real>(s: &Sizes, compute: Compute, x: &[R], dz: &[R], mut room: Room<R>, dw: &mut [R]) {
    let group_len = s.taps() * s.cg * s.og;
    let sum = room.take(Scratch::real(s.groups * group_len)).real;
    sum.fill(R::default());
    for (x, dz) in x.chunks_exact(s.x_len()).zip(dz.chunks_exact(s.y_len())) {
        for (group, sum) in sum.chunks_exact_mut(group_len).enumerate() {
            if R::tiled(compute) {
                weight_tiled(s, compute, group, x, dz, room.again(), sum);
            } else {
                weight_plain(s, compute, group, x, dz, room.again(), sum);
            }
        }
    }
    // From [group, tap, c, o] to PyTorch's [group, o, c, tap].
    for (sum, dw) in sum.chunks_exact(group_len).zip(dw.chunks_exact_mut(group_len)) {
        for (tap, sum) in sum.chunks_exact(s.cg * s.og).enumerate() {
            for (c, sum) in sum.chunks_exact(s.og).enumerate() {
                let to = dw[c * s.taps() + tap..].iter_mut().step_by(s.cg * s.taps());
                to.zip(sum).for_each(|(to, sum)| *to += *sum);
            }
        }
    }
}

/// Sums over pixels with the image read down its columns.
fn weight_plain<R: Real>(
    s: &Sizes,
    compute: Compute,
    group: usize,
    x: &[R],
    dz: &[R],
    mut room: Room<R>,
    sum: &mut [R],
) {
    let (most, [ho, wo], [kh, kw]) = (part_rows(s), s.out, s.kernel);
    let border = s.x_border(s.cg, seen_rows(s, most));
    let staged = room.take(border.scratch::<R>(compute));
    let mut padded = Padded::new(border, compute, x, group * s.cg, staged);
    for first in (0..ho).step_by(most) {
        let rows = most.min(ho - first);
        let view = View::dense(rows, wo * s.o);
        let right = R::left(compute, view, &dz[first * wo * s.o..], room.again());
        let at = padded.rows(first * s.stride, seen_rows(s, rows));
        let (Left::Real(left), Left::Real(right)) = (padded.left(), right) else {
            unreachable!("only tiles are of another type");
        };
        for (ky, sum) in sum.chunks_exact_mut(kw * s.cg * s.og).enumerate().take(kh) {
            let product = Product {
                m: kw * s.cg,
                n: s.og,
                outer: rows,
                inner: wo,
                a_row: 1,
                a_outer: s.stride * padded.stride,
                a_inner: s.stride * s.cg,
                b_outer: wo * s.o,
                b_inner: s.o,
                c_row: s.og,
            };
            let left = &left[at + ky * padded.stride..];
            R::product_plain(compute, &product, left, &right[group * s.og..], Start::Add, sum);
        }
    }
}

/// Sums over pixels in tiles: a product per tap, of the transposed image and the packed gradient.
fn weight_tiled<R: Real>(
    s: &Sizes,
    compute: Compute,
    group: usize,
    x: &[R],
    dz: &[R],
    mut room: Room<R>,
    sum: &mut [R],
) {
    let (most, [ho, wo], kw) = (part_rows(s), s.out, s.kernel[1]);
    let Turned { pixel_stride, row_stride } = turned(s);
    let width = s.size[1] + 2 * s.padding;
    let mut image = room.take(R::pieces_scratch(compute, seen_rows(s, most) * row_stride));
    let border = s.x_border(s.cg, 1);
    let row_room = room.take(border.scratch::<R>(exact(compute)));
    let right = room.take(R::packed_len(compute, most, wo, s.og));
    let mut padded = Padded::new(border, exact(compute), x, group * s.cg, row_room);
    let mut staged = 0;
    // Without phases and wrapped borders rows are transposed straight into place. Only zeros are written around them.
    let direct = s.stride == 1 && !s.circular;
    if direct {
        image.clear(0, seen_rows(s, most) * row_stride + 32);
    }
    for first in (0..ho).step_by(most) {
        let rows = most.min(ho - first);
        let from = first * s.stride;
        // Rows that the last part saw too are moved to the front.
        let kept = staged.max(from) - from;
        if kept > 0 {
            let begin = (from - (first - most) * s.stride) * row_stride;
            image.half.copy_within(begin..begin + kept * row_stride, 0);
        }
        for row in kept..seen_rows(s, rows) {
            if direct {
                let (at, y) = (row * row_stride, from + row);
                if y < s.padding || y >= s.padding + s.size[0] {
                    image.clear(at, row_stride);
                } else {
                    let view = View { rows: s.size[1], cols: s.cg, stride: s.c };
                    let from = &x[(y - s.padding) * s.size[1] * s.c + group * s.cg..];
                    R::stage_transposed(compute, view, from, pixel_stride, at + s.padding, &mut image);
                }
                continue;
            }
            let at = padded.rows(from + row, 1);
            let Left::Real(pixels) = padded.left() else { unreachable!("staged as elements") };
            for phase in 0..s.stride.min(width) {
                let view = View { rows: (width - phase).div_ceil(s.stride), cols: s.cg, stride: s.stride * s.cg };
                let to = row * row_stride + phase * s.cg * pixel_stride;
                R::stage_transposed(compute, view, &pixels[at + phase * s.cg..], pixel_stride, to, &mut image);
            }
        }
        staged = from + seen_rows(s, rows);
        image.clear(seen_rows(s, rows) * row_stride, 32);
        let out = PackedMut { real: &mut right.real[..], half: &mut right.half[..] };
        R::pack(compute, rows, wo, s.og, &dz[first * wo * s.o + group * s.og..], s.o, 1, out);
        for (tap, sum) in sum.chunks_exact_mut(s.cg * s.og).enumerate() {
            let (ky, kx) = (tap / kw, tap % kw);
            let product = Product {
                m: s.cg,
                n: s.og,
                outer: rows,
                inner: wo,
                a_row: pixel_stride,
                a_outer: s.stride * row_stride,
                a_inner: 1,
                b_outer: 0,
                b_inner: 0,
                c_row: s.og,
            };
            let at = ky * row_stride + kx % s.stride * s.cg * pixel_stride + kx / s.stride;
            let left = Left::Half(&image.half[at..]);
            R::product(compute, &product, left, Packed::Half(right.half), Start::Add, sum);
        }
    }
}
