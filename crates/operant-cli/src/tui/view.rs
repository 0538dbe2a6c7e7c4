//! What the user chose to see, and the frame around every screen.

use super::widgets::{DIM, accent, status_style};
use super::{Data, Leave, episodes, events, gradients, growth, overview, phases, system};
use crate::format::{duration, number};
use crate::output::grouped;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph};

/// The screens, in the order of the tab key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Screen {
    #[default]
    Overview,
    Phases,
    Gradients,
    System,
    Episodes,
    Events,
    Growth,
}

const SCREENS: [(Screen, &str); 7] = [
    (Screen::Overview, "overview"),
    (Screen::Phases, "phases"),
    (Screen::Gradients, "gradients"),
    (Screen::System, "system"),
    (Screen::Episodes, "episodes"),
    (Screen::Events, "events"),
    (Screen::Growth, "growth"),
];

/// Screens of a run: growth only where something grows.
fn screens(data: &Data) -> &'static [(Screen, &'static str)] {
    if data.env == "growth" { &SCREENS } else { &SCREENS[..SCREENS.len() - 1] }
}

/// Time ranges, narrowest first: seconds, or all.
const RANGES: [(Option<f64>, &str); 6] = [
    (Some(1.0), "1 s"),
    (Some(10.0), "10 s"),
    (Some(60.0), "1 min"),
    (Some(600.0), "10 min"),
    (Some(3600.0), "1 h"),
    (None, "all"),
];

const HELP: [(&str, &str); 12] = [
    ("tab, shift-tab", "next, previous screen"),
    ("1 … 7", "a screen by its number"),
    ("←  →", "shorter, longer time range"),
    ("↑  ↓", "scroll lists"),
    ("f", "events of the next kind alone, then all again"),
    ("s", "events from warnings on, then errors alone"),
    ("e", "events of the next env alone, then all again"),
    ("p, space", "pause the view; the run goes on"),
    ("?, h", "this help"),
    ("q, esc", "leave; the run goes on"),
    ("", ""),
    ("lines", "means of the samples in each column"),
];

/// The user's choices.
pub(super) struct View {
    pub(super) screen: Screen,
    /// Index in the time ranges.
    range: usize,
    help: bool,
    /// Lines that lists are scrolled back from their newest.
    pub(super) scroll: usize,
    /// Which events are shown.
    pub(super) filter: events::Filter,
    /// What is shown while the view is paused.
    frozen: Option<Box<Data>>,
}

impl Default for View {
    fn default() -> Self {
        Self {
            screen: Screen::Overview,
            range: RANGES.len() - 1,
            help: false,
            scroll: 0,
            filter: events::Filter::default(),
            frozen: None,
        }
    }
}

impl View {
    /// Obeys a key.
    pub(super) fn key(&mut self, key: KeyEvent, data: &Data) -> Option<Leave> {
        let screens = screens(data);
        let screen = screens.iter().position(|(screen, _)| *screen == self.screen).unwrap_or(0);
        let mut go = |to: usize| {
            self.screen = screens[to % screens.len()].0;
            self.scroll = 0;
        };
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Some(Leave::Interrupt),
            KeyCode::Esc if self.help => self.help = false,
            KeyCode::Char('q') | KeyCode::Esc => return Some(Leave::Quit),
            KeyCode::Tab => go(screen + 1),
            KeyCode::BackTab => go(screen + screens.len() - 1),
            KeyCode::Char(digit @ '1'..='7') if (digit as usize - '1' as usize) < screens.len() => {
                go(digit as usize - '1' as usize);
            }
            KeyCode::Char(key @ ('f' | 's' | 'e')) => {
                match key {
                    'f' => self.filter.next_kind(data),
                    's' => self.filter.next_severity(),
                    _ => self.filter.next_env(data),
                }
                self.scroll = 0;
            }
            KeyCode::Left => self.range = self.range.saturating_sub(1),
            KeyCode::Right => self.range = (self.range + 1).min(RANGES.len() - 1),
            KeyCode::Up => self.scroll += 1,
            KeyCode::Down => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::Char('p' | ' ') => {
                self.frozen = if self.frozen.is_some() { None } else { Some(Box::new(data.clone())) };
            }
            KeyCode::Char('?' | 'h') => self.help = !self.help,
            _ => {}
        }
        None
    }

    /// The chosen time range in seconds, or all.
    pub(super) fn range(&self) -> Option<f64> {
        RANGES[self.range].0
    }

    pub(super) fn draw(&self, frame: &mut Frame<'_>, newest: &Data) {
        let data = self.frozen.as_deref().unwrap_or(newest);
        let [header, tabs, body, footer] =
            Layout::vertical([Constraint::Length(1), Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)])
                .areas(frame.area());
        frame.render_widget(Paragraph::new(self.header(data, header.width)), header);
        frame.render_widget(Paragraph::new(self.tabs(data)), tabs);
        match self.screen {
            _ if data.history.len() == 0 && self.screen != Screen::Events => waiting(frame, body, data),
            Screen::Overview => overview::draw(frame, body, data, self),
            Screen::Phases => phases::draw(frame, body, data, self),
            Screen::Gradients => gradients::draw(frame, body, data, self),
            Screen::System => system::draw(frame, body, data, self),
            Screen::Episodes => episodes::draw(frame, body, data, self),
            Screen::Events => events::draw(frame, body, data, self),
            Screen::Growth => growth::draw(frame, body, data, self),
        }
        frame.render_widget(Paragraph::new(self.footer()), footer);
        if self.help {
            help(frame, body);
        }
    }

    fn header(&self, data: &Data, width: u16) -> Line<'static> {
        let mut spans = vec![
            Span::styled(data.id.clone(), Style::new().add_modifier(Modifier::BOLD)),
            Span::raw("  "),
            Span::styled(data.status.name(), status_style(data.status)),
        ];
        if self.frozen.is_some() {
            spans.push(Span::styled("  paused", accent()));
        }
        let mut facts = vec![format!("{} steps", grouped(data.step() as f64)), duration(data.seconds())];
        if let Some(sps) = data.history.last("sps") {
            facts.push(format!("{} SPS", number(sps)));
        }
        if let (Some(total), Some(sps)) = (data.total_steps, data.history.last("sps"))
            && total > data.step()
            && sps > 0.0
            && data.status == crate::run_folder::Status::Running
        {
            facts.push(format!("eta {}", duration((total - data.step()) as f64 / sps)));
        }
        if let Some(episodes) = data.history.last("episodes") {
            facts.push(format!("{} episodes", grouped(episodes)));
        }
        if !data.algo.is_empty() && width >= 100 {
            facts.insert(0, format!("{} on {}", data.algo, data.env));
        }
        spans.push(Span::raw(format!("  {}", facts.join(" · "))));
        Line::from(spans)
    }

    fn tabs(&self, data: &Data) -> Line<'static> {
        let spans = screens(data).iter().enumerate().flat_map(|(i, (screen, name))| {
            let style = if *screen == self.screen { accent().add_modifier(Modifier::REVERSED) } else { DIM };
            [Span::styled(format!(" {} {name} ", i + 1), style), Span::raw(" ")]
        });
        Line::from(spans.collect::<Vec<_>>())
    }

    fn footer(&self) -> Line<'static> {
        let range = RANGES[self.range].1;
        let pause = if self.frozen.is_some() { "resume view" } else { "pause view" };
        Line::styled(format!("q quit · p {pause} · tab screen · ←→ range: {range} · ? help"), DIM)
    }
}

fn waiting(frame: &mut Frame<'_>, area: Rect, data: &Data) {
    let text = match data.status {
        crate::run_folder::Status::Running => "waiting for the first sample …",
        _ => "this run left no samples; see the events screen (6)",
    };
    frame.render_widget(Paragraph::new(text).centered(), area);
}

fn help(frame: &mut Frame<'_>, area: Rect) {
    let lines: Vec<Line<'_>> = HELP.iter().map(|(keys, what)| Line::from(format!(" {keys:15} {what}"))).collect();
    let area = area.centered(Constraint::Length(58), Constraint::Length(lines.len() as u16 + 2));
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" keys ")), area);
}
