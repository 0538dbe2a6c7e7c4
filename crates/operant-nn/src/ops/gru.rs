//! Gated recurrent units (Cho et al., 2014) with PyTorch's gates r, z, n, where r multiplies the product of the state.

use super::super::check::{Case, Random};
use super::super::real::Real;
use super::super::recurrent::{
    Cell, HasCases, Memory, Part, Recurrence, Recurrent, StepBackward, StepForward, read, write,
};
use super::super::{Graph, Node};
use operant_base::Result;
use operant_lanes::{Float, Vectors};

/// `n = tanh(xₙ + r·hₙ)`, `h′ = (1 − z)·n + z·h`; the fourth block of gates holds hₙ, the state's product and bias.
#[derive(Clone, Copy, Debug, Default)]
pub struct GruCell;

/// A GRU layer; see [`Recurrent`] for its inputs.
pub type Gru = Recurrent<GruCell>;

impl Cell for GruCell {
    const NAME: &'static str = "gru";
    const BLOCKS: usize = 3;
    const STATES: usize = 1;
    const PARTS: &'static [Part] =
        &[Part { gate: 0, row: 0, len: 2, adds: true }, Part { gate: 3, row: 2, len: 1, adds: false }];
    const PASSES: bool = true;

    #[inline(always)]
    fn forward<R: Real, L: Vectors<R>, const TAIL: bool>(s: &mut StepForward<R>, at: usize) {
        let r = read::<R, L, TAIL>(s.gates[0], at).sigmoid();
        let z = read::<R, L, TAIL>(s.gates[1], at).sigmoid();
        let of_state = read::<R, L, TAIL>(s.gates[3], at);
        let n = r.mul_add(of_state, read::<R, L, TAIL>(s.gates[2], at)).tanh_fast();
        let h = z.mul_add(read::<R, L, TAIL>(s.before[0], at) - n, n);
        write::<R, L, TAIL>(r, s.gates[0], at);
        write::<R, L, TAIL>(z, s.gates[1], at);
        write::<R, L, TAIL>(n, s.gates[2], at);
        write::<R, L, TAIL>(h, s.y, at);
        write::<R, L, TAIL>(h * L::splat(s.keep), s.after[0], at);
    }

    #[inline(always)]
    fn backward<R: Real, L: Vectors<R>, const TAIL: bool>(s: &mut StepBackward<R>, at: usize) {
        let r = read::<R, L, TAIL>(s.gates[0], at);
        let z = read::<R, L, TAIL>(s.gates[1], at);
        let n = read::<R, L, TAIL>(s.gates[2], at);
        let dh = read::<R, L, TAIL>(s.carry[0], at).mul_add(L::splat(s.keep), read::<R, L, TAIL>(s.dy, at));
        let to_z = dh * z;
        let to_n = dh - to_z;
        let dn = to_n - to_n * n * n;
        let dn_r = dn * r;
        write::<R, L, TAIL>(dn_r * read::<R, L, TAIL>(s.gates[3], at) * (-r + 1.0), s.dgates[0], at);
        write::<R, L, TAIL>(to_n * z * (read::<R, L, TAIL>(s.before[0], at) - n), s.dgates[1], at);
        write::<R, L, TAIL>(dn, s.dgates[2], at);
        write::<R, L, TAIL>(dn_r, s.dgates[3], at);
        write::<R, L, TAIL>(to_z, s.carry[0], at);
    }
}

impl HasCases for Gru {
    fn cases(random: &mut Random) -> Vec<Case> {
        super::lstm::cases(GruCell, random)
    }
}

impl Graph {
    /// GRU layers over `[B, T, I]`, or one step of `[B, I]`, as torch.nn.GRU with batch_first.
    pub fn gru(&mut self, name: &str, x: Node, hidden: usize, layers: usize, memory: &Memory) -> Result<Recurrence> {
        Recurrent::layers(GruCell, self, name, x, hidden, layers, memory)
    }
}
