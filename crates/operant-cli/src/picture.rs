//! Frames of an env as an animated GIF.

use crate::output::Failure;
use operant::env::Canvas;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// Frames per second of an env that names none.
const DEFAULT_FPS: u32 = 30;
/// From 1 (finest palette) to 30 (fastest).
const PALETTE_SPEED: i32 = 10;

/// Writes frames that repeat for ever; the file appears whole or not at all.
pub(crate) fn write_gif(path: &Path, frames: &[Canvas], fps: u32) -> Result<(), Failure> {
    let Some(first) = frames.first() else {
        return Err(Failure::Run("this env draws no picture; leave out --render".into()));
    };
    let side =
        |pixels: usize| u16::try_from(pixels).map_err(|_| Failure::Run(format!("a picture {pixels} pixels wide")));
    let (width, height) = (side(first.width())?, side(first.height())?);
    let delay = (100.0 / f64::from(if fps == 0 { DEFAULT_FPS } else { fps })).round().max(2.0) as u16;
    let beside = path.with_extension("gif.part");
    let write = || -> Result<(), Box<dyn std::error::Error>> {
        let mut encoder = gif::Encoder::new(BufWriter::new(File::create(&beside)?), width, height, &[])?;
        encoder.set_repeat(gif::Repeat::Infinite)?;
        for frame in frames {
            let mut frame = gif::Frame::from_rgb_speed(width, height, frame.pixels(), PALETTE_SPEED);
            frame.delay = delay;
            encoder.write_frame(&frame)?;
        }
        encoder.into_inner()?.flush()?;
        std::fs::rename(&beside, path)?;
        Ok(())
    };
    write().map_err(|error| {
        let _ = std::fs::remove_file(&beside);
        Failure::Run(format!("can't write {}: {error}", path.display()))
    })
}
