//! A cube unfolded: as coloured text and as a picture.

use super::facelets::colours;
use super::{Cubies, FACES};
use operant_env::{Canvas, Color};

/// Sticker colours in the order of [`FACES`]: white, red, green, yellow, orange, blue.
const COLOURS: [Color; 6] = [[255, 255, 255], [196, 30, 58], [0, 155, 72], [255, 213, 0], [255, 88, 0], [0, 70, 173]];
/// Where each face lies in the net, in faces from the left and from the top.
const NET: [(usize, usize); 6] = [(1, 0), (2, 1), (1, 1), (1, 2), (0, 1), (3, 1)];

/// The net of a cube of `size` 2 or 3, four columns of faces and three rows, in colours of a terminal.
pub fn ansi_net(cube: &Cubies, size: usize) -> String {
    let facelets = colours(cube, size);
    let mut text = String::new();
    for y in 0..3 * size {
        for x in 0..4 * size {
            match NET.iter().position(|&(column, row)| (column, row) == (x / size, y / size)) {
                Some(face) => {
                    let colour = facelets[face * size * size + (y % size) * size + x % size];
                    let [r, g, b] = COLOURS[colour];
                    text += &format!("\x1b[30;48;2;{r};{g};{b}m{} \x1b[0m", FACES[colour]);
                }
                None if y / size == 1 || x / size <= 1 => text += "  ",
                None => {}
            }
        }
        text.push('\n');
    }
    text
}

/// The net as a picture.
pub(crate) fn draw_net(cube: &Cubies, size: usize) -> Canvas {
    /// Pixels of a face, and between faces.
    const FACE: f32 = 108.0;
    const GAP: f32 = 8.0;
    let mut canvas = Canvas::new((4.0 * FACE + 5.0 * GAP) as usize, (3.0 * FACE + 4.0 * GAP) as usize);
    canvas.clear([40, 40, 40]);
    let side = FACE / size as f32;
    for (i, &colour) in colours(cube, size).iter().enumerate() {
        let (face, spot) = (i / (size * size), i % (size * size));
        let corner = |faces: usize, stickers: usize| GAP + faces as f32 * (FACE + GAP) + stickers as f32 * side;
        let (x, y) = (corner(NET[face].0, spot % size), corner(NET[face].1, spot / size));
        canvas.fill_rect(x + 1.0, y + 1.0, x + side - 1.0, y + side - 1.0, COLOURS[colour]);
    }
    canvas
}
