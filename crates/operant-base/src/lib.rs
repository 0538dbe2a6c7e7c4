//! What every other crate of Operant uses: [`Error`], settings as typed tables ([`config`]), [`telemetry`], and what an [`Image`] is.

pub mod config;
pub mod error;
mod image;
pub mod telemetry;

pub use error::{Error, Result};
pub use image::Image;
