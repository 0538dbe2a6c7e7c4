//! A backgammon position in two registers: each side's checkers as it sees them, 26 counts of four bits.

/// The bar, as a place.
pub const BAR: usize = 25;
/// Checkers of a side.
pub const CHECKERS: u8 = 15;

/// Checkers of one side, as that side counts places: 0 for those borne off, 1 to 24 for points, 25 for the bar.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Side(u128);

impl Side {
    /// Where the checkers stand when a game begins.
    pub const START: Self = Self((5 << (4 * 6)) | (3 << (4 * 8)) | (5 << (4 * 13)) | (2 << (4 * 24)));

    /// From counts per place; those not on the board are borne off. `None` if there are more than fifteen.
    pub fn new(counts: &[u8; BAR + 1]) -> Option<Self> {
        let on_board: u32 = counts[1..].iter().map(|&count| u32::from(count)).sum();
        let off = u32::from(CHECKERS).checked_sub(on_board)?;
        let packed = counts[1..].iter().enumerate().map(|(i, &count)| u128::from(count) << (4 * (i + 1))).sum::<u128>();
        Some(Self(packed | u128::from(off)))
    }

    /// Checkers on a place.
    #[inline]
    pub fn count(self, place: usize) -> u8 {
        (self.0 >> (4 * place)) as u8 & 15
    }

    /// Checkers borne off.
    #[inline]
    pub fn off(self) -> u8 {
        self.count(0)
    }

    /// Places with a checker at least, as bits.
    #[inline]
    pub(super) fn occupied(self) -> u32 {
        let x = self.0 | self.0 >> 1;
        collect(x | x >> 2)
    }

    /// Places with two checkers at least, as bits.
    #[inline]
    pub(super) fn made(self) -> u32 {
        collect(self.0 >> 1 | self.0 >> 2 | self.0 >> 3)
    }

    /// One checker from a place to another.
    #[inline]
    pub(super) fn moved(self, from: usize, to: usize) -> Self {
        Self(self.0.wrapping_sub(1 << (4 * from)).wrapping_add(1 << (4 * to)))
    }

    /// Checkers on each place; those after the bar are 0.
    #[inline(always)]
    pub fn counts(self) -> [u8; 32] {
        #[inline(always)]
        fn spread(x: u32) -> [u8; 8] {
            let x = u64::from(x);
            let x = (x | x << 16) & 0x0000_ffff_0000_ffff;
            let x = (x | x << 8) & 0x00ff_00ff_00ff_00ff;
            ((x | x << 4) & 0x0f0f_0f0f_0f0f_0f0f).to_le_bytes()
        }
        let mut counts = [0; 32];
        for (i, counts) in counts.chunks_exact_mut(8).enumerate() {
            counts.copy_from_slice(&spread((self.0 >> (32 * i)) as u32));
        }
        counts
    }

    /// The counts as one number, four bits each.
    pub fn to_bits(self) -> u128 {
        self.0
    }

    /// From [`Side::to_bits`]; `None` if those are not fifteen checkers.
    pub fn from_bits(bits: u128) -> Option<Self> {
        let side = Self(bits);
        let checkers: u32 = (0..=BAR).map(|place| u32::from(side.count(place))).sum();
        (checkers == u32::from(CHECKERS) && bits >> (4 * (BAR + 1)) == 0).then_some(side)
    }

    /// Steps that remain until all are off.
    #[inline]
    pub fn pips(self) -> u32 {
        (1..=BAR).map(|place| place as u32 * u32::from(self.count(place))).sum()
    }
}

impl std::fmt::Debug for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries((0..=BAR).map(|place| self.count(place))).finish()
    }
}

/// Bit i of the result is bit 4i of `x`.
#[inline]
fn collect(x: u128) -> u32 {
    #[inline]
    fn half(x: u64) -> u32 {
        let x = x & 0x1111_1111_1111_1111;
        let x = (x | x >> 3) & 0x0303_0303_0303_0303;
        let x = (x | x >> 6) & 0x000f_000f_000f_000f;
        let x = (x | x >> 12) & 0x0000_00ff_0000_00ff;
        ((x | x >> 24) & 0xffff) as u32
    }
    half(x as u64) | half((x >> 64) as u64) << 16
}

/// Both sides, that of the player whose turn it is first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Position {
    /// Whose turn it is.
    pub mover: Side,
    /// The opponent.
    pub other: Side,
}

/// How a game ended, in points.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Points {
    /// The loser has borne off a checker.
    Single = 1,
    /// The loser has borne off none.
    Gammon = 2,
    /// And has a checker on the bar or in the winner's home.
    Backgammon = 3,
}

impl Position {
    /// The beginning of a game.
    pub const START: Self = Self { mover: Side::START, other: Side::START };

    /// The same board for the other player.
    #[inline]
    pub fn swapped(self) -> Self {
        Self { mover: self.other, other: self.mover }
    }

    /// What the opponent has won, if it has borne off all checkers.
    pub fn lost(self) -> Option<Points> {
        won(self.other, self.mover)
    }

    /// The most that the mover can still lose: no gammon once it has borne off a checker, no backgammon once it is past the opponent and
    /// out of the opponent's home.
    pub fn most_lost(self) -> Points {
        let far_behind = self.mover.occupied() >> 19 != 0;
        match self.mover.off() {
            0 if far_behind || self.contact() => Points::Backgammon,
            0 => Points::Gammon,
            _ => Points::Single,
        }
    }

    /// Points that the mover can't land on, and those with one checker of the opponent, as bits of the mover's places.
    #[inline]
    pub(super) fn held(self) -> (u32, u32) {
        // Place p of one side is place 25 - p of the other; the places before 1 and after 24 are nobody's in common.
        const POINTS: u32 = 0x01ff_fffe;
        let mirror = |bits: u32| bits.reverse_bits() >> 6 & POINTS;
        let (occupied, made) = (mirror(self.other.occupied()), mirror(self.other.made()));
        (made, occupied & !made)
    }
}

fn won(winner: Side, loser: Side) -> Option<Points> {
    if winner.off() < CHECKERS {
        return None;
    }
    Some(match loser.off() {
        0 if loser.occupied() >> 19 != 0 => Points::Backgammon,
        0 => Points::Gammon,
        _ => Points::Single,
    })
}
