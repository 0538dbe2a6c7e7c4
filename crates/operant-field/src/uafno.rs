//! The U-AFNO: a U-Net whose innermost grid is mixed by Fourier blocks (Ronneberger et al., 2015; Guibas et al., "Adaptive Fourier
//! neural operators", 2022).
//!
//! An encoder halves the grid `levels` times; `blocks` blocks on the innermost grid mix channels, each frequency by matrices of its own,
//! then pixel by pixel; a decoder doubles the grid back beside what the encoder had there. Frequencies of both signs are mixed up to
//! `modes`, and those above go past a block: none is dropped.

use super::operator::{Builder, Operator};
use operant_base::{Error, Result};
use operant_nn::ops::{Conv2d, Spectral};
use operant_nn::{Init, Node};

/// What a U-AFNO has beyond a convolutional operator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Afno {
    /// Times that the grid is halved.
    pub levels: usize,
    /// Fourier blocks on the innermost grid.
    pub blocks: usize,
    /// Share of the innermost grid's frequencies that blocks mix, of at most [`MOST_MODES`] of a sign and axis.
    pub modes: f32,
}

/// Frequencies of a sign and axis that blocks mix at most.
pub const MOST_MODES: usize = 16;
/// Channels are mixed within groups, blocks of a matrix as AFNO has them: at most so many, of at least so many channels.
const MOST_GROUPS: usize = 8;
const LEAST_GROUP: usize = 16;
/// Pixels that the innermost grid must have.
const LEAST_SIDE: usize = 4;

impl Afno {
    /// Pixels of the innermost grid's side.
    pub fn side(&self, grid: usize) -> usize {
        grid >> self.levels
    }

    /// Frequencies that are mixed: of each sign along the height, and along the width, where a negative one is the conjugate of
    /// its positive one.
    pub fn frequencies(&self, grid: usize) -> [usize; 2] {
        let most = (self.side(grid) / 2).min(MOST_MODES);
        let kept = ((self.modes * most as f32).ceil() as usize).clamp(1, most);
        [kept, kept + 1]
    }

    /// Why it cannot be built, if so.
    pub(super) fn check(&self, grid: usize, kernel: usize) -> Result<(), String> {
        if self.levels == 0 || self.blocks == 0 || !(self.modes > 0.0 && self.modes <= 1.0) {
            return Err("wanted at least one level and one block, and modes above 0 and up to 1".into());
        }
        let side = if self.levels < 10 { self.side(grid) } else { 0 };
        if side < kernel.max(LEAST_SIDE) {
            let wanted = kernel.max(LEAST_SIDE);
            return Err(format!("a grid of {grid} halved {} times leaves {side} pixels: wanted {wanted}", self.levels));
        }
        Ok(())
    }
}

/// Sizes of groups of channels.
fn groups(channels: usize) -> Vec<usize> {
    let group = channels.div_ceil(MOST_GROUPS).max(LEAST_GROUP);
    (0..channels).step_by(group).map(|first| group.min(channels - first)).collect()
}

impl Operator {
    /// Products and sums of a U-AFNO up to its stochastic block.
    pub(super) fn uafno_flops(&self, afno: Afno) -> u64 {
        let taps = (self.kernel * self.kernel) as u64;
        let product = |side: usize, from: usize, to: usize, taps: u64| 2 * (side * side * from * to) as u64 * taps;
        let stage = |side: usize, from: usize, to: usize| {
            product(side, from, to, taps) + (self.layers as u64 - 1) * product(side, to, to, taps)
        };
        let (mut sum, mut from) = (0, self.channels);
        for level in 0..afno.levels {
            let to = self.width(level);
            sum += stage(self.grid >> level, from, to);
            let below = self.width(level + 1);
            sum += stage(self.grid >> level, below + to, to);
            from = to;
        }
        let (side, inner) = (afno.side(self.grid), self.width(afno.levels));
        sum += product(side, from, inner, taps);
        let mixed = |c: &usize| Spectral::products([side; 2], afno.frequencies(self.grid), [*c; 2]);
        let block = groups(inner).iter().map(mixed).sum::<u64>() + 2 * product(side, inner, 2 * inner, 1);
        sum + afno.blocks as u64 * block
    }
}

impl Builder<'_> {
    /// Layers on one grid.
    fn stage(&mut self, name: &str, x: Node, channels: usize) -> Result<Node> {
        (0..self.operator.layers).try_fold(x, |h, i| self.layer(&format!("{name}.{i}"), h, channels))
    }

    /// From a field to `width(0)` channels.
    pub(super) fn uafno(&mut self, x: Node, afno: Afno) -> Result<Node> {
        let operator = self.operator;
        let (mut h, mut past) = (x, Vec::new());
        for level in 0..afno.levels {
            h = self.stage(&format!("encoder.{level}"), h, operator.width(level))?;
            past.push(h);
            h = self.g.average_pool(h, 2, 2, 0)?;
        }
        let inner = operator.width(afno.levels);
        h = self.layer("inner", h, inner)?;
        for block in 0..afno.blocks {
            h = self.mixer(&format!("blocks.{block}"), h, inner, afno)?;
        }
        for (level, beside) in past.into_iter().enumerate().rev() {
            // Repeated, not interpolated: a periodic field has no edge to interpolate towards.
            let above = self.g.upsample_nearest(h, 2)?;
            let both = self.g.concat(&[above, beside])?;
            h = self.stage(&format!("decoder.{level}"), both, operator.width(level))?;
        }
        Ok(h)
    }

    /// Norm → frequencies mixed → activation, then norm → two layers pixel by pixel, each beside a way past it.
    fn mixer(&mut self, name: &str, x: Node, channels: usize, afno: Afno) -> Result<Node> {
        let operator = self.operator;
        let (side, modes) = (afno.side(operator.grid), afno.frequencies(operator.grid));
        let (first, second) = (format!("{name}.0"), format!("{name}.1"));
        let h = self.norm(&first, x, channels)?;
        let lens = groups(channels);
        let parts = self.g.split(h, &lens)?;
        let mut mixed = Vec::new();
        for (i, (part, &c)) in parts.into_iter().zip(&lens).enumerate() {
            // Frequencies keep their size: a sum of c complex products with parts of variance 1/(2c).
            let init = Init::Uniform { bound: (1.5 / c as f32).sqrt() };
            let shape = [c, c, modes[0], modes[1], 2];
            let low = self.g.param(&format!("{first}.mix.{i}.weights1"), shape, init);
            let high = self.g.param(&format!("{first}.mix.{i}.weights2"), shape, init);
            mixed.push(self.g.apply(&first, Spectral::new(side, side, modes)?, &[part, low, high])?);
        }
        let h = if mixed.len() == 1 { mixed[0] } else { self.g.concat(&mixed)? };
        let h = self.g.activation(h, operator.activation)?;
        let x = self.g.add(x, h)?;
        let h = self.norm(&second, x, channels)?;
        let h = self.g.conv2d(&format!("{second}.wide"), h, Conv2d::new(2 * channels, 1))?;
        let h = self.g.activation(h, operator.activation)?;
        let h = self.drop(h)?;
        let h = self.g.conv2d(&format!("{second}.narrow"), h, Conv2d::new(channels, 1))?;
        self.g.add(x, h)
    }
}

/// Says why grids, kernels and levels that may be drawn together do not fit, if so.
pub(super) fn check_together(least_grid: usize, most_levels: usize, widest_kernel: usize) -> Result<()> {
    let afno = Afno { levels: most_levels, blocks: 1, modes: 1.0 };
    afno.check(least_grid, widest_kernel).map_err(|why| {
        Error::Invalid(format!("space: {why}; narrow space.levels or space.kernel, or take larger grids"))
    })
}
