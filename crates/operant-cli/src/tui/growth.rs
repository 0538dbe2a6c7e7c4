//! Growth: what grows in every env, how slots fare, entropies of the controller's heads, and parts of its reward.

use super::Data;
use super::view::View;
use super::widgets::{COLOURS, DIM, Series, chart};
use crate::format::{number, table};
use crate::growth_log;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph};

/// Stages as letters, in the order of a seed's life; others are being cleaned up.
const STAGES: [(&str, char); 6] = [
    ("dormant", '·'),
    ("germinated", 'g'),
    ("training", 't'),
    ("blending", 'b'),
    ("holding", 'h'),
    ("fossilised", 'F'),
];
/// The letter of a slot that is being cleaned up.
const CLEANING: char = 'x';
/// Lines of one chart.
const MOST_LINES: usize = COLOURS.len();

/// Stage and blueprint of each slot of each env, as events tell.
fn slots(data: &Data) -> Vec<Vec<(String, Option<String>)>> {
    let mut envs: Vec<Vec<(String, Option<String>)>> = Vec::new();
    let count = data.group("slot/").filter(|name| name.ends_with("/alpha")).count();
    let dormant = || vec![("dormant".to_owned(), None); count];
    for event in &data.events {
        if let Some(outcome) = growth_log::outcome(event) {
            // The env begins anew.
            if let Some(slots) = envs.get_mut(outcome.env) {
                *slots = dormant();
            }
        }
        let Some(change) = growth_log::change(event) else { continue };
        if change.env >= envs.len() {
            envs.resize_with(change.env + 1, dormant);
        }
        if let Some(slot) = envs[change.env].get_mut(change.slot) {
            *slot = (change.to, change.blueprint);
        }
    }
    envs
}

fn letter(stage: &str) -> char {
    STAGES.iter().find(|(name, _)| *name == stage).map_or(CLEANING, |(_, letter)| *letter)
}

fn colour(letter: char) -> Style {
    match STAGES.iter().position(|(_, known)| *known == letter) {
        Some(0) => DIM,
        Some(i) => Style::new().fg(COLOURS[i % COLOURS.len()]),
        None => DIM,
    }
}

/// Envs side by side: number, and a letter per slot.
fn grid(frame: &mut Frame<'_>, area: Rect, envs: &[Vec<(String, Option<String>)>]) {
    let legend = " g t b h: germinated … holding · F kept · x out ";
    let block = Block::bordered().title(" envs ").title_bottom(legend);
    let slots = envs.first().map_or(0, Vec::len);
    let cell = 4 + slots + 2;
    let per_line = (usize::from(area.width.saturating_sub(2)) / cell).max(1);
    let cells = envs.iter().enumerate().map(|(env, slots)| {
        let letters = slots.iter().map(|(stage, _)| letter(stage)).map(|c| Span::styled(c.to_string(), colour(c)));
        [Span::styled(format!("{env:>3} "), DIM)]
            .into_iter()
            .chain(letters)
            .chain([Span::raw("  ")])
            .collect::<Vec<_>>()
    });
    let cells: Vec<Vec<Span<'_>>> = cells.collect();
    let lines: Vec<Line<'_>> = cells.chunks(per_line).map(|line| Line::from(line.concat())).collect();
    let lines = if lines.is_empty() { vec![Line::styled("nothing has grown yet", DIM)] } else { lines };
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

/// A line per slot: seeds by stage, mean α and contribution, the most frequent blueprint.
fn of_slots(frame: &mut Frame<'_>, area: Rect, data: &Data, envs: &[Vec<(String, Option<String>)>]) {
    let header = ["slot", "alpha", "points", "live", "kept", "mostly"].map(str::to_owned).to_vec();
    let count = envs.first().map_or(0, Vec::len);
    let rows = (0..count).map(|slot| {
        let last = |what: &str| data.history.last(&format!("slot/{slot}/{what}")).unwrap_or(f64::NAN);
        let here = || envs.iter().filter_map(|slots| slots.get(slot));
        let kept = here().filter(|(stage, _)| stage == "fossilised").count();
        let live = here().filter(|(stage, _)| ["germinated", "training", "blending", "holding"].contains(&&stage[..]));
        let mut names: Vec<&String> = here().filter_map(|(_, blueprint)| blueprint.as_ref()).collect();
        names.sort();
        let frequency = |name: &&String| names.iter().filter(|other| *other == name).count();
        let mostly = names.iter().max_by_key(|name| frequency(name)).map_or_else(String::new, |name| (*name).clone());
        let numbers = [last("alpha"), last("contribution")].map(number);
        let counts = [live.count(), kept].map(|count| count.to_string());
        [slot.to_string()].into_iter().chain(numbers).chain(counts).chain([mostly]).collect()
    });
    let rows: Vec<Vec<String>> = [header].into_iter().chain(rows).collect();
    let text = table(&rows, &[true, true, true, true, true, false]);
    frame.render_widget(Paragraph::new(text).block(Block::bordered().title(" slots ")), area);
}

/// The metrics of a group as lines, those that move most first.
fn lines(data: &Data, view: &View, group: &str, width: u16) -> Vec<Series> {
    let window = data.history.window(view.range());
    let series = data.group(group).map(|name| {
        (name[group.len()..].to_owned(), data.history.points(name, window.clone(), 2 * usize::from(width)))
    });
    let size = |series: &Series| series.1.iter().map(|point| point.1.abs()).fold(0.0, f64::max);
    let mut series: Vec<Series> = series.filter(|series| size(series) > 0.0).collect();
    series.sort_by(|a, b| size(b).total_cmp(&size(a)));
    series.truncate(MOST_LINES);
    series
}

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, data: &Data, view: &View) {
    let envs = slots(data);
    let rows = [Constraint::Fill(2), Constraint::Fill(3), Constraint::Fill(3)];
    let [top, middle, bottom] = Layout::vertical(rows).areas(area);
    let halves = || [Constraint::Fill(1), Constraint::Fill(1)];
    let [left, right] = Layout::horizontal(halves()).areas(top);
    grid(frame, left, &envs);
    of_slots(frame, right, data, &envs);
    let [left, right] = Layout::horizontal(halves()).areas(middle);
    chart(frame, left, "accuracy at the end", &lines(data, view, "outcome/accuracy", left.width));
    chart(frame, right, "operations", &lines(data, view, "op/", right.width));
    let [left, right] = Layout::horizontal(halves()).areas(bottom);
    chart(frame, left, "entropy", &lines(data, view, "entropy/", left.width));
    chart(frame, right, "reward", &lines(data, view, "reward/", right.width));
}
