//! A backgammon board as a picture, always as player 0 sees it: their point 1 is at the bottom right.

use super::{BAR, CHECKERS, Position, Side};
use operant_env::glyphs::write_centred;
use operant_env::{Canvas, Color};

/// Width of a point; a checker is a little narrower.
const POINT: f32 = 40.0;
const RADIUS: f32 = 18.0;
/// Between the picture's edge and the board.
const EDGE: f32 = 16.0;
const HEIGHT: f32 = 460.0;
/// Length of a triangle.
const LENGTH: f32 = 180.0;
const BAR_WIDTH: f32 = 44.0;
/// Where checkers go that are borne off.
const TRAY: f32 = 56.0;
/// Checkers of a stack that lie beside each other; a number says how many there are if there are more.
const STACK: u8 = 5;

const FRAME: Color = [92, 58, 33];
const FELT: Color = [226, 205, 167];
const POINTS: [Color; 2] = [[171, 108, 62], [238, 229, 209]];
/// Checkers of players 0 and 1, and what is written on them.
const CHECKER: [Color; 2] = [[250, 248, 240], [52, 46, 48]];
const RIM: Color = [120, 100, 80];

/// The left edge of the column of points `column`, 0 to 11 from the left, with the bar in the middle.
fn left_of(column: usize) -> f32 {
    EDGE + column as f32 * POINT + if column >= 6 { BAR_WIDTH } else { 0.0 }
}

/// Column and whether it is in the lower half, of a point as player 0 counts.
fn place_of(point: usize) -> (usize, bool) {
    if point <= 12 { (12 - point, true) } else { (point - 13, false) }
}

fn checker(canvas: &mut Canvas, x: f32, y: f32, player: usize) {
    canvas.fill_circle(x, y, RADIUS, RIM);
    canvas.fill_circle(x, y, RADIUS - 1.5, CHECKER[player]);
}

/// A stack that begins at `y` and grows by `step`.
fn stack(canvas: &mut Canvas, x: f32, y: f32, step: f32, count: u8, player: usize) {
    for i in 0..count.min(STACK) {
        checker(canvas, x, y + f32::from(i) * step, player);
    }
    if count > STACK {
        write_centred(canvas, (x, y + f32::from(STACK - 1) * step), &count.to_string(), 2, CHECKER[1 - player]);
    }
}

fn die(canvas: &mut Canvas, x: f32, y: f32, number: u8, player: usize) {
    const SIDE: f32 = 34.0;
    const THIRD: f32 = 9.0;
    canvas.fill_rect(x - SIDE / 2.0, y - SIDE / 2.0, x + SIDE / 2.0, y + SIDE / 2.0, RIM);
    let inner = SIDE / 2.0 - 1.5;
    canvas.fill_rect(x - inner, y - inner, x + inner, y + inner, CHECKER[player]);
    let spots: &[(f32, f32)] = match number {
        1 => &[(0.0, 0.0)],
        2 => &[(-1.0, -1.0), (1.0, 1.0)],
        3 => &[(-1.0, -1.0), (0.0, 0.0), (1.0, 1.0)],
        4 => &[(-1.0, -1.0), (1.0, 1.0), (-1.0, 1.0), (1.0, -1.0)],
        5 => &[(-1.0, -1.0), (1.0, 1.0), (-1.0, 1.0), (1.0, -1.0), (0.0, 0.0)],
        _ => &[(-1.0, -1.0), (1.0, 1.0), (-1.0, 1.0), (1.0, -1.0), (-1.0, 0.0), (1.0, 0.0)],
    };
    for (dx, dy) in spots {
        canvas.fill_circle(x + dx * THIRD, y + dy * THIRD, 3.0, CHECKER[1 - player]);
    }
}

fn empty_board() -> Canvas {
    let width = left_of(12) + TRAY + EDGE;
    let mut canvas = Canvas::new(width as usize, HEIGHT as usize);
    canvas.clear(FRAME);
    for half in [0, 6] {
        let left = left_of(half);
        canvas.fill_rect(left, EDGE, left + 6.0 * POINT, HEIGHT - EDGE, FELT);
    }
    for point in 1..BAR {
        let (column, low) = place_of(point);
        let left = left_of(column);
        let (base, tip) = if low { (HEIGHT - EDGE, HEIGHT - EDGE - LENGTH) } else { (EDGE, EDGE + LENGTH) };
        let corners = [(left, base), (left + POINT, base), (left + POINT / 2.0, tip)];
        canvas.fill_polygon(&corners, POINTS[point % 2]);
    }
    canvas
}

/// Draws the position of which `player`, 0 or 1, is the mover, with the dice that are to be played, if any.
pub fn draw(position: Position, dice: Option<[u8; 2]>, player: usize) -> Canvas {
    let mut canvas = empty_board();
    let sides: [Side; 2] =
        if player == 0 { [position.mover, position.other] } else { [position.other, position.mover] };
    let middle = EDGE + 6.0 * POINT + BAR_WIDTH / 2.0;
    let tray = left_of(12) + (TRAY + EDGE) / 2.0;
    for (who, side) in sides.into_iter().enumerate() {
        for own in 1..BAR {
            // Place p of player 1 is place 25 - p of player 0.
            let (column, low) = place_of(if who == 0 { own } else { BAR - own });
            let x = left_of(column) + POINT / 2.0;
            let (y, step) = if low { (HEIGHT - EDGE - RADIUS, -2.0 * RADIUS) } else { (EDGE + RADIUS, 2.0 * RADIUS) };
            stack(&mut canvas, x, y, step, side.count(own), who);
        }
        // Checkers on the bar come in at the other end, those borne off lie at the own one.
        let (bar, step, off) = if who == 0 {
            (HEIGHT / 2.0 - 2.0 * RADIUS, -2.0 * RADIUS, HEIGHT - EDGE - 11.0)
        } else {
            (HEIGHT / 2.0 + 2.0 * RADIUS, 2.0 * RADIUS, EDGE)
        };
        stack(&mut canvas, middle, bar, step, side.count(BAR), who);
        for i in 0..side.off().min(CHECKERS) {
            let y = off + if who == 0 { -f32::from(i) * 13.0 } else { f32::from(i) * 13.0 };
            canvas.fill_rect(tray - 20.0, y, tray + 20.0, y + 11.0, CHECKER[who]);
        }
    }
    if let Some([a, b]) = dice {
        let x = left_of(if player == 0 { 9 } else { 3 });
        die(&mut canvas, x - 22.0, HEIGHT / 2.0, a, player);
        die(&mut canvas, x + 22.0, HEIGHT / 2.0, b, player);
    }
    canvas
}
