//! A position as text.

use operant::env::backgammon::{BAR, Position};

/// Rows of a half of the board.
const ROWS: u8 = 5;

/// What stands on a point in a row counted from the edge: `X` are the mover's, `O` the opponent's; a stack that is too high ends in its number.
fn cell(position: Position, point: usize, row: u8) -> String {
    let (mine, theirs) = (position.mover.count(point), position.other.count(BAR - point));
    let (count, mark) = if mine > 0 { (mine, "X") } else { (theirs, "O") };
    match count {
        count if row >= count => "   ".into(),
        count if row + 1 == ROWS && count > ROWS => format!("{count:^3}"),
        _ => format!(" {mark} "),
    }
}

/// The board as the player on roll sees it, whose checkers are `X` and move from 24 to 1.
pub(super) fn board(position: Position) -> String {
    let (me, foe) = (position.mover, position.other);
    let half = |points: &[usize], row: u8| points.iter().map(|&point| cell(position, point, row)).collect::<String>();
    let top: [Vec<usize>; 2] = [(13..=18).collect(), (19..=24).collect()];
    let bottom: [Vec<usize>; 2] = [(7..=12).rev().collect(), (1..=6).rev().collect()];
    let line = |sides: &[Vec<usize>; 2], row: u8, bar: &str, note: &str| {
        format!(" |{}|{bar}|{}|{note}", half(&sides[0], row), half(&sides[1], row)).trim_end().to_owned() + "\n"
    };
    let bar = |count: u8, mark: &str| if count > 0 { format!("{count}{mark} ") } else { "   ".into() };
    let mut text = String::from(" +13-14-15-16-17-18-+---+19-20-21-22-23-24-+\n");
    for row in 0..ROWS {
        let (bar, note) = match row {
            0 => ("   ".into(), format!("  O {} pips, {} off", foe.pips(), foe.off())),
            4 => (bar(foe.count(BAR), "O"), String::new()),
            _ => ("   ".into(), String::new()),
        };
        text += &line(&top, row, &bar, &note);
    }
    text += " |                  |BAR|                  |\n";
    for row in (0..ROWS).rev() {
        let (bar, note) = match row {
            0 => ("   ".into(), format!("  X {} pips, {} off", me.pips(), me.off())),
            4 => (bar(me.count(BAR), "X"), String::new()),
            _ => ("   ".into(), String::new()),
        };
        text += &line(&bottom, row, &bar, &note);
    }
    text + " +12-11-10--9--8--7-+---+-6--5--4--3--2--1-+\n"
}
