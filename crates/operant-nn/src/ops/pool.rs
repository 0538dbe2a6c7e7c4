//! Maximum and average over windows of images, or over all pixels.

use crate::cuda::{Launch, THREADS, Text, Twin};
use operant_base::Result;
use operant_lanes::{Float, Mask, Vectors, select};
use crate::channels;
use crate::check::{Case, Random, distinct, rows};
use crate::op::{Backward, Forward, Kind, Needs, Op, Type, Types};
use crate::real::{Compute, Real, Scratch};
use crate::{Graph, Node};
use std::ops::Range;

/// What becomes of the pixels of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// The largest; the gradient goes to the first of equals.
    Max,
    /// Their mean, with pixels of the border as zeros.
    Average,
    /// Their mean, without pixels of the border.
    AverageInside,
}

/// One input `[B, H, W, C]`; output `[B, H', W', C]`.
#[derive(Clone, Copy, Debug)]
pub struct Pool {
    /// What is computed.
    pub how: Pooling,
    /// Pixels of a window along each axis.
    pub kernel: usize,
    /// From a window to the next.
    pub stride: usize,
    /// Pixels of border on each side.
    pub padding: usize,
}

impl Pool {
    /// Pixels of the image in window `i` of an axis.
    #[inline(always)]
    fn window(&self, i: usize, size: usize) -> Range<usize> {
        let first = i * self.stride;
        first.saturating_sub(self.padding)..(first + self.kernel - self.padding).min(size)
    }

    #[inline(always)]
    fn divisor(&self, pixels: usize) -> f32 {
        if self.how == Pooling::AverageInside { pixels as f32 } else { (self.kernel * self.kernel) as f32 }
    }
}

fn image(ty: &Type) -> [usize; 3] {
    ty.shape[..].try_into().expect("shapes were checked")
}

#[inline(always)]
fn read<R: Real, L: Vectors<R>>(x: &[R], at: usize, width: usize) -> L::F {
    if width == L::LANES { L::read(&x[at..]) } else { L::read_part(&x[at..at + width]) }
}

#[inline(always)]
fn write<R: Real, L: Vectors<R>>(value: L::F, x: &mut [R], at: usize, width: usize) {
    if width == L::LANES { L::write(value, &mut x[at..]) } else { L::write_part(value, &mut x[at..at + width]) }
}

impl Op for Pool {
    const NAME: &'static str = "pool";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        let [x] = x else { return Err("wanted one input".into()) };
        let (Kind::Rows, &[h, w, c], false) = (x.kind, &x.shape[..], x.is_empty()) else {
            return Err("wanted images [B, H, W, C]".into());
        };
        if self.kernel == 0 || self.stride == 0 || 2 * self.padding > self.kernel {
            return Err("wanted a kernel and a stride of at least 1, and padding of at most half a kernel".into());
        }
        let (hp, wp) = (h + 2 * self.padding, w + 2 * self.padding);
        if self.kernel > hp.min(wp) {
            return Err(format!("a kernel of {} in {hp}x{wp} pixels: wanted a smaller one", self.kernel));
        }
        let out = |size| (size - self.kernel) / self.stride + 1;
        Ok(vec![Type::rows([out(hp), out(wp), c])])
    }

    fn needs(&self, _: &Types) -> Needs {
        let max = u32::from(self.how == Pooling::Max);
        Needs { inputs: max, outputs: max }
    }

    fn twin(&self, types: &Types, rows: usize) -> Option<Twin> {
        let ([h, w, channels], [ho, wo, _]) = (image(&types.x[0]), image(&types.y[0]));
        let numbers = [h, w, channels, ho, wo, self.kernel, self.stride, self.padding, self.how as usize];
        let one = |kernel, ty: &Type| Launch::each(Text::Places, kernel, rows * ty.len()).numbers(numbers);
        let [x, y] = [&types.x[0], &types.y[0]];
        if self.how == Pooling::Max && self.stride == self.kernel && self.padding == 0 {
            let twin = Twin::new([one("windows_forward", y)], [one("windows_backward", y)]);
            let octets = channels.is_multiple_of(8) && (channels / 8).is_power_of_two();
            let narrow = (octets && self.kernel == 2 && h % 2 == 0 && w % 2 == 0).then(|| {
                let one = |kernel| Launch::each(Text::Narrow, kernel, rows * y.len() / 8).numbers(numbers);
                Twin::new([one("windows_forward")], [one("windows_backward")])
            });
            return Some(twin.or_narrow(narrow));
        }
        Some(Twin::new([one("pool_forward", y)], [one("pool_backward", x)]))
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        let ([h, w, channels], [ho, wo, _]) = (image(&c.types.x[0]), image(&c.types.y[0]));
        for (x, y) in c.x[0].chunks_exact(h * w * channels).zip(c.y[0].chunks_exact_mut(ho * wo * channels)) {
            for (i, y) in y.chunks_exact_mut(channels).enumerate() {
                let (down, across) = (self.window(i / wo, h), self.window(i % wo, w));
                let scale = 1.0 / self.divisor(down.len() * across.len());
                let mut at = 0;
                while at < channels {
                    let width = L::LANES.min(channels - at);
                    let max = self.how == Pooling::Max;
                    let mut result = L::F::from(if max { f32::NEG_INFINITY } else { 0.0 });
                    for row in down.clone() {
                        for pixel in across.clone() {
                            let value = read::<R, L>(x, (row * w + pixel) * channels + at, width);
                            result = if max { value.max(result) } else { result + value };
                        }
                    }
                    write::<R, L>(if max { result } else { result * scale }, y, at, width);
                    at += width;
                }
            }
        }
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        let ([h, w, channels], [ho, wo, _]) = (image(&c.types.x[0]), image(&c.types.y[0]));
        let (in_len, out_len) = (h * w * channels, ho * wo * channels);
        c.dx[0].fill(R::default());
        for (image, dx) in c.dx[0].chunks_exact_mut(in_len).enumerate() {
            for i in 0..ho * wo {
                let (down, across) = (self.window(i / wo, h), self.window(i % wo, w));
                let scale = 1.0 / self.divisor(down.len() * across.len());
                let mut at = 0;
                while at < channels {
                    let width = L::LANES.min(channels - at);
                    let place = image * out_len + i * channels + at;
                    let dy = read::<R, L>(c.dy[0], place, width);
                    let mut open = L::M::splat(true);
                    for row in down.clone() {
                        for pixel in across.clone() {
                            let to = (row * w + pixel) * channels + at;
                            let part = if self.how == Pooling::Max {
                                let x = read::<R, L>(c.x[0], image * in_len + to, width);
                                let chosen = open & x.eq(read::<R, L>(c.y[0], place, width));
                                open = open & !chosen;
                                select::<_, L::F>(chosen, dy, 0.0)
                            } else {
                                dy * scale
                            };
                            write::<R, L>(read::<R, L>(dx, to, width) + part, dx, to, width);
                        }
                    }
                    at += width;
                }
            }
        }
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        let mut cases = Vec::new();
        for how in [Pooling::Max, Pooling::Average, Pooling::AverageInside] {
            for (kernel, stride, padding) in [(2, 2, 0), (3, 2, 1), (3, 1, 1), (4, 3, 2), (1, 2, 0)] {
                let shape = [random.size(4, 7), random.size(4, 7), random.size(1, 20)];
                cases.push(Case::op(Self { how, kernel, stride, padding }, [distinct(rows(shape))]).rows(4));
            }
        }
        cases
    }
}

/// One input `[B, …, C]`; output `[B, C]`: the mean or the largest over all axes between.
#[derive(Clone, Copy, Debug)]
pub struct GlobalPool {
    /// What is computed; both averages are the same here.
    pub how: Pooling,
}

impl Op for GlobalPool {
    const NAME: &'static str = "global pool";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        match x {
            [x] if x.kind == Kind::Rows && x.shape.len() > 1 && !x.is_empty() => {
                Ok(vec![Type::rows([x.shape[x.shape.len() - 1]])])
            }
            _ => Err("wanted one input [B, …, C]".into()),
        }
    }

    fn needs(&self, _: &Types) -> Needs {
        let max = u32::from(self.how == Pooling::Max);
        Needs { inputs: max, outputs: max }
    }

    fn scratch<R: Real>(&self, types: &Types, _: usize, _: Compute) -> Scratch {
        Scratch::real(channels::row_len(types.y[0].len()))
    }

    fn twin(&self, types: &Types, rows: usize) -> Option<Twin> {
        let (channels, len) = (types.y[0].len(), types.x[0].len());
        let numbers = [len / channels, channels, usize::from(self.how == Pooling::Max)];
        let forward = Launch::blocks(Text::Places, "global_pool_forward", rows);
        let backward = Launch::each(Text::Places, "global_pool_backward", rows * len);
        let octets = channels.is_multiple_of(8) && (channels / 8).is_power_of_two() && channels <= 8 * THREADS;
        let narrow = (octets && self.how != Pooling::Max).then(|| {
            let one = |kernel| Launch::blocks(Text::Narrow, kernel, rows).numbers(numbers);
            Twin::new([one("mean_forward")], [one("mean_backward")]).adds(1)
        });
        Some(Twin::new([forward.numbers(numbers)], [backward.numbers(numbers)]).or_narrow(narrow))
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        let (n, len) = (c.types.y[0].len(), c.types.x[0].len());
        let row = c.room.take(Scratch::real(channels::row_len(n))).real;
        let scale = R::of(n as f64 / len as f64);
        for (x, y) in c.x[0].chunks_exact(len).zip(c.y[0].chunks_exact_mut(n)) {
            if self.how == Pooling::Max {
                y.copy_from_slice(&x[..n]);
                for pixel in x.chunks_exact(n) {
                    y.iter_mut().zip(pixel).for_each(|(y, &x)| *y = if x > *y { x } else { *y });
                }
            } else {
                row.fill(R::default());
                channels::sums::<R, L>(x, row);
                channels::gather(row, n);
                y.iter_mut().zip(&*row).for_each(|(y, &sum)| *y = sum * scale);
            }
        }
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        let (n, len) = (c.types.y[0].len(), c.types.x[0].len());
        let row = c.room.take(Scratch::real(channels::row_len(n))).real;
        let scale = R::of(n as f64 / len as f64);
        for (i, (dx, dy)) in c.dx[0].chunks_exact_mut(len).zip(c.dy[0].chunks_exact(n)).enumerate() {
            if self.how == Pooling::Max {
                dx.fill(R::default());
                let (x, y) = (&c.x[0][i * len..][..len], &c.y[0][i * n..][..n]);
                for channel in 0..n {
                    let first = (channel..len).step_by(n).find(|&at| x[at] == y[channel]);
                    // A NaN equals nothing, and then nothing has a gradient.
                    if let Some(at) = first {
                        dx[at] = dy[channel];
                    }
                }
            } else {
                row.iter_mut().zip(dy).for_each(|(to, &dy)| *to = dy * scale);
                channels::repeat(row, n);
                dx.chunks_mut(row.len()).for_each(|dx| dx.copy_from_slice(&row[..dx.len()]));
            }
        }
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        let mut cases = Vec::new();
        for how in [Pooling::Max, Pooling::Average] {
            for channels in [1, 16, random.size(2, 40), random.size(130, 140)] {
                let shape = [random.size(1, 5), random.size(1, 5), channels];
                cases.push(Case::op(Self { how }, [distinct(rows(shape))]).rows(4));
            }
        }
        cases
    }
}

impl Graph {
    /// Largest of windows of `kernel` by `kernel` pixels, `stride` apart, of images `[B, H, W, C]`.
    pub fn max_pool(&mut self, x: Node, kernel: usize, stride: usize, padding: usize) -> Result<Node> {
        self.apply("", Pool { how: Pooling::Max, kernel, stride, padding }, &[x])
    }

    /// Mean of windows; pixels of the border count as zeros, as in PyTorch.
    pub fn average_pool(&mut self, x: Node, kernel: usize, stride: usize, padding: usize) -> Result<Node> {
        self.apply("", Pool { how: Pooling::Average, kernel, stride, padding }, &[x])
    }

    /// Mean of windows, without pixels of the border.
    pub fn average_pool_inside(&mut self, x: Node, kernel: usize, stride: usize, padding: usize) -> Result<Node> {
        self.apply("", Pool { how: Pooling::AverageInside, kernel, stride, padding }, &[x])
    }

    /// Mean of all pixels: `[B, …, C]` to `[B, C]`.
    pub fn global_average_pool(&mut self, x: Node) -> Result<Node> {
        self.apply("", GlobalPool { how: Pooling::Average }, &[x])
    }

    /// Largest of all pixels: `[B, …, C]` to `[B, C]`.
    pub fn global_max_pool(&mut self, x: Node) -> Result<Node> {
        self.apply("", GlobalPool { how: Pooling::Max }, &[x])
    }
}
