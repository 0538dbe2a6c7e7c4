//! Putting tensors together, taking parts of them, and other shapes for the same numbers.

use crate::cuda::{Launch, Text, Twin};
use super::super::check::{Case, Random, rows, whole};
use super::super::elementwise::{Plus, update};
use super::super::op::{Backward, Forward, Kind, Needs, Op, Type, Types};
use super::super::real::Real;
use super::super::{Graph, Node};
use operant_lanes::Vectors;
use operant_base::{Error, Result};

/// Two or more inputs with rows that differ in one axis at most; axis 0 is the one after the batch axis.
#[derive(Clone, Copy, Debug)]
pub struct Concat {
    /// Along which axis.
    pub axis: usize,
}

/// Numbers of one input that lie together in the output.
fn run_len(ty: &Type, axis: usize) -> usize {
    ty.shape[axis..].iter().product()
}

impl Op for Concat {
    const NAME: &'static str = "concat";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        let [first, ..] = x else { return Err("wanted at least one input".into()) };
        let axis = self.axis;
        if axis >= first.shape.len() {
            return Err(format!("wanted more axes than {axis}, after the batch axis"));
        }
        let other_axes = |ty: &Type| (ty.shape[..axis].to_vec(), ty.shape.get(axis + 1..).map(<[usize]>::to_vec));
        let fits = |ty: &Type| {
            ty.kind == Kind::Rows
                && !ty.is_empty()
                && ty.shape.len() == first.shape.len()
                && other_axes(ty) == other_axes(first)
        };
        if !x.iter().all(fits) {
            return Err(format!("wanted inputs with rows that are alike but for axis {axis} after the batch axis"));
        }
        let mut shape = first.shape.clone();
        shape[axis] = x.iter().map(|ty| ty.shape[axis]).sum();
        Ok(vec![Type::rows(shape)])
    }

    fn needs(&self, _: &Types) -> Needs {
        Needs::default()
    }

    fn adds(&self) -> bool {
        true
    }

    fn twin(&self, types: &Types, rows: usize) -> Option<Twin> {
        let stride = run_len(&types.y[0], self.axis);
        let (runs, mut offset) = (types.y[0].len() / stride, 0);
        let mut twin = Twin::default();
        for (i, ty) in types.x.iter().enumerate() {
            let run = run_len(ty, self.axis);
            let numbers = [runs, stride, run, i, offset];
            let one = |kernel| Launch::each(Text::Elementwise, kernel, rows * ty.len()).numbers(numbers);
            twin.forward.push(one("concat_forward"));
            twin.backward.push(one("concat_backward").makes(1 << i));
            offset += run;
        }
        Some(twin)
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        let stride = run_len(&c.types.y[0], self.axis);
        let mut offset = 0;
        for (x, ty) in c.x.iter().zip(&c.types.x) {
            let run = run_len(ty, self.axis);
            for (y, x) in c.y[0].chunks_exact_mut(stride).zip(x.chunks_exact(run)) {
                y[offset..offset + run].copy_from_slice(x);
            }
            offset += run;
        }
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        let stride = run_len(&c.types.y[0], self.axis);
        let mut offset = 0;
        for (i, (dx, ty)) in c.dx.iter_mut().zip(&c.types.x).enumerate() {
            let run = run_len(ty, self.axis);
            for (dx, dy) in dx.chunks_exact_mut(run).zip(c.dy[0].chunks_exact(stride)) {
                let dy = &dy[offset..offset + run];
                if c.add >> i & 1 == 1 {
                    update::<R, L, _>(Plus, dy, dx);
                } else {
                    dx.copy_from_slice(dy);
                }
            }
            offset += run;
        }
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        let (a, b, d, e) = (random.size(1, 5), random.size(1, 5), random.size(1, 20), random.size(1, 20));
        vec![
            Case::op(Self { axis: 0 }, [rows([d])]),
            Case::op(Self { axis: 0 }, [rows([d]), rows([e]), rows([a])]),
            Case::op(Self { axis: 0 }, [rows([a, d]), rows([b, d])]),
            Case::op(Self { axis: 1 }, [rows([a, d, 2]), rows([a, e, 2])]),
            Case::op(Self { axis: 2 }, [rows([a, b, d]), rows([a, b, e])]),
            Case::build("the same tensor twice, and once more elsewhere", [rows([d]), rows([e])], |g, x| {
                let y = g.concat(&[x[0], x[1], x[0]])?;
                let z = g.concat(&[x[0], x[0], x[1]])?;
                Ok(vec![g.mul(y, z)?])
            }),
        ]
    }
}

/// A part of one axis; axis 0 is the one after the batch axis.
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    /// Which axis.
    pub axis: usize,
    /// First place that is kept.
    pub first: usize,
    /// How many are kept.
    pub len: usize,
}

impl Slice {
    /// Numbers from one run to the next in the input, before a run, and in a run.
    fn runs(&self, x: &Type) -> (usize, usize, usize) {
        let below: usize = x.shape[self.axis + 1..].iter().product();
        (x.shape[self.axis] * below, self.first * below, self.len * below)
    }
}

impl Op for Slice {
    const NAME: &'static str = "slice";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        let Self { axis, first, len } = *self;
        match x {
            [x] if x.kind == Kind::Rows => match x.shape.get(axis) {
                Some(&size) if len > 0 && first + len <= size && !x.is_empty() => {
                    let mut shape = x.shape.clone();
                    shape[axis] = len;
                    Ok(vec![Type::rows(shape)])
                }
                _ => Err(format!("wanted {first}..{} within axis {axis} after the batch axis", first + len)),
            },
            _ => Err("wanted one input with rows".into()),
        }
    }

    fn needs(&self, _: &Types) -> Needs {
        Needs::default()
    }

    fn adds(&self) -> bool {
        true
    }

    fn twin(&self, types: &Types, rows: usize) -> Option<Twin> {
        let (stride, offset, run) = self.runs(&types.x[0]);
        let numbers = [types.y[0].len() / run, stride, run, 0, offset];
        let one = |kernel, ty: &Type| Launch::each(Text::Elementwise, kernel, rows * ty.len()).numbers(numbers);
        Some(Twin::new([one("slice_forward", &types.y[0])], [one("slice_backward", &types.x[0])]))
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        let (stride, offset, run) = self.runs(&c.types.x[0]);
        for (y, x) in c.y[0].chunks_exact_mut(run).zip(c.x[0].chunks_exact(stride)) {
            y.copy_from_slice(&x[offset..offset + run]);
        }
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        let (stride, offset, run) = self.runs(&c.types.x[0]);
        for (dx, dy) in c.dx[0].chunks_exact_mut(stride).zip(c.dy[0].chunks_exact(run)) {
            if c.add & 1 == 1 {
                update::<R, L, _>(Plus, dy, &mut dx[offset..offset + run]);
            } else {
                dx[..offset].fill(R::default());
                dx[offset..offset + run].copy_from_slice(dy);
                dx[offset + run..].fill(R::default());
            }
        }
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        let (a, d) = (random.size(2, 5), random.size(3, 30));
        let (first, len) = (random.size(0, 1), random.size(1, 2));
        vec![
            Case::op(Self { axis: 0, first, len }, [rows([d])]),
            Case::op(Self { axis: 0, first: 1, len: a - 1 }, [rows([a, d])]),
            Case::op(Self { axis: 1, first, len }, [rows([a, d, 3])]),
            Case::build("parts that overlap", [rows([d])], move |g, x| {
                let left = g.slice(x[0], 0, d - 1)?;
                let right = g.slice(x[0], 1, d - 1)?;
                Ok(vec![g.mul(left, right)?])
            }),
        ]
    }
}

/// The same numbers with other axes after the batch axis (or in all, for a tensor without rows).
#[derive(Clone, Debug)]
pub struct Reshape {
    /// The new axes.
    pub shape: Vec<usize>,
}

impl Op for Reshape {
    const NAME: &'static str = "reshape";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        let [x] = x else { return Err("wanted one input".into()) };
        let y = Type { kind: x.kind, shape: self.shape.clone() };
        if y.len() != x.len() || y.is_empty() {
            return Err(format!("wanted as many numbers as {y} has"));
        }
        Ok(vec![y])
    }

    fn needs(&self, _: &Types) -> Needs {
        Needs::default()
    }

    fn is_view(&self) -> bool {
        true
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        c.y[0].copy_from_slice(c.x[0]);
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        c.dx[0].copy_from_slice(c.dy[0]);
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        let (a, b) = (random.size(1, 5), random.size(1, 20));
        vec![
            Case::build("views between ops", [rows([a, b])], move |g, x| {
                let y = g.square(x[0])?;
                let y = g.reshape(y, [b, a])?;
                let y = g.mul(y, y)?;
                let flat = g.flatten(y)?;
                let first = g.slice(flat, 0, 1)?;
                Ok(vec![first, g.reshape(y, [1, a, b])?])
            }),
            Case::build("views of an input and of a parameter", [rows([a * b]), whole([a * b, 1])], move |g, x| {
                let view = g.reshape(x[0], [a, b])?;
                let y = g.mul(view, view)?;
                let bias = g.reshape(x[1], [a, b])?;
                let bias = g.expand(bias)?;
                Ok(vec![g.add(y, bias)?, g.scale(x[0], 2.0)?])
            }),
        ]
    }
}

impl Graph {
    /// Tensors side by side along their last axis.
    pub fn concat(&mut self, x: &[Node]) -> Result<Node> {
        x.iter().try_for_each(|&node| self.check(node, "concat"))?;
        let axis = x.first().map_or(0, |&node| self.shape(node).len().saturating_sub(1));
        self.concat_axis(x, axis)
    }

    /// Tensors one after the other along an axis; 0 is the one after the batch axis.
    pub fn concat_axis(&mut self, x: &[Node], axis: usize) -> Result<Node> {
        self.apply("", Concat { axis }, x)
    }

    /// `len` places of the last axis, from `first` on.
    pub fn slice(&mut self, x: Node, first: usize, len: usize) -> Result<Node> {
        self.check(x, "slice")?;
        let axis = self.shape(x).len().saturating_sub(1);
        self.slice_axis(x, axis, first, len)
    }

    /// `len` places of an axis, from `first` on; axis 0 is the one after the batch axis.
    pub fn slice_axis(&mut self, x: Node, axis: usize, first: usize, len: usize) -> Result<Node> {
        self.apply("", Slice { axis, first, len }, &[x])
    }

    /// The last axis cut into parts of these lengths.
    pub fn split(&mut self, x: Node, lens: &[usize]) -> Result<Vec<Node>> {
        let features = self.features("split", x)?;
        if lens.iter().sum::<usize>() != features {
            let (name, ty) = (self.name(x), self.ty(x));
            return Err(Error::Invalid(format!("split of {name} {ty} into {lens:?}: wanted parts that add up")));
        }
        let mut first = 0;
        lens.iter()
            .map(|&len| {
                first += len;
                self.slice(x, first - len, len)
            })
            .collect()
    }

    /// The same numbers with other axes after the batch axis.
    pub fn reshape(&mut self, x: Node, shape: impl Into<Vec<usize>>) -> Result<Node> {
        self.apply("", Reshape { shape: shape.into() }, &[x])
    }

    /// One axis after the batch axis.
    pub fn flatten(&mut self, x: Node) -> Result<Node> {
        self.check(x, "flatten")?;
        let len = self.ty(x).len();
        self.reshape(x, [len])
    }
}
