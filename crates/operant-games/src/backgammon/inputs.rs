//! What value networks see of a position: the plain board, and what an expert would count on it.
//!
//! Everything is written for each side alike, the mover's first, as that side counts places. A position without contact, in which no checker
//! can be hit any more, has inputs of its own. Formulas are at the functions; ideas of expert inputs are those of H. Berliner (BKG, 1980) and
//! J. Heled and others (GNU Backgammon's eval.c), numbers here are our own.

use super::position::{BAR, CHECKERS, Position, Side};

/// Inputs of a position with contact.
pub const CONTACT_INPUTS: usize = 2 * CONTACT_SIDE;
/// Inputs of a race.
pub const RACE_INPUTS: usize = 2 * RACE_SIDE;
const CONTACT_SIDE: usize = 160;
const RACE_SIDE: usize = 112;
/// Numbers that show the points: four for each.
const POINT_NUMBERS: usize = 24 * 4;
/// Points as bits of places.
const POINTS: u32 = 0x01ff_fffe;
/// Pips of a side when a game begins.
const START_PIPS: f32 = 167.0;
/// Rolls of two dice.
const ROLLS: f32 = 36.0;

/// A point's four numbers by the count of checkers on it: a blot, a made point, a third checker, half of those beyond.
const POINT: [[f32; 4]; 16] = {
    let mut table = [[0.0; 4]; 16];
    let mut count = 1;
    while count < 16 {
        table[count] = match count {
            1 => [1.0, 0.0, 0.0, 0.0],
            2 => [0.0, 1.0, 0.0, 0.0],
            more => [0.0, 1.0, 1.0, (more - 3) as f32 / 2.0],
        };
        count += 1;
    }
    table
};

/// By which of the 12 points before a checker are blocked, nearest first as bits: with how many of the 36 rolls it can move by the sum of two
/// dice, one of them first.
static ESCAPES: [u8; 1 << 12] = {
    let mut table = [0; 1 << 12];
    let mut blocked = 0;
    while blocked < 1 << 12 {
        let mut a = 0;
        while a < 6 {
            let mut b = 0;
            while b <= a {
                let both_steps_blocked = blocked >> a & blocked >> b & 1 == 1;
                if blocked >> (a + b + 1) & 1 == 0 && !both_steps_blocked {
                    table[blocked] += if a == b { 1 } else { 2 };
                }
                b += 1;
            }
            a += 1;
        }
        blocked += 1;
    }
    table
};

impl Position {
    /// Whether a checker can still be hit: the sides have not passed each other.
    #[inline]
    pub fn contact(self) -> bool {
        self.mover.rear() + self.other.rear() > BAR
    }
}

impl Side {
    /// The place of the last checker; 0 if all are off.
    #[inline]
    pub(super) fn rear(self) -> usize {
        31 - (self.occupied() | 1).leading_zeros() as usize
    }
}

/// A side's places as the opponent counts them.
#[inline]
fn mirrored(bits: u32) -> u32 {
    bits.reverse_bits() >> 6 & POINTS
}

/// Writes [`CONTACT_INPUTS`] numbers.
#[inline(always)]
pub fn contact_inputs(position: Position, out: &mut [f32]) {
    let (mover, other) = out.split_at_mut(CONTACT_SIDE);
    let (me, foe) = (Seen::new(position.mover), Seen::new(position.other));
    contact_side(&me, &foe, mover);
    contact_side(&foe, &me, other);
}

/// Writes [`RACE_INPUTS`] numbers.
#[inline(always)]
pub fn race_inputs(position: Position, out: &mut [f32]) {
    let (mover, other) = out.split_at_mut(RACE_SIDE);
    race_side(position.mover, mover);
    race_side(position.other, other);
}

#[inline(always)]
fn points(counts: &[u8; 32], out: &mut [f32]) {
    for (&count, out) in counts[1..BAR].iter().zip(out.chunks_exact_mut(4)) {
        out.copy_from_slice(&POINT[usize::from(count & 15)]);
    }
}

/// Sums over a side's checkers, each a function of the place alone or of place and count.
const SUMS: usize = 8;
/// What each of [`SUMS`] is.
mod sum {
    pub(super) const PIPS: usize = 0;
    pub(super) const SQUARES: usize = 1;
    pub(super) const OUTSIDE: usize = 2;
    pub(super) const STACKED: usize = 3;
    pub(super) const SPARE: usize = 4;
    pub(super) const BUILDERS: usize = 5;
    pub(super) const BACK: usize = 6;
    pub(super) const QUARTERS: usize = 7;
}

/// By place and count, what the checkers there add to each sum.
static ADDS: [[[f32; SUMS]; 16]; BAR + 1] = {
    let mut table = [[[0.0; SUMS]; 16]; BAR + 1];
    let mut place = 1;
    while place <= BAR {
        let mut count = 1;
        while count < 16 {
            let adds = &mut table[place][count];
            let (n, p) = (count as f32, place as f32);
            adds[sum::PIPS] = n * p;
            adds[sum::SQUARES] = n * p * p;
            if place > 6 {
                adds[sum::OUTSIDE] = n * (p - 6.0);
            }
            if count > 4 && place < BAR {
                adds[sum::STACKED] = n - 4.0;
            }
            if count > 2 && place > 6 && place < BAR {
                adds[sum::SPARE] = (n - 2.0) * (p - 6.0);
            }
            if place > 6 && place <= 12 {
                adds[sum::BUILDERS] = n;
            }
            if place > 18 {
                adds[sum::BACK] = n;
            }
            if place < BAR {
                adds[sum::QUARTERS] = n * place.div_ceil(6) as f32;
            }
            count += 1;
        }
        place += 1;
    }
    table
};

#[inline(always)]
fn sums(counts: &[u8; 32]) -> [f32; SUMS] {
    let mut sums = [0.0; SUMS];
    for (&count, adds) in counts[..=BAR].iter().zip(&ADDS) {
        let adds = &adds[usize::from(count & 15)];
        for (sum, add) in sums.iter_mut().zip(adds) {
            *sum += add;
        }
    }
    sums
}

/// A side's checkers in the forms that inputs are counted from.
struct Seen {
    counts: [u8; 32],
    occupied: u32,
    made: u32,
    rear: usize,
    sums: [f32; SUMS],
}

impl Seen {
    #[inline(always)]
    fn new(side: Side) -> Self {
        let counts = side.counts();
        Self { occupied: side.occupied(), made: side.made() & POINTS, rear: side.rear(), sums: sums(&counts), counts }
    }
}

#[inline(always)]
fn race_side(side: Side, out: &mut [f32]) {
    let counts = side.counts();
    points(&counts, out);
    let rest = &mut out[POINT_NUMBERS..];
    rest.fill(0.0);
    // One for each number of checkers borne off, from 1 to 14.
    let off = usize::from(counts[0]);
    if (1..usize::from(CHECKERS)).contains(&off) {
        rest[off - 1] = 1.0;
    }
    // Steps until all are off, and quarters of the board that remain to be crossed.
    let sums = sums(&counts);
    rest[14] = sums[sum::PIPS] / 100.0;
    rest[15] = sums[sum::QUARTERS] / 30.0;
}

/// What an attack on blots can do with one roll.
struct Shots {
    /// Rolls of 36 that hit.
    hitting: u32,
    /// Rolls of 36 whose dice hit one blot each, or doubles that hit two.
    two: u32,
    /// Sum over the rolls of the most pips that a hit takes from the opponent.
    pips: u32,
}

impl Shots {
    #[inline]
    fn note(&mut self, weight: u32, hit: u32, two: bool) {
        if hit != 0 {
            self.hitting += weight;
            // Place p of the attacker is 25 − p of the one who is hit, who has p more pips to go from the bar.
            self.pips += weight * (31 - hit.leading_zeros());
            self.two += weight * u32::from(two);
        }
    }
}

/// Shots of a side with checkers on `occupied`, `bar` of them on the bar, at `blots`; `open` are the points it can land on. Checkers move by one
/// die, or by both over an open point; those on the bar enter first.
#[inline(always)]
fn shots(occupied: u32, bar: u8, blots: u32, open: u32) -> Shots {
    let mut shots = Shots { hitting: 0, two: 0, pips: 0 };
    if blots == 0 {
        return shots;
    }
    let on_board = occupied & POINTS;
    // By die: where a checker comes from the bar, and where one can step without those on the bar.
    let enters: [u32; 7] = std::array::from_fn(|die| (1 << (BAR - die)) & open);
    let steps: [u32; 7] = std::array::from_fn(|die| on_board >> die & open);
    for (die, &entering) in enters.iter().enumerate().skip(1) {
        let (from, times) = match (bar, entering) {
            (0, _) => (on_board, 4),
            (_, 0) => continue,
            (bar, entered) => (on_board | entered, 4 - bar.min(4)),
        };
        let mut reached = if bar > 0 { entering } else { 0 };
        let mut moving = from;
        for _ in 0..times {
            moving = moving >> die & open;
            reached |= moving;
        }
        let hit = reached & blots;
        shots.note(1, hit, hit & hit.wrapping_sub(1) != 0);
    }
    for a in 2..=6 {
        for b in 1..a {
            match bar {
                0 => {
                    let (hit_a, hit_b) = (steps[a] & blots, steps[b] & blots);
                    let direct = hit_a | hit_b;
                    let two = hit_a != 0 && hit_b != 0 && direct & (direct - 1) != 0;
                    shots.note(2, direct | (steps[a] >> b | steps[b] >> a) & blots, two);
                }
                1 => {
                    let way = |first: usize, second: usize| match enters[first] {
                        0 => 0,
                        entered => entered | steps[second] | entered >> second,
                    };
                    shots.note(2, (way(a, b) | way(b, a)) & blots, false);
                }
                _ => {
                    let hit = (enters[a] | enters[b]) & blots;
                    shots.note(2, hit, hit & hit.wrapping_sub(1) != 0);
                }
            }
        }
    }
    shots
}

/// Length of the longest run of set bits.
#[inline]
fn longest_run(mut bits: u32) -> u32 {
    let mut length = 0;
    while bits != 0 {
        bits &= bits << 1;
        length += 1;
    }
    length
}

#[inline(always)]
fn contact_side(me: &Seen, foe: &Seen, out: &mut [f32]) {
    points(&me.counts, out);
    let Seen { counts, made, rear, .. } = me;
    let (made, rear) = (*made, *rear);
    let blots = me.occupied & POINTS & !made;
    let foe_blots = mirrored(foe.occupied & POINTS & !foe.made);
    let open = POINTS & !mirrored(foe.made);
    let (bar, foe_bar, off) = (counts[BAR], foe.counts[BAR], counts[0]);
    let pips = me.sums[sum::PIPS];
    let x: &mut [f32; CONTACT_SIDE - POINT_NUMBERS] =
        (&mut out[POINT_NUMBERS..]).try_into().expect("a side's inputs after its points");

    // The bar: one at least, half of those beyond. Borne off: fives, one after another.
    x[0] = f32::from(bar.min(1));
    x[1] = f32::from(bar.saturating_sub(1)) / 2.0;
    for (i, to) in x[2..5].iter_mut().enumerate() {
        *to = f32::from(off.saturating_sub(5 * i as u8).min(5)) / 5.0;
    }

    // How the opponent contains: for places 13 to the bar, the share of rolls with which a checker there does not get away; then the same
    // times the checkers there, two at most.
    let escapes = |place: usize| f32::from(ESCAPES[(foe.made >> (BAR + 1 - place)) as usize & 0xfff]);
    for (i, place) in (13..=BAR).enumerate() {
        let blocked = 1.0 - escapes(place) * (1.0 / ROLLS);
        x[5 + i] = blocked;
        x[18 + i] = blocked * f32::from(counts[place].min(2)) * 0.5;
    }
    x[31] = escapes(rear.max(1)) / ROLLS;
    // How freely checkers beyond home can move: distance to home + 1, times rolls.
    let mut mobility = 0.0;
    let mut beyond = me.occupied >> 7;
    while beyond != 0 {
        let place = 7 + beyond.trailing_zeros() as usize;
        mobility += f32::from(counts[place]) * (place - 5) as f32 * escapes(place);
        beyond &= beyond - 1;
    }
    x[32] = mobility / 3600.0;

    let shots = shots(me.occupied, bar, foe_blots, open);
    x[33] = shots.hitting as f32 / ROLLS;
    x[34] = shots.two as f32 / ROLLS;
    x[35] = shots.pips as f32 / (ROLLS * 12.0);

    // A checker on the bar: the chance that one enters, and that two do.
    let free = 1.0 - (foe.made & 0x7e).count_ones() as f32 / 6.0;
    x[36] = if bar > 0 { 1.0 - (1.0 - free) * (1.0 - free) } else { 0.0 };
    x[37] = if bar > 1 { free * free } else { 0.0 };

    // Home points made, and those with a blot, while the opponent is on the bar.
    let (made_now, blots_now) = if foe_bar > 0 { (made, blots) } else { (0, 0) };
    for point in 1..=6 {
        x[37 + point] = (made_now >> point & 1) as f32;
        x[43 + point] = (blots_now >> point & 1) as f32;
    }

    // Pips, and the lead.
    x[50] = pips / START_PIPS;
    x[51] = ((foe.sums[sum::PIPS] - pips) / 50.0).clamp(-2.0, 2.0);
    // The last checker, the anchor nearest to the way out of the opponent's home, how many anchors, how many checkers there and on the bar.
    x[52] = rear as f32 / BAR as f32;
    let anchors = made >> 19 & 0x3f;
    x[53] = if anchors == 0 { 0.0 } else { (6 - anchors.trailing_zeros()) as f32 / 6.0 };
    x[54] = anchors.count_ones() as f32 / 3.0;
    x[55] = me.sums[sum::BACK] / 5.0;
    // Home points, the longest prime, builders on 7 to 12.
    x[56] = (made & 0x7e).count_ones() as f32 / 6.0;
    x[57] = longest_run(made) as f32 / 6.0;
    x[58] = me.sums[sum::BUILDERS] / 8.0;
    // Pips until the sides have passed each other.
    let passed = BAR - foe.rear;
    let mut behind = 0;
    let mut after = me.occupied >> passed >> 1;
    while after != 0 {
        let distance = 1 + after.trailing_zeros() as usize;
        behind += usize::from(counts[passed + distance]) * distance;
        after &= after - 1;
    }
    x[59] = behind as f32 / START_PIPS;
    // Pips until all are home, while a gammon can be lost.
    x[60] = if off == 0 { me.sums[sum::OUTSIDE] / 100.0 } else { 0.0 };
    // Checkers beyond four on a point.
    x[61] = me.sums[sum::STACKED] / 5.0;
    // Scatter: the mean squared distance from the mean place, those borne off on place 0.
    x[62] = (me.sums[sum::SQUARES] - pips * pips / f32::from(CHECKERS)) / 1500.0;
    // Spare checkers beyond two on points from 7 on, by their way home: the time that is left before a good position breaks.
    x[63] = me.sums[sum::SPARE] / 50.0;
}
