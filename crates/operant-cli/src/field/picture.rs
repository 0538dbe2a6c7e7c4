//! Pictures of colour numbers as files: PNG, GIF, and MP4 by ffmpeg where it is installed.

use crate::output::Failure;
use clap::ValueEnum;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Numbers to colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Colours {
    Viridis,
    Inferno,
    /// Blue to red through grey.
    Coolwarm,
    Gray,
}

impl Colours {
    /// Points between which a map is linear: Matplotlib's, evenly spaced.
    fn points(self) -> &'static [[u8; 3]] {
        match self {
            Self::Viridis => &[
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
            ],
            Self::Inferno => &[
                [0, 0, 4],
                [31, 12, 72],
                [85, 15, 109],
                [136, 34, 106],
                [186, 54, 85],
                [227, 89, 51],
                [249, 140, 10],
                [249, 201, 50],
                [252, 255, 164],
            ],
            Self::Coolwarm => &[
                [59, 76, 192],
                [98, 130, 234],
                [141, 176, 254],
                [184, 208, 249],
                [221, 221, 221],
                [245, 196, 173],
                [244, 154, 123],
                [222, 96, 77],
                [180, 4, 38],
            ],
            Self::Gray => &[[0, 0, 0], [255, 255, 255]],
        }
    }

    /// 256 colours of three bytes.
    fn palette(self) -> Vec<u8> {
        let points = self.points();
        let colour = |i: usize| {
            let at = i as f64 / 255.0 * (points.len() - 1) as f64;
            let low = (at as usize).min(points.len() - 2);
            let part = at - low as f64;
            [0, 1, 2].map(|c| {
                let (a, b) = (f64::from(points[low][c]), f64::from(points[low + 1][c]));
                (a + (b - a) * part).round() as u8
            })
        };
        (0..256).flat_map(colour).collect()
    }
}

/// Frames of colour numbers `[height, width]`, one after the other.
pub(crate) struct Film {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) frames: Vec<Vec<u8>>,
    pub(crate) colours: Colours,
    pub(crate) fps: u32,
}

/// Writes beside and renames.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let beside = path.with_extension("part");
    let run = || std::fs::write(&beside, bytes).and_then(|()| std::fs::rename(&beside, path));
    run().map_err(|error| {
        let _ = std::fs::remove_file(&beside);
        Failure::Run(format!("can't write {}: {error}", path.display()))
    })
}

impl Film {
    /// A GIF that repeats for ever.
    pub(crate) fn gif(&self) -> Result<Vec<u8>, Failure> {
        let side =
            |n: usize| u16::try_from(n).map_err(|_| Failure::Usage(format!("a film {n} pixels wide; lower --zoom")));
        let (width, height) = (side(self.width)?, side(self.height)?);
        let encode = || -> Result<Vec<u8>, gif::EncodingError> {
            let mut bytes = Vec::new();
            let mut encoder = gif::Encoder::new(&mut bytes, width, height, &self.colours.palette())?;
            encoder.set_repeat(gif::Repeat::Infinite)?;
            for frame in &self.frames {
                let mut frame = gif::Frame::from_indexed_pixels(width, height, &frame[..], None);
                // Hundredths of a second.
                frame.delay = (100 / self.fps.max(1)).max(2) as u16;
                encoder.write_frame(&frame)?;
            }
            drop(encoder);
            Ok(bytes)
        };
        encode().map_err(|error| Failure::Run(format!("can't make a GIF: {error}")))
    }

    /// As its ending says: .gif, .mp4, or .png of the last frame.
    pub(crate) fn write(&self, path: &Path) -> Result<(), Failure> {
        let ending = path.extension().map(|ending| ending.to_string_lossy().to_lowercase()).unwrap_or_default();
        match ending.as_str() {
            "gif" => write_whole(path, &self.gif()?),
            "mp4" => self.write_mp4(path),
            "png" => {
                let last = self.frames.last().map_or(&[][..], |frame| frame);
                let picture = png(last, self.width, self.height, &self.colours.palette());
                write_whole(path, &picture)
            }
            _ => Err(Failure::Usage(format!(
                "--out {}: wanted a name that ends with .png, .gif or .mp4",
                path.display()
            ))),
        }
    }

    /// H.264 by ffmpeg, which reads frames from its standard input.
    fn write_mp4(&self, path: &Path) -> Result<(), Failure> {
        let beside = path.with_extension("part");
        let wrong = |text: String| {
            let _ = std::fs::remove_file(&beside);
            Failure::Run(format!("can't write {}: {text}", path.display()))
        };
        let (size, rate) = (format!("{}x{}", self.width, self.height), self.fps.to_string());
        let mut child = Command::new("ffmpeg")
            .args(["-loglevel", "error", "-y", "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", &size, "-r", &rate])
            // Its pixels of colour are two by two.
            .args(["-i", "-", "-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-pix_fmt", "yuv420p", "-f", "mp4"])
            .arg(&beside)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| match error.kind() {
                std::io::ErrorKind::NotFound => wrong(
                    "there is no ffmpeg on the PATH; install it (apt-get install ffmpeg), or name a .gif".to_owned(),
                ),
                _ => wrong(format!("ffmpeg: {error}")),
            })?;
        let palette = self.colours.palette();
        let fed = match child.stdin.take() {
            Some(mut input) => self.frames.iter().try_for_each(|frame| {
                let pixels: Vec<u8> =
                    frame.iter().flat_map(|&i| &palette[3 * usize::from(i)..][..3]).copied().collect();
                input.write_all(&pixels)
            }),
            None => Ok(()),
        };
        let output = child.wait_with_output().map_err(|error| wrong(format!("ffmpeg: {error}")))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(wrong(format!("ffmpeg says: {}", said.trim().lines().last().unwrap_or("nothing"))));
        }
        fed.map_err(|error| wrong(format!("ffmpeg: {error}")))?;
        std::fs::rename(&beside, path).map_err(|error| wrong(error.to_string()))
    }
}

/// One picture of colour numbers: PNG with a palette and deflate's stored blocks (RFC 1951, 3.2.4).
fn png(picture: &[u8], width: usize, height: usize, palette: &[u8]) -> Vec<u8> {
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
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    for (kind, part) in [(b"IHDR", &header[..]), (b"PLTE", palette), (b"IDAT", &data), (b"IEND", &[])] {
        let body = [&kind[..], part].concat();
        file.extend((part.len() as u32).to_be_bytes());
        file.extend(&body);
        file.extend(crc32(&body).to_be_bytes());
    }
    file
}

/// CRC-32 of PNG (ISO 3309).
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 })
    })
}
