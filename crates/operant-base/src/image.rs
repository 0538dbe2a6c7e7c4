//! How an observation is an image: what envs say and networks read.

use serde::{Deserialize, Serialize};

/// An observation that is an image, its numbers side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Image {
    /// H, rows of pixels.
    pub height: usize,
    /// W, pixels of a row.
    pub width: usize,
    /// C, numbers of a pixel.
    pub channels: usize,
    /// Whether it lies as `[C, H, W]`; else as `[H, W, C]`.
    pub channels_first: bool,
    /// Whether numbers are 0 to 255: they are then divided by 255.
    pub bytes: bool,
}

impl Image {
    /// Numbers of an image.
    pub fn len(&self) -> usize {
        self.height * self.width * self.channels
    }

    /// Whether it has no pixel or no channel.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
