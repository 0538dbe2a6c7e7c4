//! The newest episodes: a list, their returns as a histogram, and figures over the last hundred.

use super::Data;
use super::view::View;
use super::widgets::{COLOURS, DIM};
use crate::format::number;
use crate::output::grouped;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Row, Table};

/// Episodes that figures are over.
const RECENT: usize = 100;

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, data: &Data, view: &View) {
    if data.episodes.is_empty() {
        let text = "no episode in this run's ring";
        return frame.render_widget(Paragraph::new(text).centered().block(Block::bordered().title(" episodes ")), area);
    }
    let [left, right] = if area.width >= 80 {
        Layout::horizontal([Constraint::Length(46), Constraint::Min(0)]).areas(area)
    } else {
        Layout::vertical([Constraint::Fill(1), Constraint::Fill(1)]).areas(area)
    };
    let visible = usize::from(left.height.saturating_sub(3));
    let skip = view.scroll.min(data.episodes.len().saturating_sub(visible));
    let rows = data.episodes.iter().rev().skip(skip).take(visible).map(|episode| {
        Row::new([
            grouped(episode.step as f64),
            episode.env.to_string(),
            number(episode.episode_return),
            episode.length.to_string(),
        ])
    });
    let widths = [Constraint::Length(15), Constraint::Length(7), Constraint::Length(10), Constraint::Length(8)];
    let header = Row::new(["step", "env", "return", "length"]).style(DIM);
    let block = Block::bordered().title(" newest episodes ");
    frame.render_widget(Table::new(rows, widths).header(header).block(block), left);
    let recent: Vec<f64> = data.episodes.iter().rev().take(RECENT).map(|episode| episode.episode_return).collect();
    let block = Block::bordered().title(format!(" returns of the newest {} ", recent.len()));
    frame.render_widget(Paragraph::new(histogram(&recent, right)).block(block), right);
}

/// Bars over ranges of returns, and figures below.
fn histogram(returns: &[f64], area: Rect) -> Vec<Line<'static>> {
    let (low, high) = returns
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(*value), high.max(*value)));
    let bins = if high > low { usize::from(area.height.saturating_sub(4)).clamp(1, 12) } else { 1 };
    let mut counts = vec![0usize; bins];
    for value in returns {
        let at = if high > low { (value - low) / (high - low) * bins as f64 } else { 0.0 };
        counts[(at as usize).min(bins - 1)] += 1;
    }
    let most = counts.iter().copied().max().unwrap_or(1).max(1);
    let width = usize::from(area.width.saturating_sub(18)).max(1);
    let mut lines: Vec<Line<'static>> = counts
        .iter()
        .enumerate()
        .map(|(i, count)| {
            let from = low + (high - low) * i as f64 / bins as f64;
            let bar = "█".repeat((count * width).div_ceil(most));
            Line::from(vec![
                Span::styled(format!("{:>9} ", number(from)), DIM),
                Span::styled(bar, Style::new().fg(COLOURS[0])),
                Span::raw(format!(" {count}")),
            ])
        })
        .collect();
    let mean = returns.iter().sum::<f64>() / returns.len() as f64;
    lines.push(Line::from(format!("mean {} · min {} · max {}", number(mean), number(low), number(high))));
    lines
}
