//! Weights that can be drawn by: a tree of sums, sixteen children to a node, so that a node is one cache line.
//!
//! Invariant: a node is the sum of its children, computed anew from them at every change, so the tree is a function of
//! its weights alone and does not drift.

/// Children of a node.
const FAN: usize = 16;

/// Weights of 0 or more, and their sums.
#[derive(Clone, Debug, PartialEq)]
pub struct SumTree {
    len: usize,
    /// Weights first, then sums of sixteen, of sixteen of those …, up to a level of sixteen numbers or fewer.
    levels: Vec<Vec<f32>>,
}

fn sum(numbers: &[f32]) -> f64 {
    numbers.iter().map(|&x| f64::from(x)).sum()
}

impl SumTree {
    /// So many weights of 0.
    pub fn new(len: usize) -> Self {
        let mut size = len.max(1);
        let mut levels = vec![vec![0.0; size.next_multiple_of(FAN)]];
        while size > FAN {
            size = size.div_ceil(FAN);
            levels.push(vec![0.0; size.next_multiple_of(FAN)]);
        }
        Self { len, levels }
    }

    /// How many weights.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The weight at a place.
    pub fn get(&self, place: usize) -> f32 {
        self.levels[0][place]
    }

    /// All weights.
    pub fn weights(&self) -> &[f32] {
        &self.levels[0][..self.len]
    }

    /// Replaces a weight by a finite number of 0 or more.
    pub fn set(&mut self, place: usize, weight: f32) {
        debug_assert!(weight >= 0.0 && weight.is_finite() && place < self.len, "weight {weight} at {place}");
        self.levels[0][place] = weight;
        let mut at = place;
        for level in 1..self.levels.len() {
            at /= FAN;
            let total = sum(&self.levels[level - 1][at * FAN..][..FAN]);
            self.levels[level][at] = total as f32;
        }
    }

    /// Replaces all weights. Panics if there are not as many.
    pub fn set_all(&mut self, weights: &[f32]) {
        self.levels[0][..self.len].copy_from_slice(weights);
        for level in 1..self.levels.len() {
            let (below, above) = self.levels.split_at_mut(level);
            for (node, children) in above[0].iter_mut().zip(below[level - 1].chunks_exact(FAN)) {
                *node = sum(children) as f32;
            }
        }
    }

    /// The sum of all weights.
    pub fn total(&self) -> f64 {
        self.levels.last().map_or(0.0, |top| sum(top))
    }

    /// The place whose share of the total holds `at`, from 0 to the total. A weight of 0 is never found while another is
    /// more, whatever rounding does.
    pub fn find(&self, at: f64) -> usize {
        let (mut left, mut place) = (at, 0);
        for level in self.levels.iter().rev() {
            let children = &level[place * FAN..][..FAN];
            let (mut chosen, mut within) = (0, 0.0);
            for (child, &weight) in children.iter().enumerate() {
                if weight > 0.0 {
                    (chosen, within) = (child, left);
                    if left < f64::from(weight) {
                        break;
                    }
                    left -= f64::from(weight);
                }
            }
            (left, place) = (within, place * FAN + chosen);
        }
        place
    }
}
