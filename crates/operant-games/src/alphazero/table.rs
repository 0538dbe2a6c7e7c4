//! Self-play: games that one thread plays side by side, so that their leaves fill a batch of the network.
//!
//! Invariant: a game depends on its number, its seed and the weights alone, never on who sits at the same table or on threads. A tree
//! holds values of one network: it begins anew with every iteration.

use super::samples::{Sample, read_all, take, write_all};
use super::settings::Settings;
use super::teacher::{Judged, Teacher};
use crate::game::{Game, Turn, draw_outcome, settle_chance, sign};
use crate::search::game_net::GameNet;
use crate::search::mcts::{Counters, Evaluator, Mcts};
use operant_base::{Error, Result};
use operant_lanes::rng::HostRng;
use std::time::Instant;

/// A game that ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Finished {
    pub(super) place: u32,
    /// Points of player 0.
    pub(super) points: f32,
    pub(super) moves: u32,
}

/// One game under way.
struct Place<G: Game> {
    /// Its number among all places of the run.
    number: u32,
    mcts: Mcts<G>,
    state: G::State,
    /// Games before this one, and decisions in it.
    game: u32,
    moves: u32,
    /// Its positions so far.
    history: Vec<Sample<G>>,
    /// Positions to learn from that this iteration gave: of games that ended, or of a teacher's.
    done: Vec<Sample<G>>,
    /// Decisions that are left in this iteration.
    left: usize,
    /// States of it in the batch.
    rows: usize,
}

/// Games and the network that serves them.
pub(super) struct Table<G: Game> {
    places: Vec<Place<G>>,
    net: GameNet<G>,
    seed: u64,
    states: Vec<G::State>,
    opening: Opening<G>,
    policy: Vec<f32>,
    /// Who plays in place of search at first, what it made of decisions, and where those of each game end.
    pub(super) teacher: Option<Box<dyn Teacher<G>>>,
    judged: Vec<Judged>,
    ends: Vec<usize>,
    pub(super) finished: Vec<Finished>,
    pub(super) counters: Counters,
    /// Decisions that had only one action.
    pub(super) forced: u64,
    /// When it began and ended to play in this iteration.
    pub(super) played: (Instant, Instant),
}

/// Sets dice, first moves and searches of self-play apart.
const DICE: u64 = 0x6469_6365_0000_0000;
const OPENINGS: u64 = 0x6f70_656e_0000_0000;
const LESSONS: u64 = 0x6c65_7373_0000_0000;

/// Room to begin games in.
struct Opening<G: Game> {
    chances: Vec<f32>,
    room: G::Room,
    found: Vec<G::Action>,
}

impl<G: Game> Default for Opening<G> {
    fn default() -> Self {
        Self { chances: vec![0.0; G::OUTCOMES], room: G::Room::default(), found: Vec::with_capacity(4096) }
    }
}

impl<G: Game> Opening<G> {
    /// The first decision of a game, after up to `most` random ones.
    fn state(&mut self, most: u32, seed: u64, place: u32, game: u32) -> G::State {
        let mut dice = HostRng::new(seed ^ DICE, place, game, 0);
        let mut state = settle_chance::<G>(G::start(), &mut self.chances, &mut dice);
        if most == 0 {
            return state;
        }
        let mut rng = HostRng::new(seed ^ OPENINGS, place, game, 0);
        for _ in 0..rng.below(most + 1) {
            G::actions(&state, &mut self.room, &mut self.found);
            let after = G::after(&state, &self.found[rng.below(self.found.len() as u32) as usize]);
            let next = settle_chance::<G>(after, &mut self.chances, &mut rng);
            if G::turn(&next) == Turn::Over {
                break;
            }
            state = next;
        }
        state
    }
}

impl<G: Game> Table<G> {
    /// Games with these numbers, each at its beginning.
    pub(super) fn new(numbers: std::ops::Range<u32>, settings: &Settings, net: GameNet<G>, seed: u64) -> Result<Self> {
        let mut opening = Opening::default();
        // Positions of a game: decisions, and states before chance.
        let room = settings.most_moves * if G::OUTCOMES > 0 { 2 } else { 1 };
        let places = numbers
            .map(|number| {
                Ok(Place {
                    number,
                    mcts: Mcts::new(&settings.search)?,
                    state: opening.state(settings.random_moves, seed, number, 0),
                    game: 0,
                    moves: 0,
                    history: Vec::with_capacity(room),
                    done: Vec::with_capacity(2 * room),
                    left: 0,
                    rows: 0,
                })
            })
            .collect::<Result<Vec<_>>>()?;
        let rows = places.len() * settings.search.leaves * (1 + G::OUTCOMES);
        Ok(Self {
            finished: Vec::with_capacity(places.len() * 16),
            states: Vec::with_capacity(rows),
            policy: Vec::with_capacity(4096),
            teacher: None,
            judged: Vec::with_capacity(4096),
            ends: Vec::with_capacity(places.len()),
            counters: Counters::default(),
            forced: 0,
            played: (Instant::now(), Instant::now()),
            places,
            net,
            seed,
            opening,
        })
    }

    /// Plays so many decisions of each game.
    pub(super) fn play(&mut self, settings: &Settings) {
        self.played.0 = Instant::now();
        self.finished.clear();
        self.counters = Counters::default();
        self.forced = 0;
        for place in &mut self.places {
            place.left = settings.moves;
            place.done.clear();
            let rng = place.search_rng(self.seed);
            place.mcts.begin(place.state, rng);
        }
        loop {
            self.states.clear();
            for place in &mut self.places {
                place.rows = 0;
                while place.left > 0 && place.rows == 0 {
                    place.rows = match place.mcts.done() {
                        false => place.mcts.collect(|state| self.net.exact(state), &mut self.states),
                        true => 0,
                    };
                    if place.mcts.done() {
                        let (opening, policy) = (&mut self.opening, &mut self.policy);
                        let ended = place.step(settings, self.seed, opening, policy, &mut self.forced);
                        self.finished.extend(ended);
                    }
                }
            }
            if self.states.is_empty() {
                break;
            }
            let answer = self.net.evaluate(&self.states);
            let mut first = 0;
            for place in self.places.iter_mut().filter(|place| place.rows > 0) {
                place.mcts.absorb(answer.rows::<G>(first, place.rows));
                first += place.rows;
            }
        }
        for place in &mut self.places {
            self.counters.add(&place.mcts.take_counters());
        }
        self.played.1 = Instant::now();
    }

    /// Plays so many decisions of each game as the teacher would, who says of each what is to be learned from it.
    pub(super) fn follow(&mut self, settings: &Settings) {
        self.played.0 = Instant::now();
        self.finished.clear();
        (self.counters, self.forced) = (Counters::default(), 0);
        self.places.iter_mut().for_each(|place| place.done.clear());
        let teacher = self.teacher.as_mut().expect("a table that is taught has a teacher");
        for _ in 0..settings.moves {
            self.states.clear();
            self.states.extend(self.places.iter().map(|place| place.state));
            teacher.judge(&self.states, &mut self.judged, &mut self.ends);
            let mut begin = 0;
            for (place, &end) in self.places.iter_mut().zip(&self.ends) {
                let judged = &self.judged[begin..end];
                let ended = place.follow(judged, settings, self.seed, &mut self.opening, &mut self.policy);
                self.finished.extend(ended);
                self.forced += u64::from(judged.len() == 1);
                begin = end;
            }
        }
        self.played.1 = Instant::now();
    }

    /// Positions to learn from that this iteration gave, with the numbers of places, in their order.
    pub(super) fn samples(&self) -> impl Iterator<Item = (u32, &Sample<G>)> {
        self.places.iter().flat_map(|place| place.done.iter().map(|sample| (place.number, sample)))
    }

    /// The network.
    pub(super) fn net(&mut self) -> &mut GameNet<G> {
        &mut self.net
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        for place in &self.places {
            let mut words = [0; 8];
            G::write(&place.state, &mut words[..G::WORDS]);
            words[..G::WORDS].iter().for_each(|word| out.extend(word.to_le_bytes()));
            out.extend(place.game.to_le_bytes());
            out.extend(place.moves.to_le_bytes());
            write_all(place.history.iter(), out);
        }
    }

    pub(super) fn read(&mut self, bytes: &mut &[u8]) -> Result<()> {
        let damaged = || Error::Saved("checkpoint's games.bin does not fit this run; take another".into());
        for place in &mut self.places {
            place.read(bytes).ok_or_else(damaged)?;
        }
        Ok(())
    }
}

impl<G: Game> Place<G> {
    /// The stream of the next search.
    fn search_rng(&self, seed: u64) -> HostRng {
        HostRng::new(seed, self.number, self.game, self.moves)
    }

    fn read(&mut self, bytes: &mut &[u8]) -> Option<()> {
        let mut words = [0; 8];
        for word in &mut words[..G::WORDS] {
            *word = u64::from_le_bytes(take(bytes)?);
        }
        self.state = G::read(&words[..G::WORDS])?;
        self.game = u32::from_le_bytes(take(bytes)?);
        self.moves = u32::from_le_bytes(take(bytes)?);
        let most = self.history.capacity();
        read_all(bytes, most, &mut self.history)
    }

    /// Plays what the search found; begins another game if this one is over, and then says how it ended.
    fn step(
        &mut self,
        settings: &Settings,
        seed: u64,
        opening: &mut Opening<G>,
        policy: &mut Vec<f32>,
        forced: &mut u64,
    ) -> Option<Finished> {
        let temperature = if self.moves < settings.drawn_moves { 1.0 } else { settings.temperature };
        let action = self.mcts.choose(temperature);
        let mut sample = Sample::new(self.state, self.mcts.value());
        self.mcts.policy(policy);
        sample.keep(policy);
        sample.known = self.mcts.is_proven();
        sample.surprise = (self.mcts.value() - self.mcts.tree().values[0]).abs();
        let surprise = sample.surprise;
        *forced += u64::from(policy.len() == 1);
        self.history.push(sample);
        let after = G::after(&self.state, &self.mcts.actions()[action]);
        if G::turn(&after) == Turn::Chance && settings.search.afterstates {
            let points = self.mcts.action_value(action) * sign::<G>(&self.state);
            self.history.push(Sample { surprise, ..Sample::new(after, points) });
        }
        self.left -= 1;
        let over = self.go_on(after, seed, opening);
        if over || self.moves as usize >= settings.most_moves {
            let points = if over { G::settled(&self.state) } else { self.mcts.value() };
            if over || G::HEADS == 1 {
                self.label(points, settings.td_lambda);
            } else {
                // Chances of several outcomes can't be had from points: a game that was cut says nothing.
                self.history.clear();
            }
            let finished = self.begin_next(points, settings, seed, opening);
            let rng = self.search_rng(seed);
            self.mcts.begin(self.state, rng);
            return Some(finished);
        }
        let rng = self.search_rng(seed);
        self.mcts.advance(self.state, action, rng);
        None
    }

    /// Plays what the teacher says and keeps it to learn from: the decision, and one of the states that actions lead to, half of the time
    /// any of them, since a search looks at those that nobody would play too.
    fn follow(
        &mut self,
        judged: &[Judged],
        settings: &Settings,
        seed: u64,
        opening: &mut Opening<G>,
        policy: &mut Vec<f32>,
    ) -> Option<Finished> {
        let best = (1..judged.len()).fold(0, |best, i| if judged[i].points > judged[best].points { i } else { best });
        policy.clear();
        let behind = |action: &Judged| (action.points - judged[best].points) / settings.pretrain_temperature;
        policy.extend(judged.iter().map(|action| behind(action).exp()));
        let total: f32 = policy.iter().sum();
        policy.iter_mut().for_each(|share| *share /= total);
        let mut decision = Sample { taught: Some(judged[best].own), ..Sample::new(self.state, 0.0) };
        decision.keep(policy);
        self.done.push(decision);
        let mut rng = HostRng::new(seed ^ LESSONS, self.number, self.game, self.moves);
        let action = if self.moves < settings.drawn_moves { draw_outcome(policy, &mut rng) } else { best };
        let shown = if rng.below(2) == 0 { action } else { rng.below(judged.len() as u32) as usize };
        G::actions(&self.state, &mut opening.room, &mut opening.found);
        let [after, shown_after] = [action, shown].map(|action| G::after(&self.state, &opening.found[action]));
        if G::turn(&shown_after) == Turn::Chance && settings.search.afterstates {
            self.done.push(Sample { taught: Some(judged[shown].after), ..Sample::new(shown_after, 0.0) });
        }
        let over = self.go_on(after, seed, opening);
        let cut = self.moves as usize >= settings.most_moves;
        (over || cut).then(|| self.begin_next(G::settled(&self.state), settings, seed, opening))
    }

    /// Goes on to the next decision after an action, or to the end of the game; tells whether it is over.
    fn go_on(&mut self, after: G::State, seed: u64, opening: &mut Opening<G>) -> bool {
        self.moves += 1;
        let mut dice = HostRng::new(seed ^ DICE, self.number, self.game, self.moves);
        self.state = settle_chance::<G>(after, &mut opening.chances, &mut dice);
        G::turn(&self.state) == Turn::Over
    }

    /// Begins another game, and says how this one ended.
    fn begin_next(&mut self, points: f32, settings: &Settings, seed: u64, opening: &mut Opening<G>) -> Finished {
        let finished = Finished { place: self.number, points, moves: self.moves };
        self.game += 1;
        self.moves = 0;
        self.state = opening.state(settings.random_moves, seed, self.number, self.game);
        finished
    }

    /// Gives the positions of a game that came to so many points of player 0 their targets.
    fn label(&mut self, points: f32, lambda: f32) {
        let mut target = points;
        for sample in self.history.iter_mut().rev() {
            let found = sample.points;
            // Chances of several outcomes can't be had from points.
            if sample.known && G::HEADS == 1 {
                target = found;
            }
            sample.points = sign::<G>(&sample.state) * (target - G::settled(&sample.state));
            // What an earlier position learns of this one and of all after it.
            target = (1.0 - lambda) * found + lambda * target;
        }
        self.done.extend_from_slice(&self.history);
        self.history.clear();
    }
}
