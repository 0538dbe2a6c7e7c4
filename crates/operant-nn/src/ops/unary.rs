//! Functions of one number.

use crate::cuda::{Formula, Twin};
use super::super::check::{Case, Random, Values, away_from_zero, rows, with};
use super::super::elementwise::{Ternary, Unary, map, map3};
use super::super::op::{Backward, Forward, Kind, Needs, Op, Type, Types};
use super::super::real::Real;
use super::super::{Graph, Node};
use operant_base::Result;
use operant_lanes::{Float, Lanes, Vectors, select};

/// One input, of any shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// eˣ.
    Exp,
    /// Natural logarithm.
    Log,
    /// x².
    Square,
    /// |x|.
    Abs,
    /// √x.
    Sqrt,
    /// −x.
    Neg,
    /// ln(1 + eˣ).
    Softplus,
}

macro_rules! functions {
    ($($name:ident $method:ident $doc:literal |$x:ident| $forward:expr; |$gx:ident, $gy:ident| $gradient:expr;)+) => {
        $(
            #[derive(Clone, Copy)]
            struct $name;
            impl Unary for $name {
                #[inline(always)]
                fn apply<L: Lanes>(self, $x: L::F) -> L::F {
                    $forward
                }
            }
            impl Ternary for $name {
                /// The gradient from x, y and dy.
                #[inline(always)]
                fn apply<L: Lanes>(self, $gx: L::F, $gy: L::F, dy: L::F) -> L::F {
                    dy * $gradient
                }
            }
        )+

        #[inline(always)]
        fn forward<R: Real, L: Vectors<R>>(function: Function, x: &[R], y: &mut [R]) {
            match function {
                $(Function::$name => map::<R, L, _>($name, x, y),)+
            }
        }

        #[inline(always)]
        fn backward<R: Real, L: Vectors<R>>(function: Function, x: &[R], y: &[R], dy: &[R], dx: &mut [R]) {
            match function {
                $(Function::$name => map3::<R, L, _>($name, x, y, dy, dx),)+
            }
        }

        impl Graph {
            $(
                #[doc = $doc]
                pub fn $method(&mut self, x: Node) -> Result<Node> {
                    self.apply("", Function::$name, &[x])
                }
            )+
        }
    };
}

functions! {
    Exp exp "eˣ." |x| x.exp_fast(); |_x, y| y;
    Log log "Natural logarithm." |x| x.log(); |x, _y| x.reciprocal();
    Square square "x²." |x| x * x; |x, _y| x + x;
    Abs abs "|x|; the gradient at 0 is 0." |x| x.abs(); |x, _y| sign::<L>(x);
    Sqrt sqrt "√x." |x| x.sqrt(); |_x, y| y.reciprocal() * 0.5;
    Neg neg "−x." |x| -x; |_x, _y| L::F::from(-1.0);
    Softplus softplus "ln(1 + eˣ)." |x| x.softplus(); |x, _y| x.sigmoid();
}

#[inline(always)]
fn sign<L: Lanes>(x: L::F) -> L::F {
    select(x.gt(0.0), 1.0, select::<_, L::F>(x.lt(0.0), -1.0, 0.0))
}

impl Function {
    /// Whether the gradient is taken from x; from y where it is not.
    fn reads_input(self) -> bool {
        matches!(self, Self::Log | Self::Square | Self::Abs | Self::Softplus)
    }
}

impl Op for Function {
    const NAME: &'static str = "function";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        match x {
            [x] if x.kind == Kind::Rows => Ok(vec![x.clone()]),
            _ => Err("wanted one input with rows".into()),
        }
    }

    fn needs(&self, _: &Types) -> Needs {
        match self {
            Self::Neg => Needs::default(),
            _ if self.reads_input() => Needs { inputs: 1, outputs: 0 },
            _ => Needs { inputs: 0, outputs: 1 },
        }
    }

    fn twin(&self, _: &Types, _rows: usize) -> Option<Twin> {
        let (value, slope) = match self {
            Self::Exp => ("expf(x0)", "y"),
            Self::Log => ("logf(x0)", "1.0f / x0"),
            Self::Square => ("times(x0, x0)", "plus(x0, x0)"),
            Self::Abs => ("fabsf(x0)", "sign(x0)"),
            Self::Sqrt => ("sqrtf(x0)", "0.5f / y"),
            Self::Neg => ("-x0", "-1.0f"),
            Self::Softplus => ("softplus(x0)", "logistic(x0)"),
        };
        Some(Twin::by_number(Formula::new(value).gradient(format!("times(dy, {slope})")), []))
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        forward::<R, L>(*self, c.x[0], c.y[0]);
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        // What a function does not read is not there: any slice as long stands for it.
        let (x, y) = match self {
            Self::Neg => (c.dy[0], c.dy[0]),
            _ if self.reads_input() => (c.x[0], c.x[0]),
            _ => (c.y[0], c.y[0]),
        };
        backward::<R, L>(*self, x, y, c.dy[0], c.dx[0]);
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        let n = random.size(1, 50);
        vec![
            Case::op(Self::Exp, [rows([n])]),
            Case::op(Self::Log, [with(Values::Positive, rows([n]))]),
            Case::op(Self::Square, [rows([n])]),
            Case::op(Self::Abs, [away_from_zero(rows([n]))]),
            Case::op(Self::Sqrt, [with(Values::Positive, rows([n]))]),
            Case::op(Self::Neg, [rows([2, n])]),
            Case::op(Self::Softplus, [rows([n])]),
        ]
    }
}
