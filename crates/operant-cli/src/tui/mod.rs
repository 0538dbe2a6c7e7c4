//! The monitor's screen: a viewer that reads a run's ring and never touches the run.
//!
//! `live.rs` knows the run, `view.rs` holds what the user chose to see, each screen is one file that draws
//! from both. The terminal is restored on every way out, a panic included.

mod batch;
mod episodes;
mod events;
mod gradients;
mod growth;
mod overview;
mod phases;
mod system;
#[cfg(test)]
mod tests;
mod view;
mod widgets;

use crate::output::Failure;
use crate::run_folder::RunFolder;
use crossterm::event::{self, Event, KeyEventKind};
use std::time::{Duration, Instant};
use view::View;

pub(crate) use batch::watch_batch;

use crate::live::{Data, Source};

/// Time between looks at the ring, and so between redraws.
const REFRESH: Duration = Duration::from_millis(100);

/// How the user left the monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    /// Had seen enough, or the run ended.
    Quit,
    /// Pressed ctrl-c, which a terminal in raw mode does not turn into a signal.
    Interrupt,
}

/// Shows a run until the user leaves or `ended` says that there is nothing more to see.
pub(crate) fn watch(folder: &RunFolder, ended: &dyn Fn() -> bool) -> Result<Leave, Failure> {
    let terminal_failed = |error: std::io::Error| Failure::Run(format!("terminal: {error}; try monitor --plain"));
    let (mut source, mut data) = Source::open(folder)?;
    let mut view = View::default();
    // Restores the terminal when a panic unwinds through here.
    let mut terminal = ratatui::try_init().map_err(terminal_failed)?;
    let outcome = loop {
        source.poll(&mut data);
        let drawn = terminal.draw(|frame| view.draw(frame, &data));
        if let Err(error) = drawn {
            break Err(error);
        }
        match keys(&mut view, &data) {
            Ok(None) if !ended() => {}
            Ok(leave) => break Ok(leave.unwrap_or(Leave::Quit)),
            Err(error) => break Err(error),
        }
    };
    ratatui::restore();
    outcome.map_err(terminal_failed)
}

/// Obeys keys until it is time to redraw.
fn keys(view: &mut View, data: &Data) -> std::io::Result<Option<Leave>> {
    let deadline = Instant::now() + REFRESH;
    while event::poll(deadline.saturating_duration_since(Instant::now()))? {
        match event::read()? {
            Event::Key(key) if key.kind != KeyEventKind::Release => {
                // What a key changes is seen at once.
                return Ok(view.key(key, data));
            }
            Event::Resize(..) => return Ok(None),
            _ => {}
        }
    }
    Ok(None)
}
