//! A small anti-aliased software rasteriser onto an RGB8 image.
//!
//! Coordinates are in pixels, with `x` to the right and `y` downward; pixel `(i, j)` covers the
//! square from `(i, j)` to `(i + 1, j + 1)`. Shapes are clipped to the image, and a shape with a
//! NaN or infinite coordinate is not drawn.

/// Red, green and blue, each 0 to 255.
pub type Color = [u8; 3];

/// Horizontal samples per pixel row. Coverage is exact along `x` and sampled along `y`.
const SAMPLES: usize = 16;

/// An RGB8 image that shapes are drawn on, later ones over earlier ones.
#[derive(Clone, Debug)]
pub struct Canvas {
    width: usize,
    height: usize,
    pixels: Vec<u8>,
}

impl Canvas {
    /// A white image of `width` by `height` pixels; either may be 0.
    ///
    /// # Panics
    /// When the image does not fit in memory.
    pub fn new(width: usize, height: usize) -> Self {
        let bytes = width.checked_mul(height).and_then(|n| n.checked_mul(3));
        let pixels = vec![255; bytes.expect("image size overflows usize")];
        Self { width, height, pixels }
    }

    /// Columns of pixels.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Rows of pixels.
    pub fn height(&self) -> usize {
        self.height
    }

    /// The image as `[height, width, 3]` bytes, top row first.
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }

    /// Paints the whole image.
    pub fn clear(&mut self, color: Color) {
        for pixel in self.pixels.chunks_exact_mut(3) {
            pixel.copy_from_slice(&color);
        }
    }

    /// Fills a closed polygon given by its corners in pixels, in either winding. Where it overlaps
    /// itself the even-odd rule applies.
    pub fn fill_polygon(&mut self, corners: &[(f32, f32)], color: Color) {
        let Some(&last) = corners.last() else { return };
        let (mut low, mut high) = (last, last);
        for &(x, y) in corners {
            if !x.is_finite() || !y.is_finite() {
                return;
            }
            low = (low.0.min(x), low.1.min(y));
            high = (high.0.max(x), high.1.max(y));
        }
        self.fill(widen(low), widen(high), color, |y, crossings| {
            let mut a = widen(last);
            for &corner in corners {
                let b = widen(corner);
                if (a.1 <= y) != (b.1 <= y) {
                    crossings.push(a.0 + (y - a.1) / (b.1 - a.1) * (b.0 - a.0));
                }
                a = b;
            }
        });
    }

    /// Fills a disc of centre `(cx, cy)` and radius `r`, in pixels.
    pub fn fill_circle(&mut self, cx: f32, cy: f32, r: f32, color: Color) {
        if ![cx, cy, r].iter().all(|v| v.is_finite()) || r <= 0.0 {
            return;
        }
        let ((cx, cy), r) = (widen((cx, cy)), f64::from(r));
        self.fill((cx - r, cy - r), (cx + r, cy + r), color, |y, crossings| {
            let half = (r * r - (y - cy) * (y - cy)).max(0.0).sqrt();
            crossings.extend([cx - half, cx + half]);
        });
    }

    /// Fills the rectangle between two opposite corners, in pixels.
    pub fn fill_rect(&mut self, x0: f32, y0: f32, x1: f32, y1: f32, color: Color) {
        self.fill_polygon(&[(x0, y0), (x1, y0), (x1, y1), (x0, y1)], color);
    }

    /// Draws a straight line `width` pixels wide, cut square at both ends.
    pub fn line(&mut self, from: (f32, f32), to: (f32, f32), width: f32, color: Color) {
        let ((x0, y0), (x1, y1)) = (widen(from), widen(to));
        // Half the width, across the line; NaN, and so nothing drawn, for a line of no length.
        let side = 0.5 * f64::from(width.max(0.0)) / (x1 - x0).hypot(y1 - y0);
        let (nx, ny) = ((y0 - y1) * side, (x1 - x0) * side);
        let corners = [(x0 + nx, y0 + ny), (x1 + nx, y1 + ny), (x1 - nx, y1 - ny), (x0 - nx, y0 - ny)];
        let corners = corners.map(|(x, y)| (x as f32, y as f32));
        self.fill_polygon(&corners, color);
    }

    /// Fills a shape that lies between the corners `low` and `high`. `crossings_at(y, out)` pushes
    /// the places where the shape's outline crosses the horizontal at `y`.
    fn fill(&mut self, low: (f64, f64), high: (f64, f64), color: Color, crossings_at: impl Fn(f64, &mut Vec<f64>)) {
        // A float to integer cast saturates, so what lies outside the image collapses to its edge.
        let left = (low.0.floor() as usize).min(self.width);
        let right = (high.0.ceil() as usize).min(self.width);
        let top = (low.1.floor() as usize).min(self.height);
        let bottom = (high.1.ceil() as usize).min(self.height);
        if left >= right {
            return;
        }
        let mut coverage = vec![0.0; right - left];
        let mut crossings = Vec::new();
        for row in top..bottom {
            coverage.fill(0.0);
            for sample in 0..SAMPLES {
                let y = row as f64 + (sample as f64 + 0.5) / SAMPLES as f64;
                crossings.clear();
                crossings_at(y, &mut crossings);
                crossings.sort_by(f64::total_cmp);
                for span in crossings.chunks_exact(2) {
                    add_span(&mut coverage, span[0] - left as f64, span[1] - left as f64);
                }
            }
            let start = (row * self.width + left) * 3;
            let pixels = self.pixels[start..].chunks_exact_mut(3);
            for (pixel, &covered) in pixels.zip(&coverage) {
                if covered > 0.0 {
                    blend(pixel, color, covered / SAMPLES as f64);
                }
            }
        }
    }
}

fn widen((x, y): (f32, f32)) -> (f64, f64) {
    (f64::from(x), f64::from(y))
}

/// Adds to each cell the length of `x0..x1` that lies in it; cell `i` is `i..i + 1`.
fn add_span(cells: &mut [f64], x0: f64, x1: f64) {
    let end = cells.len() as f64;
    let (x0, x1) = (x0.clamp(0.0, end), x1.clamp(0.0, end));
    let (first, last) = (x0.floor() as usize, x1.ceil() as usize);
    for (i, cell) in cells.iter_mut().enumerate().take(last).skip(first) {
        *cell += x1.min((i + 1) as f64) - x0.max(i as f64);
    }
}

fn blend(pixel: &mut [u8], color: Color, coverage: f64) {
    for (old, new) in pixel.iter_mut().zip(color) {
        let mixed = f64::from(*old) + (f64::from(new) - f64::from(*old)) * coverage;
        // The cast rounds down; `f64::round` is a slow library call on baseline x86-64.
        *old = (mixed + 0.5) as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLACK: Color = [0; 3];

    /// Pixels' worth of black on a white image.
    fn inked(canvas: &Canvas) -> f64 {
        let ink = canvas.pixels.iter().map(|&v| 255.0 - f64::from(v));
        ink.sum::<f64>() / (3.0 * 255.0)
    }

    #[test]
    fn rectangle_covers_whole_and_part_pixels() {
        let mut canvas = Canvas::new(4, 3);
        canvas.fill_rect(0.75, 1.0, 3.0, 2.5, BLACK);
        let red: Vec<u8> = canvas.pixels().iter().step_by(3).copied().collect();
        let expected = [255, 255, 255, 255, 191, 0, 0, 255, 223, 128, 128, 255];
        assert_eq!(red, expected);
    }

    #[test]
    fn circle_and_line_have_their_area() {
        for radius in [1.5f32, 4.0, 19.3] {
            let mut canvas = Canvas::new(50, 50);
            canvas.fill_circle(25.2, 24.7, radius, BLACK);
            let area = std::f64::consts::PI * f64::from(radius * radius);
            assert!((inked(&canvas) / area - 1.0).abs() < 0.01, "{radius}");
        }
        let mut canvas = Canvas::new(50, 50);
        canvas.line((10.0, 10.0), (40.0, 40.0), 3.0, BLACK);
        assert!((inked(&canvas) / (3.0 * 30.0 * 2f64.sqrt()) - 1.0).abs() < 0.01);
    }

    #[test]
    fn shapes_are_clipped() {
        let mut canvas = Canvas::new(10, 10);
        canvas.fill_circle(0.0, 0.0, 4.0, BLACK);
        assert!((inked(&canvas) / (4.0 * std::f64::consts::PI) - 1.0).abs() < 0.01);
        let before = canvas.pixels.clone();
        canvas.fill_rect(-20.0, -20.0, 0.0, 30.0, BLACK);
        canvas.fill_circle(5.0, -9.0, 8.0, BLACK);
        assert_eq!(canvas.pixels, before);
        canvas.line((-f32::MAX, 5.0), (f32::MAX, 5.0), 2.0, [9; 3]);
        assert!(canvas.pixels[4 * 30..6 * 30].iter().all(|&v| v == 9));
        canvas.fill_rect(-f32::MAX, -f32::MAX, f32::MAX, f32::MAX, [7; 3]);
        assert!(canvas.pixels.iter().all(|&v| v == 7));
        canvas.fill_circle(5.0, 5.0, f32::MAX, [8; 3]);
        assert!(canvas.pixels.iter().all(|&v| v == 8));
    }

    #[test]
    fn non_finite_and_empty_shapes_draw_nothing() {
        for (width, height) in [(8, 8), (0, 8), (8, 0), (0, usize::MAX), (1, 1)] {
            let mut canvas = Canvas::new(width, height);
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                canvas.fill_polygon(&[(0.0, 0.0), (bad, 5.0), (5.0, 5.0)], BLACK);
                canvas.fill_circle(bad, 4.0, 2.0, BLACK);
                canvas.fill_circle(4.0, 4.0, bad, BLACK);
                canvas.line((0.0, bad), (5.0, 5.0), 2.0, BLACK);
                canvas.line((0.0, 0.0), (5.0, 5.0), bad, BLACK);
            }
            canvas.fill_polygon(&[], BLACK);
            canvas.fill_polygon(&[(1.0, 1.0), (5.0, 5.0)], BLACK);
            canvas.fill_circle(4.0, 4.0, -3.0, BLACK);
            canvas.line((3.0, 3.0), (3.0, 3.0), 2.0, BLACK);
            canvas.line((1.0, 1.0), (5.0, 5.0), -2.0, BLACK);
            assert!(canvas.pixels.iter().all(|&v| v == 255));
            canvas.fill_rect(-1.0, -1.0, 9.0, 9.0, BLACK);
            assert!(canvas.pixels.iter().all(|&v| v == 0));
        }
    }

    #[test]
    fn winding_does_not_matter() {
        let mut corners = [(2.3, 1.1), (17.6, 4.2), (9.0, 18.4), (8.1, 7.7)];
        let (mut one, mut other) = (Canvas::new(20, 20), Canvas::new(20, 20));
        one.fill_polygon(&corners, [10, 20, 30]);
        corners.reverse();
        other.fill_polygon(&corners, [10, 20, 30]);
        assert!(inked(&one) > 50.0 && one.pixels == other.pixels);
    }
}
