//! Connect Four: seven columns of six, four in a row win. A board is two words of seven bits per column (J. Tromp's layout): stones of the
//! player whose turn it is, and all stones; the seventh bit of a column stays empty, so that rows do not run into each other.

use super::boards;
use super::game::{Game, Heads, Turn, mix};
use operant_base::{Error, Result};
use operant_env::{Canvas, Color};

/// Columns.
pub const COLUMNS: usize = 7;
/// Stones of a column.
pub const ROWS: usize = 6;
const CELLS: u32 = (COLUMNS * ROWS) as u32;
/// Bits of a column.
const STRIDE: usize = ROWS + 1;

/// The rules.
#[derive(Clone, Copy, Debug, Default)]
pub struct Connect4;

/// A position.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Board {
    /// Stones of the player whose turn it is.
    pub mover: u64,
    /// All stones.
    pub all: u64,
}

/// Whether stones hold four in a row.
#[inline]
pub const fn four(stones: u64) -> bool {
    let mut found = 0;
    let mut i = 0;
    // Up, across, both diagonals.
    let steps = [1, STRIDE, STRIDE - 1, STRIDE + 1];
    while i < 4 {
        let two = stones & stones >> steps[i];
        found |= two & two >> (2 * steps[i]);
        i += 1;
    }
    found != 0
}

const fn bottom(column: usize) -> u64 {
    1 << (column * STRIDE)
}

/// The lowest cell of every column.
pub(crate) const BOTTOM: u64 = {
    let (mut out, mut column) = (0, 0);
    while column < COLUMNS {
        out |= bottom(column);
        column += 1;
    }
    out
};
/// All cells.
pub(crate) const ALL: u64 = BOTTOM * ((1 << ROWS) - 1);

/// Empty cells that would complete four of these stones, whether or not a stone can be put there yet.
#[inline]
pub const fn completing(stones: u64, all: u64) -> u64 {
    let mut found = stones << 1 & stones << 2 & stones << 3;
    let steps = [STRIDE, STRIDE - 1, STRIDE + 1];
    let mut i = 0;
    while i < 3 {
        let step = steps[i];
        let pair = stones << step & stones << (2 * step);
        found |= pair & stones << (3 * step) | pair & stones >> step;
        let pair = stones >> step & stones >> (2 * step);
        found |= pair & stones << step | pair & stones >> (3 * step);
        i += 1;
    }
    found & (ALL ^ all)
}

impl Board {
    /// Whether a stone can be put into a column.
    #[inline]
    pub const fn open(self, column: usize) -> bool {
        self.all & bottom(column) << (ROWS - 1) == 0
    }

    /// The position after a stone, as the other player sees it.
    #[inline]
    pub const fn put(self, column: usize) -> Self {
        Self { mover: self.mover ^ self.all, all: self.all | (self.all + bottom(column)) }
    }

    /// Stones of the player who moved last.
    #[inline]
    pub const fn other(self) -> u64 {
        self.mover ^ self.all
    }

    /// Stones on the board.
    #[inline]
    pub const fn stones(self) -> u32 {
        self.all.count_ones()
    }

    /// The position after columns as digits 1 to 7.
    pub fn from_moves(moves: &str) -> Result<Self> {
        let mut board = Self::default();
        for (at, letter) in moves.chars().enumerate() {
            let wrong = |what: &str| {
                Error::Invalid(format!("move {} of \"{moves}\": {what}; wanted columns 1 to {COLUMNS}", at + 1))
            };
            let column = letter.to_digit(10).map_or(0, |digit| digit as usize);
            if !(1..=COLUMNS).contains(&column) {
                return Err(wrong(&format!("'{letter}' is no column")));
            }
            if four(board.other()) {
                return Err(wrong("the game is over before it"));
            }
            if !board.open(column - 1) {
                return Err(wrong(&format!("column {column} is full")));
            }
            board = board.put(column - 1);
        }
        Ok(board)
    }

    /// The board seen in a mirror.
    #[inline]
    pub fn mirrored(self) -> Self {
        let flip = |stones: u64| {
            (0..COLUMNS)
                .fold(0, |out, column| out | (stones >> (column * STRIDE) & 0x7f) << ((COLUMNS - 1 - column) * STRIDE))
        };
        Self { mover: flip(self.mover), all: flip(self.all) }
    }

    /// Whether these words are a board that play can reach, as far as gravity and counts tell.
    fn possible(self) -> bool {
        let stands = (0..COLUMNS).all(|column| {
            let cells = self.all >> (column * STRIDE) & 0x7f;
            cells & (cells + 1) == 0 && cells >> ROWS == 0
        });
        let (mover, other) = (self.mover.count_ones(), self.other().count_ones());
        stands
            && self.all >> (COLUMNS * STRIDE) == 0
            && self.mover & !self.all == 0
            && (other == mover || other == mover + 1)
            && !four(self.mover)
    }
}

impl Game for Connect4 {
    type State = Board;
    type Action = u8;
    type Room = ();

    const NAME: &'static str = "connect4";
    const PLAYERS: usize = 2;
    const OBSERVATION: usize = 4 * CELLS as usize;
    const POLICY: usize = COLUMNS;
    const USUAL_ACTIONS: usize = COLUMNS;
    const OUTCOMES: usize = 0;
    const RANGE: Option<[f32; 2]> = Some([-1.0, 1.0]);
    const HEADS: usize = 1;
    const HEADS_ARE: Heads = Heads::Chances;
    const SYMMETRIES: usize = 2;
    const WORDS: usize = 2;

    fn start() -> Board {
        Board::default()
    }

    #[inline]
    fn turn(state: &Board) -> Turn {
        if four(state.other()) || state.stones() == CELLS { Turn::Over } else { Turn::Decision }
    }

    #[inline]
    fn player(state: &Board) -> usize {
        (state.stones() & 1) as usize
    }

    #[inline]
    fn actions(state: &Board, (): &mut (), out: &mut Vec<u8>) {
        out.clear();
        for column in 0..COLUMNS {
            if state.open(column) {
                out.push(column as u8);
            }
        }
    }

    #[inline]
    fn after(state: &Board, action: &u8) -> Board {
        state.put(usize::from(*action))
    }

    #[inline]
    fn policy_index(_: &Board, action: &u8) -> (usize, Option<usize>) {
        (usize::from(*action), None)
    }

    #[inline]
    fn settled(state: &Board) -> f32 {
        match (four(state.other()), Self::player(state)) {
            (false, _) => 0.0,
            // The one who moved last has won.
            (true, 0) => -1.0,
            (true, _) => 1.0,
        }
    }

    #[inline]
    fn hash(state: &Board) -> u64 {
        mix(mix(0, state.mover), state.all)
    }

    /// The mover's stones and the other's, then the cells that would complete four of the mover's and of the other's, each column by
    /// column from below.
    fn observe(state: &Board, out: &mut [f32]) {
        let [mine, theirs] = [state.mover, state.other()];
        let planes = [mine, theirs, completing(mine, state.all), completing(theirs, state.all)];
        for (stones, plane) in planes.into_iter().zip(out.chunks_exact_mut(CELLS as usize)) {
            for (cell, out) in plane.iter_mut().enumerate() {
                *out = (stones >> (cell / ROWS * STRIDE + cell % ROWS) & 1) as f32;
            }
        }
    }

    fn heads_of(points: f32, out: &mut [f32]) {
        out[0] = (points + 1.0) / 2.0;
    }

    #[inline]
    fn value_of(heads: &[f32]) -> f32 {
        2.0 * heads[0] - 1.0
    }

    fn image(state: &Board, symmetry: usize) -> Board {
        if symmetry == 0 { *state } else { state.mirrored() }
    }

    fn write(state: &Board, out: &mut [u64]) {
        out.copy_from_slice(&[state.mover, state.all]);
    }

    fn read(words: &[u64]) -> Option<Board> {
        let &[mover, all] = words else { return None };
        Some(Board { mover, all }).filter(|board| board.possible())
    }

    /// Rows from above, `x` for the first player, `o` for the second, `.` for nobody, with `/` between them.
    fn text(state: &Board) -> String {
        let first = if Self::player(state) == 0 { state.mover } else { state.other() };
        let letter = |row: usize, column: usize| {
            let cell = column * STRIDE + row;
            match (state.all >> cell & 1, first >> cell & 1) {
                (0, _) => '.',
                (_, 1) => 'x',
                _ => 'o',
            }
        };
        let row = |row: usize| (0..COLUMNS).map(|column| letter(row, column)).collect::<String>();
        (0..ROWS).rev().map(row).collect::<Vec<_>>().join("/")
    }

    /// Rows as [`Game::text`] has them, or columns played as digits, such as `4453`.
    fn parse(text: &str) -> Result<Board> {
        if !text.contains('/') {
            return Board::from_moves(text);
        }
        let wrong = |what: &str| {
            Error::Invalid(format!(
                "board \"{text}\": {what}; wanted {ROWS} rows of {COLUMNS} from above, as in .../..x."
            ))
        };
        let rows: Vec<&str> = text.trim().split('/').collect();
        if rows.len() != ROWS || rows.iter().any(|row| row.len() != COLUMNS) {
            return Err(wrong("another size"));
        }
        let (mut first, mut all) = (0_u64, 0_u64);
        for (row, letters) in rows.iter().rev().enumerate() {
            for (column, letter) in letters.bytes().enumerate() {
                let cell = 1_u64 << (column * STRIDE + row);
                match letter {
                    b'.' => continue,
                    b'x' => first |= cell,
                    b'o' => {}
                    _ => return Err(wrong("letters are x, o and .")),
                }
                all |= cell;
            }
        }
        let mover = if all.count_ones() & 1 == 0 { first } else { all ^ first };
        Some(Board { mover, all }).filter(|board| board.possible()).ok_or_else(|| wrong("no game comes there"))
    }

    /// The first player is red, the second yellow.
    fn draw(state: &Board) -> Option<Canvas> {
        const DISCS: [Color; 2] = [[220, 50, 47], [250, 200, 40]];
        let first = if Self::player(state) == 0 { state.mover } else { state.other() };
        let disc = |column: usize, row: usize| {
            let cell = column * STRIDE + row;
            (state.all >> cell & 1 == 1).then(|| DISCS[usize::from(first >> cell & 1 == 0)])
        };
        Some(boards::discs(COLUMNS, ROWS, disc))
    }

    fn action_text(_: &Board, action: &u8) -> String {
        (action + 1).to_string()
    }
}
