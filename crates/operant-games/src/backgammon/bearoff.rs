//! Exact endings: for up to six checkers of each side, all in their homes, the chance that the player on roll wins; and for one side of up to
//! fifteen, the chances to need 0, 1, 2 … rolls.
//!
//! All values are before the roll. Only rounded products and sums of them go in, so the tables have the same bits everywhere.

use super::outcome::Outcome;
use super::plays::Plays;
use super::position::{BAR, CHECKERS, Position, Side};
use super::{ROLLS, chances};
use operant_base::{Error, Result};
use operant_device::MappedNumbers;
use std::path::Path;
use std::sync::{Arc, LazyLock};

/// Home points.
const HOME: usize = 6;
/// Checkers of a side in the two-sided table.
const FEW: u8 = 6;
/// Arrangements of up to six checkers on six points.
const FEW_SIDES: usize = 924;
/// Arrangements of up to fifteen checkers on six points.
const SIDES: usize = 54_264;
/// Rolls that are told apart; the last stands for more too, whose chance is below 1e-9.
const MOST_ROLLS: usize = 32;
/// Numbers of the two-sided table.
const TWO_SIDED: usize = FEW_SIDES * FEW_SIDES;
/// Bytes of a file before its numbers: a word and the checksum.
const HEAD: usize = 16;
/// First bytes of a file.
const MAGIC: &[u8; 8] = b"opbearo1";

/// Both tables.
#[derive(Clone, Debug)]
pub struct Bearoff {
    numbers: Numbers,
}

#[derive(Clone, Debug)]
enum Numbers {
    Own(Vec<f32>),
    /// Those of a file, which programs that use it at once have in memory once.
    Mapped(Arc<MappedNumbers>),
}

impl PartialEq for Bearoff {
    fn eq(&self, other: &Self) -> bool {
        self.numbers() == other.numbers()
    }
}

/// `n` over `k`, for small numbers.
const fn choose(n: usize, k: usize) -> usize {
    let (mut result, mut i) = (1, 0);
    while i < k {
        if n < k {
            return 0;
        }
        result = result * (n - i) / (i + 1);
        i += 1;
    }
    result
}

/// `choose(n, k + 1)` for the rank.
static CHOOSE: [[u32; HOME]; 22] = {
    let mut table = [[0; HOME]; 22];
    let mut n = 0;
    while n < 22 {
        let mut k = 0;
        while k < HOME {
            table[n][k] = choose(n, k + 1) as u32;
            k += 1;
        }
        n += 1;
    }
    table
};

/// The number of a side whose checkers are all at home. Sides of fewer checkers on points 1 to 6 come first, so both tables share it: with the
/// checkers up to a point before it, its count makes an increasing sequence, which the combinatorial number system ranks.
fn rank(side: Side) -> usize {
    let (mut before, mut rank) = (0, 0);
    for point in 0..HOME {
        before += usize::from(side.count(HOME - point));
        rank += CHOOSE[before + point][point] as usize;
    }
    rank
}

/// Every arrangement of up to `most` checkers at home, by rank.
fn sides(most: u8, count: usize) -> Vec<Side> {
    let mut found = vec![Side::default(); count];
    let mut counts = [0_u8; BAR + 1];
    loop {
        let side = Side::new(&counts).expect("at most fifteen");
        found[rank(side)] = side;
        // The next arrangement, as a counter whose digits sum to `most` at most.
        let mut point = 1;
        loop {
            counts[point] += 1;
            if counts[1..=HOME].iter().sum::<u8>() <= most {
                break;
            }
            counts[point] = 0;
            point += 1;
            if point > HOME {
                return found;
            }
        }
    }
}

/// Whether both sides are at home with so few checkers that the two-sided table has them.
#[inline]
fn few(Position { mover, other }: Position) -> bool {
    let off = CHECKERS - FEW;
    mover.off() >= off && other.off() >= off && mover.rear() <= HOME && other.rear() <= HOME
}

/// The chance that the player on roll wins, exactly, where both sides are at home with six checkers or fewer and the game goes on. The
/// first call computes the table, in a fraction of a second.
#[inline]
pub fn ending(position: Position) -> Option<f32> {
    static TWO: LazyLock<Vec<f32>> = LazyLock::new(|| {
        let sides = sides(FEW, FEW_SIDES);
        two_sided(&sides, &Ways::new(&sides))
    });
    let Position { mover, other } = position;
    (few(position) && other.off() < CHECKERS && mover.off() < CHECKERS)
        .then(|| TWO[rank(mover) * FEW_SIDES + rank(other)])
}

/// Where each roll can lead a side that nobody blocks: ranks, and per side and roll where they begin.
struct Ways {
    begins: Vec<u32>,
    to: Vec<u16>,
}

impl Ways {
    fn new(sides: &[Side]) -> Self {
        let mut plays = Plays::default();
        let gone = Side::new(&[0; BAR + 1]).expect("no checkers");
        let (mut begins, mut to) = (vec![0], Vec::new());
        for &mover in sides {
            for dice in ROLLS {
                plays.find(Position { mover, other: gone }, dice);
                to.extend(plays.iter().map(|play| rank(play.after()) as u16));
                begins.push(to.len() as u32);
            }
        }
        Self { begins, to }
    }

    fn of(&self, side: usize, roll: usize) -> &[u16] {
        let at = side * ROLLS.len() + roll;
        &self.to[self.begins[at] as usize..self.begins[at + 1] as usize]
    }
}

impl Bearoff {
    /// Computes both tables: some seconds.
    pub fn build() -> Self {
        let all = sides(CHECKERS, SIDES);
        let ways = Ways::new(&all);
        let mut numbers = two_sided(&all[..FEW_SIDES], &ways);
        numbers.extend(one_sided(&all, &ways));
        Self { numbers: Numbers::Own(numbers) }
    }

    /// How a position ends, if the tables say: both sides at home, and either six checkers or fewer each (exactly), or a checker borne off each
    /// (as if neither looked at the other).
    #[inline]
    pub fn outcome(&self, position: Position) -> Option<Outcome> {
        let Position { mover, other } = position;
        if mover.rear() > HOME || other.rear() > HOME {
            return None;
        }
        let win = if few(position) {
            self.numbers()[rank(mover) * FEW_SIDES + rank(other)]
        } else if mover.off() > 0 && other.off() > 0 {
            self.race(mover, other)
        } else {
            return None;
        };
        Some(Outcome { win, ..Outcome::default() })
    }

    /// The chance of the one who rolls first to be done first.
    fn race(&self, first: Side, second: Side) -> f32 {
        let one = &self.numbers()[TWO_SIDED..];
        let first = &one[rank(first) * MOST_ROLLS..][..MOST_ROLLS];
        let second = &one[rank(second) * MOST_ROLLS..][..MOST_ROLLS];
        let (mut win, mut not_done) = (0.0, 1.0);
        for (done, other) in first.iter().zip(second) {
            win += done * not_done;
            not_done -= other;
        }
        win.clamp(0.0, 1.0)
    }

    /// FNV-1a over all numbers: two tables that agree in it are the same.
    pub fn checksum(&self) -> u64 {
        (self.numbers().iter())
            .fold(0xcbf2_9ce4_8422_2325, |hash, x| (hash ^ u64::from(x.to_bits())).wrapping_mul(0x0000_0100_0000_01b3))
    }

    /// `[FEW_SIDES, FEW_SIDES]`: the mover wins, by ranks of mover and opponent. Then `[SIDES, MOST_ROLLS]`: a side that tries to need few
    /// rolls needs so many.
    #[inline]
    fn numbers(&self) -> &[f32] {
        match &self.numbers {
            Numbers::Own(numbers) => numbers,
            Numbers::Mapped(file) => file.numbers(),
        }
    }

    /// The tables as the bytes of a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(self.checksum().to_le_bytes());
        self.numbers().iter().for_each(|x| bytes.extend(x.to_bits().to_le_bytes()));
        bytes
    }

    /// Writes the tables to a file, beside it first: nobody ever reads half of them.
    pub fn save(&self, path: &Path) -> Result<()> {
        operant_nn::write_file(path, &self.to_bytes())
    }

    /// Maps a file of such bytes into memory.
    pub fn load(path: &Path) -> Result<Self> {
        let show = path.display();
        let next = "make it with operant backgammon table --out FILE";
        let damaged = |what: &str| Error::Saved(format!("{show} is no bear-off table: {what}; {next}"));
        let file = MappedNumbers::open(path, HEAD)
            .map_err(|error| Error::Io(format!("can't read {show}: {error}; {next}")))?;
        if file.head().len() != HEAD
            || &file.head()[..8] != MAGIC
            || file.len_bytes() != 4 * (TWO_SIDED + SIDES * MOST_ROLLS)
        {
            return Err(damaged("another kind of file, or not whole"));
        }
        let checksum: [u8; 8] = file.head()[8..].try_into().expect("eight bytes are left");
        let table = Self { numbers: Numbers::Mapped(Arc::new(file)) };
        if table.checksum().to_le_bytes() != checksum {
            return Err(damaged("its checksum does not fit"));
        }
        Ok(table)
    }

    /// How far values are from exact ones, over all positions of the two-sided table in which the game goes on: the mean and the largest
    /// difference of the mover's chance to win.
    pub fn measure(&self, mut values: impl FnMut(&[Position], &mut [Outcome])) -> [f64; 2] {
        let sides = &sides(FEW, FEW_SIDES)[1..];
        let mut out = vec![Outcome::default(); sides.len()];
        let (mut sum, mut most) = (0.0, 0.0_f64);
        for &mover in sides {
            let positions: Vec<Position> = sides.iter().map(|&other| Position { mover, other }).collect();
            values(&positions, &mut out);
            for (&Position { other, .. }, outcome) in positions.iter().zip(&out) {
                let exact = self.numbers()[rank(mover) * FEW_SIDES + rank(other)];
                let error = f64::from((outcome.win - exact).abs());
                (sum, most) = (sum + error, most.max(error));
            }
        }
        [sum / (sides.len() * sides.len()) as f64, most]
    }
}

fn one_sided(all: &[Side], ways: &Ways) -> Vec<f32> {
    let chances = chances(false);
    let mut one = vec![0.0_f32; SIDES * MOST_ROLLS];
    let mut mean = vec![0.0_f64; SIDES];
    one[0] = 1.0;
    // Every play lowers the pips.
    let mut order: Vec<usize> = (1..SIDES).collect();
    order.sort_by_key(|&side| all[side].pips());
    for side in order {
        let mut distribution = [0.0_f64; MOST_ROLLS];
        for (roll, chance) in chances.iter().map(|&chance| f64::from(chance)).enumerate() {
            let to = ways.of(side, roll).iter().map(|&to| usize::from(to)).min_by(|&a, &b| mean[a].total_cmp(&mean[b]));
            let to = to.expect("a checker at home can always move");
            mean[side] += chance * (1.0 + mean[to]);
            for (rolls, &share) in one[to * MOST_ROLLS..][..MOST_ROLLS].iter().enumerate() {
                distribution[(rolls + 1).min(MOST_ROLLS - 1)] += chance * f64::from(share);
            }
        }
        one[side * MOST_ROLLS..][..MOST_ROLLS].iter_mut().zip(distribution).for_each(|(to, x)| *to = x as f32);
    }
    one
}

fn two_sided(few: &[Side], ways: &Ways) -> Vec<f32> {
    let chances = chances(false).map(f64::from);
    let mut two = vec![0.0_f32; FEW_SIDES * FEW_SIDES];
    let mut by_pips: Vec<Vec<usize>> = vec![Vec::new(); HOME * usize::from(FEW) + 1];
    (1..FEW_SIDES).for_each(|side| by_pips[few[side].pips() as usize].push(side));
    for sum in 2..2 * by_pips.len() {
        for mine in 1..by_pips.len().min(sum) {
            let Some(others) = by_pips.get(sum - mine) else { continue };
            for (&mover, &other) in
                by_pips[mine].iter().flat_map(|mover| others.iter().map(move |other| (mover, other)))
            {
                let mut win = 0.0;
                for (roll, chance) in chances.iter().enumerate() {
                    let after = |&to: &u16| if to == 0 { 1.0 } else { 1.0 - two[other * FEW_SIDES + usize::from(to)] };
                    win += chance * f64::from(ways.of(mover, roll).iter().map(after).fold(0.0, f32::max));
                }
                two[mover * FEW_SIDES + other] = win as f32;
            }
        }
    }
    two
}
