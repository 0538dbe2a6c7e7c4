//! All seeds of a batch: a row for each, and their mean return with lines a standard error above and below.

use super::widgets::{DIM, accent, chart, status_style};
use super::{Leave, REFRESH, watch};
use crate::batch_report;
use crate::found::BatchFolder;
use crate::output::{Failure, grouped};
use crate::run_folder::RunFolder;
use crate::runs::Row;
use crate::spread::band;
use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use operant::telemetry::unix_time;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use std::time::{Duration, Instant};

/// Samples read from each run.
const SAMPLES: usize = 2_000;
/// Time between looks at the runs' files.
const LOOK: Duration = Duration::from_millis(500);
/// Metrics that may have the graph; the first that is known has it.
const HEADLINES: [(&str, &str); 2] =
    [("return", "mean return of all seeds"), ("solve_rate", "share solved, mean of all seeds")];

/// What the screen shows.
struct Seen {
    batch: BatchFolder,
    rows: Vec<Row>,
    title: &'static str,
    band: Vec<(f64, f64, f64)>,
}

impl Seen {
    fn look(batch: &BatchFolder) -> Result<Self, Failure> {
        let batch = BatchFolder::look(batch.path.clone())?;
        let histories = batch.histories(SAMPLES)?;
        let known = |(name, _): &&(&str, &str)| histories.iter().any(|history| history.last(name).is_some());
        let (metric, title) = *HEADLINES.iter().find(known).unwrap_or(&HEADLINES[0]);
        let lines: Vec<_> = histories.iter().map(|history| history.points(metric, 0..history.len(), SAMPLES)).collect();
        let rows = batch.folders().map(|folder| Row::read(folder.clone(), unix_time())).collect();
        Ok(Self { band: band(&lines, SAMPLES), rows, title, batch })
    }
}

/// Shows a batch until the user leaves; enter opens one of its runs.
pub(crate) fn watch_batch(batch: &BatchFolder) -> Result<(), Failure> {
    let terminal_failed = |error: std::io::Error| Failure::Run(format!("terminal: {error}; try monitor --plain"));
    let (mut seen, mut chosen, mut looked) = (Seen::look(batch)?, 0, Instant::now());
    loop {
        let mut terminal = ratatui::try_init().map_err(terminal_failed)?;
        let outcome = loop {
            if looked.elapsed() >= LOOK {
                // What can't be read now may be in a moment.
                seen = Seen::look(batch).unwrap_or(seen);
                looked = Instant::now();
            }
            if let Err(error) = terminal.draw(|frame| draw(frame, &seen, chosen)) {
                break Err(error);
            }
            match key(&mut chosen, seen.batch.runs.len()) {
                Ok(None) => {}
                other => break other,
            }
        };
        ratatui::restore();
        match outcome.map_err(terminal_failed)? {
            Some(Choice::Open) => {
                let run: &RunFolder = &seen.batch.runs[chosen].1;
                if watch(run, &|| false)? == Leave::Interrupt {
                    return Ok(());
                }
            }
            _ => return Ok(()),
        }
    }
}

/// What the user wants instead of this screen.
enum Choice {
    Leave,
    Open,
}

fn key(chosen: &mut usize, runs: usize) -> std::io::Result<Option<Choice>> {
    if !event::poll(REFRESH)? {
        return Ok(None);
    }
    let Event::Key(key) = event::read()? else { return Ok(None) };
    if key.kind == KeyEventKind::Release {
        return Ok(None);
    }
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Ok(Some(Choice::Leave)),
        KeyCode::Char('q') | KeyCode::Esc => return Ok(Some(Choice::Leave)),
        KeyCode::Enter if runs > 0 => return Ok(Some(Choice::Open)),
        KeyCode::Up => *chosen = chosen.saturating_sub(1),
        KeyCode::Down => *chosen = (*chosen + 1).min(runs.saturating_sub(1)),
        _ => {}
    }
    Ok(None)
}

fn draw(frame: &mut Frame<'_>, seen: &Seen, chosen: usize) {
    let height = seen.batch.runs.len() as u16 + 3;
    let [header, graph, table, footer] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(6),
        Constraint::Length(height),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let words = format!("  {} seeds · {}", seen.batch.seeds, seen.batch.status());
    frame.render_widget(Line::from(vec![Span::styled(seen.batch.id.clone(), bold), Span::raw(words)]), header);
    let line = |sign: f64| -> Vec<(f64, f64)> {
        let there = seen.band.iter().filter(|point| sign == 0.0 || point.2.is_finite());
        there.map(|&(x, mean, error)| (x, if sign == 0.0 { mean } else { mean + sign * error })).collect()
    };
    let series = [("mean", 0.0), ("+", 1.0), ("−", -1.0)].map(|(name, sign)| (name.to_owned(), line(sign)));
    chart(frame, graph, seen.title, &series);
    frame.render_widget(Paragraph::new(rows(seen, chosen)), table);
    frame.render_widget(Paragraph::new("q quit · ↑↓ choose a seed · enter opens it").style(DIM), footer);
}

/// A row for each seed, and one of means.
fn rows(seen: &Seen, chosen: usize) -> Vec<Line<'static>> {
    let widths: [usize; 5] = [8, 10, 14, 12, 8];
    let line = |cells: [String; 5]| -> String {
        cells.iter().zip(widths).map(|(cell, width)| format!("{cell:>width$}  ")).collect()
    };
    let mut lines = vec![Line::styled(line(["seed", "status", "steps", "return", "solved"].map(str::to_owned)), DIM)];
    for (i, ((seed, _), row)) in seen.batch.runs.iter().zip(&seen.rows).enumerate() {
        let [_, _, _, status, steps, mean_return, solved, ..] = row.cells();
        let style = status_style(row.status);
        let style = if i == chosen { accent().add_modifier(Modifier::REVERSED) } else { style };
        lines.push(Line::styled(line([seed.to_string(), status, steps, mean_return, solved]), style));
    }
    let mean = batch_report::mean_cells(&seen.rows);
    lines.push(Line::raw(line(["mean".into(), String::new(), mean.0.map_or("–".into(), grouped), mean.1, mean.2])));
    lines
}
