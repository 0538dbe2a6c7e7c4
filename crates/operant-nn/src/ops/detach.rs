//! The same numbers without a way back for gradients.

use crate::cuda::{Formula, Twin};
use super::super::check::{Case, Random, fixed, rows};
use super::super::op::{Backward, Forward, Kind, Needs, Op, Type, Types};
use super::super::real::Real;
use super::super::{Graph, Node};
use operant_base::Result;
use operant_lanes::Vectors;

/// One input with rows.
#[derive(Clone, Copy, Debug)]
pub struct Detach;

impl Op for Detach {
    const NAME: &'static str = "detach";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        match x {
            [x] if x.kind == Kind::Rows => Ok(vec![x.clone()]),
            _ => Err("wanted one input with rows".into()),
        }
    }

    fn needs(&self, _: &Types) -> Needs {
        Needs::default()
    }

    fn differentiable(&self, _: usize) -> bool {
        false
    }

    fn twin(&self, _: &Types, _rows: usize) -> Option<Twin> {
        Some(Twin::by_number(Formula::new("x0"), []))
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        c.y[0].copy_from_slice(c.x[0]);
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, _: &mut Backward<R>) {}

    fn cases(random: &mut Random) -> Vec<Case> {
        let n = random.size(1, 40);
        // A finite difference sees through a detached tensor: only what has no gradient can be compared.
        vec![Case::build("beside a tensor with a gradient", [fixed(rows([n])), rows([n])], |g, x| {
            let still = g.detach(x[0])?;
            Ok(vec![g.mul(still, x[1])?])
        })]
    }
}

impl Graph {
    /// The same numbers; gradients stop here.
    pub fn detach(&mut self, x: Node) -> Result<Node> {
        self.apply("", Detach, &[x])
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{Feed, Gradients, Graph, Options, Plan};

    /// The derivative of x·detach(x) is x, not 2x.
    #[test]
    fn gradients_stop() {
        let mut g = Graph::new();
        let x = g.input_with_gradient("x", [1]);
        let still = g.detach(x).unwrap();
        let loss = g.mul(x, still).unwrap();
        let params = g.params(0).unwrap();
        let mut plan = Plan::training(&g, loss, 2, &Options::default()).unwrap();
        let outcome = plan.train(&params, 2, &[Feed::Real(&[3.0, -5.0])], 1.0, Gradients::Replace);
        assert_eq!(outcome.loss, 17.0);
        assert_eq!(plan.input_gradient(x).unwrap(), [1.5, -2.5]);
    }
}
