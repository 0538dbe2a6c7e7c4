//! Samples moved and turned by chance: a crop of the image with a border of zeros around it, at times mirrored (as in He et al.,
//! arXiv:1512.03385).
//!
//! What happens to a sample is a function of (episode's seed, epoch, number of the sample), so that devices agree on it; the kernel
//! `gather` of `lessons.cu` draws the same.

use operant_lanes::rng::HostRng;

/// Pixels of the border.
pub(super) const BORDER: usize = 4;
/// Stream of these draws, beside that of orders and fresh samples.
const STREAM: u32 = 1;

/// What happens to a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// First row of the crop in the image with its border.
    pub down: usize,
    /// First column of it.
    pub right: usize,
    /// Whether it is mirrored after that.
    pub mirrored: bool,
}

impl Moved {
    /// By chance.
    pub fn draw(seed: u64, epoch: u32, sample: u32) -> Self {
        let mut rng = HostRng::new(seed, sample, epoch, STREAM);
        let mut place = || ((u64::from(rng.word()) * (2 * BORDER as u64 + 1)) >> 32) as usize;
        let [down, right] = [place(), place()];
        Self { down, right, mirrored: rng.word() >> 31 == 1 }
    }

    /// Adds what becomes of an image of this shape.
    pub fn put(self, image: [usize; 3], from: &[f32], to: &mut Vec<f32>) {
        let [height, width, channels] = image;
        for row in 0..height {
            let above = (row + self.down).checked_sub(BORDER).filter(|row| *row < height);
            for column in 0..width {
                let column = if self.mirrored { width - 1 - column } else { column };
                let left = (column + self.right).checked_sub(BORDER).filter(|column| *column < width);
                match (above, left) {
                    (Some(row), Some(column)) => {
                        to.extend_from_slice(&from[(row * width + column) * channels..][..channels]);
                    }
                    _ => to.extend(std::iter::repeat_n(0.0, channels)),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crops_are_mirrored_after_they_are_moved() {
        let image: Vec<f32> = (0..12).map(|x| x as f32 + 1.0).collect();
        let moved = |down, right, mirrored| {
            let mut to = Vec::new();
            Moved { down, right, mirrored }.put([3, 4, 1], &image, &mut to);
            to
        };
        assert_eq!(moved(4, 4, false), image);
        assert_eq!(moved(5, 3, false), [0.0, 5.0, 6.0, 7.0, 0.0, 9.0, 10.0, 11.0, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!(moved(5, 3, true), [7.0, 6.0, 5.0, 0.0, 11.0, 10.0, 9.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        assert!(moved(0, 8, true).iter().all(|x| *x == 0.0));
    }

    #[test]
    fn every_place_is_as_likely_and_draws_repeat() {
        let mut counts = [[0; 9]; 2];
        let mut mirrored = 0;
        for sample in 0..9000 {
            let drawn = Moved::draw(7, 3, sample);
            assert_eq!(drawn, Moved::draw(7, 3, sample));
            counts[0][drawn.down] += 1;
            counts[1][drawn.right] += 1;
            mirrored += usize::from(drawn.mirrored);
        }
        assert!(counts.iter().flatten().all(|count| (850..1150).contains(count)), "{counts:?}");
        assert!((4300..4700).contains(&mirrored), "{mirrored}");
        let all = |seed: u64, epoch: u32| (0..50).map(|sample| Moved::draw(seed, epoch, sample)).collect::<Vec<_>>();
        assert!(all(7, 3) != all(7, 4) && all(7, 3) != all(8, 3));
    }
}
