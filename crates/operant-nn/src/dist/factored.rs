//! Several choices at once: heads of logits side by side in a row, `[rows, a₀ + a₁ + …]`.

use super::{Draws, Rows, next_rows, scalar};
use operant_base::{Error, Result};
use operant_lanes::{Backend, Float, Int, Kernel, Mask, Maths, Rng, Scalar, Simd, select};

/// Choices that are independent given their masks. An action that is masked, or whose logit is −∞, has probability 0.
/// Logits must not be NaN or +∞: then log-probabilities are NaN, though samples stay legal.
#[derive(Clone, Copy, Debug)]
pub struct Factored<'a> {
    logits: &'a [f32],
    heads: &'a [usize],
    width: usize,
    legal: Option<&'a [u8]>,
    backend: Backend,
}

/// Masks that depend on what the heads before have chosen.
pub trait CausalMask {
    /// Writes 1 for each legal action of head number `chosen.len()` in this row and 0 for the others, given the choices of all
    /// heads before it.
    fn legal(&self, row: usize, chosen: &[i32], legal: &mut [u8]);
}

impl<'a> Factored<'a> {
    /// Logits `[rows, Σ heads]` and, where some actions are illegal, a mask of the same shape (0 is illegal). An error names the
    /// first row and head without a legal action.
    pub fn new(logits: &'a [f32], heads: &'a [usize], legal: Option<&'a [u8]>, backend: Backend) -> Result<Self> {
        let width: usize = heads.iter().sum();
        if heads.is_empty() || heads.contains(&0) || heads.iter().any(|&size| size > i32::MAX as usize) {
            return Err(Error::Invalid(format!("heads are {heads:?}; wanted one or more, each of 1 or more actions")));
        }
        if !logits.len().is_multiple_of(width) {
            return Err(Error::Invalid(format!(
                "{} logits do not make rows of {width} actions; give a multiple",
                logits.len()
            )));
        }
        if let Some(legal) = legal {
            check_legal(legal, logits.len(), heads, width)?;
        }
        Ok(Self { logits, heads, width, legal, backend })
    }

    /// From sizes that [`Factored::new`] has accepted before, and masks with a legal action in every row and head.
    pub fn checked(logits: &'a [f32], heads: &'a [usize], legal: Option<&'a [u8]>, backend: Backend) -> Self {
        debug_assert!(Self::new(logits, heads, legal, backend).is_ok());
        Self { logits, heads, width: heads.iter().sum(), legal, backend }
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.logits.len() / self.width
    }

    /// Draws actions, `[rows, heads]`, with one uniform number per head, and tells their log-probabilities, `[rows]`.
    /// A probability is resolved to 2⁻²⁴.
    pub fn sample(&self, draws: Draws, actions: &mut [i32], log_probs: &mut [f32]) {
        self.check_actions(actions.len());
        self.check_rows(log_probs.len());
        self.backend.run(Sample { dist: self, draws, actions, log_probs });
    }

    /// The most probable action of each head, the first of several; `[rows, heads]`.
    pub fn mode(&self, actions: &mut [i32]) {
        self.check_actions(actions.len());
        for (row, actions) in actions.chunks_exact_mut(self.heads.len()).enumerate() {
            for (action, head) in actions.iter_mut().zip(self.heads()) {
                *action = head.row(row).mode();
            }
        }
    }

    /// Log-probabilities of actions `[rows, heads]`: −∞ for what is masked or no action at all; `[rows]`.
    pub fn log_prob(&self, actions: &[i32], out: &mut [f32]) {
        self.check_actions(actions.len());
        self.check_rows(out.len());
        self.backend.run(LogProb { dist: self, actions, out });
    }

    /// Entropy in nats, `[rows]`.
    pub fn entropy(&self, out: &mut [f32]) {
        self.check_rows(out.len());
        self.backend.run(Entropy { dist: self, out });
    }

    /// Entropy of one head in one row, in nats.
    pub fn head_entropy(&self, row: usize, head: usize) -> f32 {
        let head = self.heads().nth(head).expect("a head that there is");
        head.row(row).entropy::<Scalar>().get()
    }

    /// Kullback–Leibler divergence from this to `other`, Σ p·ln(p/q), in nats, `[rows]`: ∞ where `other` masks what this does
    /// not. Panics if the shapes differ.
    pub fn kl(&self, other: &Factored<'_>, out: &mut [f32]) {
        assert!(self.heads == other.heads && self.rows() == other.rows(), "distributions of one shape");
        self.check_rows(out.len());
        for (row, out) in out.iter_mut().enumerate() {
            *out = self.heads().zip(other.heads()).map(|(p, q)| p.row(row).kl(q.row(row))).sum();
        }
    }

    /// [`Factored::sample`] where masks depend on earlier choices; the distribution's own mask is not looked at. `scratch`
    /// holds the largest head. An error names the first row and head without a legal action; then part of the output is
    /// unwritten.
    pub fn sample_causal(
        &self,
        mask: &impl CausalMask,
        scratch: &mut [u8],
        draws: Draws,
        actions: &mut [i32],
        log_probs: &mut [f32],
    ) -> Result<()> {
        self.check_actions(actions.len());
        self.check_rows(log_probs.len());
        for (row, actions) in actions.chunks_exact_mut(self.heads.len()).enumerate() {
            let mut rng = draws.stream::<Scalar>(Rows { first: row, count: 1 });
            log_probs[row] = 0.0;
            for (k, head) in self.heads().enumerate() {
                let head = head.causal(mask, row, &actions[..k], scratch)?;
                let (chosen, log_prob) = head.row(0).choose::<Scalar>(&mut rng);
                actions[k] = chosen.get();
                log_probs[row] += log_prob.get();
            }
        }
        Ok(())
    }

    /// [`Factored::mode`] where masks depend on earlier choices: greedy, head by head. Errors as in `sample_causal`.
    pub fn mode_causal(&self, mask: &impl CausalMask, scratch: &mut [u8], actions: &mut [i32]) -> Result<()> {
        self.check_actions(actions.len());
        for (row, actions) in actions.chunks_exact_mut(self.heads.len()).enumerate() {
            for (k, head) in self.heads().enumerate() {
                actions[k] = head.causal(mask, row, &actions[..k], scratch)?.row(0).mode();
            }
        }
        Ok(())
    }

    /// Log-probabilities of actions where masks depend on earlier choices, and the sum of the heads' entropies given those
    /// choices. By the chain rule its mean over sampled actions is the entropy of the joint choice. Errors as in
    /// `sample_causal`.
    pub fn log_prob_causal(
        &self,
        mask: &impl CausalMask,
        scratch: &mut [u8],
        actions: &[i32],
        log_probs: &mut [f32],
        entropies: &mut [f32],
    ) -> Result<()> {
        self.check_actions(actions.len());
        self.check_rows(log_probs.len());
        self.check_rows(entropies.len());
        for (row, actions) in actions.chunks_exact(self.heads.len()).enumerate() {
            (log_probs[row], entropies[row]) = (0.0, 0.0);
            for (k, head) in self.heads().enumerate() {
                let head = head.causal(mask, row, &actions[..k], scratch)?;
                log_probs[row] += head.row(0).log_prob::<Scalar>(actions[k].into()).get();
                entropies[row] += head.row(0).entropy::<Scalar>().get();
            }
        }
        Ok(())
    }

    fn heads(&self) -> Heads<'a> {
        Heads { dist: *self, next: 0, start: 0 }
    }

    fn check_rows(&self, got: usize) {
        assert_eq!(got, self.rows(), "one number per row");
    }

    fn check_actions(&self, got: usize) {
        assert_eq!(got, self.rows() * self.heads.len(), "one action per row and head");
    }
}

fn check_legal(legal: &[u8], logits: usize, heads: &[usize], width: usize) -> Result<()> {
    if legal.len() != logits {
        return Err(Error::Invalid(format!("the mask has {} entries, wanted {logits}, one per logit", legal.len())));
    }
    for (row, mut legal) in legal.chunks_exact(width).enumerate() {
        for (k, &size) in heads.iter().enumerate() {
            let (head, rest) = legal.split_at(size);
            if head.iter().fold(0, |any, legal| any | legal) == 0 {
                return Err(nothing_legal(row, k));
            }
            legal = rest;
        }
    }
    Ok(())
}

fn nothing_legal(row: usize, head: usize) -> Error {
    Error::Invalid(format!("row {row} has no legal action in head {head}; every row and head needs one"))
}

/// One head of all rows.
#[derive(Clone, Copy)]
struct Head<'a> {
    logits: &'a [f32],
    legal: Option<&'a [u8]>,
    /// Entries from one row to the next.
    stride: usize,
    /// Where the head's entries begin in a row.
    start: usize,
    size: usize,
}

impl<'a> Head<'a> {
    /// This head in one row alone, with the mask that earlier choices leave.
    fn causal<'b>(self, mask: &impl CausalMask, row: usize, chosen: &[i32], scratch: &'b mut [u8]) -> Result<Head<'b>>
    where
        'a: 'b,
    {
        let legal = &mut scratch[..self.size];
        mask.legal(row, chosen, legal);
        if legal.iter().all(|&legal| legal == 0) {
            return Err(nothing_legal(row, chosen.len()));
        }
        let logits = &self.logits[row * self.stride + self.start..][..self.size];
        Ok(Head { logits, legal: Some(legal), stride: self.size, start: 0, size: self.size })
    }

    /// One row, for one lane.
    fn row<'b>(self, row: usize) -> Block<'b>
    where
        'a: 'b,
    {
        Block { head: self, rows: Rows { first: row, count: 1 }, cache: &mut [], cached: 0 }
    }

    /// Some rows, one per lane.
    #[inline(always)]
    fn rows<'b>(self, rows: Rows, cache: &'b mut Cache) -> Block<'b>
    where
        'a: 'b,
    {
        Block { head: self, rows, cache, cached: usize::MAX }
    }
}

/// Actions whose logits are copied together, side by side for the lanes: 4 KiB.
const CACHED: usize = 64;

/// `[action, lane]`.
type Cache = [[f32; 16]; CACHED];

/// eˣ for x ≤ 0, and 0 below −87: there it leaves the normal floats, which costs the CPU a hundred times as much.
#[inline(always)]
fn weight<L: Simd>(x: L::F) -> L::F {
    let least = L::F::from(-87.0);
    select::<_, L::F>(x.lt(least), 0.0, least.max(x).exp())
}

/// One head of the rows at work.
struct Block<'a> {
    head: Head<'a>,
    rows: Rows,
    cache: &'a mut [[f32; 16]],
    /// Which group of actions the cache holds.
    cached: usize,
}

impl Block<'_> {
    /// The logit of an action, −∞ where it is illegal.
    #[inline(always)]
    fn logit<L: Simd>(&mut self, action: usize) -> L::F {
        if L::WIDTH == 1 {
            let at = self.rows.first * self.head.stride + self.head.start + action;
            return match self.head.legal {
                Some(legal) if legal[at] == 0 => L::F::from(f32::NEG_INFINITY),
                _ => L::F::from(self.head.logits[at]),
            };
        }
        if action / CACHED != self.cached {
            self.copy::<L>(action / CACHED);
        }
        L::load_f(&self.cache[action % CACHED])
    }

    /// Copies a group of actions. Without a branch on the mask, which nobody can predict.
    #[inline(always)]
    fn copy<L: Simd>(&mut self, group: usize) {
        let Head { logits, legal, stride, start, size } = self.head;
        self.cached = group;
        let first = group * CACHED;
        let count = (size - first).min(CACHED);
        for lane in 0..L::WIDTH {
            let from = self.rows.row(lane) * stride + start + first;
            let logits = &logits[from..][..count];
            match legal {
                None => {
                    for (column, &logit) in self.cache.iter_mut().zip(logits) {
                        column[lane] = logit;
                    }
                }
                Some(legal) => {
                    for ((column, &logit), &legal) in self.cache.iter_mut().zip(logits).zip(&legal[from..][..count]) {
                        let keep = u32::from(legal != 0).wrapping_neg();
                        column[lane] = f32::from_bits(logit.to_bits() & keep | f32::NEG_INFINITY.to_bits() & !keep);
                    }
                }
            }
        }
    }

    #[inline(always)]
    fn largest<L: Simd>(&mut self) -> L::F {
        let mut largest = L::F::from(f32::NEG_INFINITY);
        for action in 0..self.head.size {
            largest = self.logit::<L>(action).max(largest);
        }
        largest
    }

    /// Σ e^(logit − largest).
    #[inline(always)]
    fn total<L: Simd>(&mut self, largest: L::F) -> L::F {
        let mut total = L::F::from(0.0);
        for action in 0..self.head.size {
            total = total + weight::<L>(self.logit::<L>(action) - largest);
        }
        total
    }

    /// An action by inverse CDF from one uniform number, and its log-probability.
    #[inline(always)]
    fn choose<L: Simd>(&mut self, rng: &mut Rng<L>) -> (L::I, L::F) {
        let largest = self.largest::<L>();
        let total = self.total::<L>(largest);
        let target = rng.unit() * total;
        let mut sum = L::F::from(0.0);
        let mut found = L::M::splat(false);
        let mut chosen = L::I::from(0);
        let mut chosen_logit = L::F::from(0.0);
        for action in 0..self.head.size {
            let logit = self.logit::<L>(action);
            // Until the sum has passed the target the last legal action stands, also if it never does.
            let take = !found & !logit.eq(f32::NEG_INFINITY);
            chosen = select::<_, L::I>(take, action as i32, chosen);
            chosen_logit = select::<_, L::F>(take, logit, chosen_logit);
            sum = sum + weight::<L>(logit - largest);
            found = found | sum.gt(target);
        }
        (chosen, chosen_logit - largest - total.log())
    }

    #[inline(always)]
    fn log_prob<L: Simd>(&mut self, actions: L::I) -> L::F {
        let largest = self.largest::<L>();
        let mut total = L::F::from(0.0);
        let mut chosen = L::F::from(f32::NEG_INFINITY);
        for action in 0..self.head.size {
            let logit = self.logit::<L>(action);
            total = total + weight::<L>(logit - largest);
            chosen = select::<_, L::F>(actions.eq(action as i32), logit, chosen);
        }
        chosen - largest - total.log()
    }

    /// ln Σ eˣ − Σ x·eˣ / Σ eˣ, for x = logit − largest; what has no probability adds nothing.
    #[inline(always)]
    fn entropy<L: Simd>(&mut self) -> L::F {
        let largest = self.largest::<L>();
        let mut total = L::F::from(0.0);
        let mut weighted = L::F::from(0.0);
        for action in 0..self.head.size {
            let x = self.logit::<L>(action) - largest;
            let weight = weight::<L>(x);
            total = total + weight;
            weighted = weighted + weight * select::<_, L::F>(weight.eq(0.0), 0.0, x);
        }
        total.log() - weighted / total
    }

    fn mode(&mut self) -> i32 {
        let mut best = (0, f32::NEG_INFINITY);
        for action in 0..self.head.size {
            let logit = self.logit::<Scalar>(action).get();
            if logit > best.1 {
                best = (action as i32, logit);
            }
        }
        best.0
    }

    fn kl(&mut self, mut other: Block<'_>) -> f32 {
        let log_total = |block: &mut Block<'_>| {
            let largest = block.largest::<Scalar>();
            (largest + block.total::<Scalar>(largest).log()).get()
        };
        let size = self.head.size;
        let (mine, theirs) = (log_total(self), log_total(&mut other));
        let term = |action| {
            let log_p = self.logit::<Scalar>(action).get() - mine;
            let log_q = other.logit::<Scalar>(action).get() - theirs;
            let p = scalar(log_p).exp().get();
            if p == 0.0 { 0.0 } else { p * (log_p - log_q) }
        };
        (0..size).map(term).sum()
    }
}

/// The heads, one after another; an iterator without closures, because kernels use it.
struct Heads<'a> {
    dist: Factored<'a>,
    next: usize,
    start: usize,
}

impl<'a> Iterator for Heads<'a> {
    type Item = Head<'a>;

    #[inline(always)]
    fn next(&mut self) -> Option<Head<'a>> {
        let Factored { logits, heads, width, legal, .. } = self.dist;
        if self.next == heads.len() {
            return None;
        }
        let head = Head { logits, legal, stride: width, start: self.start, size: heads[self.next] };
        self.start += head.size;
        self.next += 1;
        Some(head)
    }
}

struct Sample<'a> {
    dist: &'a Factored<'a>,
    draws: Draws,
    actions: &'a mut [i32],
    log_probs: &'a mut [f32],
}

impl Kernel for Sample<'_> {
    type Out = ();
    type Home = Self;
    const MATHS: Maths = Maths::OF_NETWORKS;

    #[inline(always)]
    fn run<L: Simd>(self) {
        let mut cache = [[0.0; 16]; CACHED];
        let mut first = 0;
        while let Some(rows) = next_rows::<L>(first, self.dist.rows()) {
            let mut rng = self.draws.stream::<L>(rows);
            let mut sum = L::F::from(0.0);
            for (k, head) in self.dist.heads().enumerate() {
                let (chosen, log_prob) = head.rows(rows, &mut cache).choose::<L>(&mut rng);
                rows.write_ints::<L>(chosen, self.actions, self.dist.heads.len(), k);
                sum = sum + log_prob;
            }
            rows.write::<L>(sum, self.log_probs, 1, 0);
            first += L::WIDTH;
        }
    }
}

struct LogProb<'a> {
    dist: &'a Factored<'a>,
    actions: &'a [i32],
    out: &'a mut [f32],
}

impl Kernel for LogProb<'_> {
    type Out = ();
    type Home = Self;
    const MATHS: Maths = Maths::OF_NETWORKS;

    #[inline(always)]
    fn run<L: Simd>(self) {
        let mut cache = [[0.0; 16]; CACHED];
        let mut first = 0;
        while let Some(rows) = next_rows::<L>(first, self.dist.rows()) {
            let mut sum = L::F::from(0.0);
            for (k, head) in self.dist.heads().enumerate() {
                let actions = rows.read_ints::<L>(self.actions, self.dist.heads.len(), k);
                sum = sum + head.rows(rows, &mut cache).log_prob::<L>(actions);
            }
            rows.write::<L>(sum, self.out, 1, 0);
            first += L::WIDTH;
        }
    }
}

struct Entropy<'a> {
    dist: &'a Factored<'a>,
    out: &'a mut [f32],
}

impl Kernel for Entropy<'_> {
    type Out = ();
    type Home = Self;
    const MATHS: Maths = Maths::OF_NETWORKS;

    #[inline(always)]
    fn run<L: Simd>(self) {
        let mut cache = [[0.0; 16]; CACHED];
        let mut first = 0;
        while let Some(rows) = next_rows::<L>(first, self.dist.rows()) {
            let mut sum = L::F::from(0.0);
            for head in self.dist.heads() {
                sum = sum + head.rows(rows, &mut cache).entropy::<L>();
            }
            rows.write::<L>(sum, self.out, 1, 0);
            first += L::WIDTH;
        }
    }
}
