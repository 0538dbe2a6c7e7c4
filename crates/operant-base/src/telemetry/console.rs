//! Progress for people: one line that overwrites itself on a terminal, a plain line every few seconds elsewhere.
//! Alerts and failed sinks get lines of their own; how a run ended is for its command to say.

use super::{Event, EventKind, Metric, Rule, Sample, Sink};
use crate::error::{Error, Result};
use std::fmt::Write as _;
use std::io::Write;

/// Seconds of the run between plain lines.
const PLAIN_SECONDS: f64 = 5.0;
/// Least seconds between two warnings of the same rule: one that comes and goes must not fill the screen.
const ALERT_SECONDS: f64 = 30.0;
/// Columns of a terminal whose width is not known; a longer line would wrap and could not be overwritten.
const COLUMNS: usize = 80;

/// What the console shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// A line that overwrites itself.
    Terminal,
    /// A line every few seconds.
    Plain,
    /// Nothing.
    Quiet,
}

/// Most headline metrics that the line shows.
const HEADLINES: usize = 7;

/// The newest sample, as far as the line shows it.
#[derive(Clone, Copy, Debug)]
struct Shown {
    step: u64,
    seconds: f64,
    values: [f64; 3],
    headlines: [f64; HEADLINES],
    missed: u64,
}

/// A sink that shows progress.
pub struct Console {
    out: Box<dyn Write + Send>,
    style: Style,
    total_steps: Option<u64>,
    /// Places of `sps`, `episodes` and `return`.
    places: [Option<usize>; 3],
    /// Places and names of headline metrics.
    headlines: Vec<(usize, &'static str)>,
    newest: Option<Shown>,
    /// Whether `newest` was drawn, and the run's seconds when a plain line was last written.
    drawn: bool,
    plain_at: f64,
    /// When the last warning of each rule was shown, in seconds since 1970, and whether its end is still to be told.
    alerts: [(f64, bool); Rule::ALL.len()],
    line: String,
    /// Columns of the terminal now, if that is known.
    columns: fn() -> Option<usize>,
}

impl Console {
    /// Shows progress towards `total_steps`, if there is such a number.
    pub fn new(out: Box<dyn Write + Send>, style: Style, total_steps: Option<u64>) -> Self {
        let (places, newest, line) = ([None; 3], None, String::with_capacity(256));
        let alerts = [(f64::NEG_INFINITY, false); Rule::ALL.len()];
        let (plain_at, columns) = (f64::NEG_INFINITY, || None);
        let headlines = Vec::new();
        Self { out, style, total_steps, places, headlines, newest, drawn: true, plain_at, alerts, line, columns }
    }

    /// Asks this for the terminal's width before every line, since a window may change it.
    pub fn with_columns(self, columns: fn() -> Option<usize>) -> Self {
        Self { columns, ..self }
    }

    /// On standard output: in place on a terminal, as plain lines in a pipe or file.
    pub fn stdout(quiet: bool, total_steps: Option<u64>) -> Self {
        let out = std::io::stdout();
        let terminal = std::io::IsTerminal::is_terminal(&out);
        let style = if quiet {
            Style::Quiet
        } else if terminal {
            Style::Terminal
        } else {
            Style::Plain
        };
        Self::new(Box::new(out), style, total_steps)
    }

    fn describe(&mut self, shown: Shown) {
        let Shown { step, seconds, values: [sps, episodes, mean_return], headlines, missed } = shown;
        self.line.clear();
        let line = &mut self.line;
        grouped(line, step);
        line.push_str(" steps");
        if let Some(total) = self.total_steps.filter(|total| *total > 0) {
            let _ = write!(line, " ({:.0} %)", 100.0 * step as f64 / total as f64);
        }
        if sps.is_finite() {
            line.push_str(" · ");
            scaled(line, sps);
            line.push_str(" SPS");
        }
        if episodes.is_finite() {
            line.push_str(" · ");
            grouped(line, episodes.max(0.0) as u64);
            line.push_str(" episodes");
        }
        if mean_return.is_finite() {
            let _ = write!(line, " · return {mean_return:.1}");
        }
        for ((_, name), value) in self.headlines.iter().zip(headlines) {
            if value.is_finite() {
                let _ = write!(line, " · {name} ");
                scaled(line, value);
            }
        }
        match self.total_steps {
            Some(total) if sps > 0.0 && total > step => {
                line.push_str(" · eta ");
                duration(line, (total - step) as f64 / sps);
            }
            _ => {
                line.push_str(" · ");
                duration(line, seconds);
            }
        }
        if missed > 0 {
            let _ = write!(line, " · {missed} missed");
        }
    }

    /// Whether a warning, or the end of one that was shown, gets a line.
    fn shows(&mut self, event: &Event) -> bool {
        match event.kind {
            EventKind::Alert(rule) => {
                let (shown, open) = &mut self.alerts[rule as usize];
                *open = event.unix_time - *shown >= ALERT_SECONDS;
                if *open {
                    *shown = event.unix_time;
                }
                *open
            }
            EventKind::Cleared(rule) => std::mem::take(&mut self.alerts[rule as usize].1),
            _ => true,
        }
    }

    fn put(&mut self, before: &str, text: &str, after: &str) -> Result<()> {
        let out = &mut self.out;
        let written = [before, text, after].into_iter().try_for_each(|part| out.write_all(part.as_bytes()));
        written.and_then(|()| out.flush()).map_err(|error| Error::Io(format!("cannot write progress: {error}")))
    }

    /// Draws the newest sample; `last` ends the line.
    fn draw(&mut self, last: bool) -> Result<()> {
        let Some(shown) = self.newest else { return Ok(()) };
        let due = match self.style {
            Style::Quiet => false,
            Style::Terminal => !self.drawn || last,
            Style::Plain => !self.drawn && (last || shown.seconds >= self.plain_at + PLAIN_SECONDS),
        };
        if !due {
            return Ok(());
        }
        self.describe(shown);
        self.drawn = true;
        self.plain_at = shown.seconds;
        let line = std::mem::take(&mut self.line);
        let result = if self.style == Style::Plain {
            self.put("", &line, "\n")
        } else {
            // The last column stays free: some terminals wrap as soon as it is written.
            let columns = (self.columns)().filter(|columns| *columns > 0).unwrap_or(COLUMNS) - 1;
            let end = line.char_indices().nth(columns).map_or(line.len(), |(at, _)| at);
            self.put("\r", &line[..end], if last { "\x1b[K\n" } else { "\x1b[K" })
        };
        self.line = line;
        result
    }
}

impl Sink for Console {
    fn name(&self) -> &str {
        "console"
    }

    fn start(&mut self, metrics: &[Metric]) -> Result<()> {
        self.places = ["sps", "episodes", "return"].map(|name| metrics.iter().position(|metric| metric.name == name));
        let headlines = metrics.iter().enumerate().filter(|(_, metric)| metric.headline);
        self.headlines = headlines.map(|(at, metric)| (at, metric.name)).take(HEADLINES).collect();
        Ok(())
    }

    fn sample(&mut self, sample: &Sample<'_>) -> Result<()> {
        let values = self.places.map(|place| place.map_or(f64::NAN, |i| sample.values[i]));
        let mut headlines = [f64::NAN; HEADLINES];
        headlines.iter_mut().zip(&self.headlines).for_each(|(to, (at, _))| *to = sample.values[*at]);
        let Sample { step, seconds, missed, .. } = *sample;
        self.newest = Some(Shown { step, seconds, values, headlines, missed });
        self.drawn = false;
        Ok(())
    }

    fn event(&mut self, event: &Event) -> Result<()> {
        let word = match event.kind {
            EventKind::Alert(_) => "warning",
            EventKind::Cleared(_) => "cleared",
            EventKind::SinkFailed => "warning",
            EventKind::Resumed => "resumed",
            EventKind::Note => "note",
            _ => return Ok(()),
        };
        if self.style == Style::Quiet || !self.shows(event) {
            return Ok(());
        }
        self.drawn = false;
        let text = format!("{word}: {}", event.text);
        self.put(if self.style == Style::Terminal { "\r\x1b[K" } else { "" }, &text, "\n")
    }

    fn tick(&mut self) -> Result<()> {
        self.draw(false)
    }

    fn finish(&mut self) -> Result<()> {
        self.draw(true)
    }
}

/// `1234567` as `1,234,567`.
fn grouped(text: &mut String, number: u64) {
    let mut divisor = 1;
    while number / divisor >= 1000 {
        divisor *= 1000;
    }
    let _ = write!(text, "{}", number / divisor);
    while divisor > 1 {
        divisor /= 1000;
        let _ = write!(text, ",{:03}", number / divisor % 1000);
    }
}

/// Three digits and a prefix: `1.23 M`.
fn scaled(text: &mut String, value: f64) {
    let (divisor, prefix) = match value.abs() {
        size if size >= 1e9 => (1e9, " G"),
        size if size >= 1e6 => (1e6, " M"),
        size if size >= 1e3 => (1e3, " k"),
        _ => (1.0, ""),
    };
    let value = value / divisor;
    let digits = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 || size == 0.0 => 2,
        _ => 3,
    };
    let _ = write!(text, "{value:.digits$}{prefix}");
}

/// `0.3 s`, `12 s`, `3 m 05 s`, `2 h 07 m`.
pub fn duration(text: &mut String, seconds: f64) {
    let whole = seconds.max(0.0) as u64;
    let _ = match whole {
        0..10 => write!(text, "{seconds:.1} s"),
        10..60 => write!(text, "{whole} s"),
        60..3600 => write!(text, "{} m {:02} s", whole / 60, whole % 60),
        _ => write!(text, "{} h {:02} m", whole / 3600, whole / 60 % 60),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Screen(Arc<Mutex<Vec<u8>>>);

    impl Screen {
        fn take(&self) -> String {
            String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap()
        }
    }

    impl Write for Screen {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    const METRICS: [Metric; 3] =
        [Metric::new("return", "", ""), Metric::new("sps", "", "1/s"), Metric::new("episodes", "", "")];

    fn console(style: Style, total: Option<u64>) -> (Screen, Console) {
        let screen = Screen::default();
        let mut console = Console::new(Box::new(screen.clone()), style, total);
        console.start(&METRICS).unwrap();
        (screen, console)
    }

    fn sample(console: &mut Console, step: u64, seconds: f64, values: &[f64; 3]) {
        console.sample(&Sample { number: 0, step, seconds, values, missed: 0 }).unwrap();
    }

    #[test]
    fn overwrites_one_line_on_a_terminal() {
        let (screen, mut console) = console(Style::Terminal, Some(2_000_000));
        console.tick().unwrap();
        assert_eq!(screen.take(), "");
        sample(&mut console, 500_000, 0.5, &[21.37, 1_230_000.0, 1234.0]);
        console.tick().unwrap();
        let line = "\r500,000 steps (25 %) · 1.23 M SPS · 1,234 episodes · return 21.4 · eta 1.2 s\x1b[K";
        assert_eq!(screen.take(), line);
        console.tick().unwrap();
        assert_eq!(screen.take(), "", "nothing new");
        console.event(&Event::now(EventKind::Alert(Rule::KlBlowUp), 0, "approx_kl is 0.5")).unwrap();
        assert_eq!(screen.take(), "\r\x1b[Kwarning: approx_kl is 0.5\n");
        sample(&mut console, 2_000_000, 75.0, &[f64::NAN, 26_700.0, f64::NAN]);
        console.finish().unwrap();
        assert_eq!(screen.take(), "\r2,000,000 steps (100 %) · 26.7 k SPS · 1 m 15 s\x1b[K\n");
    }

    #[test]
    fn headlines_take_the_place_of_episodes() {
        let screen = Screen::default();
        let mut console = Console::new(Box::new(screen.clone()), Style::Plain, None);
        let [mean_return, sps, episodes] = METRICS;
        let own = ["loss", "solve_rate"].map(|name| Metric::new(name, "", "").headline());
        console.start(&[mean_return, sps, episodes, own[0], own[1]]).unwrap();
        let values = [f64::NAN, 10_000.0, f64::NAN, 0.03125, 1.0];
        console.sample(&Sample { number: 0, step: 4096, seconds: 2.0, values: &values, missed: 0 }).unwrap();
        console.finish().unwrap();
        assert_eq!(screen.take(), "4,096 steps · 10.0 k SPS · loss 0.031 · solve_rate 1.00 · 2.0 s\n");
    }

    #[test]
    fn the_line_fits_the_terminal() {
        for (columns, wanted) in [
            ((|| Some(20)) as fn() -> Option<usize>, "500,000 steps (25 %"),
            (|| Some(50), "500,000 steps (25 %) · 1.23 M SPS · 1,234 episode"),
            (|| Some(1), ""),
            (|| Some(0), "500,000 steps (25 %) · 1.23 M SPS · 1,234 episodes · return 21.4 · eta 1.2 s"),
        ] {
            let (screen, console) = console(Style::Terminal, Some(2_000_000));
            let mut console = console.with_columns(columns);
            sample(&mut console, 500_000, 0.5, &[21.37, 1_230_000.0, 1234.0]);
            console.tick().unwrap();
            assert_eq!(screen.take(), format!("\r{wanted}\x1b[K"));
        }
    }

    #[test]
    fn a_warning_that_comes_and_goes_is_shown_now_and_then() {
        let (screen, mut console) = console(Style::Plain, None);
        let mut event = |kind, unix_time: f64| {
            console.event(&Event { kind, step: 0, unix_time, text: format!("at {unix_time}") }).unwrap();
        };
        let (kl, entropy) = (Rule::KlBlowUp, Rule::EntropyCollapse);
        for second in 0..35 {
            event(EventKind::Alert(kl), f64::from(second));
            event(EventKind::Cleared(kl), f64::from(second) + 0.5);
        }
        event(EventKind::Alert(entropy), 31.0);
        let wanted = "warning: at 0\ncleared: at 0.5\nwarning: at 30\ncleared: at 30.5\nwarning: at 31\n";
        assert_eq!(screen.take(), wanted);
    }

    #[test]
    fn plain_lines_come_every_few_seconds_and_quiet_says_nothing() {
        let (screen, mut plain) = console(Style::Plain, None);
        let (silent, mut quiet) = console(Style::Quiet, None);
        for i in 0..120 {
            for console in [&mut plain, &mut quiet] {
                sample(console, i * 1000, i as f64 / 10.0, &[1.0, 10_000.0, 5.0]);
                console.tick().unwrap();
            }
        }
        plain.finish().unwrap();
        quiet.finish().unwrap();
        let text = screen.take();
        assert_eq!(text.lines().count(), 4, "{text}");
        assert_eq!(text.lines().nth(2), Some("100,000 steps · 10.0 k SPS · 5 episodes · return 1.0 · 10 s"));
        assert!(!text.contains('\r') && text.ends_with('\n'));
        assert_eq!(silent.take(), "");
    }

    #[test]
    fn a_closed_pipe_is_an_error_not_a_panic() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
                Err(std::io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let mut console = Console::new(Box::new(Closed), Style::Plain, None);
        sample(&mut console, 1, 0.0, &[0.0; 3]);
        assert!(console.finish().unwrap_err().to_string().contains("cannot write progress"));
    }
}
