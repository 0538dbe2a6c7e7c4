//! Probe envs: each isolates one thing that a learning algorithm must get right, with its answer known in closed form.

use operant_env::params;
use operant_env::{Action, ActionSpace, Channel, Env, Spec, Step};
use operant_lanes::columns;
use operant_lanes::{Int, Lanes, Mask, Rng, select};

const REFERENCE: &str = "Operant; after the probe envs of A. Jones, \"Debugging RL\", 2021";

fn probe(
    name: &'static str,
    id: &'static str,
    summary: &'static str,
    channels: &[&str],
    choices: usize,
    solved_at: f32,
) -> Spec {
    Spec {
        name,
        id,
        summary,
        reference: REFERENCE,
        observation: channels.iter().map(|&channel| Channel::new(channel, 0.0, 1.0)).collect(),
        action: ActionSpace::Discrete(choices),
        masked: false,
        time_limit: None,
        solved_at: Some(solved_at),
        render_fps: 0,
    }
}

#[inline(always)]
fn indicator<L: Lanes>(mask: L::M) -> L::F {
    select(mask, 1.0, 0.0)
}

params! {
    /// One step: the right action is the one shown.
    pub struct Identity {}
}

columns! {
    /// The action to take.
    pub struct IdentityState {
        /// 0..4
        target: I,
    }
}

impl Env for Identity {
    type State<L: Lanes> = IdentityState<L>;
    type Obs<L: Lanes> = [L::F; 4];
    const FUSES: bool = false;

    fn spec(&self) -> Spec {
        let channels = ["target is 0", "target is 1", "target is 2", "target is 3"];
        probe("probe_identity", "operant/ProbeIdentity-v0", "take the action shown; one step", &channels, 4, 0.99)
    }

    #[inline(always)]
    fn reset<L: Lanes>(&self, rng: &mut Rng<L>) -> IdentityState<L> {
        IdentityState { target: rng.below(4) }
    }

    #[inline(always)]
    fn step<L: Lanes>(&self, s: IdentityState<L>, action: Action<L>, _: &mut Rng<L>) -> Step<L, IdentityState<L>> {
        Step { state: s, reward: indicator::<L>(action.index(0).eq(s.target)), terminated: L::M::splat(true) }
    }

    #[inline(always)]
    fn observe<L: Lanes>(&self, s: &IdentityState<L>) -> [L::F; 4] {
        std::array::from_fn(|i| indicator::<L>(s.target.eq(i as i32)))
    }
}

params! {
    /// Two steps: the first action is paid for after the second.
    pub struct Delayed {}
}

columns! {
    /// Which step, and what was chosen in the first.
    pub struct DelayedState {
        /// 0 or 1
        stage: I,
        /// the first action
        first: I,
    }
}

impl Env for Delayed {
    type State<L: Lanes> = DelayedState<L>;
    type Obs<L: Lanes> = [L::F; 2];
    const FUSES: bool = false;

    fn spec(&self) -> Spec {
        let channels = ["first step", "second step"];
        probe(
            "probe_delayed",
            "operant/ProbeDelayed-v0",
            "choose 1 first; the reward comes a step later",
            &channels,
            2,
            0.99,
        )
    }

    #[inline(always)]
    fn reset<L: Lanes>(&self, _: &mut Rng<L>) -> DelayedState<L> {
        DelayedState { stage: L::I::from(0), first: L::I::from(0) }
    }

    #[inline(always)]
    fn step<L: Lanes>(&self, s: DelayedState<L>, action: Action<L>, _: &mut Rng<L>) -> Step<L, DelayedState<L>> {
        let second = s.stage.eq(1);
        let first = select(second, s.first, action.index(0));
        Step {
            state: DelayedState { stage: L::I::from(1), first },
            reward: indicator::<L>(second & s.first.eq(1)),
            terminated: second,
        }
    }

    #[inline(always)]
    fn observe<L: Lanes>(&self, s: &DelayedState<L>) -> [L::F; 2] {
        [indicator::<L>(s.stage.eq(0)), indicator::<L>(s.stage.eq(1))]
    }
}

params! {
    /// Reward 1 for ever, cut by a time limit: the value of every state is 1/(1−γ), which only a learner that
    /// bootstraps through truncation finds.
    pub struct Truncation {}
}

columns! {
    /// Nothing changes.
    pub struct TruncationState {
        /// always 0
        nothing: I,
    }
}

impl Env for Truncation {
    type State<L: Lanes> = TruncationState<L>;
    type Obs<L: Lanes> = [L::F; 1];
    const FUSES: bool = false;

    fn spec(&self) -> Spec {
        let summary = "reward 1 for ever, truncated after 10 steps; the value is 1/(1-gamma)";
        Spec {
            time_limit: Some(10),
            ..probe("probe_truncation", "operant/ProbeTruncation-v0", summary, &["constant 1"], 2, 10.0)
        }
    }

    #[inline(always)]
    fn reset<L: Lanes>(&self, _: &mut Rng<L>) -> TruncationState<L> {
        TruncationState { nothing: L::I::from(0) }
    }

    #[inline(always)]
    fn step<L: Lanes>(&self, s: TruncationState<L>, _: Action<L>, _: &mut Rng<L>) -> Step<L, TruncationState<L>> {
        Step { state: s, reward: L::F::from(1.0), terminated: L::M::splat(false) }
    }

    #[inline(always)]
    fn observe<L: Lanes>(&self, _: &TruncationState<L>) -> [L::F; 1] {
        [L::F::from(1.0)]
    }
}

params! {
    /// One of four actions is legal in each step and pays 1; the others pay −10.
    pub struct Masked {}
}

columns! {
    /// The legal action and the steps left.
    pub struct MaskedState {
        /// 0..4
        legal: I,
        /// steps taken
        taken: I,
    }
}

impl Env for Masked {
    type State<L: Lanes> = MaskedState<L>;
    type Obs<L: Lanes> = [L::F; 1];
    const FUSES: bool = false;

    fn spec(&self) -> Spec {
        let summary = "four steps in which one unseen action is legal; only the mask tells which";
        Spec { masked: true, ..probe("probe_masked", "operant/ProbeMasked-v0", summary, &["constant 1"], 4, 3.99) }
    }

    #[inline(always)]
    fn reset<L: Lanes>(&self, rng: &mut Rng<L>) -> MaskedState<L> {
        MaskedState { legal: rng.below(4), taken: L::I::from(0) }
    }

    #[inline(always)]
    fn step<L: Lanes>(&self, s: MaskedState<L>, action: Action<L>, rng: &mut Rng<L>) -> Step<L, MaskedState<L>> {
        let taken = s.taken + 1;
        let reward = select(action.index(0).eq(s.legal), 1.0, -10.0);
        Step { state: MaskedState { legal: rng.below(4), taken }, reward, terminated: taken.ge(4) }
    }

    #[inline(always)]
    fn observe<L: Lanes>(&self, _: &MaskedState<L>) -> [L::F; 1] {
        [L::F::from(1.0)]
    }

    #[inline(always)]
    fn legal<L: Lanes>(&self, s: &MaskedState<L>, legal: &mut [L::M]) {
        for (i, mask) in legal.iter_mut().enumerate() {
            *mask = s.legal.eq(i as i32);
        }
    }
}

params! {
    /// A cue is shown once and asked for after a wait: only a policy with memory can answer.
    pub struct Memory {
        /// steps between the cue and the question
        wait: u32 = 3, 1.0..=1000.0, "steps";
    }
}

columns! {
    /// The cue and the time.
    pub struct MemoryState {
        /// 0 or 1
        cue: I,
        /// steps since the cue
        t: I,
    }
}

impl Env for Memory {
    type State<L: Lanes> = MemoryState<L>;
    type Obs<L: Lanes> = [L::F; 3];
    const FUSES: bool = false;

    fn spec(&self) -> Spec {
        let channels = ["cue is 0", "cue is 1", "question"];
        probe("probe_memory", "operant/ProbeMemory-v0", "repeat after a wait the cue seen at first", &channels, 2, 0.99)
    }

    #[inline(always)]
    fn reset<L: Lanes>(&self, rng: &mut Rng<L>) -> MemoryState<L> {
        MemoryState { cue: rng.below(2), t: L::I::from(0) }
    }

    #[inline(always)]
    fn step<L: Lanes>(&self, s: MemoryState<L>, action: Action<L>, _: &mut Rng<L>) -> Step<L, MemoryState<L>> {
        let asked = s.t.ge(self.wait as i32);
        let right = asked & action.index(0).eq(s.cue);
        Step { state: MemoryState { cue: s.cue, t: s.t + 1 }, reward: indicator::<L>(right), terminated: asked }
    }

    #[inline(always)]
    fn observe<L: Lanes>(&self, s: &MemoryState<L>) -> [L::F; 3] {
        let shown = s.t.eq(0);
        [
            indicator::<L>(shown & s.cue.eq(0)),
            indicator::<L>(shown & s.cue.eq(1)),
            indicator::<L>(s.t.eq(self.wait as i32)),
        ]
    }
}
