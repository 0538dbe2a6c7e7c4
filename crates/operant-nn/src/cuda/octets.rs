//! Convolutions and linear layers of bf16 numbers as launches of `ops/octets.cu`, each where its shape serves.

use super::products::Products;
use super::twin::{Launch, Text, Twin, collapse, collapse_few};

/// Pixels of a tile, with their border, and taps times octets of a pixel, at most: as in the text.
const TILE: usize = 256;
const BORDERED: usize = 576;
const OCTETS: usize = 320;
/// Channels and outputs of a block of weights' gradients, at most.
const SOME: usize = 32;
const FEW: usize = 64;
/// Splits that a thread adds up by itself, at most.
const SPLITS: usize = 16;
/// Shared memory of a block, at most, in bytes, and what of it the text itself does not take: of every GPU, of those of compute
/// capability 8.0, and of 9.0.
const ROOMS: [(usize, usize); 3] = [(99 << 10, 92 << 10), (163 << 10, 150 << 10), (227 << 10, 220 << 10)];
/// The same for blocks that bring the next tile while they go through one: more would leave too few blocks side by side.
const SHARED_OF_TWO: usize = 72 << 10;
const SHARED_OF_TWO_SUMS: usize = 100 << 10;

/// Whether so many channels are octets, and a power of two of them.
fn whole(channels: usize) -> bool {
    channels.is_multiple_of(8) && (channels / 8).is_power_of_two()
}

/// Bytes from pixel to pixel.
fn pitch(octets: usize) -> usize {
    if octets == 1 { 16 } else { 16 * octets + 16 }
}

/// A way of cutting: numbers 14 to 17 of the kernels, tiles, and pixels of one with their border.
type Cut = ([usize; 4], usize, usize);

impl Products {
    /// Launches of `any`, in their places those by octets where these serve.
    pub(super) fn octets(&self, rows: usize, any: Twin) -> Twin {
        let of = |room| {
            let [all, few] = [false, true].map(|partly| self.octets_of(rows, any.clone(), partly, room));
            all.or_partly(few)
        };
        let [(_, least), others @ ..] = ROOMS;
        others.into_iter().fold(of(least), |twin, (shared, room)| twin.or_roomy(shared, of(room)))
    }

    /// With `partly`, blocks of a few groups fill a GPU; blocks have so much room.
    fn octets_of(&self, rows: usize, any: Twin, partly: bool, room: usize) -> Twin {
        let mut twin = any;
        twin.pixels = self.pairs();
        let near = matches!(self.kernel, [1, 1] | [3, 3]) && self.padding < self.kernel[0];
        if self.stride != 1 || self.circular || self.groups != 1 || !near {
            return Twin { pixels: false, ..twin };
        }
        match self.octet_product(rows, false, partly, room) {
            Some(forward) => twin.forward = vec![forward],
            None => twin.pixels = false,
        }
        // Any backward: weights, their sums, inputs.
        match self.octet_weight(rows, partly, room) {
            Some((weight, scratch)) => {
                twin.scratch = twin.scratch.max(scratch);
                twin.backward.splice(..2, weight);
            }
            None => twin.pixels = false,
        }
        if let Some(input) = self.octet_product(rows, true, partly, room) {
            twin.backward[2] = input.makes(1);
        }
        twin
    }

    /// Whether pixels of so few channels are taken in pairs.
    fn pairs(&self) -> bool {
        self.channels[0] <= 4 && self.kernel == [3, 3] && self.out[1].is_multiple_of(2)
    }

    fn cut(&self, [h, w]: [usize; 2], rows: usize) -> Option<Cut> {
        let [kh, kw] = self.kernel;
        if kh == 1 {
            return Some(([0, 1, 1, h * w], (rows * h * w).div_ceil(TILE), TILE));
        }
        let (cut, tiles) = self.tiles([h, w], rows, [TILE, BORDERED])?;
        let [images, lines, ..] = cut;
        let bordered = if images > 0 { images * (h + kh - 1) } else { lines + kh - 1 } * (w + kw - 1);
        Some((cut, tiles, bordered))
    }

    /// Bytes of a tile of so many channels with its border.
    fn patch(&self, bordered: usize, channels: usize) -> usize {
        if whole(channels) {
            bordered * pitch(channels / 8)
        } else {
            2 * ((8 * bordered).next_multiple_of(128) + 64) + 128
        }
    }

    fn launch(&self, kernel: String, blocks: usize, (cut, ..): Cut, rest: [usize; 4]) -> Launch {
        let mut all = [0; 22];
        all[..14].copy_from_slice(&self.numbers());
        all[14..18].copy_from_slice(&cut);
        all[18..].copy_from_slice(&rest);
        if self.kernel == [1, 1] {
            // Pixels do not see each other: all of them lie in one line.
            all[..2].copy_from_slice(&[1, TILE]);
            all[10..12].copy_from_slice(&[1, TILE]);
        }
        Launch::blocks(Text::Octets, kernel, blocks).numbers(all)
    }

    /// Outputs, or with `back` gradients of inputs.
    fn octet_product(&self, rows: usize, back: bool, partly: bool, room: usize) -> Option<Launch> {
        let [c, o] = self.channels;
        let (from, to, image) = if back { (o, c, self.image) } else { (c, o, self.out) };
        let few = !back && self.pairs();
        let taps = self.kernel[0] * self.kernel[1];
        let octets = if few { 6 } else { taps * from / 8 };
        if !whole(to) || !(few || whole(from)) || octets > OCTETS {
            return None;
        }
        let cut = self.cut(image, rows)?;
        let shared = |tiles: usize| 8 * tiles * (octets.div_ceil(2) * 32 + 16) + self.patch(cut.2, from);
        let tiles = [8, 4, 2, 1].into_iter().find(|tiles| to % (8 * tiles) == 0 && shared(*tiles) <= room)?;
        // So many that weights and tables are made seldom, and so few that there are blocks for all of a GPU.
        let weights = taps * from * 8 * tiles;
        let each = match partly {
            true => (weights / 4096).min(2).max((cut.1 / 128).clamp(1, 4)),
            false => (weights / 2048).min(8).max((cut.1 / 32).clamp(2, 16)),
        };
        let patch = self.patch(cut.2, from);
        let next = if shared(tiles) + patch <= SHARED_OF_TWO { patch } else { 0 };
        let way = if back {
            "input"
        } else if few {
            "few"
        } else {
            "forward"
        };
        let blocks = cut.1.div_ceil(each) * (to / (8 * tiles));
        let launch = self.launch(format!("octet_{way}_{tiles}"), blocks, cut, [each, 0, 0, next]);
        Some(launch.shared(shared(tiles) + next))
    }

    /// Gradients of weight and bias, and their sums; numbers of scratch memory.
    fn octet_weight(&self, rows: usize, partly: bool, room: usize) -> Option<([Launch; 2], usize)> {
        let ([c, o], [h, w]) = (self.channels, self.out);
        let (few, taps) = (self.pairs(), self.kernel[0] * self.kernel[1]);
        if !whole(o) || !(few || whole(c)) {
            return None;
        }
        let (some, outputs) = (if few { 4 } else { c.min(SOME) }, o.min(FEW));
        let cut = self.cut(self.out, rows)?;
        let len = (c * taps + 1) * o;
        // So many that sums over splits are little beside them.
        let each = match partly {
            true => (cut.1 / 128).clamp(1, 4).max((len / 9000).min(4)),
            false => (cut.1 / 16).clamp(2, 16).max((len / 9000).min(16)),
        };
        let splits = cut.1.div_ceil(each);
        let across = if outputs == 8 { 1 } else { 2 };
        let kernel = match (few, taps, some) {
            (true, ..) => format!("octet_few_weight_{across}"),
            (_, 1, _) => format!("octet_weight_1_{across}"),
            (.., 8) => format!("octet_weight_5_{across}"),
            _ => format!("octet_weight_9_{across}"),
        };
        let blocks = splits * (c / some).max(1) * (o / outputs);
        let tile = TILE * pitch(outputs / 8) + self.patch(cut.2, some);
        let sums = 4 * (taps * (some * (outputs + 1) + 4) + outputs);
        let next = if 2 * tile <= SHARED_OF_TWO_SUMS.min(room) { tile } else { 0 };
        let shared = (tile + next).max(sums);
        if shared > room {
            return None;
        }
        let weight = self.launch(kernel, blocks, cut, [each, some, outputs, next]).shared(shared);
        let ([images, _, tiles, _], mut units) = (cut.0, [1, 1]);
        if taps == 1 {
            units = [h * w, TILE * each];
        } else if images > 0 {
            units[1] = images * each;
        } else {
            units = [tiles, each];
        }
        let makes = if self.bias { 0b110 } else { 0b10 };
        let collapse = if splits <= SPLITS { collapse_few } else { collapse };
        let collapse = collapse(len, units, [1, 2], c * taps * o).makes(makes);
        Some(([weight.makes(makes), collapse], splits * len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Act;

    /// Tiles that a launch goes through, by its numbers, as the text counts them.
    fn tiles(numbers: &[i32], rows: usize) -> usize {
        let n = |i: usize| numbers[i] as usize;
        match (n(17), n(14)) {
            (0, 0) => rows * n(16),
            (0, images) => rows.div_ceil(images),
            (places, _) => (rows * places).div_ceil(TILE),
        }
    }

    #[test]
    fn blocks_go_through_all_tiles_once() {
        let rows = 100;
        for (side, channels, side_of_kernel) in [
            (32, [3, 8], 3),
            (16, [8, 16], 3),
            (8, [64, 128], 3),
            (2, [32, 32], 3),
            (32, [32, 32], 3),
            (32, [16, 8], 1),
            (5, [8, 8], 3),
        ] {
            let (image, kernel) = ([side; 2], [side_of_kernel; 2]);
            let layer = Products {
                image,
                out: image,
                channels,
                kernel,
                stride: 1,
                padding: side_of_kernel / 2,
                circular: false,
                groups: 1,
                bias: true,
                act: Act::Identity,
            };
            for (partly, (shared, room)) in
                [false, true].into_iter().flat_map(|partly| ROOMS.map(|room| (partly, room)))
            {
                let twin = layer.twin(rows).chosen(true, partly, shared);
                let [c, o] = channels;
                let mut launches = vec![(&twin.forward[0], o), (&twin.backward[0], o)];
                if c >= 8 {
                    launches.push((&twin.backward[2], c));
                }
                for (i, (launch, outputs)) in launches.into_iter().enumerate() {
                    let what = format!("{layer:?}: {launch:?}");
                    // What does not fit a small GPU takes the kernels for any shape.
                    if shared == ROOMS[0].0 && launch.text != Text::Octets {
                        assert_eq!((channels, launch.text), ([64, 128], Text::Products), "{what}");
                        continue;
                    }
                    assert_eq!(launch.text, Text::Octets, "{what}");
                    assert!(launch.shared <= room, "{what}");
                    let n = |i: usize| launch.numbers[i] as usize;
                    let times = launch.blocks * n(18);
                    let all = tiles(&launch.numbers, rows);
                    // Columns of a block by its kernel's name, or as the weights' launch says.
                    let (wide, chunks) = match i {
                        1 => (n(20), c.div_ceil(n(19))),
                        _ => (8 * launch.kernel.rsplit('_').next().unwrap().parse::<usize>().unwrap(), 1),
                    };
                    let parts = outputs / wide * chunks;
                    assert!(outputs.is_multiple_of(wide) && times >= all * parts, "{what}");
                    assert!(times < (all + n(18)) * parts, "{what}");
                    if i == 1 {
                        let splits = all.div_ceil(n(18));
                        let sums = &twin.backward[1];
                        let [len, places, chunk] = [0, 1, 2].map(|i| sums.numbers[i] as usize);
                        assert_eq!((rows * places).div_ceil(chunk), splits, "{what}: {sums:?}");
                        assert!(splits * len <= twin.scratch, "{what}");
                    }
                }
            }
        }
    }
}
