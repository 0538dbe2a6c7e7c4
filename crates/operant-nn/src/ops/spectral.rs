//! The spectral layer of Fourier neural operators (Li et al., "Fourier neural operator for parametric partial differential
//! equations", 2021): low frequencies of an image are mixed across channels, each by its own matrix, the others dropped.
//!
//! Transforms are products with tables of sines and cosines: few frequencies are kept, and channels lie beside each other,
//! so they are large products without a permutation, and their adjoints the same tables transposed. Invariant: equal to
//! `irfft2` of the mixed `rfft2`, to which the goldens hold it.

use super::super::check::{Case, Random, rows, whole};
use super::super::op::{Backward, Forward, Kind, Needs, Op, Type, Types};
use super::super::real::{Compute, Real, Scratch, Start};
use super::super::recurrent::{read, write};
use super::super::{Graph, Init, Node};
use operant_device::gemm::Product;
use operant_lanes::{Float, Vectors};
use operant_base::{Error, Result};
use std::f64::consts::TAU;
use std::sync::Arc;

/// Inputs: x `[B, H, W, C]` and two weights `[C, D, M1, M2, 2]` (real and imaginary part last): of the first M1 frequencies along
/// H, and of the last M1. Outputs: `[B, H, W, D]`, and the kept frequencies of x, which only the gradient reads.
#[derive(Clone, Debug)]
pub struct Spectral {
    height: usize,
    width: usize,
    modes: [usize; 2],
    tables: Arc<Tables>,
}

/// Rows that are mixed together: each weight is read once for all of them.
const GROUP: usize = 4;
/// Channels of frequencies begin at multiples of this many elements, so that vectors may run past their end.
const PAD: usize = 16;

/// Matrices of the transforms; parts are real and imaginary.
#[derive(Debug)]
struct Tables {
    /// `[part, M2] × [W]`: a real line to its frequencies.
    along_width: Vec<f64>,
    /// `[part, 2·M1] × [H, part]`: a column to its frequencies; transposed, back without the factor 1/H.
    along_height: Vec<f64>,
    /// `[W] × [part, M2]`: frequencies to a real line, with the factor of both axes.
    to_line: Vec<f64>,
}

impl Tables {
    fn new(height: usize, width: usize, [m1, m2]: [usize; 2]) -> Self {
        // The phase is reduced as an integer: sines of whole turns are zero.
        let turn = |k: usize, n: usize, len: usize| (TAU * (k * n % len) as f64 / len as f64).sin_cos();
        let mut along_width = vec![0.0; 2 * m2 * width];
        let mut to_line = vec![0.0; width * 2 * m2];
        for k in 0..m2 {
            // Every frequency of a real line but the first and the middle one stands for its conjugate too.
            let both = if k == 0 || 2 * k == width { 1.0 } else { 2.0 };
            for x in 0..width {
                let (sin, cos) = turn(k, x, width);
                let sin = if both == 1.0 { 0.0 } else { sin };
                along_width[k * width + x] = cos;
                along_width[(m2 + k) * width + x] = -sin;
                let factor = both / (height * width) as f64;
                to_line[x * 2 * m2 + k] = cos * factor;
                to_line[x * 2 * m2 + m2 + k] = -sin * factor;
            }
        }
        let mut along_height = vec![0.0; 4 * m1 * 2 * height];
        for place in 0..2 * m1 {
            let k = if place < m1 { place } else { height - 2 * m1 + place };
            for y in 0..height {
                let (sin, cos) = turn(k, y, height);
                let real = (place * height + y) * 2;
                let imaginary = ((2 * m1 + place) * height + y) * 2;
                (along_height[real], along_height[real + 1]) = (cos, sin);
                (along_height[imaginary], along_height[imaginary + 1]) = (-sin, cos);
            }
        }
        Self { along_width, along_height, to_line }
    }

    fn len(&self) -> usize {
        self.along_width.len() + self.along_height.len() + self.to_line.len()
    }
}

#[derive(Clone, Copy)]
struct Sizes {
    height: usize,
    width: usize,
    /// Channels of input and output.
    c: usize,
    d: usize,
    /// Kept frequencies along the width.
    m2: usize,
    /// Kept frequencies of each weight.
    modes: usize,
    /// Numbers per channel of spread frequencies.
    stride: usize,
}

impl Sizes {
    /// Numbers of all kept frequencies of so many channels.
    fn spectrum(&self, channels: usize) -> usize {
        4 * self.modes * channels
    }

    /// Numbers between the two transforms.
    fn half_way(&self, channels: usize) -> usize {
        2 * self.height * self.m2 * channels
    }
}

/// The tables in the element type, and both transforms with them.
struct Transforms<'a, R> {
    s: Sizes,
    compute: Compute,
    along_width: &'a [R],
    along_height: &'a [R],
    to_line: &'a [R],
}

impl<'a, R: Real> Transforms<'a, R> {
    fn new(s: Sizes, compute: Compute, tables: &Tables, room: &'a mut [R]) -> Self {
        let all = tables.along_width.iter().chain(&tables.along_height).chain(&tables.to_line);
        room.iter_mut().zip(all).for_each(|(to, &from)| *to = R::of(from));
        let (along_width, rest) = room.split_at(tables.along_width.len());
        let (along_height, to_line) = rest.split_at(tables.along_height.len());
        Self { s, compute, along_width, along_height, to_line }
    }

    /// `C[m, n] = A·B` with A `[m, k]`, or transposed from `[k, m]`.
    fn product(&self, [m, k, n]: [usize; 3], transposed: bool, a: &[R], b: &[R], c: &mut [R]) {
        let (a_row, a_inner) = if transposed { (1, m) } else { (k, 1) };
        let p = Product { m, n, outer: 1, inner: k, a_row, a_outer: 0, a_inner, b_outer: 0, b_inner: n, c_row: n };
        R::product_plain(self.compute, &p, a, b, Start::Zero, c);
    }

    /// An image to its frequencies `[part, 2·M1, M2, channels]`; `adjoint` of [`Transforms::to_image`] instead.
    fn to_spectrum(&self, adjoint: bool, channels: usize, x: &[R], half_way: &mut [R], z: &mut [R]) {
        let Sizes { height, width, m2, .. } = self.s;
        let table = if adjoint { self.to_line } else { self.along_width };
        let lines = x.chunks_exact(width * channels).zip(half_way.chunks_exact_mut(2 * m2 * channels));
        for (line, out) in lines {
            self.product([2 * m2, width, channels], adjoint, table, line, out);
        }
        let m = 2 * self.s.modes / m2 * 2;
        self.product([m, 2 * height, m2 * channels], false, self.along_height, half_way, z);
    }

    /// Frequencies to an image; `adjoint` of [`Transforms::to_spectrum`] instead.
    fn to_image(&self, adjoint: bool, channels: usize, z: &[R], half_way: &mut [R], y: &mut [R]) {
        let Sizes { height, width, m2, .. } = self.s;
        let k = 2 * self.s.modes / m2 * 2;
        self.product([2 * height, k, m2 * channels], true, self.along_height, z, half_way);
        let table = if adjoint { self.along_width } else { self.to_line };
        let lines = y.chunks_exact_mut(width * channels).zip(half_way.chunks_exact(2 * m2 * channels));
        for (out, line) in lines {
            self.product([width, 2 * m2, channels], adjoint, table, line, out);
        }
    }
}

/// Where a spectrum goes for mixing: `[channels, 2]` lines of pairs, the first of the real part twice, the second of the
/// imaginary part twice; where `crossed`, of (re, im) and (im, −re).
#[inline(always)]
fn spread<R: Real>(s: &Sizes, half: usize, channels: usize, crossed: bool, z: &[R], out: &mut [R]) {
    let (re, im) = z[..4 * s.modes * channels].split_at(2 * s.modes * channels);
    for mode in 0..s.modes {
        let from = (half * s.modes + mode) * channels;
        let values = re[from..][..channels].iter().zip(&im[from..][..channels]);
        for ((&re, &im), out) in values.zip(out.chunks_exact_mut(2 * s.stride)) {
            let (first, second) = out.split_at_mut(s.stride);
            let pairs = if crossed { [(re, im), (im, -re)] } else { [(re, re), (im, im)] };
            (first[2 * mode], first[2 * mode + 1]) = pairs[0];
            (second[2 * mode], second[2 * mode + 1]) = pairs[1];
        }
    }
}

/// Weights of one half, the terms that they are summed over, and where sums go.
struct Mix<'a, R> {
    s: Sizes,
    half: usize,
    weight: &'a [R],
    /// Spread terms of `N` rows.
    terms: &'a [R],
    /// Channels summed over and channels computed.
    counts: [usize; 2],
    /// Strides of the weight along both.
    strides: [usize; 2],
    /// Whether weights are conjugated.
    conjugate: bool,
}

impl<R: Real> Mix<'_, R> {
    /// Sums over channels: `out[row, part, mode, channel]`, rows as long as `row`.
    #[inline(always)]
    fn run<L: Vectors<R>, const N: usize>(&self, out: &mut [R], row: usize) {
        let len = 2 * self.s.modes;
        for at in (0..len).step_by(PAD) {
            let end = (at + PAD).min(len);
            for channel in 0..self.counts[1] {
                let mut pairs = [[[R::default(); PAD]; 2]; N];
                let mut from = at;
                while from + L::LANES <= end {
                    self.sum::<L, N, false>(channel, from, from - at, &mut pairs);
                    from += L::LANES;
                }
                if from < end {
                    self.sum::<L, N, true>(channel, from, from - at, &mut pairs);
                }
                for (r, pairs) in pairs.iter().enumerate() {
                    self.collect(pairs, (at / 2, (end - at) / 2), channel, &mut out[r * row..][..row]);
                }
            }
        }
    }

    /// Sums of lanes from `from` on, to `pairs` from `to` on.
    #[inline(always)]
    fn sum<L: Vectors<R>, const N: usize, const TAIL: bool>(
        &self,
        channel: usize,
        from: usize,
        to: usize,
        pairs: &mut [[[R; PAD]; 2]; N],
    ) {
        let Self { s, counts, strides, .. } = self;
        let (len, pitch) = (2 * s.modes, 2 * s.stride);
        let zero = L::F::from(0.0);
        let mut sums = [[zero; 2]; N];
        for term in 0..counts[0] {
            let weight = &self.weight[term * strides[0] + channel * strides[1]..][..len];
            let weight = read::<R, L, TAIL>(weight, from);
            for (r, [re, im]) in sums.iter_mut().enumerate() {
                let terms = &self.terms[(r * counts[0] + term) * pitch..][..pitch];
                *re = weight.mul_add(L::read(&terms[from..]), *re);
                *im = weight.mul_add(L::read(&terms[s.stride + from..]), *im);
            }
        }
        for ([re, im], pairs) in sums.into_iter().zip(pairs) {
            L::write(re, &mut pairs[0][to..]);
            L::write(im, &mut pairs[1][to..]);
        }
    }

    /// Puts sums of re·(wr, wi) and im·(wr, wi) together.
    #[inline(always)]
    fn collect(&self, [re, im]: &[[R; PAD]; 2], (mode, count): (usize, usize), channel: usize, out: &mut [R]) {
        let channels = self.counts[1];
        let (real, imaginary) = out.split_at_mut(2 * self.s.modes * channels);
        for i in 0..count {
            let to = (self.half * self.s.modes + mode + i) * channels + channel;
            let (even, odd) = (2 * i, 2 * i + 1);
            (real[to], imaginary[to]) = if self.conjugate {
                (re[even] + im[odd], im[even] - re[odd])
            } else {
                (re[even] - im[odd], re[odd] + im[even])
            };
        }
    }
}

/// `dw[c, d] += Σ_rows conj(z[c])·du[d]` of N rows, z spread and du spread crossed.
#[inline(always)]
fn weight_gradient<R: Real, L: Vectors<R>, const N: usize>(s: &Sizes, z: &[R], du: &[R], dw: &mut [R]) {
    let len = 2 * s.modes;
    let whole = len / L::LANES * L::LANES;
    for at in (0..whole).step_by(L::LANES) {
        weight_gradient_at::<R, L, N, false>(s, z, du, dw, at);
    }
    if whole < len {
        weight_gradient_at::<R, L, N, true>(s, z, du, dw, whole);
    }
}

#[inline(always)]
fn weight_gradient_at<R: Real, L: Vectors<R>, const N: usize, const TAIL: bool>(
    s: &Sizes,
    z: &[R],
    du: &[R],
    dw: &mut [R],
    at: usize,
) {
    let (len, pitch) = (2 * s.modes, 2 * s.stride);
    for c in 0..s.c {
        let zero = L::F::from(0.0);
        let mut re = [zero; N];
        let mut im = [zero; N];
        for r in 0..N {
            let z = &z[(r * s.c + c) * pitch..][..pitch];
            re[r] = L::read(&z[at..]);
            im[r] = L::read(&z[s.stride + at..]);
        }
        for d in 0..s.d {
            let dw = &mut dw[(c * s.d + d) * len..][..len];
            let mut sum = read::<R, L, TAIL>(dw, at);
            for r in 0..N {
                let du = &du[(r * s.d + d) * pitch..][..pitch];
                sum = re[r].mul_add(L::read(&du[at..]), sum);
                sum = im[r].mul_add(L::read(&du[s.stride + at..]), sum);
            }
            write::<R, L, TAIL>(sum, dw, at);
        }
    }
}

impl Spectral {
    /// A layer over images of this height and width that keeps `modes[0]` frequencies of each sign along the height and
    /// `modes[1]` along the width.
    pub fn new(height: usize, width: usize, modes: [usize; 2]) -> Result<Self> {
        let [m1, m2] = modes;
        if m1 * m2 == 0 || 2 * m1 > height || m2 > width / 2 + 1 {
            return Err(Error::Invalid(format!(
                "spectral layer of {m1} × {m2} frequencies over {height} × {width}: wanted 1 to {} × 1 to {}",
                height / 2,
                width / 2 + 1
            )));
        }
        Ok(Self { height, width, modes, tables: Arc::new(Tables::new(height, width, modes)) })
    }

    /// Products and sums of an image of this height and width, its frequencies, and channels of input and output.
    pub fn products([height, width]: [usize; 2], [m1, m2]: [usize; 2], [c, d]: [usize; 2]) -> u64 {
        let lines = height * width * 2 * m2;
        let columns = 4 * m1 * m2 * 2 * height;
        2 * ((lines + columns) * (c + d) + 8 * m1 * m2 * c * d) as u64
    }

    fn sizes(&self, types: &Types) -> Sizes {
        let modes = self.modes[0] * self.modes[1];
        Sizes {
            height: self.height,
            width: self.width,
            c: types.x[1].shape[0],
            d: types.x[1].shape[1],
            m2: self.modes[1],
            modes,
            stride: (2 * modes).next_multiple_of(PAD),
        }
    }

    #[inline(always)]
    fn forward_rows<R: Real, L: Vectors<R>, const N: usize>(
        &self,
        c: &mut Forward<R>,
        first: usize,
        t: &Transforms<R>,
        room: Rooms<R>,
    ) {
        let s = t.s;
        let (x_len, z_len, u_len) = (s.height * s.width * s.c, s.spectrum(s.c), s.spectrum(s.d));
        let (z, u) = room.spectra.split_at_mut(N * z_len);
        for r in 0..N {
            let x = &c.x[0][(first + r) * x_len..][..x_len];
            let half_way = &mut room.half_way[..s.half_way(s.c)];
            t.to_spectrum(false, s.c, x, half_way, &mut z[r * z_len..][..z_len]);
        }
        if !c.y[1].is_empty() {
            c.y[1][first * z_len..][..N * z_len].copy_from_slice(z);
        }
        for half in 0..2 {
            let terms = &mut room.spread[..N * s.c * 2 * s.stride];
            for (z, terms) in z.chunks_exact(z_len).zip(terms.chunks_exact_mut(s.c * 2 * s.stride)) {
                spread(&s, half, s.c, false, z, terms);
            }
            let strides = [s.d * 2 * s.modes, 2 * s.modes];
            let weight = c.x[1 + half];
            let mix = Mix { s, half, weight, terms, counts: [s.c, s.d], strides, conjugate: false };
            mix.run::<L, N>(u, u_len);
        }
        let y_len = s.height * s.width * s.d;
        for r in 0..N {
            let y = &mut c.y[0][(first + r) * y_len..][..y_len];
            t.to_image(false, s.d, &u[r * u_len..][..u_len], &mut room.half_way[..s.half_way(s.d)], y);
        }
    }

    #[inline(always)]
    fn backward_rows<R: Real, L: Vectors<R>, const N: usize>(
        &self,
        c: &mut Backward<R>,
        first: usize,
        t: &Transforms<R>,
        room: Rooms<R>,
    ) {
        let s = t.s;
        let (y_len, z_len, u_len) = (s.height * s.width * s.d, s.spectrum(s.c), s.spectrum(s.d));
        let (dz, du) = room.spectra.split_at_mut(N * z_len);
        for r in 0..N {
            let dy = &c.dy[0][(first + r) * y_len..][..y_len];
            let half_way = &mut room.half_way[..s.half_way(s.d)];
            t.to_spectrum(true, s.d, dy, half_way, &mut du[r * u_len..][..u_len]);
        }
        let (spread_z, spread_du) = room.spread.split_at_mut(N * s.c * 2 * s.stride);
        let spread_du = &mut spread_du[..N * s.d * 2 * s.stride];
        for half in 0..2 {
            if !c.dx[1 + half].is_empty() {
                let z = c.y[1][first * z_len..][..N * z_len].chunks_exact(z_len);
                for (z, out) in z.zip(spread_z.chunks_exact_mut(s.c * 2 * s.stride)) {
                    spread(&s, half, s.c, false, z, out);
                }
                for (du, out) in du.chunks_exact(u_len).zip(spread_du.chunks_exact_mut(s.d * 2 * s.stride)) {
                    spread(&s, half, s.d, true, du, out);
                }
                weight_gradient::<R, L, N>(&s, spread_z, spread_du, c.dx[1 + half]);
            }
            if !c.dx[0].is_empty() {
                for (du, out) in du.chunks_exact(u_len).zip(spread_du.chunks_exact_mut(s.d * 2 * s.stride)) {
                    spread(&s, half, s.d, false, du, out);
                }
                let strides = [2 * s.modes, s.d * 2 * s.modes];
                let (weight, terms) = (c.x[1 + half], &*spread_du);
                let mix = Mix { s, half, weight, terms, counts: [s.d, s.c], strides, conjugate: true };
                mix.run::<L, N>(dz, z_len);
            }
        }
        if !c.dx[0].is_empty() {
            let x_len = s.height * s.width * s.c;
            for r in 0..N {
                let dx = &mut c.dx[0][(first + r) * x_len..][..x_len];
                t.to_image(true, s.c, &dz[r * z_len..][..z_len], &mut room.half_way[..s.half_way(s.c)], dx);
            }
        }
    }

    /// Lengths of [`Rooms`].
    fn room_lens(&self, s: &Sizes) -> [usize; 4] {
        let spread = GROUP * (s.c + s.d) * 2 * s.stride;
        let spectra = GROUP * (s.spectrum(s.c) + s.spectrum(s.d));
        [self.tables.len(), s.half_way(s.c.max(s.d)), spectra, spread]
    }
}

/// Scratch of a group of rows.
struct Rooms<'a, R> {
    half_way: &'a mut [R],
    spectra: &'a mut [R],
    spread: &'a mut [R],
}

impl<R> Rooms<'_, R> {
    fn again(&mut self) -> Rooms<'_, R> {
        Rooms { half_way: self.half_way, spectra: self.spectra, spread: self.spread }
    }
}

impl Op for Spectral {
    const NAME: &'static str = "spectral";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        let [x, first, second] = x else { return Err(format!("{} inputs, wanted 3", x.len())) };
        let [height, width, c] = x.shape[..] else { return Err("wanted images [B, H, W, C]".into()) };
        if x.kind != Kind::Rows || [height, width] != [self.height, self.width] || c == 0 {
            return Err(format!("wanted images [B, {}, {}, C]", self.height, self.width));
        }
        let [m1, m2] = self.modes;
        let [from, d, ..] = first.shape[..] else { return Err("wanted weights [C, D, M1, M2, 2]".into()) };
        if d == 0 || first.shape != [c, d, m1, m2, 2] || from != c || second.shape != first.shape {
            return Err(format!("wanted two weights [{c}, D, {m1}, {m2}, 2]"));
        }
        Ok(vec![Type::rows([height, width, d]), Type::rows([4 * m1 * m2 * c])])
    }

    fn needs(&self, _: &Types) -> Needs {
        Needs { inputs: 0, outputs: 0b10 }
    }

    fn flops(&self, types: &Types) -> u64 {
        let s = self.sizes(types);
        Self::products([s.height, s.width], self.modes, [s.c, s.d])
    }

    fn scratch<R: Real>(&self, types: &Types, _: usize, _: Compute) -> Scratch {
        Scratch::real(self.room_lens(&self.sizes(types)).iter().sum())
    }

    fn least_rows(&self, _: &Types) -> usize {
        GROUP
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        let s = self.sizes(c.types);
        let [tables, half_way, spectra, spread] = self.room_lens(&s).map(|len| c.room.take(Scratch::real(len)).real);
        spread.fill(R::default());
        let t = Transforms::new(s, c.compute, &self.tables, tables);
        let mut room = Rooms { half_way, spectra, spread };
        let groups = c.rows / GROUP * GROUP;
        for first in (0..groups).step_by(GROUP) {
            self.forward_rows::<R, L, GROUP>(c, first, &t, room.again());
        }
        for row in groups..c.rows {
            self.forward_rows::<R, L, 1>(c, row, &t, room.again());
        }
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        let s = self.sizes(c.types);
        let [tables, half_way, spectra, spread] = self.room_lens(&s).map(|len| c.room.take(Scratch::real(len)).real);
        spread.fill(R::default());
        let t = Transforms::new(s, c.compute, &self.tables, tables);
        let mut room = Rooms { half_way, spectra, spread };
        let groups = c.rows / GROUP * GROUP;
        for first in (0..groups).step_by(GROUP) {
            self.backward_rows::<R, L, GROUP>(c, first, &t, room.again());
        }
        for row in groups..c.rows {
            self.backward_rows::<R, L, 1>(c, row, &t, room.again());
        }
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        // Every frequency of an odd and an even image, and some of a larger one.
        let some = [random.size(1, 3), random.size(1, 5)];
        let sizes = [(4, 6, [2, 4]), (5, 3, [2, 2]), (2, 1, [1, 1]), (6 + random.size(0, 3), 9, some)];
        let mut cases = Vec::new();
        for (height, width, modes) in sizes {
            let (c, d) = (random.size(1, 4), random.size(1, 5));
            let weight = || whole([c, d, modes[0], modes[1], 2]);
            let given = [rows([height, width, c]), weight(), weight()];
            cases.push(Case::build(format!("Spectral {modes:?}"), given, move |g, x| {
                Ok(vec![g.apply("", Self::new(height, width, modes)?, x)?])
            }));
        }
        cases
    }
}

impl Graph {
    /// The spectral convolution of a Fourier neural operator over `[B, H, W, C]`: `modes[0]` frequencies of each sign along H and
    /// `modes[1]` along W are mixed to `outputs` channels. Parameters `<name>.weights1` and `<name>.weights2`
    /// `[C, outputs, M1, M2, 2]` are `torch.view_as_real` of the reference's.
    pub fn spectral(&mut self, name: &str, x: Node, outputs: usize, modes: [usize; 2]) -> Result<Node> {
        let channels = self.features(name, x)?;
        let [height, width, _] = self.shape(x)[..] else {
            let (input, ty) = (self.name(x), self.ty(x));
            return Err(Error::Invalid(format!("spectral \"{name}\" of {input} {ty}: wanted images [B, H, W, C]")));
        };
        let op = Spectral::new(height, width, modes)?;
        let bound = 1.0 / (channels * outputs.max(1)) as f32;
        let shape = [channels, outputs, modes[0], modes[1], 2];
        let first = self.param(&format!("{name}.weights1"), shape, Init::Uniform { bound });
        let second = self.param(&format!("{name}.weights2"), shape, Init::Uniform { bound });
        self.apply(name, op, &[x, first, second])
    }
}
