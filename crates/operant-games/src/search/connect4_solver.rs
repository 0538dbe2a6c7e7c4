//! Perfect play in Connect Four: alpha-beta with a table of positions, moves that lose at once left out, and moves that threaten most tried
//! first (P. Pons, "Solving Connect 4", 2015). The judge of networks, and who they lose to.

use crate::connect4::{ALL, BOTTOM, Board, COLUMNS, ROWS, completing};
use operant_lanes::rng::HostRng;

const CELLS: i32 = (COLUMNS * ROWS) as i32;
/// Bits of a column.
const STRIDE: usize = ROWS + 1;
/// The middle first.
const ORDER: [usize; COLUMNS] = [3, 2, 4, 1, 5, 0, 6];

const fn column(column: usize) -> u64 {
    ((1 << ROWS) - 1) << (column * STRIDE)
}

/// Where a stone can be put.
const fn possible(all: u64) -> u64 {
    (all + BOTTOM) & ALL
}

/// Knows what a position is worth.
#[derive(Clone, Debug)]
pub struct Solver {
    /// Position in the high bits, bound in the low eight: 0 for none.
    table: Vec<u64>,
    /// Positions looked at.
    pub positions: u64,
}

/// Entries of the table: 64 MiB.
const TABLE: usize = 1 << 23;

impl Default for Solver {
    fn default() -> Self {
        Self { table: vec![0; TABLE], positions: 0 }
    }
}

impl Solver {
    fn slot(board: Board) -> (usize, u64) {
        let key = board.mover + board.all;
        ((key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 41) as usize, key)
    }

    /// Score of a board that is not over, within a window: stones that the winner has left when it wins, counting the winning one, 0 for a
    /// draw, less for a loss. No move of the mover wins at once.
    fn look(&mut self, board: Board, mut alpha: i32, mut beta: i32) -> i32 {
        self.positions += 1;
        let moves = board.stones() as i32;
        // Moves that do not let the other win at once.
        let (open, threats) = (possible(board.all), completing(board.other(), board.all));
        let forced = open & threats;
        let mut next = match forced {
            0 => open,
            one if one & (one - 1) == 0 => one,
            _ => 0,
        };
        next &= !(threats >> 1);
        if next == 0 {
            return -(CELLS - moves) / 2;
        }
        if moves >= CELLS - 2 {
            return 0;
        }
        let least = -(CELLS - 2 - moves) / 2;
        alpha = alpha.max(least);
        let (slot, key) = Self::slot(board);
        let entry = self.table[slot];
        let known = if entry >> 8 == key { (entry & 255) as i32 } else { 0 };
        // Bounds are kept from 1 on: upper ones first, then lower ones.
        let mut most = (CELLS - 1 - moves) / 2;
        const UPPER: i32 = 19;
        match known {
            0 => {}
            bound if bound > 2 * UPPER + 1 => alpha = alpha.max(bound - 3 * UPPER - 2),
            bound => most = most.min(bound - UPPER - 1),
        }
        beta = beta.min(most);
        if alpha >= beta {
            return if alpha > most { most } else { alpha };
        }
        let mut list = [(0, 0); COLUMNS];
        let mut count = 0;
        for c in ORDER {
            let stone = next & column(c);
            if stone != 0 {
                let made = completing(board.mover | stone, board.all | stone).count_ones();
                // Sorted by insertion, the most threats first, the middle before the rest.
                let mut at = count;
                while at > 0 && list[at - 1].0 < made {
                    list[at] = list[at - 1];
                    at -= 1;
                }
                list[at] = (made, stone);
                count += 1;
            }
        }
        for &(_, stone) in &list[..count] {
            let after = Board { mover: board.other(), all: board.all | stone };
            let score = -self.look(after, -beta, -alpha);
            if score >= beta {
                self.table[slot] = key << 8 | (score + 3 * UPPER + 2) as u64;
                return score;
            }
            alpha = alpha.max(score);
        }
        self.table[slot] = key << 8 | (alpha + UPPER + 1) as u64;
        alpha
    }

    /// Whether the mover wins at once.
    fn wins_now(board: Board) -> bool {
        completing(board.mover, board.all) & possible(board.all) != 0
    }

    /// Score for the mover of a board that is not over: half of the stones that are left when somebody wins, rounded up, and negative if that
    /// is the other; 0 for a draw.
    pub fn score(&mut self, board: Board) -> i32 {
        let moves = board.stones() as i32;
        if Self::wins_now(board) {
            return (CELLS + 1 - moves) / 2;
        }
        if moves == CELLS {
            return 0;
        }
        let (mut low, mut high) = (-(CELLS - moves) / 2, (CELLS + 1 - moves) / 2);
        while low < high {
            let mut middle = low + (high - low) / 2;
            if middle <= 0 && low / 2 < middle {
                middle = low / 2;
            } else if middle >= 0 && high / 2 > middle {
                middle = high / 2;
            }
            let found = self.look(board, middle, middle + 1);
            if found <= middle {
                high = found;
            } else {
                low = found;
            }
        }
        low
    }

    /// Who wins: 1 for the mover, −1 for the other, 0 for nobody. Much cheaper than the score.
    pub fn outcome(&mut self, board: Board) -> i32 {
        if Self::wins_now(board) {
            return 1;
        }
        if board.stones() as i32 == CELLS {
            return 0;
        }
        self.look(board, -1, 1).signum()
    }

    /// A column that nothing is better than: the soonest win, else a draw, else the latest loss; drawn from equals.
    pub fn best(&mut self, board: Board, rng: &mut HostRng) -> usize {
        let score = self.score(board);
        let first = rng.below(COLUMNS as u32) as usize;
        let columns = (first..first + COLUMNS).map(|c| c % COLUMNS).filter(|&c| board.open(c));
        let mut last = 0;
        for c in columns {
            last = c;
            let after = board.put(c);
            let reached = match crate::connect4::four(after.other()) {
                true => true,
                false if after.stones() as i32 == CELLS => score <= 0,
                // The other wins at once: a score that only the worst board has.
                false if Self::wins_now(after) => score <= -(CELLS + 1 - after.stones() as i32) / 2,
                false => -self.look(after, -score, 1 - score) >= score,
            };
            if reached {
                return c;
            }
        }
        last
    }
}
