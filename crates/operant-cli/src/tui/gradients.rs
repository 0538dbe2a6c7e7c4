//! Gradients tensor by tensor, as the run looked at them last: a list, and their norms over time.

use super::Data;
use super::view::View;
use super::widgets::{DIM, Series, chart};
use crate::format::number;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::widgets::{Block, Paragraph, Row, Table};

/// Lines in the chart: more cannot be told apart.
const LINES: usize = 6;
/// Columns of the list: heading and number of a tensor.
const COLUMNS: [(&str, &str); 3] = [("norm", "norm"), ("zeros", "zeros"), ("update", "update/weight")];

/// Tensors, in the order of the network.
fn tensors(data: &Data) -> Vec<&str> {
    data.group("gradient/").filter_map(|name| name.strip_prefix("gradient/")?.strip_suffix("/norm")).collect()
}

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, data: &Data, view: &View) {
    let tensors = tensors(data);
    let block = Block::bordered().title(" gradients by tensor, before clipping ");
    if tensors.is_empty() {
        let text = "not looked at in this run (telemetry.gradient_stride)";
        return frame.render_widget(Paragraph::new(text).centered().block(block), area);
    }
    let height = (tensors.len() as u16 + 3).min(area.height.saturating_sub(8).max(area.height / 2));
    let [top, bottom] = Layout::vertical([Constraint::Length(height), Constraint::Min(0)]).areas(area);
    let visible = usize::from(top.height.saturating_sub(3));
    let skip = view.scroll.min(tensors.len().saturating_sub(visible));
    let rows = tensors.iter().skip(skip).take(visible).map(|tensor| {
        let last = |number: &str| data.history.last(&format!("gradient/{tensor}/{number}"));
        let numbers = COLUMNS.iter().map(|(name, _)| match (*name, last(name)) {
            (_, None) => "–".to_owned(),
            ("zeros", Some(share)) => format!("{:.1} %", 100.0 * share),
            (_, Some(value)) => number(value),
        });
        Row::new(std::iter::once((*tensor).to_owned()).chain(numbers))
    });
    let widths = [Constraint::Fill(1), Constraint::Length(12), Constraint::Length(10), Constraint::Length(14)];
    let header = Row::new(std::iter::once("tensor").chain(COLUMNS.iter().map(|(_, heading)| *heading))).style(DIM);
    frame.render_widget(Table::new(rows, widths).header(header).block(block), top);
    let window = data.history.window(view.range());
    let points = |tensor: &str| data.history.points(&format!("gradient/{tensor}/norm"), window.clone(), 400);
    let shown = tensors.iter().skip(skip).take(LINES);
    let series: Vec<Series> = shown.map(|tensor| ((*tensor).to_owned(), points(tensor))).collect();
    chart(frame, bottom, "norm", &series);
}
