//! Pictures of the boards of Connect Four and 2048.

use operant_env::glyphs::{text_width, write, write_centred};
use operant_env::{Canvas, Color};

/// Draws a board of discs: `disc(column, row)` is the colour at a cell, row 0 below, or none where it is empty.
pub(super) fn discs(columns: usize, rows: usize, disc: impl Fn(usize, usize) -> Option<Color>) -> Canvas {
    const CELL: f32 = 60.0;
    const EDGE: f32 = 10.0;
    const RADIUS: f32 = 25.0;
    const BOARD: Color = [0, 70, 173];
    const HOLE: Color = [235, 238, 245];
    let side = |cells: usize| (cells as f32 * CELL + 2.0 * EDGE) as usize;
    let mut canvas = Canvas::new(side(columns), side(rows));
    canvas.clear(BOARD);
    for column in 0..columns {
        for row in 0..rows {
            let centre = |cells: usize| EDGE + (cells as f32 + 0.5) * CELL;
            let color = disc(column, row).unwrap_or(HOLE);
            canvas.fill_circle(centre(column), centre(rows - 1 - row), RADIUS, color);
        }
    }
    canvas
}

/// Backgrounds of tiles by exponent, from no tile on, as in the original.
const TILES: [Color; 12] = [
    [205, 193, 180],
    [238, 228, 218],
    [237, 224, 200],
    [242, 177, 121],
    [245, 149, 99],
    [246, 124, 95],
    [246, 94, 59],
    [237, 207, 114],
    [237, 204, 97],
    [237, 200, 80],
    [237, 197, 63],
    [237, 194, 46],
];

/// Draws a square of tiles, `side` along each edge, whose exponents are given row by row from the top left, and the score above them.
pub(super) fn tiles(side: usize, exponents: impl Fn(usize) -> u32, score: u32) -> Canvas {
    const CELL: f32 = 100.0;
    const GAP: f32 = 12.0;
    const HEAD: f32 = 44.0;
    const BOARD: Color = [187, 173, 160];
    const DARK: Color = [119, 110, 101];
    const LIGHT: Color = [249, 246, 242];
    /// Beyond the exponents that have a colour of their own.
    const HIGHEST: Color = [60, 58, 50];
    const LARGEST_DOT: usize = 8;
    let width = side as f32 * CELL + (side as f32 + 1.0) * GAP;
    let mut canvas = Canvas::new(width as usize, (width + HEAD) as usize);
    canvas.clear(BOARD);
    canvas.fill_rect(0.0, 0.0, width, HEAD, LIGHT);
    write(&mut canvas, (GAP, 12.0), &format!("score {score}"), 3, DARK);
    for cell in 0..side * side {
        let exponent = exponents(cell) as usize;
        let corner = |cells: usize| GAP + cells as f32 * (CELL + GAP);
        let (x, y) = (corner(cell % side), HEAD + corner(cell / side));
        canvas.fill_rect(x, y, x + CELL, y + CELL, TILES.get(exponent).copied().unwrap_or(HIGHEST));
        if exponent > 0 {
            let text = (1_u64 << exponent).to_string();
            let dot = (1..=LARGEST_DOT).rev().find(|&dot| text_width(&text, dot) <= CELL - GAP).unwrap_or(1);
            let color = if exponent <= 2 { DARK } else { LIGHT };
            write_centred(&mut canvas, (x + CELL / 2.0, y + CELL / 2.0), &text, dot, color);
        }
    }
    canvas
}
