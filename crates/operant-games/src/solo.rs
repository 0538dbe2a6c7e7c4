//! A game as an env for one agent: it plays the first player, and an opponent that plays at random answers. A game for one is played as it is.
//!
//! An action is an output of a policy head. Where an action of the game has two (a double in backgammon), it takes two steps: the mask of
//! the second shows what can follow the first.

use super::game::{Game, Turn, settle_chance};
use operant_base::{Error, Result};
use operant_env::{ActionSpace, Canvas, Channel, HostAction, HostEnv, Param, Params, Spec};
use operant_lanes::rng::HostRng;
use operant_lanes::{Column, Kind};
use std::cell::RefCell;

/// A game under way, at the agent's turn.
pub(super) struct Solo<G: Game> {
    state: G::State,
    /// The first output of an action that has two, once it is chosen.
    half: Option<usize>,
    chances: Vec<f32>,
    /// Room to find actions in, also for those who only look.
    room: RefCell<(G::Room, Vec<G::Action>)>,
}

/// What an env is called.
pub(super) trait Named: Game {
    /// Gymnasium's id.
    const ID: &'static str;
    /// One sentence.
    const SUMMARY: &'static str;
    /// Where the rules come from.
    const REFERENCE: &'static str;
}

impl Named for super::connect4::Connect4 {
    const ID: &'static str = "operant/Connect4-v0";
    const SUMMARY: &'static str = "Connect Four, moving first, against an opponent that plays at random";
    const REFERENCE: &'static str = "J. Allen, The complete book of Connect 4, 2010";
}

impl Named for super::twenty48::Twenty48 {
    const ID: &'static str = "operant/2048-v0";
    const SUMMARY: &'static str = "slide and merge tiles; rewards are points of merges, in thousands";
    const REFERENCE: &'static str = "G. Cirulli, 2048, 2014";
}

impl Named for super::backgammon::Backgammon {
    const ID: &'static str = "operant/Backgammon-v0";
    const SUMMARY: &'static str = "backgammon against an opponent that plays at random";
    const REFERENCE: &'static str = "U.S. Backgammon Federation, rules of backgammon";
}

/// Slow enough to follow a game.
const FRAMES_PER_SECOND: u32 = 2;
/// More actions than a state has.
const MOST_ACTIONS: usize = 4096;

const WORD_NAMES: [&str; 10] = [
    "word 0 low",
    "word 0 high",
    "word 1 low",
    "word 1 high",
    "word 2 low",
    "word 2 high",
    "word 3 low",
    "word 3 high",
    "word 4 low",
    "word 4 high",
];

impl<G: Named> Default for Solo<G> {
    fn default() -> Self {
        let mut chances = vec![0.0; G::OUTCOMES];
        let state = settle_chance::<G>(G::start(), &mut chances, &mut HostRng::new(0, 0, 0, 0));
        Self { state, half: None, chances, room: RefCell::new((G::Room::default(), Vec::with_capacity(MOST_ACTIONS))) }
    }
}

impl<G: Named> Clone for Solo<G> {
    /// With room of its own.
    fn clone(&self) -> Self {
        Self { state: self.state, half: self.half, ..Self::default() }
    }
}

impl<G: Named> Params for Solo<G> {
    fn params(&self) -> Vec<Param> {
        Vec::new()
    }

    fn store(&mut self, _: usize, _: f64) {}
}

impl<G: Named> Solo<G> {
    /// Plays an action, then chance and the opponent until the agent decides again.
    fn play(&mut self, action: &G::Action, rng: &mut HostRng) {
        self.half = None;
        let mut state = G::after(&self.state, action);
        loop {
            state = settle_chance::<G>(state, &mut self.chances, rng);
            if G::turn(&state) == Turn::Over || G::player(&state) == 0 {
                break;
            }
            let (room, found) = self.room.get_mut();
            G::actions(&state, room, found);
            let reply = found[rng.below(found.len() as u32) as usize];
            state = G::after(&state, &reply);
        }
        self.state = state;
    }

    /// Outputs by which an action can be chosen now, if it still can.
    fn open(&self, action: &G::Action) -> Option<usize> {
        let (one, other) = G::policy_index(&self.state, action);
        match self.half {
            None => Some(one),
            Some(half) => other.filter(|_| one == half),
        }
    }
}

impl<G: Named> HostEnv for Solo<G> {
    fn spec(&self) -> Spec {
        Spec {
            name: G::NAME,
            id: G::ID,
            summary: G::SUMMARY,
            reference: G::REFERENCE,
            observation: (0..G::OBSERVATION).map(|i| Channel::new(format!("input {i}"), 0.0, G::HIGHEST)).collect(),
            action: ActionSpace::Discrete(G::POLICY),
            masked: true,
            time_limit: None,
            solved_at: None,
            render_fps: FRAMES_PER_SECOND,
        }
    }

    fn reset(&mut self, rng: &mut HostRng) {
        self.half = None;
        self.state = settle_chance::<G>(G::start(), &mut self.chances, rng);
    }

    fn step(&mut self, action: HostAction<'_>, rng: &mut HostRng) -> (f32, bool) {
        let index = action.index(0);
        if G::turn(&self.state) != Turn::Decision {
            return (0.0, true);
        }
        let (first, halved) = {
            let mut room = self.room.borrow_mut();
            let (room, found) = &mut *room;
            G::actions(&self.state, room, found);
            let mut fits = found.iter().filter(|action| self.open(action) == Some(index));
            // What is not legal is the first that is.
            (fits.next().or(found.first()).copied(), fits.next().is_some())
        };
        let before = G::settled(&self.state);
        match first {
            Some(_) if halved => self.half = Some(index),
            Some(action) => self.play(&action, rng),
            None => {}
        }
        (G::settled(&self.state) - before, G::turn(&self.state) == Turn::Over)
    }

    fn observe(&self, obs: &mut [f32]) {
        G::observe(&self.state, obs);
    }

    fn legal(&self, legal: &mut [u8]) {
        // Where the game is over nothing matters any more.
        let over = G::turn(&self.state) != Turn::Decision;
        legal.fill(u8::from(over));
        if over {
            return;
        }
        let mut room = self.room.borrow_mut();
        let (room, found) = &mut *room;
        G::actions(&self.state, room, found);
        for action in found.iter() {
            if let Some(index) = self.open(action) {
                legal[index] = 1;
            }
        }
    }

    fn draw(&self) -> Option<Canvas> {
        G::draw(&self.state)
    }

    fn columns(&self) -> Vec<Column> {
        let column = |name| Column { name, kind: Kind::I32 };
        WORD_NAMES[..2 * G::WORDS].iter().map(|name| column(name)).chain([column("half")]).collect()
    }

    fn read(&self, state: &mut [i32]) {
        let mut words = [0; WORD_NAMES.len() / 2];
        G::write(&self.state, &mut words[..G::WORDS]);
        for (pair, word) in state.chunks_exact_mut(2).zip(words) {
            pair.copy_from_slice(&[word as i32, (word >> 32) as i32]);
        }
        state[2 * G::WORDS] = self.half.map_or(-1, |half| half as i32);
    }

    fn write(&mut self, state: &[i32]) -> Result<()> {
        let wrong = |what: &str| Error::Invalid(format!("{} state: {what}; wanted one that was read", G::NAME));
        let mut words = [0; WORD_NAMES.len() / 2];
        for (pair, word) in state[..2 * G::WORDS].chunks_exact(2).zip(&mut words) {
            *word = u64::from(pair[0] as u32) | u64::from(pair[1] as u32) << 32;
        }
        let new = G::read(&words[..G::WORDS]).ok_or_else(|| wrong("no state has these words"))?;
        let turn = G::turn(&new);
        if turn == Turn::Chance || (turn == Turn::Decision && G::player(&new) != 0) {
            return Err(wrong("not the agent's turn"));
        }
        let half = state[2 * G::WORDS];
        if half >= G::POLICY as i32 || half < -1 {
            return Err(wrong("no such half of an action"));
        }
        (self.state, self.half) = (new, usize::try_from(half).ok());
        Ok(())
    }
}
