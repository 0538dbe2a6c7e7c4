//! Growth: what grows in every env, how slots fare, what seeds are worth and how they act together, entropies of the controller's
//! heads, and parts of its reward.

use super::Data;
use super::view::View;
use super::widgets::{COLOURS, DIM, Series, chart};
use crate::format::table;
use crate::growth_view::{self, SLOT_COLUMNS, STAGES, Slot, letter};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph};

/// Lines of one chart.
const MOST_LINES: usize = COLOURS.len();

fn colour(letter: char) -> Style {
    match STAGES.iter().position(|(_, known)| *known == letter) {
        Some(0) => DIM,
        Some(i) => Style::new().fg(COLOURS[i % COLOURS.len()]),
        None => DIM,
    }
}

/// Envs side by side: number, and a letter per slot.
fn grid(frame: &mut Frame<'_>, area: Rect, envs: &[Vec<Slot>]) {
    let legend = " g t b h: live · F kept · x out ";
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

/// A line per slot: mean α, contribution and Shapley value, seeds by stage, the most frequent blueprint.
fn of_slots(frame: &mut Frame<'_>, area: Rect, data: &Data, envs: &[Vec<Slot>]) {
    let header = SLOT_COLUMNS.map(str::to_owned).to_vec();
    let rows: Vec<Vec<String>> = [header].into_iter().chain(growth_view::slots(data, envs)).collect();
    let right = std::array::from_fn::<bool, { SLOT_COLUMNS.len() }, _>(|i| i + 1 < SLOT_COLUMNS.len());
    frame.render_widget(Paragraph::new(table(&rows, &right)).block(Block::bordered().title(" slots ")), area);
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
    let envs = growth_view::envs(data);
    let rows = [Constraint::Fill(2), Constraint::Fill(3), Constraint::Fill(3)];
    let [top, middle, bottom] = Layout::vertical(rows).areas(area);
    let [left, right] = Layout::horizontal([Constraint::Fill(2), Constraint::Fill(3)]).areas(top);
    grid(frame, left, &envs);
    of_slots(frame, right, data, &envs);
    let [left, centre, right] = Layout::horizontal([Constraint::Fill(1); 3]).areas(middle);
    chart(frame, left, "accuracy at the end", &lines(data, view, "outcome/accuracy", left.width));
    chart(frame, centre, "operations", &lines(data, view, "op/", centre.width));
    chart(frame, right, "interactions", &lines(data, view, "interaction/", right.width));
    let [left, right] = Layout::horizontal([Constraint::Fill(1); 2]).areas(bottom);
    chart(frame, left, "entropy", &lines(data, view, "entropy/", left.width));
    chart(frame, right, "reward", &lines(data, view, "reward/", right.width));
}
