//! Games: turn by turn, for one player or two, with chance where there is some. What search looks ahead in and self-play learns.
//!
//! A state is a small value that is copied, never changed; a rule is a function of it. Values are points: of the one player, or of
//! player 0, whose gain is player 1's loss. Invariant: nothing here allocates but text.

use operant_base::Result;
use operant_env::Canvas;
use operant_lanes::rng::HostRng;
use std::fmt::Debug;

/// What happens next in a state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// A player chooses an action.
    Decision,
    /// Chance has an outcome.
    Chance,
    /// Nothing: the game is over.
    Over,
}

/// What the heads of a value network mean.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heads {
    /// Logits of probabilities, learned by cross-entropy.
    Chances,
    /// Real numbers, learned by Huber's loss.
    Points,
}

/// The rules of a game. All functions are of states alone; the type carries no data.
pub trait Game: Copy + Default + Send + Sync + 'static {
    /// Everything that decides how the game can go on.
    type State: Copy + PartialEq + Debug + Send + Sync + 'static;
    /// A choice in a state.
    type Action: Copy + PartialEq + Debug + Send + Sync + 'static;
    /// Room to find actions in, kept from call to call.
    type Room: Default + Send + 'static;

    /// Name of its env and of its configs.
    const NAME: &'static str;
    /// Players: 1 or 2.
    const PLAYERS: usize;
    /// Numbers that [`Game::observe`] writes.
    const OBSERVATION: usize;
    /// Largest of them; none is below 0.
    const HIGHEST: f32 = 1.0;
    /// Outputs of a policy head.
    const POLICY: usize;
    /// More actions than this are rare: memory is planned for so many per decision.
    const USUAL_ACTIONS: usize;
    /// Most outcomes of chance; 0 if there is none.
    const OUTCOMES: usize;
    /// Least and largest points, where they are bounded.
    const RANGE: Option<[f32; 2]>;
    /// Outputs of a value head.
    const HEADS: usize;
    /// What they mean.
    const HEADS_ARE: Heads;
    /// Images of a state that play alike, itself included.
    const SYMMETRIES: usize = 1;
    /// Words that a state is saved in.
    const WORDS: usize;

    /// The beginning.
    fn start() -> Self::State;
    /// What happens next.
    fn turn(state: &Self::State) -> Turn;
    /// Who sees the state: the player who decides; before chance, the one who decides after it.
    fn player(state: &Self::State) -> usize;
    /// Replaces `out` by the legal actions of a decision, at least one, in an order that the state decides.
    fn actions(state: &Self::State, room: &mut Self::Room, out: &mut Vec<Self::Action>);
    /// The state after an action.
    fn after(state: &Self::State, action: &Self::Action) -> Self::State;
    /// Outputs of a policy head that speak for an action: one, or two, chosen one after the other. No two actions have the same, and in
    /// a state either all actions have two or none has.
    fn policy_index(state: &Self::State, action: &Self::Action) -> (usize, Option<usize>);
    /// Writes the probabilities of chance's outcomes, and tells how many there are. Room for [`Game::OUTCOMES`].
    fn chances(state: &Self::State, out: &mut [f32]) -> usize {
        let _ = (state, out);
        0
    }
    /// Lets chance have an outcome.
    fn happen(state: &Self::State, room: &mut [f32], rng: &mut HostRng) -> Self::State {
        let count = Self::chances(state, room);
        Self::happened(state, draw_outcome(&room[..count], rng))
    }
    /// The state after an outcome of chance.
    fn happened(state: &Self::State, outcome: usize) -> Self::State {
        let _ = outcome;
        *state
    }
    /// Points that are already certain: all of them once the game is over. A network values the rest.
    fn settled(state: &Self::State) -> f32;
    /// Least and most points that the game can still come to, where they are bounded: [`Game::RANGE`] or a part of it.
    fn bounds(state: &Self::State) -> Option<[f32; 2]> {
        let _ = state;
        Self::RANGE
    }
    /// A number that differs for states that differ, but for rare accidents.
    fn hash(state: &Self::State) -> u64;
    /// Writes what the state's player sees.
    fn observe(state: &Self::State, out: &mut [f32]);
    /// Writes what the heads should say where the rest of the points, as the state's player counts them, is this.
    fn heads_of(points: f32, out: &mut [f32]);
    /// Points that heads mean; chances are given as probabilities.
    fn value_of(heads: &[f32]) -> f32;
    /// Points still to come in a state that is not over, as its player counts them, where tables of the game have them exactly.
    fn exact(state: &Self::State) -> Option<f32> {
        let _ = state;
        None
    }
    /// An image of a state that plays alike.
    fn image(state: &Self::State, symmetry: usize) -> Self::State {
        let _ = symmetry;
        *state
    }
    /// Writes the state, [`Game::WORDS`] words.
    fn write(state: &Self::State, out: &mut [u64]);
    /// Reads what [`Game::write`] wrote; nothing if no state has these words.
    fn read(words: &[u64]) -> Option<Self::State>;
    /// The state as people write it.
    fn text(state: &Self::State) -> String;
    /// The state of a text, or what is wrong with it.
    fn parse(text: &str) -> Result<Self::State>;
    /// A picture of the state, if the game draws one.
    fn draw(state: &Self::State) -> Option<Canvas> {
        let _ = state;
        None
    }
    /// An action as people write it.
    fn action_text(state: &Self::State, action: &Self::Action) -> String;
}

/// Which player's points: 1 for player 0, −1 for player 1.
#[inline]
pub fn sign<G: Game>(state: &G::State) -> f32 {
    if G::player(state) == 0 { 1.0 } else { -1.0 }
}

/// Draws an outcome of these probabilities.
#[inline]
pub fn draw_outcome(chances: &[f32], rng: &mut HostRng) -> usize {
    let mut left = rng.unit();
    for (outcome, &chance) in chances.iter().enumerate() {
        left -= chance;
        if left < 0.0 {
            return outcome;
        }
    }
    // Rounding may leave a little: the last that can happen.
    chances.iter().rposition(|&chance| chance > 0.0).unwrap_or(0)
}

/// Lets chance have its outcomes until a player decides or the game is over.
pub fn settle_chance<G: Game>(mut state: G::State, chances: &mut [f32], rng: &mut HostRng) -> G::State {
    while G::turn(&state) == Turn::Chance {
        state = G::happen(&state, chances, rng);
    }
    state
}

/// Mixes a word into a hash (the finaliser of SplitMix64).
#[inline]
pub fn mix(hash: u64, word: u64) -> u64 {
    let mut x = (hash ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
