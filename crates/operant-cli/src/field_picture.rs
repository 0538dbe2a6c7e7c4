//! Fields as pictures: numbers to colours, panels side by side, PNG and GIF files.

use crate::output::Failure;
use operant::data::fft::{Complex, Fft};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// Points of the colour map between which it is linear: Matplotlib's viridis at ninths.
const COLOURS: [[u8; 3]; 10] = [
    [68, 1, 84],
    [72, 40, 120],
    [62, 74, 137],
    [49, 104, 142],
    [38, 130, 142],
    [31, 158, 137],
    [53, 183, 121],
    [109, 205, 89],
    [180, 222, 44],
    [253, 231, 37],
];
/// Pixels between panels.
const GAP: usize = 2;
const COLUMNS: usize = 4;
/// Hundredths of a second per frame.
const DELAY: u16 = 6;

/// 256 colours of three bytes.
fn palette() -> Vec<u8> {
    let colour = |i: usize| {
        let at = i as f64 / 255.0 * (COLOURS.len() - 1) as f64;
        let low = (at as usize).min(COLOURS.len() - 2);
        let part = at - low as f64;
        [0, 1, 2].map(|c| {
            let (a, b) = (f64::from(COLOURS[low][c]), f64::from(COLOURS[low + 1][c]));
            (a + (b - a) * part).round() as u8
        })
    };
    (0..256).flat_map(colour).collect()
}

/// Draws the panels of one moment.
pub(crate) struct Panels {
    n: usize,
    channels: usize,
    zoom: usize,
    fft: Fft,
}

impl Panels {
    pub(crate) fn new(n: usize, channels: usize, zoom: usize) -> Self {
        Self { n, channels, zoom, fft: Fft::new(n) }
    }

    /// Width and height.
    pub(crate) fn size(&self) -> (usize, usize) {
        let side = self.n * self.zoom;
        (COLUMNS * side + (COLUMNS - 1) * GAP, self.channels * side + (self.channels - 1) * GAP)
    }

    /// Colour numbers `[height, width]` of fields `[M, H, W, C]`; each panel from its least to its most number.
    pub(crate) fn draw(&mut self, fields: &[f32]) -> Vec<u8> {
        let ((width, height), n, channels) = (self.size(), self.n, self.channels);
        let (len, side) = (n * n * channels, n * self.zoom);
        let m = (fields.len() / len) as f64;
        let mut out = vec![0; width * height];
        for c in 0..channels {
            let plane =
                |field: &[f32]| field.iter().skip(c).step_by(channels).map(|&x| f64::from(x)).collect::<Vec<_>>();
            let planes: Vec<Vec<f64>> = fields.chunks_exact(len).map(plane).collect();
            let mean: Vec<f64> = (0..n * n).map(|i| planes.iter().map(|x| x[i]).sum::<f64>() / m).collect();
            let spread = (0..n * n).map(|i| planes.iter().map(|x| (x[i] - mean[i]).powi(2)).sum::<f64>() / m).collect();
            let spectrum = self.spectrum(&planes[0]);
            let panels = [planes[0].clone(), mean, spread, spectrum];
            for (column, panel) in panels.iter().enumerate() {
                let finite = || panel.iter().copied().filter(|x| x.is_finite());
                let (low, high) = (finite().fold(f64::INFINITY, f64::min), finite().fold(f64::NEG_INFINITY, f64::max));
                let scale = if high > low { 255.0 / (high - low) } else { 0.0 };
                for (y, x) in (0..side * side).map(|i| (i / side, i % side)) {
                    let value = panel[y / self.zoom * n + x / self.zoom];
                    out[(c * (side + GAP) + y) * width + column * (side + GAP) + x] = ((value - low) * scale) as u8;
                }
            }
        }
        out
    }

    /// Logarithms of powers, with the mean in the middle.
    fn spectrum(&mut self, plane: &[f64]) -> Vec<f64> {
        let n = self.n;
        let mut x: Vec<Complex> = plane.iter().map(|&x| [x, 0.0]).collect();
        self.fft.forward_square(&mut x);
        let at = |i: usize| x[(i / n + n / 2) % n * n + (i % n + n / 2) % n];
        (0..n * n).map(at).map(|[re, im]| (re * re + im * im + 1e-12).ln()).collect()
    }
}

fn whole(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>) -> Result<(), Failure> {
    let beside = path.with_extension("part");
    let run = || {
        let mut file = BufWriter::new(File::create(&beside)?);
        write(&mut file)?;
        file.flush()?;
        drop(file);
        std::fs::rename(&beside, path)
    };
    run().map_err(|error| {
        let _ = std::fs::remove_file(&beside);
        Failure::Run(format!("can't write {}: {error}", path.display()))
    })
}

/// Frames of colour numbers, which repeat for ever.
pub(crate) fn write_gif(path: &Path, frames: &[Vec<u8>], width: usize, height: usize) -> Result<(), Failure> {
    let side = |n: usize| u16::try_from(n).map_err(|_| Failure::Usage(format!("a film {n} pixels wide; lower --zoom")));
    let (width, height) = (side(width)?, side(height)?);
    whole(path, |file| {
        let wrong = |error: gif::EncodingError| std::io::Error::other(error.to_string());
        let mut encoder = gif::Encoder::new(file, width, height, &palette()).map_err(wrong)?;
        encoder.set_repeat(gif::Repeat::Infinite).map_err(wrong)?;
        for frame in frames {
            let mut frame = gif::Frame::from_indexed_pixels(width, height, &frame[..], None);
            frame.delay = DELAY;
            encoder.write_frame(&frame).map_err(wrong)?;
        }
        Ok(())
    })
}

/// One picture of colour numbers: PNG with a palette and deflate's stored blocks (RFC 1951, 3.2.4).
pub(crate) fn write_png(path: &Path, picture: &[u8], width: usize, height: usize) -> Result<(), Failure> {
    let mut raw = Vec::with_capacity((width + 1) * height);
    for row in picture.chunks_exact(width) {
        raw.push(0);
        raw.extend_from_slice(row);
    }
    let mut data = vec![0x78, 0x01];
    let mut blocks = raw.chunks(65_535).peekable();
    while let Some(block) = blocks.next() {
        let len = block.len() as u16;
        data.push(u8::from(blocks.peek().is_none()));
        data.extend(len.to_le_bytes());
        data.extend((!len).to_le_bytes());
        data.extend_from_slice(block);
    }
    let (a, b) = raw.iter().fold((1u32, 0u32), |(a, b), &x| {
        let a = (a + u32::from(x)) % 65_521;
        (a, (b + a) % 65_521)
    });
    data.extend((b << 16 | a).to_be_bytes());
    let header = [&(width as u32).to_be_bytes()[..], &(height as u32).to_be_bytes(), &[8, 3, 0, 0, 0]].concat();
    whole(path, |file| {
        file.write_all(b"\x89PNG\r\n\x1a\n")?;
        for (kind, part) in [(b"IHDR", header), (b"PLTE", palette()), (b"IDAT", data), (b"IEND", Vec::new())] {
            let body = [&kind[..], &part].concat();
            file.write_all(&(part.len() as u32).to_be_bytes())?;
            file.write_all(&body)?;
            file.write_all(&crc32(&body).to_be_bytes())?;
        }
        Ok(())
    })
}

/// CRC-32 of PNG (ISO 3309).
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 })
    })
}
