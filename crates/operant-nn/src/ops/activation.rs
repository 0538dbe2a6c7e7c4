//! Activations as ops. Where one follows a layer that can apply it itself, planning fuses the two.

use crate::cuda::{Twin, activation};
use super::super::check::{Case, Random, away_from_zero, rows};
use super::super::elementwise::{activate, activation_gradient};
use super::super::op::{Act, Backward, Forward, Kind, Needs, Op, Type, Types};
use super::super::real::Real;
use super::super::{Graph, Node};
use operant_base::Result;
use operant_lanes::Vectors;

/// One input, of any shape.
#[derive(Clone, Copy, Debug)]
pub struct Activation(pub Act);

impl Op for Activation {
    const NAME: &'static str = "activation";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        match x {
            [x] if x.kind == Kind::Rows => Ok(vec![x.clone()]),
            _ => Err("wanted one input with rows".into()),
        }
    }

    fn needs(&self, _: &Types) -> Needs {
        if self.0.needs_input() { Needs { inputs: 1, outputs: 0 } } else { Needs { inputs: 0, outputs: 1 } }
    }

    fn activation(&self) -> Option<Act> {
        Some(self.0)
    }

    fn twin(&self, _: &Types, _rows: usize) -> Option<Twin> {
        let [plain, narrow] = [false, true].map(|narrow| Twin::by_number(activation(self.0, narrow), []));
        Some(plain.or_narrow(Some(narrow)))
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        c.y[0].copy_from_slice(c.x[0]);
        activate::<R, L>(self.0, c.y[0]);
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        activation_gradient::<R, L>(self.0, c.x[0], c.y[0], c.dy[0], c.dx[0]);
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        let mut cases = Vec::new();
        for act in [Act::Relu, Act::Tanh, Act::Sigmoid, Act::Gelu, Act::Silu] {
            let n = random.size(1, 50);
            cases.push(Case::op(Self(act), [away_from_zero(rows([n]))]));
        }
        cases
    }
}

macro_rules! layers {
    ($($(#[$doc:meta])* $name:ident $act:ident;)+) => {
        impl Graph {
            $(
                $(#[$doc])*
                pub fn $name(&mut self, x: Node) -> Result<Node> {
                    self.apply("", Activation(Act::$act), &[x])
                }
            )+
        }
    };
}

layers! {
    /// max(x, 0).
    relu Relu;
    /// Hyperbolic tangent.
    tanh Tanh;
    /// 1/(1+e⁻ˣ).
    sigmoid Sigmoid;
    /// x·Φ(x), exact.
    gelu Gelu;
    /// x·sigmoid(x).
    silu Silu;
}
