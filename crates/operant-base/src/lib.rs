//! What every other crate of Operant uses: [`Error`], settings as typed tables ([`config`]), and [`telemetry`].

pub mod config;
pub mod error;
pub mod telemetry;

pub use error::{Error, Result};
