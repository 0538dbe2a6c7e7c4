//! Gradients of a convolution's image and weight.

use super::Sizes;
use super::padded::{Border, Padded, wrap};
use super::STRIP_BYTES;
use operant_device::gemm::{Product, Strips};
use crate::op::{Packing, ReadBy};
use crate::real::{Compute, Left, PackSet, Packed, PackedMut, Real, Room, Scratch, Start, View};
use std::ops::Range;

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

/// Whether the gradient of a circular border is made by itself and added to that of the image. Where outputs are as many as
/// inputs, their gradient repeats as the image does, and no border is needed.
fn folds(s: &Sizes) -> bool {
    s.circular && (s.stride > 1 || s.out != s.size)
}

fn axis(s: &Sizes, i: usize) -> Axis {
    let (low, high) = if folds(s) { (0, s.size[i] + 2 * s.padding) } else { (s.padding, s.padding + s.size[i]) };
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
                read_by: ReadBy::FirstGradient,
                exact: s.exact(),
                words: false,
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
        circular: s.circular && !folds(s),
        rows: y.taps() + strips(s) - 1,
    }
}

/// Rows of each phase that are made in one go. Where borders are folded, one.
fn strips(s: &Sizes) -> usize {
    let row = 4 * s.size[1] * s.c * s.stride;
    if folds(s) { 1 } else { (STRIP_BYTES / row).clamp(1, axis(s, 0).end()) }
}

/// A row of the padded image's gradient, where it is not written in place.
fn fold_len(s: &Sizes) -> usize {
    if folds(s) { (s.size[1] + 2 * s.padding) * s.cg } else { 0 }
}

pub(super) fn image_scratch<R: Real>(s: &Sizes, compute: Compute) -> Scratch {
    dz_border(s).scratch::<R>(compute).and(Scratch::real(fold_len(s)))
}

/// Some rows of one phase: pixels of the padded image's gradient that the same taps reach.
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
    /// From a row to the next.
    pub(super) strips: Strips,
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
        R::product_strips(self.compute, &product, part.strips, left, self.packed.get(matrix), start, false, to);
    }
}

/// Makes the gradient of images.
pub(super) struct Image<'a, R> {
    padded: Padded<'a, R>,
    fold: &'a mut [R],
}

impl<'a, R: Real> Image<'a, R> {
    /// `room` is at least as long as [`image_scratch`] says.
    pub(super) fn new(s: &Sizes, compute: Compute, mut room: Room<'a, R>) -> Self {
        let fold = room.take(Scratch::real(fold_len(s))).real;
        Self { padded: Padded::new(dz_border(s), compute, room), fold }
    }

    /// The gradient of an image, added to `dx` or replacing it, as far as it follows from this part of the rows of `dz`.
    /// Parts come in order; with groups all rows are one.
    #[inline(always)]
    pub(super) fn run<T: Turn<R>>(
        &mut self,
        s: &Sizes,
        turn: &T,
        (dz, part): (&[R], Range<usize>),
        add: bool,
        dx: &mut [R],
    ) {
        let y = axis(s, 0);
        if folds(s) && !add && part.start == 0 {
            dx.fill(R::default());
        }
        let low = y.low / s.stride;
        let end = if part.end == s.out[0] { y.end() } else { part.end.min(y.end()) };
        for group in 0..s.groups {
            if part.start == 0 {
                self.padded.begin(group * s.og);
            }
            for first in (low.max(part.start)..end).step_by(strips(s)) {
                self.rows(s, turn, group, (dz, first..end.min(first + strips(s))), add, dx);
            }
        }
    }

    /// Rows q of every phase.
    #[inline(always)]
    fn rows<T: Turn<R>>(
        &mut self,
        s: &Sizes,
        turn: &T,
        group: usize,
        (dz, all): (&[R], Range<usize>),
        add: bool,
        dx: &mut [R],
    ) {
        let Self { padded, fold } = self;
        let (y, x) = (axis(s, 0), axis(s, 1));
        let row_len = s.size[1] * s.c;
        let (pixel, channel) = if folds(s) { (s.cg, 0) } else { (s.c, group * s.cg) };
        let (add, step) = (add && !folds(s), s.stride * pixel);
        let at = padded.rows(dz, all.start, y.taps() + all.len() - 1);
        for ry in 0..s.stride {
            let Phase { count: rows, first, end, .. } = y.phase(ry);
            let (q, end) = (first.max(all.start), end.min(all.end));
            if q >= end {
                continue;
            }
            let at = at + (q - all.start) * padded.stride;
            let strips = Strips { count: end - q, a: padded.stride, c: s.stride * row_len };
            let row = wrap(q * s.stride + ry, s.padding, s.size[0]) * row_len;
            let to = if folds(s) { &mut fold[..] } else { &mut dx[row..] };
            for rx in 0..s.stride {
                let Phase { r, count, first, end } = x.phase(rx);
                if first >= end {
                    continue;
                }
                let to = &mut to[(first * s.stride + r - x.low) * pixel + channel..];
                if count == 0 || rows == 0 {
                    for to in to.chunks_mut(strips.c).take(if add { 0 } else { strips.count }) {
                        to.chunks_mut(step).take(end - first).for_each(|p| p[..s.cg].fill(R::default()));
                    }
                    continue;
                }
                let place = at + (y.taps() - rows) * padded.stride + (first + x.taps() - count) * s.og;
                let (taps, pixels, row_stride) = ([rows, count], end - first, padded.stride);
                let part = Part { group, ry, rx, taps, pixels, row_stride, step, strips };
                turn.run(s, part, padded.left(dz).from(place), add, to);
            }
            if folds(s) {
                let to = &mut dx[row..][..row_len];
                for (pixel, from) in fold.chunks_exact(s.cg).enumerate() {
                    let at = wrap(pixel, s.padding, s.size[1]) * s.c + group * s.cg;
                    to[at..at + s.cg].iter_mut().zip(from).for_each(|(to, from)| *to += *from);
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

/// Output rows whose gradient is still in a near cache for all that read it, if they take turns.
pub(super) fn turn_rows(s: &Sizes) -> usize {
    if s.groups == 1 { part_rows(s) } else { s.out[0] }
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
        let turned = R::pieces_scratch(compute, s.seen_rows(rows) * turned(s).row_stride);
        let row = s.x_border(s.cg, 1).scratch::<R>(exact(compute));
        turned.and(row).and(R::packed_len(compute, rows, s.out[1], s.og))
    } else if in_place::<R>(s, compute) {
        Scratch::real(wide_len(s))
    } else {
        let right = R::left_scratch(compute, View::dense(rows, s.out[1] * s.o));
        s.x_border(s.cg, s.seen_rows(rows)).scratch::<R>(compute).and(Scratch::real(wide_len(s))).and(right)
    };
    sum.and(image)
}

/// Makes the gradient of the weight.
pub(super) struct Weight<'a, R> {
    compute: Compute,
    /// `[group, tap, c, o]`.
    sum: &'a mut [R],
    /// `[group, ky, number, pixel, o]` with [`pixels_beside`], empty without.
    wide: &'a mut [R],
    /// For products that are neither tiled nor in place.
    padded: Option<Padded<'a, R>>,
    /// For tiles: rows of the padded image that were staged.
    staged: usize,
    room: Room<'a, R>,
}

impl<'a, R: Real> Weight<'a, R> {
    /// `room` is at least as long as [`weight_scratch`] says.
    pub(super) fn new(s: &Sizes, compute: Compute, mut room: Room<'a, R>) -> Self {
        let sum = room.take(Scratch::real(s.groups * s.taps() * s.cg * s.og)).real;
        sum.fill(R::default());
        let border = s.x_border(s.cg, s.seen_rows(part_rows(s)));
        let padded = if R::tiled(compute) || in_place::<R>(s, compute) {
            None
        } else {
            Some(Padded::new(border, compute, room.take(border.scratch::<R>(compute))))
        };
        let wide = room.take(Scratch::real(if R::tiled(compute) { 0 } else { wide_len(s) })).real;
        wide.fill(R::default());
        Self { compute, sum, wide, padded, staged: 0, room }
    }

    /// Adds a part of the rows of one image's `dz`. Parts come in order; with groups all rows are one.
    pub(super) fn add(&mut self, s: &Sizes, x: &[R], (dz, part): (&[R], Range<usize>)) {
        let group_len = s.taps() * s.cg * s.og;
        let plain = if self.wide.is_empty() { &mut *self.sum } else { &mut *self.wide };
        match &mut self.padded {
            None if !R::tiled(self.compute) => weight_in_place(s, self.compute, x, (dz, part), plain),
            None => {
                for (group, sum) in self.sum.chunks_exact_mut(group_len).enumerate() {
                    for first in part.clone().step_by(part_rows(s)) {
                        if first == 0 {
                            self.staged = 0;
                        }
                        let staged = &mut self.staged;
                        weight_tiled(s, self.compute, group, x, (dz, first), staged, self.room.again(), sum);
                    }
                }
            }
            Some(padded) => weight_plain(s, self.compute, padded, x, (dz, part), self.room.again(), plain),
        }
    }

    /// Adds the gradient, turned from `[group, tap, c, o]` to PyTorch's `[group, o, c, tap]`, to `dw`.
    pub(super) fn finish(self, s: &Sizes, dw: &mut [R]) {
        let (row, numbers) = (pixels_beside(s) * s.og, s.kernel[1] * s.cg);
        let seen = self.wide.chunks_exact(seen_numbers(s, pixels_beside(s)) * row);
        for (sum, wide) in self.sum.chunks_exact_mut(numbers * s.og).zip(seen) {
            for (number, sum) in sum.chunks_exact_mut(s.og).enumerate() {
                for pixel in 0..pixels_beside(s) {
                    let from = &wide[(number + pixel * s.stride * s.cg) * row + pixel * s.og..];
                    sum.iter_mut().zip(from).for_each(|(sum, x)| *sum += *x);
                }
            }
        }
        let group_len = s.taps() * s.cg * s.og;
        for (sum, dw) in self.sum.chunks_exact(group_len).zip(dw.chunks_exact_mut(group_len)) {
            for (tap, sum) in sum.chunks_exact(s.cg * s.og).enumerate() {
                for (c, sum) in sum.chunks_exact(s.og).enumerate() {
                    let to = dw[c * s.taps() + tap..].iter_mut().step_by(s.cg * s.taps());
                    to.zip(sum).for_each(|(to, sum)| *to += *sum);
                }
            }
        }
    }
}

/// Output pixels that are taken side by side as columns of one, where few channels would leave registers empty.
fn pixels_beside(s: &Sizes) -> usize {
    let fitting = if s.groups == 1 { [8, 4, 2].into_iter().find(|pixels| pixels * s.o <= 16) } else { None };
    fitting.filter(|&pixels| s.out[1].is_multiple_of(pixels)).unwrap_or(1)
}

/// Numbers of a row of the padded image that so many output pixels side by side see.
fn seen_numbers(s: &Sizes, pixels: usize) -> usize {
    ((pixels - 1) * s.stride + s.kernel[1]) * s.cg
}

/// Whether the gradient of the weight needs no border: zeros add nothing to it.
fn in_place<R: Real>(s: &Sizes, compute: Compute) -> bool {
    R::in_place(compute) && s.groups == 1 && !s.circular
}

/// Along one axis: the taps at which an output pixel sees the image and not its border.
fn seen_taps(s: &Sizes, axis: usize, pixel: usize) -> Range<usize> {
    let (low, high) = (s.padding, s.size[axis] + s.padding);
    let at = pixel * s.stride;
    low.saturating_sub(at).min(s.kernel[axis])..high.saturating_sub(at).min(s.kernel[axis])
}

/// Along one axis: the output pixels, among `of`, that see the image at a tap.
fn seeing_pixels(s: &Sizes, axis: usize, tap: usize, of: Range<usize>) -> Range<usize> {
    let first = s.padding.saturating_sub(tap).div_ceil(s.stride);
    let end = (s.size[axis] + s.padding).saturating_sub(tap).div_ceil(s.stride);
    first.max(of.start)..end.min(of.end)
}

/// Sums over pixels with the image read down its columns where it lies: by runs of output pixels that see the same taps.
fn weight_in_place<R: Real>(
    s: &Sizes,
    compute: Compute,
    x: &[R],
    (dz, all): (&[R], Range<usize>),
    sum: &mut [R],
) {
    let (most, wo, kw, beside) = (part_rows(s), s.out[1], s.kernel[1], pixels_beside(s));
    for part in all.clone().step_by(most) {
        let part = part..all.end.min(part + most);
        let mut first = 0;
        while first < wo {
            let taps = seen_taps(s, 1, first);
            let whole = taps == (0..kw);
            let end = if whole { seeing_pixels(s, 1, kw - 1, first..wo).end } else { first + 1 };
            // Pixels side by side, then those that are left over.
            let middle = first + if whole { (end - first) / beside * beside } else { 0 };
            for (beside, run) in [(beside, first..middle), (1, middle..end)] {
                if !run.is_empty() && !taps.is_empty() {
                    weight_run(s, compute, x, (dz, part.clone()), (run, beside), taps.clone(), sum);
                }
            }
            first = end;
        }
    }
}

/// One run of output pixels in some rows, so many side by side, at taps that all of them see.
fn weight_run<R: Real>(
    s: &Sizes,
    compute: Compute,
    x: &[R],
    (dz, part): (&[R], Range<usize>),
    (run, beside): (Range<usize>, usize),
    taps: Range<usize>,
    sum: &mut [R],
) {
    let (wo, width) = (s.out[1], s.size[1]);
    let most_beside = pixels_beside(s);
    let columns = most_beside * s.o;
    for (ky, sum) in sum.chunks_exact_mut(seen_numbers(s, most_beside) * columns).enumerate() {
        let rows = seeing_pixels(s, 0, ky, part.clone());
        if rows.is_empty() {
            continue;
        }
        let product = Product {
            m: seen_numbers(s, beside) - (s.kernel[1] - taps.len()) * s.c,
            n: beside * s.o,
            outer: rows.len(),
            inner: run.len() / beside,
            a_row: 1,
            a_outer: s.stride * width * s.c,
            a_inner: beside * s.stride * s.c,
            b_outer: wo * s.o,
            b_inner: beside * s.o,
            c_row: columns,
        };
        let (y, pixel) = (rows.start * s.stride + ky - s.padding, run.start * s.stride + taps.start - s.padding);
        let (left, right) = (&x[(y * width + pixel) * s.c..], &dz[(rows.start * wo + run.start) * s.o..]);
        R::product_plain(compute, &product, left, right, Start::Add, &mut sum[taps.start * s.c * columns..]);
    }
}

/// Sums over pixels with the image read down its columns. Pixels side by side each have their own columns of the sum, in
/// which the rows that they do not see are not used.
fn weight_plain<R: Real>(
    s: &Sizes,
    compute: Compute,
    padded: &mut Padded<R>,
    x: &[R],
    (dz, part): (&[R], Range<usize>),
    mut room: Room<R>,
    sum: &mut [R],
) {
    let (most, [_, wo]) = (part_rows(s), s.out);
    let beside = pixels_beside(s);
    let (seen, columns) = (seen_numbers(s, beside), beside * s.og);
    for (group, sum) in sum.chunks_exact_mut(s.kernel[0] * seen * columns).enumerate() {
        if part.start == 0 {
            padded.begin(group * s.cg);
        }
        for first in part.clone().step_by(most) {
            let rows = most.min(part.end - first);
            let view = View::dense(rows, wo * s.o);
            let right = R::left(compute, view, &dz[first * wo * s.o..], room.again());
            let at = padded.rows(x, first * s.stride, s.seen_rows(rows));
            let (Left::Real(left), Left::Real(right)) = (padded.left(x), right) else {
                unreachable!("only tiles are of another type");
            };
            for (ky, sum) in sum.chunks_exact_mut(seen * columns).enumerate() {
                let product = Product {
                    m: seen,
                    n: columns,
                    outer: rows,
                    inner: wo / beside,
                    a_row: 1,
                    a_outer: s.stride * padded.stride,
                    a_inner: beside * s.stride * s.cg,
                    b_outer: wo * s.o,
                    b_inner: beside * s.o,
                    c_row: columns,
                };
                let left = &left[at + ky * padded.stride..];
                R::product_plain(compute, &product, left, &right[group * s.og..], Start::Add, sum);
            }
        }
    }
}

/// Sums of pixels side by side.
fn wide_len(s: &Sizes) -> usize {
    let beside = pixels_beside(s);
    if beside == 1 { 0 } else { s.kernel[0] * seen_numbers(s, beside) * beside * s.o }
}

/// Sums over some pixels in tiles: a product per tap, of the transposed image and the packed gradient from row `first` on.
#[expect(clippy::too_many_arguments)]
fn weight_tiled<R: Real>(
    s: &Sizes,
    compute: Compute,
    group: usize,
    x: &[R],
    (dz, first): (&[R], usize),
    staged: &mut usize,
    mut room: Room<R>,
    sum: &mut [R],
) {
    let (most, [ho, wo], kw) = (part_rows(s), s.out, s.kernel[1]);
    let Turned { pixel_stride, row_stride } = turned(s);
    let width = s.size[1] + 2 * s.padding;
    let mut image = room.take(R::pieces_scratch(compute, s.seen_rows(most) * row_stride));
    let border = s.x_border(s.cg, 1);
    let row_room = room.take(border.scratch::<R>(exact(compute)));
    let right = room.take(R::packed_len(compute, most, wo, s.og));
    let mut padded = Padded::new(border, exact(compute), row_room);
    padded.begin(group * s.cg);
    // Without phases and wrapped borders rows are transposed straight into place. Only zeros are written around them.
    let direct = s.stride == 1 && !s.circular;
    if direct && first == 0 {
        image.clear(0, s.seen_rows(most) * row_stride + 32);
    }
    let rows = most.min(ho - first);
    let from = first * s.stride;
    // Rows that the last part saw too are moved to the front.
    let kept = (*staged).max(from) - from;
    if kept > 0 {
        let begin = (from - (first - most) * s.stride) * row_stride;
        image.half.copy_within(begin..begin + kept * row_stride, 0);
    }
    for row in kept..s.seen_rows(rows) {
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
        let at = padded.rows(x, from + row, 1);
        let Left::Real(pixels) = padded.left(x) else { unreachable!("staged as elements") };
        for phase in 0..s.stride.min(width) {
            let view = View { rows: (width - phase).div_ceil(s.stride), cols: s.cg, stride: s.stride * s.cg };
            let to = row * row_stride + phase * s.cg * pixel_stride;
            R::stage_transposed(compute, view, &pixels[at + phase * s.cg..], pixel_stride, to, &mut image);
        }
    }
    *staged = from + s.seen_rows(rows);
    image.clear(s.seen_rows(rows) * row_stride, 32);
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
