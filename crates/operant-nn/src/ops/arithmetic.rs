//! Sums, differences and products of tensors of one shape, and scaling by a number.

use crate::cuda::{Formula, Twin, literal};
use super::super::check::{Case, Random, rows};
use super::super::elementwise::{Binary, Plus, Ternary, Unary, map, map2, map_in_place, update, update2};
use super::super::op::{Act, Backward, Forward, Kind, Needs, Op, Type, Types};
use super::super::real::Real;
use super::super::{Graph, Node};
use operant_base::Result;
use operant_lanes::{Float, Lanes, Vectors, select};

/// What is done with two tensors of one shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// a + b.
    Add,
    /// a − b.
    Sub,
    /// a·b.
    Mul,
    /// max(a + b, 0): the end of a residual block.
    AddRelu,
}

#[derive(Clone, Copy)]
struct Minus;
impl Binary for Minus {
    #[inline(always)]
    fn apply<L: Lanes>(self, a: L::F, b: L::F) -> L::F {
        a - b
    }
}

#[derive(Clone, Copy)]
struct Times;
impl Binary for Times {
    #[inline(always)]
    fn apply<L: Lanes>(self, a: L::F, b: L::F) -> L::F {
        a * b
    }
}
impl Ternary for Times {
    #[inline(always)]
    fn apply<L: Lanes>(self, y: L::F, a: L::F, b: L::F) -> L::F {
        a.mul_add(b, y)
    }
}

#[derive(Clone, Copy)]
struct PlusRelu;
impl Binary for PlusRelu {
    #[inline(always)]
    fn apply<L: Lanes>(self, a: L::F, b: L::F) -> L::F {
        L::F::from(0.0).max(a + b)
    }
}

/// dy where y is not 0 or below.
#[derive(Clone, Copy)]
struct Passed;
impl Binary for Passed {
    #[inline(always)]
    fn apply<L: Lanes>(self, dy: L::F, y: L::F) -> L::F {
        select(y.le(0.0), 0.0, dy)
    }
}
impl Ternary for Passed {
    #[inline(always)]
    fn apply<L: Lanes>(self, dx: L::F, dy: L::F, y: L::F) -> L::F {
        dx + <Self as Binary>::apply::<L>(self, dy, y)
    }
}

#[derive(Clone, Copy)]
struct By(f32);
impl Unary for By {
    #[inline(always)]
    fn apply<L: Lanes>(self, x: L::F) -> L::F {
        x * self.0
    }
}

impl Op for Arithmetic {
    const NAME: &'static str = "arithmetic";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        match x {
            [a, b] if a == b && a.kind == Kind::Rows => Ok(vec![a.clone()]),
            _ => Err("wanted two inputs with rows of one shape".into()),
        }
    }

    fn needs(&self, _: &Types) -> Needs {
        Needs { inputs: if *self == Self::Mul { 3 } else { 0 }, outputs: u32::from(*self == Self::AddRelu) }
    }

    fn adds(&self) -> bool {
        true
    }

    fn is_sum(&self) -> bool {
        *self == Self::Add
    }

    fn fuse(&self, act: Act, _training: bool) -> Option<Self> {
        (*self == Self::Add && act == Act::Relu).then_some(Self::AddRelu)
    }

    fn twin(&self, _: &Types, _rows: usize) -> Option<Twin> {
        let passed = "y <= 0.0f ? 0.0f : dy";
        let (value, first, second) = match self {
            Self::Add => ("plus(x0, x1)", "dy", "dy"),
            Self::Sub => ("minus(x0, x1)", "dy", "-dy"),
            Self::Mul => ("times(x0, x1)", "times(dy, x1)", "times(dy, x0)"),
            Self::AddRelu => ("fmaxf(plus(x0, x1), 0.0f)", passed, passed),
        };
        Some(Twin::by_number(Formula::new(value).gradient(first).gradient(second), []))
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        let (a, b) = (c.x[0], c.x[1]);
        match self {
            Self::Add => map2::<R, L, _>(Plus, a, b, c.y[0]),
            Self::Sub => map2::<R, L, _>(Minus, a, b, c.y[0]),
            Self::Mul => map2::<R, L, _>(Times, a, b, c.y[0]),
            Self::AddRelu => map2::<R, L, _>(PlusRelu, a, b, c.y[0]),
        }
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        let dy = c.dy[0];
        for i in 0..2 {
            let (other, add) = (c.x[1 - i], c.add >> i & 1 == 1);
            let dx = &mut *c.dx[i];
            if dx.is_empty() {
                continue;
            }
            match (self, add) {
                (Self::Mul, false) => map2::<R, L, _>(Times, dy, other, dx),
                (Self::AddRelu, false) => map2::<R, L, _>(Passed, dy, c.y[0], dx),
                (Self::AddRelu, true) => update2::<R, L, _>(Passed, dy, c.y[0], dx),
                (Self::Mul, true) => update2::<R, L, _>(Times, dy, other, dx),
                (Self::Sub, false) if i == 1 => map::<R, L, _>(By(-1.0), dy, dx),
                (Self::Sub, true) if i == 1 => update::<R, L, _>(Minus, dy, dx),
                (_, false) => dx.copy_from_slice(dy),
                (_, true) => update::<R, L, _>(Plus, dy, dx),
            }
        }
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        let n = random.size(1, 50);
        let mut cases = Vec::new();
        for op in [Self::Add, Self::Sub, Self::Mul, Self::AddRelu] {
            cases.push(Case::op(op, [rows([n, 2]), rows([n, 2])]));
            if op == Self::AddRelu {
                continue;
            }
            // The same tensor on both sides, and again elsewhere: its gradient has four parts.
            cases.push(Case::build("shared", [rows([n]), rows([n])], move |g, x| {
                let twice = g.apply("", op, &[x[0], x[0]])?;
                let y = g.apply("", op, &[twice, x[1]])?;
                Ok(vec![g.apply("", op, &[y, x[0]])?])
            }));
        }
        cases
    }
}

/// A tensor times a number.
#[derive(Clone, Copy, Debug)]
pub struct Scale(pub f32);

impl Op for Scale {
    const NAME: &'static str = "scale";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        match x {
            [x] if x.kind == Kind::Rows => Ok(vec![x.clone()]),
            _ => Err("wanted one input with rows".into()),
        }
    }

    fn needs(&self, _: &Types) -> Needs {
        Needs::default()
    }

    fn twin(&self, _: &Types, _rows: usize) -> Option<Twin> {
        let of = |x: &str| format!("times({x}, {})", literal(self.0));
        Some(Twin::by_number(Formula::new(of("x0")).gradient(of("dy")), []))
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        c.y[0].copy_from_slice(c.x[0]);
        map_in_place::<R, L, _>(By(self.0), c.y[0]);
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        map::<R, L, _>(By(self.0), c.dy[0], c.dx[0]);
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        vec![Case::op(Self(-0.75), [rows([random.size(1, 60)])])]
    }
}

impl Graph {
    /// a + b.
    pub fn add(&mut self, a: Node, b: Node) -> Result<Node> {
        self.apply("", Arithmetic::Add, &[a, b])
    }

    /// a − b.
    pub fn sub(&mut self, a: Node, b: Node) -> Result<Node> {
        self.apply("", Arithmetic::Sub, &[a, b])
    }

    /// a·b.
    pub fn mul(&mut self, a: Node, b: Node) -> Result<Node> {
        self.apply("", Arithmetic::Mul, &[a, b])
    }

    /// A tensor times a number.
    pub fn scale(&mut self, x: Node, factor: f32) -> Result<Node> {
        self.apply("", Scale(factor), &[x])
    }
}
