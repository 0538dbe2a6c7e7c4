//! Channels scaled by what all pixels say of them (Hu et al., "Squeeze-and-excitation networks", 2018).

use crate::cuda::{Twin, vector_twin};
use operant_base::Result;
use operant_lanes::Vectors;
use crate::channels;
use crate::check::{Case, Random, rows};
use crate::op::{Backward, Forward, Kind, Needs, Op, Type, Types};
use crate::real::{Compute, Real, Scratch};
use crate::{Graph, Node};

/// Inputs: x `[B, …, C]` and factors `[B, C]`; output x times the factor of its channel.
#[derive(Clone, Copy, Debug)]
pub struct ScaleChannels;

impl Op for ScaleChannels {
    const NAME: &'static str = "scale channels";

    fn outputs(&self, x: &[Type]) -> Result<Vec<Type>, String> {
        let [x, factor] = x else { return Err("wanted images and factors".into()) };
        let (Kind::Rows, Some(&channels), false) = (x.kind, x.shape.last(), x.is_empty()) else {
            return Err("wanted [B, …, channels]".into());
        };
        if factor.kind != Kind::Rows || factor.shape != [channels] {
            return Err(format!("wanted factors [B, {channels}]"));
        }
        Ok(vec![x.clone()])
    }

    fn needs(&self, _: &Types) -> Needs {
        Needs { inputs: 0b11, outputs: 0 }
    }

    fn scratch<R: Real>(&self, types: &Types, _: usize, _: Compute) -> Scratch {
        Scratch::real(channels::row_len(types.x[1].len()))
    }

    fn twin(&self, types: &Types, rows: usize) -> Option<Twin> {
        Some(vector_twin(1, types, rows))
    }

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>>(&self, c: &mut Forward<R>) {
        let (len, n) = (c.types.x[0].len(), c.types.x[1].len());
        let row = c.room.take(Scratch::real(channels::row_len(n))).real;
        for (i, (x, y)) in c.x[0].chunks_exact(len).zip(c.y[0].chunks_exact_mut(len)).enumerate() {
            row[..n].copy_from_slice(&c.x[1][i * n..][..n]);
            channels::repeat(row, n);
            channels::scale::<R, L>(x, row, y);
        }
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>>(&self, c: &mut Backward<R>) {
        let (len, n) = (c.types.x[0].len(), c.types.x[1].len());
        let row = c.room.take(Scratch::real(channels::row_len(n))).real;
        for (i, dy) in c.dy[0].chunks_exact(len).enumerate() {
            if !c.dx[0].is_empty() {
                row[..n].copy_from_slice(&c.x[1][i * n..][..n]);
                channels::repeat(row, n);
                channels::scale::<R, L>(dy, row, &mut c.dx[0][i * len..][..len]);
            }
            if !c.dx[1].is_empty() {
                row.fill(R::default());
                channels::dots::<R, L>(dy, &c.x[0][i * len..][..len], row);
                channels::gather(row, n);
                c.dx[1][i * n..][..n].copy_from_slice(&row[..n]);
            }
        }
    }

    fn cases(random: &mut Random) -> Vec<Case> {
        let mut cases = Vec::new();
        for channels in [1, 16, random.size(2, 40), random.size(128, 140)] {
            let (h, w) = (random.size(1, 5), random.size(1, 5));
            cases.push(Case::op(Self, [rows([h, w, channels]), rows([channels])]));
        }
        let channels = random.size(2, 20);
        cases.push(Case::build("squeeze and excite", [rows([3, 2, channels])], |g, x| {
            Ok(vec![g.squeeze_excite("se", x[0], 5)?])
        }));
        cases
    }
}

impl Graph {
    /// Images `[B, …, C]` times factors `[B, C]`.
    pub fn scale_channels(&mut self, x: Node, factors: Node) -> Result<Node> {
        self.apply("", ScaleChannels, &[x, factors])
    }

    /// Scales channels by a sigmoid of two linear layers, `<name>.fc1` to `squeezed` numbers with a ReLU and `<name>.fc2` back,
    /// of the mean of all pixels.
    pub fn squeeze_excite(&mut self, name: &str, x: Node, squeezed: usize) -> Result<Node> {
        let channels = self.features(name, x)?;
        let mean = self.global_average_pool(x)?;
        let hidden = self.linear(&format!("{name}.fc1"), mean, squeezed)?;
        let hidden = self.relu(hidden)?;
        let factors = self.linear(&format!("{name}.fc2"), hidden, channels)?;
        let factors = self.sigmoid(factors)?;
        self.scale_channels(x, factors)
    }
}
