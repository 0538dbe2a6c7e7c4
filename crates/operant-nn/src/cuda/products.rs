//! Convolutions and linear layers as launches of `ops/products.cu`, or where tiles of pixels with their border fit into shared memory
//! of `ops/patches.cu`.

use super::twin::{Launch, Text, Twin, act_number};
use crate::op::Act;

/// Rows and terms of a tile, and places whose share of a weight's gradient one block adds up: as in the text.
const TILE: usize = 128;
const TERMS: usize = 32;
const SPLIT: usize = 2048;
/// Channels at once, pixels of a tile with their border, and pairs of terms that a block has a place for.
const NEARBY: usize = 16;
const BORDERED: usize = 288;
const PAIRS: usize = 256;
/// Tiles whose share of a weight's gradient one block adds up, and tiles of other blocks.
const TILES_OF_SPLIT: usize = 16;
const TILES_OF_BLOCK: usize = 4;

/// A convolution; a linear layer is one of 1×1 over its places.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Products {
    /// Height and width of images.
    pub(crate) image: [usize; 2],
    /// Height and width of results.
    pub(crate) out: [usize; 2],
    /// Channels in and out.
    pub(crate) channels: [usize; 2],
    /// Height and width of the kernel.
    pub(crate) kernel: [usize; 2],
    /// From an output to the next.
    pub(crate) stride: usize,
    /// Border.
    pub(crate) padding: usize,
    /// Whether the border goes round.
    pub(crate) circular: bool,
    /// Parts of the channels that do not see each other.
    pub(crate) groups: usize,
    /// Whether there is a bias.
    pub(crate) bias: bool,
    /// Applied to the result.
    pub(crate) act: Act,
}

/// Columns of a block: the fewest that hold so many, up to a limit.
fn columns(wanted: usize, most: usize) -> usize {
    wanted.next_power_of_two().clamp(8, most)
}

impl Products {
    /// A layer of `[outputs, inputs]` weights over so many places a row.
    pub(crate) fn linear(places: usize, channels: [usize; 2], bias: bool, act: Act) -> Self {
        let (image, kernel) = ([places, 1], [1, 1]);
        Self { image, out: image, channels, kernel, stride: 1, padding: 0, circular: false, groups: 1, bias, act }
    }

    /// Its launches for up to `rows` rows of a group.
    pub(crate) fn twin(&self, rows: usize) -> Twin {
        let narrow = self.octets(rows, self.any(rows));
        self.patches(rows).unwrap_or_else(|| self.any(rows)).or_narrow(Some(narrow))
    }

    /// Numbers 0 to 13 of the kernels.
    pub(super) fn numbers(&self) -> [usize; 14] {
        let Self { image: [h, w], out: [ho, wo], channels: [c, o], kernel: [kh, kw], groups, .. } = *self;
        [
            h,
            w,
            c,
            o,
            kh,
            kw,
            self.stride,
            self.padding,
            usize::from(self.circular),
            groups,
            ho,
            wo,
            act_number(self.act),
            usize::from(self.bias),
        ]
    }

    /// Launches that serve any shape.
    fn any(&self, rows: usize) -> Twin {
        let Self { image: [h, w], out: [ho, wo], channels: [c, o], kernel: [kh, kw], groups, .. } = *self;
        let (cg, og) = (c / groups, o / groups);
        let (terms, inputs, outputs) = (cg * kh * kw, rows * h * w, rows * ho * wo);
        let numbers = self.numbers();
        let splits = outputs.div_ceil(SPLIT);
        let sums = groups * (terms + 1) * og;
        let weight = if self.bias { 0b110 } else { 0b10 };
        let blocks = |kernel: &str, blocks: usize| Launch::blocks(Text::Products, kernel, blocks).numbers(numbers);
        let each = |kernel: &str, count: usize| Launch::each(Text::Products, kernel, count).numbers(numbers);
        let collapse = blocks("product_collapse", sums.div_ceil(32)).makes(weight);
        if cg == 1 && og == 1 && groups > 1 {
            let parts = blocks("depthwise_weight", splits * (terms + 1)).makes(weight);
            let input = each("depthwise_input", inputs * c).makes(1);
            return Twin::new([each("depthwise_forward", outputs * o)], [parts, collapse, input])
                .scratch(splits * sums);
        }
        let tiles = |kernel: &str, places: usize, width: usize| {
            let columns = columns(width, 64);
            let count = places.div_ceil(TILE) * groups * width.div_ceil(columns);
            blocks(&format!("product_{kernel}_{columns}"), count)
        };
        let columns = columns(og, 32);
        let count = splits * groups * (terms + 1).div_ceil(TERMS) * og.div_ceil(columns);
        let parts = blocks(&format!("product_weight_{columns}"), count).makes(weight);
        let input = tiles("input", inputs, cg).makes(1);
        Twin::new([tiles("forward", outputs, og)], [parts, collapse, input]).scratch(splits * sums)
    }

    /// How pixels of the way to such images are cut into tiles of so many pixels, and of so many with their border: the numbers 14 to
    /// 17 of the kernels, and how many tiles there are.
    pub(super) fn tiles(
        &self,
        [h, w]: [usize; 2],
        rows: usize,
        [tile, bordered]: [usize; 2],
    ) -> Option<([usize; 4], usize)> {
        let Self { kernel: [kh, kw], .. } = *self;
        let images = (tile / (h * w)).min(bordered / ((h + kh - 1) * (w + kw - 1)));
        if images > 0 {
            return Some(([images, 0, 0, 0], rows.div_ceil(images)));
        }
        let lines = (tile / w).min((bordered / (w + kw - 1)).checked_sub(kh - 1)?);
        (lines > 0).then(|| ([0, lines, h.div_ceil(lines), 0], rows * h.div_ceil(lines)))
    }

    /// Launches over tiles with their border, where these serve.
    fn patches(&self, rows: usize) -> Option<Twin> {
        let Self { image: [h, w], channels: [c, o], kernel: [kh, kw], padding, bias, .. } = *self;
        let mut numbers = self.numbers();
        if self.stride != 1 || self.circular || self.groups != 1 || kh != kw || padding >= kh {
            return None;
        }
        let (taps, near) = (kh * kw, NEARBY.min(c.next_multiple_of(4)));
        let (forward, back) = if taps == 1 {
            // Pixels do not see each other: all of them lie in one line.
            numbers[..2].copy_from_slice(&[1, TILE]);
            numbers[10..12].copy_from_slice(&[1, TILE]);
            let cut = ([0, 1, 1, h * w], (rows * h * w).div_ceil(TILE));
            (cut, cut)
        } else {
            (self.tiles(self.out, rows, [TILE, BORDERED])?, self.tiles(self.image, rows, [TILE, BORDERED])?)
        };
        if taps * NEARBY.min(c.max(o).next_multiple_of(4)) / 2 > PAIRS {
            return None;
        }
        let launch = |kernel: String, blocks: usize, cut: [usize; 4]| {
            let mut all = [0; 20];
            all[..14].copy_from_slice(&numbers);
            all[14..18].copy_from_slice(&cut);
            all[18..].copy_from_slice(&[TILES_OF_SPLIT, TILES_OF_BLOCK]);
            Launch::blocks(Text::Patches, kernel, blocks).numbers(all)
        };
        let product = |way: &str, (cut, tiles): ([usize; 4], usize), width: usize| {
            let columns = columns(width, 64);
            let blocks = tiles.div_ceil(TILES_OF_BLOCK) * width.div_ceil(columns);
            launch(format!("patch_{way}_{columns}"), blocks, cut)
        };
        let parts = if taps * near <= 48 { 3 } else { 5 };
        let (columns, splits) = (columns(o, 32), forward.1.div_ceil(TILES_OF_SPLIT));
        let blocks = splits * c.div_ceil(NEARBY) * (taps * near).div_ceil(16 * parts) * o.div_ceil(columns);
        let makes = if bias { 0b110 } else { 0b10 };
        let weight = launch(format!("patch_weight_{parts}_{columns}"), blocks, forward.0).makes(makes);
        let sums = (taps * c + 1) * o;
        let collapse = launch("patch_collapse".into(), sums.div_ceil(32), forward.0).makes(makes);
        let input = product("input", back, c).makes(1);
        Some(Twin::new([product("forward", forward, o)], [weight, collapse, input]).scratch(splits * sums))
    }
}
