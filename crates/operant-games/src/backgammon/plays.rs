//! All legal plays of a roll: each position that a turn can lead to, once.

use super::position::{BAR, Position, Side};

/// A way to play a roll.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Play {
    after: Side,
    /// Points where a checker of the opponent was hit, as bits.
    hits: u32,
    /// Places that checkers left, in order; 0 after the last.
    from: [u8; 4],
    /// By how much.
    by: [u8; 4],
}

impl Play {
    /// Each checker's place before and after a step, and whether it hit there. A place below 1 is 0: off the board.
    pub fn steps(&self) -> impl Iterator<Item = (usize, usize, bool)> + '_ {
        self.from.iter().zip(self.by).take_while(|(from, _)| **from > 0).map(|(&from, by)| {
            let to = from.saturating_sub(by);
            (usize::from(from), usize::from(to), to > 0 && self.hits >> to & 1 == 1)
        })
    }

    /// The mover's checkers after the play.
    pub fn after(&self) -> Side {
        self.after
    }

    /// Points where a checker of the opponent was hit, as bits.
    pub(super) fn hits(&self) -> u32 {
        self.hits
    }

    /// The play as one or two numbers below `ACTIONS`: `26 · a + b` for the places that checkers left, 0 for none. Of two different dice `a`
    /// is by the larger one; of a double the first number has the first two steps, the second those after.
    pub fn actions(&self, dice: [u8; 2]) -> [usize; 2] {
        let code = |a: u8, b: u8| usize::from(a) * (BAR + 1) + usize::from(b);
        if dice[0] == dice[1] {
            return [code(self.from[0], self.from[1]), code(self.from[2], self.from[3])];
        }
        let by = |die: u8| (0..2).find(|&i| self.by[i] == die && self.from[i] > 0).map_or(0, |i| self.from[i]);
        [code(by(dice[0].max(dice[1])), by(dice[0].min(dice[1]))), 0]
    }

    /// The position after the play, for the opponent, whose turn it is then.
    #[inline]
    pub fn result(&self, before: Position) -> Position {
        let mut other = before.other;
        let mut hits = self.hits;
        while hits != 0 {
            other = other.moved(BAR - hits.trailing_zeros() as usize, BAR);
            hits &= hits - 1;
        }
        Position { mover: other, other: self.after }
    }
}

/// Numbers of [`Play::actions`].
pub(super) const ACTIONS: usize = (BAR + 1) * (BAR + 1);

/// Room for the plays of one roll, kept from turn to turn.
#[derive(Clone, Debug)]
pub struct Plays {
    list: Vec<Play>,
}

/// More plays than a roll can have.
const MOST_PLAYS: usize = 4096;

impl Default for Plays {
    fn default() -> Self {
        Self { list: Vec::with_capacity(MOST_PLAYS) }
    }
}

impl std::ops::Deref for Plays {
    type Target = [Play];
    fn deref(&self) -> &[Play] {
        &self.list
    }
}

/// A turn under way: the mover's checkers, the places they are on, and what happened.
#[derive(Clone, Copy)]
struct Partial {
    side: Side,
    occupied: u32,
    hits: u32,
    from: [u8; 4],
    by: [u8; 4],
    len: usize,
}

/// Points 1 to 24.
const POINTS: u32 = 0x01ff_fffe;
/// Points beyond home, and the bar.
const OUTSIDE: u32 = 0x03ff_ff80;

/// The opponent's points, as bits.
#[derive(Clone, Copy)]
struct Held {
    made: u32,
    blots: u32,
}

impl Partial {
    /// Places from which a checker can move by `die`, as bits.
    #[inline]
    fn sources(&self, held: Held, die: u8) -> u32 {
        let on = self.occupied & !1;
        if on >> BAR != 0 {
            return (!held.made >> (BAR - usize::from(die)) & 1) << BAR;
        }
        let open = !held.made & POINTS;
        let mut sources = on & open << die;
        if on & OUTSIDE == 0 && on != 0 {
            let highest = 31 - on.leading_zeros();
            let exact = on & 1 << die;
            sources |= if highest < u32::from(die) { 1 << highest } else { exact };
        }
        sources
    }

    #[inline]
    fn step(mut self, held: Held, from: usize, die: u8) -> Self {
        let to = from.saturating_sub(usize::from(die));
        self.side = self.side.moved(from, to);
        self.occupied |= 1 << to;
        if self.side.count(from) == 0 {
            self.occupied &= !(1 << from);
        }
        self.hits |= held.blots & 1 << to;
        self.from[self.len] = from as u8;
        self.by[self.len] = die;
        self.len += 1;
        self
    }
}

/// The places of set bits, lowest first.
#[inline]
fn places(mut bits: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let place = bits.trailing_zeros() as usize;
        (bits != 0).then(|| {
            bits &= bits - 1;
            place
        })
    })
}

impl Plays {
    /// Finds all plays of a roll: every die that can be played is, and the larger one if only one can. Where none can, the only play
    /// leaves everything as it is.
    pub fn find(&mut self, position: Position, dice: [u8; 2]) {
        self.list.clear();
        let (made, blots) = position.held();
        let held = Held { made, blots };
        let side = position.mover;
        let start = Partial { side, occupied: side.occupied(), hits: 0, from: [0; 4], by: [0; 4], len: 0 };
        if dice[0] == dice[1] {
            self.doubles(start, held, dice[0], BAR, &mut 0);
        } else {
            self.two(start, held, dice[0].max(dice[1]), dice[0].min(dice[1]));
        }
        if self.list.is_empty() {
            self.push(&start);
        }
    }

    #[inline]
    fn push(&mut self, done: &Partial) {
        let play = Play { after: done.side, hits: done.hits, from: done.from, by: done.by };
        self.list.push(play);
    }

    #[inline]
    fn has(&self, done: &Partial) -> bool {
        self.list.iter().any(|play| play.after == done.side && play.hits == done.hits)
    }

    /// Checkers leave higher places first: an order in which whatever can be played can be, and which no other way has.
    fn doubles(&mut self, partial: Partial, held: Held, die: u8, highest: usize, most: &mut usize) {
        let sources = if partial.len < 4 { partial.sources(held, die) & ((2 << highest) - 1) } else { 0 };
        for from in places(sources) {
            self.doubles(partial.step(held, from, die), held, die, from, most);
        }
        if sources == 0 && partial.len > 0 {
            if partial.len > *most {
                *most = partial.len;
                self.list.clear();
            }
            if partial.len == *most {
                self.push(&partial);
            }
        }
    }

    fn two(&mut self, start: Partial, held: Held, large: u8, small: u8) {
        // By place: from where the small die can be played after the large one was played from there.
        let mut after = [0u32; BAR + 1];
        let first_large = start.sources(held, large);
        for from in places(first_large) {
            let next = start.step(held, from, large);
            after[from] = next.sources(held, small);
            for second in places(after[from]) {
                let done = next.step(held, second, small);
                // One checker by both dice, or two checkers to the same effect.
                if second + usize::from(large) != from || !self.has(&done) {
                    self.push(&done);
                }
            }
        }
        let first_small = start.sources(held, small);
        for from in places(first_small) {
            let next = start.step(held, from, small);
            for second in places(next.sources(held, large)) {
                // The same two steps in the other order.
                if after[second] >> from & 1 == 1 {
                    continue;
                }
                let done = next.step(held, second, large);
                if !self.has(&done) {
                    self.push(&done);
                }
            }
        }
        if self.list.is_empty() {
            let (die, sources) = if first_large != 0 { (large, first_large) } else { (small, first_small) };
            for from in places(sources) {
                self.push(&start.step(held, from, die));
            }
        }
    }
}
