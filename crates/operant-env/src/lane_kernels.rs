//! The inner loops of [`LaneVec`](super::LaneVec), compiled once per env and instruction set, so kept small: whole blocks
//! only; what need not be lanes is done by ordinary functions outside.
//!
//! State lies in blocks of 16 envs, one cache line per column, so a block serves any lane width and columns that a step
//! does not use cost nothing.

use super::{Action, Actions, AutoReset, Env, Row};
use operant_lanes::{Block, Columns, Float, Int, Kernel, Lanes, Mask, Maths, Rng, Scalar, Select, Simd, select};

/// Envs per block.
pub(super) const BLOCK: usize = 16;
/// Most numbers per action.
pub(super) const MAX_ACTION_DIMS: usize = 8;
/// Most columns of a state.
pub(super) const MAX_STATE: usize = 32;
/// Most choices of a masked action.
pub(super) const MAX_CHOICES: usize = 32;

/// One column of one block.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Line(pub [i32; BLOCK]);

/// Columns of a block: the env's state, then the adapter's own.
pub(super) struct Layout<E>(E);

impl<E: Env> Layout<E> {
    pub(super) const STATE: usize = <E::State<Scalar> as Columns<Scalar>>::COLUMNS.len();
    pub(super) const OWN: Own = Own { state: Self::STATE };
    pub(super) const OBS: usize = <E::Obs<Scalar> as Block<<Scalar as Lanes>::F>>::LEN;
}

/// Where the adapter's own columns lie, after `state` columns of the env.
#[derive(Clone, Copy)]
pub(super) struct Own {
    pub(super) state: usize,
}

impl Own {
    /// Steps since the episode began.
    pub(super) const fn elapsed(self) -> usize {
        self.state
    }
    /// Undiscounted return so far.
    pub(super) const fn returned(self) -> usize {
        self.state + 1
    }
    /// Number of the episode in its stream.
    pub(super) const fn episode(self) -> usize {
        self.state + 2
    }
    /// 1 where the next step resets (`AutoReset::NextStep`).
    pub(super) const fn pending(self) -> usize {
        self.state + 3
    }
    /// Seed, low and high word.
    pub(super) const fn seed(self) -> [usize; 2] {
        [self.state + 4, self.state + 5]
    }
    /// All columns together.
    pub(super) const fn columns(self) -> usize {
        self.state + 6
    }
}

/// What every kernel needs to know.
#[derive(Clone, Copy)]
pub(super) struct Work<E> {
    pub(super) env: E,
    /// Time limit in steps.
    pub(super) limit: Option<i32>,
    pub(super) autoreset: AutoReset,
    /// Choices of a discrete action; 0 for a continuous one.
    pub(super) choices: usize,
    pub(super) masked: bool,
}

/// Steps whole blocks. Lists, by number from the first env, whose episodes ended and who waited for a reset; returns how
/// many of each.
pub(super) struct StepKernel<'k, 'a, E> {
    pub(super) work: Work<E>,
    pub(super) first_env: u32,
    pub(super) lines: &'k mut [Line],
    pub(super) actions: Actions<'k>,
    pub(super) out: &'k mut Row<'a>,
    /// At least as many places as envs.
    pub(super) ended: &'k mut [i32],
    /// The same, or empty unless `AutoReset::NextStep`.
    pub(super) waiting: &'k mut [i32],
}

impl<E: Env> Kernel for StepKernel<'_, '_, E> {
    type Out = (usize, usize);
    type Home = E;
    const PORTABLE: bool = !cfg!(all(test, target_arch = "x86_64", not(operant_portable)));
    const MATHS: Maths = if E::FUSES { Maths::Both } else { Maths::Strict };

    #[inline(always)]
    fn run<L: Simd>(self) -> (usize, usize) {
        let Self { work, first_env, lines, actions, out, ended: ended_list, waiting: waiting_list } = self;
        let own = Layout::<E>::OWN;
        let width = Layout::<E>::OBS;
        // Without a limit no count of steps truncates.
        let (limited, limit) = (L::M::splat(work.limit.is_some()), L::I::from(work.limit.unwrap_or(0)));
        let (mut ended, mut waiting) = (0, 0);
        let blocks = lines.chunks_exact_mut(own.columns()).zip(out.obs.chunks_exact_mut(BLOCK * width));
        let blocks = blocks.zip(out.reward.chunks_exact_mut(BLOCK));
        let totals = out.episode_return.chunks_exact_mut(BLOCK).zip(out.episode_length.chunks_exact_mut(BLOCK));
        let flags = out.terminated.chunks_exact_mut(BLOCK).zip(out.truncated.chunks_exact_mut(BLOCK));
        for (number, ((((block, obs), reward_out), (terminated_out, truncated_out)), (return_out, length_out))) in
            blocks.zip(flags).zip(totals).enumerate()
        {
            for offset in (0..BLOCK).step_by(L::WIDTH) {
                let base = number * BLOCK + offset;
                let before_step = column::<L>(block, own.elapsed(), offset);
                // Saturates: a count that wrapped would never reach the limit.
                let elapsed = L::I::select(before_step.eq(i32::MAX), before_step, before_step + 1);
                let mut rng = Rng::<L>::new(
                    [column::<L>(block, own.seed()[0], offset), column::<L>(block, own.seed()[1], offset)],
                    env_numbers::<L>(first_env, base),
                    column::<L>(block, own.episode(), offset),
                    elapsed,
                );
                let before = read_state::<E, L>(block, offset);
                let (indices, values) = load_action::<E, L>(actions, work.choices > 0, base);
                let action = Action { indices: &indices[..E::ACTION_DIMS], values: &values[..E::ACTION_DIMS] };
                let step = work.env.step::<L>(before, action, &mut rng);
                let (mut state, mut reward, mut terminated) = (step.state, step.reward, step.terminated);
                let mut truncated = elapsed.ge(limit) & limited;
                let numbers = env_numbers::<L>(0, base);
                // Whose statistics begin again with this step.
                let mut restarts = L::M::splat(false);
                if work.autoreset == AutoReset::NextStep {
                    restarts = column::<L>(block, own.pending(), offset).eq(1);
                    state = merge::<E, L>(restarts, before, state);
                    reward = select(restarts, L::F::from(0.0), reward);
                    terminated = terminated & !restarts;
                    truncated = truncated & !restarts;
                    waiting += L::store_packed(numbers, L::mask_bits(restarts), &mut waiting_list[waiting..]);
                }
                let done = terminated | truncated;
                let returned = L::F::from_bits(column::<L>(block, own.returned(), offset)) + reward;
                L::store_f_where(returned, done, &mut return_out[offset..]);
                L::store_where(elapsed, done, &mut length_out[offset..]);
                match work.autoreset {
                    AutoReset::SameStep => restarts = done,
                    AutoReset::NextStep => {
                        let pending: L::I = select(done, 1, 0);
                        L::store(pending, &mut block[own.pending()].0[offset..]);
                    }
                    AutoReset::Disabled => {}
                }
                let words = words_of::<E, L>(state);
                for (line, &word) in block.iter_mut().zip(&words[..Layout::<E>::STATE]) {
                    L::store(word, &mut line.0[offset..]);
                }
                let zero = L::I::from(0);
                L::store(L::I::select(restarts, zero, elapsed), &mut block[own.elapsed()].0[offset..]);
                L::store(L::I::select(restarts, zero, returned.bits()), &mut block[own.returned()].0[offset..]);
                L::store_f(reward, &mut reward_out[offset..]);
                L::store_mask(terminated, &mut terminated_out[offset..]);
                L::store_mask(truncated, &mut truncated_out[offset..]);
                let seen = work.env.observe::<L>(&state);
                L::store_rows(&seen.as_ref()[..width], &mut obs[offset * width..(offset + L::WIDTH) * width]);
                if work.masked {
                    let legal = legal_bits::<E, L>(&work, &state);
                    store_legal(&legal[..work.choices], &mut out.legal[base * work.choices..], L::WIDTH);
                }
                // A branch on whether an episode ended would be mispredicted every second group: lists are made without.
                ended += L::store_packed(numbers, L::mask_bits(done), &mut ended_list[ended..]);
            }
        }
        (ended, waiting)
    }
}

/// Shows the states of whole blocks.
pub(super) struct ObserveKernel<'k, 'a, E> {
    pub(super) work: Work<E>,
    pub(super) lines: &'k [Line],
    pub(super) out: &'k mut Row<'a>,
}

impl<E: Env> Kernel for ObserveKernel<'_, '_, E> {
    type Out = ();
    type Home = E;
    const PORTABLE: bool = !cfg!(all(test, target_arch = "x86_64", not(operant_portable)));
    const MATHS: Maths = if E::FUSES { Maths::Both } else { Maths::Strict };

    #[inline(always)]
    fn run<L: Simd>(self) {
        let Self { work, lines, out } = self;
        let width = Layout::<E>::OBS;
        for (number, block) in lines.chunks_exact(Layout::<E>::OWN.columns()).enumerate() {
            for offset in (0..BLOCK).step_by(L::WIDTH) {
                let base = number * BLOCK + offset;
                let state = read_state::<E, L>(block, offset);
                let seen = work.env.observe::<L>(&state);
                L::store_rows(&seen.as_ref()[..width], &mut out.obs[base * width..(base + L::WIDTH) * width]);
                if work.masked {
                    let legal = legal_bits::<E, L>(&work, &state);
                    store_legal(&legal[..work.choices], &mut out.legal[base * work.choices..], L::WIDTH);
                }
            }
        }
    }
}

/// Sixteen resets side by side, wherever their envs lie.
pub(super) struct ResetGroup {
    /// Seed low and high, env number, episode number.
    pub(super) streams: [[i32; BLOCK]; 4],
    /// The new states, one line per column.
    pub(super) state: [Line; MAX_STATE],
    /// Bit j of choice c: legal in env j.
    pub(super) legal: [u32; MAX_CHOICES],
}

/// Begins an episode in each env of a group.
pub(super) struct ResetKernel<'k, E> {
    pub(super) work: Work<E>,
    pub(super) group: &'k mut ResetGroup,
    /// `[16, O]`
    pub(super) obs: &'k mut [f32],
}

impl<E: Env> Kernel for ResetKernel<'_, E> {
    type Out = ();
    type Home = E;
    const PORTABLE: bool = !cfg!(all(test, target_arch = "x86_64", not(operant_portable)));
    const MATHS: Maths = if E::FUSES { Maths::Both } else { Maths::Strict };

    #[inline(always)]
    fn run<L: Simd>(self) {
        let Self { work, group, obs } = self;
        let width = Layout::<E>::OBS;
        if work.masked {
            group.legal = [0; MAX_CHOICES];
        }
        for offset in (0..BLOCK).step_by(L::WIDTH) {
            let [seed0, seed1, env, episode] = &group.streams;
            let seed = [L::load(&seed0[offset..]), L::load(&seed1[offset..])];
            let mut rng = Rng::<L>::new(seed, L::load(&env[offset..]), L::load(&episode[offset..]), L::I::from(0));
            let state = work.env.reset::<L>(&mut rng);
            let words = words_of::<E, L>(state);
            for (line, &word) in group.state.iter_mut().zip(&words[..Layout::<E>::STATE]) {
                L::store(word, &mut line.0[offset..]);
            }
            let seen = work.env.observe::<L>(&state);
            L::store_rows(&seen.as_ref()[..width], &mut obs[offset * width..(offset + L::WIDTH) * width]);
            if work.masked {
                let bits = legal_bits::<E, L>(&work, &state);
                for (legal, bits) in group.legal.iter_mut().zip(bits) {
                    *legal |= bits << offset;
                }
            }
        }
    }
}

#[inline(always)]
fn column<L: Simd>(block: &[Line], column: usize, offset: usize) -> L::I {
    L::load(&block[column].0[offset..])
}

/// The state of the group that begins at `offset` of a block.
#[inline(always)]
pub(super) fn read_state<E: Env, L: Simd>(block: &[Line], offset: usize) -> E::State<L> {
    let mut words = [L::I::from(0); MAX_STATE];
    for (word, line) in words[..Layout::<E>::STATE].iter_mut().zip(block) {
        *word = L::load(&line.0[offset..]);
    }
    <E::State<L> as Columns<L>>::read(&words[..Layout::<E>::STATE])
}

/// The words of a state's columns; those beyond its columns are 0.
#[inline(always)]
fn words_of<E: Env, L: Simd>(state: E::State<L>) -> [L::I; MAX_STATE] {
    let mut words = [L::I::from(0); MAX_STATE];
    state.write(&mut words[..Layout::<E>::STATE]);
    words
}

/// `yes` where `mask` holds, else `no`, column by column.
#[inline(always)]
fn merge<E: Env, L: Simd>(mask: L::M, yes: E::State<L>, no: E::State<L>) -> E::State<L> {
    let (mut words, no) = (words_of::<E, L>(yes), words_of::<E, L>(no));
    for (word, no) in words[..Layout::<E>::STATE].iter_mut().zip(no) {
        *word = L::I::select(mask, *word, no);
    }
    <E::State<L> as Columns<L>>::read(&words[..Layout::<E>::STATE])
}

/// `first_env + base + lane` in every lane.
#[inline(always)]
fn env_numbers<L: Simd>(first_env: u32, base: usize) -> L::I {
    const LANES: [i32; BLOCK] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
    L::load(&LANES) + first_env.wrapping_add(base as u32) as i32
}

/// The actions of the envs from `base` on, as choices and, bit for bit, as real numbers.
#[inline(always)]
fn load_action<E: Env, L: Simd>(
    actions: Actions<'_>,
    discrete: bool,
    base: usize,
) -> ([L::I; MAX_ACTION_DIMS], [L::F; MAX_ACTION_DIMS]) {
    let mut indices = [L::I::from(0); MAX_ACTION_DIMS];
    let mut values = [L::F::from(0.0); MAX_ACTION_DIMS];
    for dim in 0..E::ACTION_DIMS {
        let mut words = [0; BLOCK];
        match actions {
            Actions::I32(a) if discrete && E::ACTION_DIMS == 1 => {
                words[..L::WIDTH].copy_from_slice(&a[base..base + L::WIDTH])
            }
            Actions::I64(a) if discrete && E::ACTION_DIMS == 1 => {
                let a = &a[base..base + L::WIDTH];
                for (word, &x) in words.iter_mut().zip(a) {
                    *word = x as i32;
                }
            }
            Actions::F32(a) if !discrete && E::ACTION_DIMS == 1 => {
                let a = &a[base..base + L::WIDTH];
                for (word, x) in words.iter_mut().zip(a) {
                    *word = x.to_bits() as i32;
                }
            }
            _ => gather_action(actions, discrete, base * E::ACTION_DIMS + dim, E::ACTION_DIMS, &mut words[..L::WIDTH]),
        }
        indices[dim] = L::load(&words);
        values[dim] = L::F::from_bits(indices[dim]);
    }
    (indices, values)
}

/// Every `stride`-th number from `first` on, as a choice or as the bits of a real number.
#[inline(never)]
fn gather_action(actions: Actions<'_>, discrete: bool, first: usize, stride: usize, words: &mut [i32]) {
    for (lane, word) in words.iter_mut().enumerate() {
        let i = first + lane * stride;
        *word = if discrete { actions.int(i) } else { actions.float(i).to_bits() as i32 };
    }
}

/// Bit j of entry c: choice c is legal in lane j.
#[inline(always)]
fn legal_bits<E: Env, L: Simd>(work: &Work<E>, state: &E::State<L>) -> [u32; MAX_CHOICES] {
    let mut legal = [L::M::splat(false); MAX_CHOICES];
    work.env.legal::<L>(state, &mut legal[..work.choices]);
    let mut bits = [0; MAX_CHOICES];
    for (bits, &mask) in bits.iter_mut().zip(&legal) {
        *bits = L::mask_bits(mask);
    }
    bits
}

/// Writes legal choices as rows of `bits.len()` bytes, one row per lane.
#[inline(never)]
fn store_legal(bits: &[u32], out: &mut [u8], lanes: usize) {
    for (lane, row) in out.chunks_exact_mut(bits.len()).take(lanes).enumerate() {
        for (byte, bits) in row.iter_mut().zip(bits) {
            *byte = (bits >> lane & 1) as u8;
        }
    }
}
