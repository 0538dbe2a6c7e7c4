//! An image with a border, staged row by row in the precision of products. Only a window of rows is kept, so that what
//! products read stays in a near cache whatever the size of the image.

use crate::real::{Compute, Left, Real, Room, Scratch};

/// Bytes of a window beyond the rows that one product reads.
const WINDOW_BYTES: usize = 192 << 10;

/// Where rows come from and how they are bordered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Border {
    /// Rows and pixels per row of the image.
    pub(super) size: [usize; 2],
    /// Numbers per pixel of the image.
    pub(super) channels: usize,
    /// Numbers per pixel that are staged.
    pub(super) depth: usize,
    /// Rows above and pixels left of the image.
    pub(super) before: [usize; 2],
    /// Rows with the border, and pixels of each.
    pub(super) height: usize,
    pub(super) width: usize,
    /// The border repeats the image; else it is zero.
    pub(super) circular: bool,
    /// Most rows that are asked for at once.
    pub(super) rows: usize,
}

impl Border {
    /// Whether the image can be read where it is.
    fn direct<R: Real>(&self, compute: Compute) -> bool {
        let unbordered = self.before == [0, 0] && [self.height, self.width] == self.size;
        R::in_place(compute) && unbordered && self.depth == self.channels
    }

    fn stride<R: Real>(&self, compute: Compute) -> usize {
        let row = self.width * self.depth;
        if R::tiled(compute) {
            row.next_multiple_of(32)
        } else if self.direct::<R>(compute) {
            row
        } else {
            row.next_multiple_of(line::<R>())
        }
    }

    /// Rows of the window.
    fn window<R: Real>(&self, compute: Compute) -> usize {
        let element = if R::tiled(compute) { 2 } else { size_of::<R>() };
        (self.rows + WINDOW_BYTES / (element * self.stride::<R>(compute))).min(self.height)
    }

    pub(super) fn scratch<R: Real>(&self, compute: Compute) -> Scratch {
        if self.direct::<R>(compute) {
            return Scratch::default();
        }
        R::pieces_scratch(compute, self.window::<R>(compute) * self.stride::<R>(compute) + 2 * line::<R>())
    }
}

/// Elements of a cache line.
fn line<R>() -> usize {
    64 / size_of::<R>()
}

/// The window over one image at a time.
#[derive(Debug)]
pub(super) struct Padded<'a, R> {
    border: Border,
    compute: Compute,
    first_channel: usize,
    room: Room<'a, R>,
    direct: bool,
    /// Elements from a staged row to the next.
    pub(super) stride: usize,
    window: usize,
    /// Place of the first staged row. Its first pixel inside the border is at a cache line, so that it is copied line by line.
    lead: usize,
    begin: usize,
    end: usize,
    /// Rows whose border is in place since an earlier image.
    bordered: usize,
}

impl<'a, R: Real> Padded<'a, R> {
    /// Of no image yet. `room` is at least as long as [`Border::scratch`] says.
    pub(super) fn new(border: Border, compute: Compute, mut room: Room<'a, R>) -> Self {
        let room = room.take(border.scratch::<R>(compute));
        let inside = border.before[1] * border.depth;
        let lead = if R::tiled(compute) || room.real.is_empty() {
            0
        } else {
            let aligned = room.real.as_ptr().align_offset(64).min(line::<R>());
            aligned + inside.next_multiple_of(line::<R>()) - inside
        };
        Self {
            border,
            compute,
            first_channel: 0,
            room,
            direct: border.direct::<R>(compute),
            stride: border.stride::<R>(compute),
            window: border.window::<R>(compute),
            lead,
            begin: 0,
            end: 0,
            bordered: 0,
        }
    }

    /// Goes on with these channels of the next image, from its first row.
    pub(super) fn begin(&mut self, first_channel: usize) {
        if self.window == self.border.height && !self.border.circular && !R::tiled(self.compute) {
            self.bordered = self.bordered.max(self.end);
        }
        (self.first_channel, self.begin, self.end) = (first_channel, 0, 0);
    }

    /// Makes `count` rows of the image from `first` on ready and gives the place of the first in [`Padded::left`]. Rows never go back
    /// further than what one call asked for.
    pub(super) fn rows(&mut self, image: &[R], first: usize, count: usize) -> usize {
        debug_assert!(count <= self.border.rows && first >= self.begin);
        if self.direct {
            return first * self.stride;
        }
        if self.window == self.border.height {
            // All rows have their place: those before the first are staged too.
        } else if first >= self.end {
            (self.begin, self.end) = (first, first);
        } else if first + count > self.begin + self.window {
            let from = self.place(first)..self.place(self.end);
            if R::tiled(self.compute) {
                self.room.half.copy_within(from, self.lead);
            } else {
                self.room.real.copy_within(from, self.lead);
            }
            self.begin = first;
        }
        while self.end < first + count {
            self.stage(image, self.place(self.end), self.end);
            self.end += 1;
        }
        self.place(first)
    }

    /// Of a row of the window.
    fn place(&self, row: usize) -> usize {
        self.lead + (row - self.begin) * self.stride
    }

    pub(super) fn left<'b>(&'b self, image: &'b [R]) -> Left<'b, R> {
        if self.direct {
            Left::Real(image)
        } else if R::tiled(self.compute) {
            Left::Half(self.room.half)
        } else {
            Left::Real(self.room.real)
        }
    }

    fn stage(&mut self, image: &[R], at: usize, row: usize) {
        let Border { size: [h, w], depth, before: [top, left], width, circular, .. } = self.border;
        let inside = row >= top && row < top + h;
        if row < self.bordered {
            if inside {
                self.pixels(image, at + left * depth, row - top, 0, w.min(width.saturating_sub(left)));
            }
            return;
        }
        // What a chunk reads past the last pixel.
        let past = if R::tiled(self.compute) { 32 } else { 0 };
        if !inside && !circular {
            self.room.clear(at, self.stride + past);
            return;
        }
        let y = wrap(row, top, h);
        let whole = w.min(width.saturating_sub(left));
        if circular {
            for x in 0..left.min(width) {
                self.pixels(image, at + x * depth, y, wrap(x, left, w), 1);
            }
        } else {
            self.room.clear(at, left * depth);
        }
        self.pixels(image, at + left * depth, y, 0, whole);
        let end = left + whole;
        if circular {
            for x in end..width {
                self.pixels(image, at + x * depth, y, wrap(x, left, w), 1);
            }
        } else {
            self.room.clear(at + end * depth, (width - end) * depth);
        }
        self.room.clear(at + width * depth, self.stride - width * depth + past);
    }

    fn pixels(&mut self, image: &[R], at: usize, y: usize, x: usize, count: usize) {
        let Border { size: [_, w], channels, depth, .. } = self.border;
        let from = &image[(y * w + x) * channels + self.first_channel..];
        if depth == channels {
            R::stage_piece(self.compute, &from[..count * depth], at, &mut self.room);
        } else {
            for pixel in 0..count {
                R::stage_piece(self.compute, &from[pixel * channels..][..depth], at + pixel * depth, &mut self.room);
            }
        }
    }
}

/// Place in an image of `size` that place `at` of a circular border, `before` long, repeats.
pub(super) fn wrap(at: usize, before: usize, size: usize) -> usize {
    (at + size * before.div_ceil(size) - before) % size
}

#[cfg(test)]
mod tests {
    use super::*;
    use operant_lanes::Backend;
    use crate::Precision;

    /// Every row of every window, against the border's definition.
    #[test]
    fn rows_are_bordered() {
        let (h, w, channels) = (40, 7, 3);
        let image: Vec<f32> = (0..h * w * channels).map(|i| i as f32 + 1.0).collect();
        let compute = Compute { backend: Backend::fast(), precision: Precision::F32 };
        for (circular, before, extra, depth) in [(false, 2, 3, 3), (true, 2, 2, 3), (false, 0, 0, 2), (true, 5, 1, 1)] {
            let width = before + w + extra;
            let (size, before_both, height) = ([h, w], [before, before], before + h + extra);
            let border = Border { size, channels, depth, before: before_both, height, width, circular, rows: 3 };
            let mut memory = vec![7.0; border.scratch::<f32>(compute).real];
            let room = Room { real: &mut memory, half: &mut [] };
            let mut padded = Padded::new(border, compute, room);
            // Twice a window of few rows, then all rows twice, where the second time borders are kept.
            for (turn, first) in (0..4 * (height - 2)).map(|i| (i / (height - 2), i % (height - 2))) {
                if first == 0 {
                    padded.begin(1.min(channels - depth));
                    padded.window = if turn < 2 { 5 } else { height };
                }
                let (at, stride) = (padded.rows(&image, first, 3), padded.stride);
                let Left::Real(rows) = padded.left(&image) else { unreachable!() };
                for (row, x, c) in (0..3 * width * depth).map(|i| (i / width / depth, i / depth % width, i % depth)) {
                    let (y, x0) = ((first + row) as isize - before as isize, x as isize - before as isize);
                    let inside = y >= 0 && y < h as isize && x0 >= 0 && x0 < w as isize;
                    let (y, x0) = (y.rem_euclid(h as isize) as usize, x0.rem_euclid(w as isize) as usize);
                    let channel = c + 1.min(channels - depth);
                    let wanted = if inside || circular { image[(y * w + x0) * channels + channel] } else { 0.0 };
                    assert_eq!(rows[at + row * stride + x * depth + c], wanted, "{turn}: row {} pixel {x}", first + row);
                }
            }
        }
    }
}
