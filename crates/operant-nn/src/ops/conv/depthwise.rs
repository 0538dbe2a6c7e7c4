//! Convolutions whose channels do not see each other, one output each: lanes run over channels, no products are made.

use super::Sizes;
use super::gradient::{self, Part, Turn};
use super::padded::Padded;
use operant_lanes::{Float, Vectors};
use crate::elementwise::activate;
use crate::op::{Act, Backward, Forward};
use crate::real::{Compute, Left, Real, Scratch};
use std::marker::PhantomData;

/// Pixels that share a reading of the weights.
const PIXELS: usize = 4;

pub(super) fn scratch<R: Real>(s: &Sizes, compute: Compute) -> Scratch {
    let (compute, whole) = (compute.or_exact(true), s.as_one_group());
    let image = whole.x_border(s.c, s.kernel[0]).scratch::<R>(compute);
    Scratch::real(s.taps() * s.c).and(image.or(gradient::image_scratch::<R>(&whole, compute)))
}

/// From PyTorch's `[channel, tap]` to `[tap, channel]`.
fn taps_first<R: Real>(s: &Sizes, weight: &[R], to: &mut [R]) {
    for (tap, to) in to.chunks_exact_mut(s.c).enumerate() {
        to.iter_mut().enumerate().for_each(|(channel, to)| *to = weight[channel * s.taps() + tap]);
    }
}

/// Reads `width` elements, all lanes if `WHOLE`.
#[inline(always)]
fn read<R: Real, L: Vectors<R>, const WHOLE: bool>(x: &[R], width: usize) -> L::F {
    if WHOLE { L::read(x) } else { L::read_part(&x[..width]) }
}

#[inline(always)]
fn write<R: Real, L: Vectors<R>, const WHOLE: bool>(value: L::F, to: &mut [R], width: usize) {
    if WHOLE {
        L::write(value, to);
    } else {
        L::write_part(value, &mut to[..width]);
    }
}

/// A row of pixels, each a sum over taps.
#[derive(Clone, Copy)]
struct TapRow {
    channels: usize,
    pixels: usize,
    /// From a result to the next, and from its first staged pixel to the next one's.
    to_step: usize,
    from_step: usize,
    from_row: usize,
    taps: [usize; 2],
    /// Tap of the first staged pixel, and what a step down and across adds to it.
    first_tap: usize,
    tap_row: isize,
    tap_step: isize,
}

/// What sums begin with.
#[derive(Clone, Copy)]
enum Begin<'a, R> {
    Zero,
    Bias(&'a [R]),
    Add,
}

impl TapRow {
    #[inline(always)]
    fn run<R: Real, L: Vectors<R>>(self, from: &[R], weight: &[R], begin: Begin<R>, to: &mut [R]) {
        let mut channel = 0;
        while channel + L::LANES <= self.channels {
            self.lanes::<R, L, true>(channel, L::LANES, from, weight, begin, to);
            channel += L::LANES;
        }
        if channel < self.channels {
            self.lanes::<R, L, false>(channel, self.channels - channel, from, weight, begin, to);
        }
    }

    #[inline(always)]
    fn lanes<R: Real, L: Vectors<R>, const WHOLE: bool>(
        self,
        channel: usize,
        width: usize,
        from: &[R],
        weight: &[R],
        begin: Begin<R>,
        to: &mut [R],
    ) {
        for first in (0..self.pixels).step_by(PIXELS) {
            let pixels = PIXELS.min(self.pixels - first);
            let mut sums = [L::F::from(0.0); PIXELS];
            for (i, sum) in sums.iter_mut().enumerate().take(pixels) {
                match begin {
                    Begin::Zero => {}
                    Begin::Bias(bias) => *sum = read::<R, L, WHOLE>(&bias[channel..], width),
                    Begin::Add => *sum = read::<R, L, WHOLE>(&to[(first + i) * self.to_step + channel..], width),
                }
            }
            for y in 0..self.taps[0] {
                for x in 0..self.taps[1] {
                    let tap = self.first_tap as isize + y as isize * self.tap_row + x as isize * self.tap_step;
                    let factor = read::<R, L, WHOLE>(&weight[tap as usize * self.channels + channel..], width);
                    let at = first * self.from_step + y * self.from_row + x * self.channels + channel;
                    for (i, sum) in sums.iter_mut().enumerate().take(pixels) {
                        let pixel = read::<R, L, WHOLE>(&from[at + i * self.from_step..], width);
                        *sum = pixel.mul_add(factor, *sum);
                    }
                }
            }
            for (i, &sum) in sums.iter().enumerate().take(pixels) {
                write::<R, L, WHOLE>(sum, &mut to[(first + i) * self.to_step + channel..], width);
            }
        }
    }
}

#[inline(always)]
pub(super) fn forward<R: Real, L: Vectors<R>>(s: &Sizes, act: Act, c: &mut Forward<R>, bias: &[R]) {
    let ([ho, wo], compute, whole) = (s.out, c.compute.or_exact(true), s.as_one_group());
    let weight = c.room.take(Scratch::real(s.taps() * s.c)).real;
    taps_first(s, c.x[1], weight);
    let mut padded = Padded::new(whole.x_border(s.c, s.kernel[0]), compute, c.room.again());
    for (x, y) in c.x[0].chunks_exact(s.x_len()).zip(c.y[0].chunks_exact_mut(s.y_len())) {
        padded.begin(0);
        let taps = TapRow {
            channels: s.c,
            pixels: wo,
            to_step: s.c,
            from_step: s.stride * s.c,
            from_row: padded.stride,
            taps: s.kernel,
            first_tap: 0,
            tap_row: s.kernel[1] as isize,
            tap_step: 1,
        };
        for row in 0..ho {
            let at = padded.rows(x, row * s.stride, s.kernel[0]);
            let Left::Real(from) = padded.left(x) else { unreachable!("staged as elements") };
            let to = &mut y[row * wo * s.c..][..wo * s.c];
            let begin = if bias.is_empty() { Begin::Zero } else { Begin::Bias(bias) };
            taps.run::<R, L>(&from[at..], weight, begin, to);
            activate::<R, L>(act, to);
        }
    }
}

/// Turned kernels on lanes.
struct OnLanes<'a, R, L> {
    weight: &'a [R],
    lanes: PhantomData<L>,
}

impl<R: Real, L: Vectors<R>> Turn<R> for OnLanes<'_, R, L> {
    #[inline(always)]
    fn run(&self, s: &Sizes, part: Part, left: Left<R>, add: bool, to: &mut [R]) {
        let Left::Real(from) = left else { unreachable!("staged as elements") };
        let [ty, tx] = part.taps;
        let kw = s.kernel[1];
        let taps = TapRow {
            channels: s.c,
            pixels: part.pixels,
            to_step: part.step,
            from_step: s.c,
            from_row: part.row_stride,
            taps: part.taps,
            first_tap: (part.ry + s.stride * (ty - 1)) * kw + part.rx + s.stride * (tx - 1),
            tap_row: -((s.stride * kw) as isize),
            tap_step: -(s.stride as isize),
        };
        for strip in 0..part.strips.count {
            let begin = if add { Begin::Add } else { Begin::Zero };
            taps.run::<R, L>(&from[strip * part.strips.a..], self.weight, begin, &mut to[strip * part.strips.c..]);
        }
    }
}

#[inline(always)]
pub(super) fn backward<R: Real, L: Vectors<R>>(s: &Sizes, c: &mut Backward<R>, dz: &[R]) {
    let (compute, whole) = (c.compute.or_exact(true), s.as_one_group());
    let taps = c.room.take(Scratch::real(s.taps() * s.c)).real;
    if !c.dx[1].is_empty() {
        taps.fill(R::default());
        let mut padded = Padded::new(whole.x_border(s.c, s.kernel[0]), compute, c.room.again());
        for (x, dz) in c.x[0].chunks_exact(s.x_len()).zip(dz.chunks_exact(s.y_len())) {
            padded.begin(0);
            for (row, dz) in dz.chunks_exact(s.out[1] * s.c).enumerate() {
                let at = padded.rows(x, row * s.stride, s.kernel[0]);
                let Left::Real(from) = padded.left(x) else { unreachable!("staged as elements") };
                weight_row::<R, L>(s, padded.stride, &from[at..], dz, taps);
            }
        }
        for (tap, sums) in taps.chunks_exact(s.c).enumerate() {
            sums.iter().enumerate().for_each(|(channel, &sum)| c.dx[1][channel * s.taps() + tap] += sum);
        }
    }
    if !c.dx[0].is_empty() {
        taps_first(s, c.x[1], taps);
        let turn = OnLanes::<R, L> { weight: taps, lanes: PhantomData };
        let mut image = gradient::Image::new(&whole, compute, c.room.again());
        for (dz, dx) in dz.chunks_exact(s.y_len()).zip(c.dx[0].chunks_exact_mut(s.x_len())) {
            image.run(&whole, &turn, (dz, 0..s.out[0]), c.add & 1 == 1, dx);
        }
    }
}

/// Adds a row of output pixels to the gradient `[tap, channel]` of the weight.
#[inline(always)]
fn weight_row<R: Real, L: Vectors<R>>(s: &Sizes, stride: usize, from: &[R], dz: &[R], sums: &mut [R]) {
    for (tap, sums) in sums.chunks_exact_mut(s.c).enumerate() {
        let at = tap / s.kernel[1] * stride + tap % s.kernel[1] * s.c;
        let mut channel = 0;
        while channel + L::LANES <= s.c {
            weight_lanes::<R, L, true>(s, channel, L::LANES, &from[at..], dz, sums);
            channel += L::LANES;
        }
        if channel < s.c {
            weight_lanes::<R, L, false>(s, channel, s.c - channel, &from[at..], dz, sums);
        }
    }
}

#[inline(always)]
fn weight_lanes<R: Real, L: Vectors<R>, const WHOLE: bool>(
    s: &Sizes,
    channel: usize,
    width: usize,
    from: &[R],
    dz: &[R],
    sums: &mut [R],
) {
    let mut parts = [L::F::from(0.0); PIXELS];
    for first in (0..s.out[1]).step_by(PIXELS) {
        for (i, part) in parts.iter_mut().enumerate().take(s.out[1] - first) {
            let pixel = first + i;
            let x = read::<R, L, WHOLE>(&from[pixel * s.stride * s.c + channel..], width);
            *part = x.mul_add(read::<R, L, WHOLE>(&dz[pixel * s.c + channel..], width), *part);
        }
    }
    let sum = (parts[0] + parts[1]) + (parts[2] + parts[3]);
    let to = &mut sums[channel..];
    write::<R, L, WHOLE>(read::<R, L, WHOLE>(to, width) + sum, to, width);
}
