//! The monitor's screen: a viewer that reads a run's ring and never touches the run.
//!
//! `state.rs` holds what is known of the run, `view.rs` what the user chose to see, each screen is one file that draws
//! from both. The terminal is restored on every way out, a panic included.

mod episodes;
mod events;
mod overview;
mod phases;
mod state;
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

pub(crate) use state::{Data, Source};

/// Time between looks at the ring, and so between redraws.
const REFRESH: Duration = Duration::from_millis(100);

/// Shows a run until the user leaves or `ended` says that there is nothing to wait for.
pub(crate) fn watch(folder: &RunFolder, ended: &dyn Fn() -> bool) -> Result<(), Failure> {
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
            Ok(true) if !ended() => {}
            Ok(_) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    ratatui::restore();
    outcome.map_err(terminal_failed)
}

/// Obeys keys until it is time to redraw; false to leave.
fn keys(view: &mut View, data: &Data) -> std::io::Result<bool> {
    let deadline = Instant::now() + REFRESH;
    while event::poll(deadline.saturating_duration_since(Instant::now()))? {
        match event::read()? {
            Event::Key(key) if key.kind != KeyEventKind::Release => {
                if !view.key(key, data) {
                    return Ok(false);
                }
                // What a key changes is seen at once.
                return Ok(true);
            }
            Event::Resize(..) => return Ok(true),
            _ => {}
        }
    }
    Ok(true)
}
