//! Fields as panels of colour numbers, a row per channel: realisation 0, mean and variance over realisations, logarithm of the power
//! spectrum, the first principal component over time, and the way through the plane of the first two.

use operant::field::fft::{Complex, Fft};

/// Pixels between panels.
const GAP: usize = 2;
/// What columns show, in order.
pub(crate) const COLUMNS: [&str; 6] = [
    "realisation 0",
    "mean",
    "variance",
    "ln power spectrum",
    "first principal component",
    "way through the first two",
];
/// Columns that one moment is enough for.
const MOMENTARY: usize = 4;
/// Moments that principal components are made from; further ones are looked at through these.
const MOST_MOMENTS: usize = 96;

/// Draws fields `[M, H, W, C]`, H = W = n.
pub(crate) struct Panels {
    n: usize,
    channels: usize,
    /// Pixels of a panel.
    side: usize,
    fft: Fft,
    /// Realisation 0 of every moment drawn.
    seen: Vec<Vec<f32>>,
    pictures: Vec<Vec<u8>>,
}

impl Panels {
    pub(crate) fn new(n: usize, channels: usize, side: usize) -> Self {
        Self { n, channels, side, fft: Fft::new(n), seen: Vec::new(), pictures: Vec::new() }
    }

    /// Width and height.
    pub(crate) fn size(&self) -> (usize, usize) {
        let along = |count: usize| count * self.side + (count - 1) * GAP;
        (along(COLUMNS.len()), along(self.channels))
    }

    /// Puts a panel `[n, n]` into its place, from its least to its most number.
    fn place(&self, picture: &mut [u8], row: usize, column: usize, panel: &[f64]) {
        let finite = || panel.iter().copied().filter(|x| x.is_finite());
        let (low, high) = (finite().fold(f64::INFINITY, f64::min), finite().fold(f64::NEG_INFINITY, f64::max));
        let scale = if high > low { 255.0 / (high - low) } else { 0.0 };
        let (n, side) = (self.n, self.side);
        for (y, x) in (0..side * side).map(|i| (i / side, i % side)) {
            let value = panel[y * n / side * n + x * n / side];
            picture[self.at(row, column, y, x)] = ((value - low) * scale) as u8;
        }
    }

    fn at(&self, row: usize, column: usize, y: usize, x: usize) -> usize {
        (row * (self.side + GAP) + y) * self.size().0 + column * (self.side + GAP) + x
    }

    fn plane(&self, field: &[f32], c: usize) -> Vec<f64> {
        field.iter().skip(c).step_by(self.channels).map(|&x| f64::from(x)).collect()
    }

    /// The next moment.
    pub(crate) fn see(&mut self, fields: &[f32]) {
        let ((width, height), n) = (self.size(), self.n);
        let len = n * n * self.channels;
        let m = (fields.len() / len) as f64;
        let mut picture = vec![0; width * height];
        for c in 0..self.channels {
            let planes: Vec<Vec<f64>> = fields.chunks_exact(len).map(|field| self.plane(field, c)).collect();
            let mean: Vec<f64> = (0..n * n).map(|i| planes.iter().map(|x| x[i]).sum::<f64>() / m).collect();
            let spread = (0..n * n).map(|i| planes.iter().map(|x| (x[i] - mean[i]).powi(2)).sum::<f64>() / m).collect();
            let spectrum = self.spectrum(&planes[0]);
            for (column, panel) in [&planes[0], &mean, &spread, &spectrum].into_iter().enumerate() {
                self.place(&mut picture, c, column, panel);
            }
        }
        self.seen.push(fields[..len].to_vec());
        self.pictures.push(picture);
    }

    /// Logarithms of powers, with the mean in the middle.
    fn spectrum(&mut self, plane: &[f64]) -> Vec<f64> {
        let n = self.n;
        let mut x: Vec<Complex> = plane.iter().map(|&x| [x, 0.0]).collect();
        self.fft.forward_square(&mut x);
        let at = |i: usize| x[(i / n + n / 2) % n * n + (i % n + n / 2) % n];
        (0..n * n).map(at).map(|[re, im]| (re * re + im * im + 1e-12).ln()).collect()
    }

    /// Pictures of all moments, now that principal components of the whole are known.
    pub(crate) fn pictures(mut self) -> Vec<Vec<u8>> {
        let mut pictures = std::mem::take(&mut self.pictures);
        for c in 0..self.channels {
            let planes: Vec<Vec<f64>> = self.seen.iter().map(|field| self.plane(field, c)).collect();
            let (pattern, scores) = principal(&planes);
            let places = self.within(&scores);
            for (moment, picture) in pictures.iter_mut().enumerate() {
                self.place(picture, c, MOMENTARY, &pattern);
                self.draw_way(picture, c, &places[..=moment]);
            }
        }
        pictures
    }

    /// Scores as pixels of a panel, with a margin.
    fn within(&self, scores: &[[f64; 2]]) -> Vec<[f64; 2]> {
        let range = |axis: usize| {
            let all = || scores.iter().map(move |score| score[axis]).filter(|x| x.is_finite());
            (all().fold(f64::INFINITY, f64::min), all().fold(f64::NEG_INFINITY, f64::max))
        };
        let ranges = [range(0), range(1)];
        // One scale for both, so that distances are distances.
        let widest = ranges.iter().map(|(low, high)| high - low).fold(0.0, f64::max);
        let room = (self.side.saturating_sub(1)) as f64;
        let at = |axis: usize, score: f64| {
            let (low, high) = ranges[axis];
            let share = if widest > 0.0 { (score - (low + high) / 2.0) / widest } else { 0.0 };
            (0.5 + 0.9 * share) * room
        };
        scores.iter().map(|score| [at(0, score[0]), at(1, score[1])]).collect()
    }

    fn draw_way(&self, picture: &mut [u8], row: usize, places: &[[f64; 2]]) {
        let last = self.side - 1;
        let mut dot = |x: f64, y: f64, colour: u8| {
            if x.is_finite() && y.is_finite() {
                let pixel = |at: f64| (at.round().max(0.0) as usize).min(last);
                picture[self.at(row, MOMENTARY + 1, pixel(y), pixel(x))] = colour;
            }
        };
        for pair in places.windows(2) {
            let ([x, y], [to_x, to_y]) = (pair[0], pair[1]);
            let steps = (to_x - x).abs().max((to_y - y).abs()).ceil().clamp(1.0, 4.0 * self.side as f64);
            for i in 0..=steps as usize {
                let part = i as f64 / steps;
                dot(x + (to_x - x) * part, y + (to_y - y) * part, 150);
            }
        }
        let Some(&[x, y]) = places.last() else { return };
        for (dx, dy) in [(0.0, 0.0), (1.0, 0.0), (-1.0, 0.0), (0.0, 1.0), (0.0, -1.0)] {
            dot(x + dx, y + dy, 255);
        }
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The first principal component of moments `[T][pixels]`, and of every moment its scores of the first two.
///
/// By the matrix of products of moments, which is smaller than that of pixels (Sirovich, 1987), whose leading vectors come from
/// repeated products.
fn principal(moments: &[Vec<f64>]) -> (Vec<f64>, Vec<[f64; 2]>) {
    let (count, len) = (moments.len(), moments.first().map_or(0, Vec::len));
    let mean: Vec<f64> = (0..len).map(|i| moments.iter().map(|x| x[i]).sum::<f64>() / count as f64).collect();
    let centred: Vec<Vec<f64>> =
        moments.iter().map(|x| x.iter().zip(&mean).map(|(x, mean)| x - mean).collect()).collect();
    let chosen: Vec<&Vec<f64>> = centred.iter().step_by(count.div_ceil(MOST_MOMENTS).max(1)).collect();
    let products: Vec<Vec<f64>> = chosen.iter().map(|a| chosen.iter().map(|b| dot(a, b)).collect()).collect();
    let mut patterns: Vec<Vec<f64>> = Vec::new();
    let mut vectors: Vec<Vec<f64>> = Vec::new();
    for component in 0..2 {
        // No pattern of a field is at a right angle to all of these by chance.
        let mut v: Vec<f64> = (0..chosen.len()).map(|i| 1.0 + ((i * 7 + component * 3) % 11) as f64).collect();
        for _ in 0..200 {
            for other in &vectors {
                let share = dot(&v, other);
                v.iter_mut().zip(other).for_each(|(x, other)| *x -= share * other);
            }
            v = products.iter().map(|row| dot(row, &v)).collect();
            let size = dot(&v, &v).sqrt();
            v.iter_mut().for_each(|x| *x = if size > 0.0 { *x / size } else { 0.0 });
        }
        let mut pattern = vec![0.0; len];
        for (share, x) in v.iter().zip(&chosen) {
            pattern.iter_mut().zip(*x).for_each(|(to, x)| *to += share * x);
        }
        let size = dot(&pattern, &pattern).sqrt();
        pattern.iter_mut().for_each(|x| *x = if size > 0.0 { *x / size } else { 0.0 });
        vectors.push(v);
        patterns.push(pattern);
    }
    let scores = centred.iter().map(|x| [dot(x, &patterns[0]), dot(x, &patterns[1])]).collect();
    (patterns.swap_remove(0), scores)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pattern that swings and a weaker one that goes round with it are the two components.
    #[test]
    fn components_are_the_patterns_that_move() {
        let strong: Vec<f64> = (0..64).map(|i| f64::from(i % 8) - 3.5).collect();
        let weak: Vec<f64> = (0..64).map(|i| f64::from(i / 8) - 3.5).collect();
        let moment = |t: usize| {
            let (sin, cos) = (t as f64 * 0.4).sin_cos();
            strong.iter().zip(&weak).map(|(a, b)| 5.0 + 2.0 * a * cos + 0.5 * b * sin).collect::<Vec<f64>>()
        };
        let (pattern, scores) = principal(&(0..200).map(moment).collect::<Vec<_>>());
        let alike = dot(&pattern, &strong) / dot(&strong, &strong).sqrt();
        assert!((alike.abs() - 1.0).abs() < 1e-3, "{alike}");
        let size = |axis: usize| scores.iter().map(|score| score[axis] * score[axis]).sum::<f64>();
        assert!((size(0) / size(1) - 16.0).abs() < 1.0, "{} and {}", size(0), size(1));
        // Fields that do not move have none, and nothing is divided by zero.
        let (pattern, scores) = principal(&vec![vec![1.0; 9]; 3]);
        assert!(pattern.iter().chain(scores.iter().flatten()).all(|x| *x == 0.0));
    }
}
