//! The pages: a list of runs, one run, and runs compared. All is drawn here, by what draws reports; the script in the page
//! only fetches the live part again.

use super::growth;
use crate::batch_report;
use crate::format::{duration, with_unit};
use crate::found::{BatchFolder, Found};
use crate::live::{Data, Source};
use crate::output::{Failure, grouped};
use crate::run_folder::{RunFolder, Status};
use crate::runs::{self, Row};
use crate::svg::escape;
use crate::{compare, growth_log, html, report};
use operant::telemetry::{EventKind, Severity, unix_time};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// Runs that are kept open at once.
const OPEN: usize = 16;
/// Newest events of a run that are shown.
const EVENTS: usize = 500;
/// Spans of time that a run's plots may show: seconds and what they are called.
const WINDOWS: [(&str, &str); 4] =
    [("", "all of it"), ("3600", "last hour"), ("600", "last 10 minutes"), ("60", "last minute")];
/// Metrics whose newest values stand above the plots.
const HEADLINE: [&str; 6] = ["return", "sps", "episodes", "length", "cpu", "rss"];

/// What goes back to the browser.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) kind: &'static str,
    pub(super) body: String,
    pub(super) headers: Vec<(&'static str, String)>,
}

impl Answer {
    fn new(status: u16, kind: &'static str, body: String) -> Self {
        Self { status, kind, body, headers: Vec::new() }
    }

    pub(super) fn text(status: u16, text: &str) -> Self {
        Self::new(status, "text/plain; charset=utf-8", text.to_owned())
    }

    fn html(body: String) -> Self {
        Self::new(200, "text/html; charset=utf-8", body)
    }

    pub(super) fn redirect(path: &str) -> Self {
        Self::new(303, "text/plain; charset=utf-8", String::new()).with("Location", path.to_owned())
    }

    pub(super) fn with(mut self, name: &'static str, value: String) -> Self {
        self.headers.push((name, value));
        self
    }
}

/// The runs that can be seen, and those that are open.
pub(super) struct Site {
    dir: PathBuf,
    first: Option<Found>,
    open: Mutex<HashMap<String, (Source, Data)>>,
}

impl Site {
    pub(super) fn new(dir: PathBuf, first: Option<Found>) -> Self {
        Self { dir, first, open: Mutex::default() }
    }

    /// Every run by its id: nothing else of the disk can be named.
    fn folders(&self) -> Vec<RunFolder> {
        let mut all = RunFolder::all(&self.dir).unwrap_or_default();
        let first = match &self.first {
            Some(Found::Run(run)) => vec![run.clone()],
            Some(Found::Batch(batch)) => batch.named(),
            None => Vec::new(),
        };
        all.extend(first.into_iter().filter(|first| all.iter().all(|run| run.id != first.id)).collect::<Vec<_>>());
        all
    }

    /// Every batch by its id.
    fn batches(&self) -> Vec<BatchFolder> {
        let mut all = BatchFolder::all(&self.dir);
        if let Some(Found::Batch(first)) = &self.first
            && all.iter().all(|batch| batch.id != first.id)
        {
            all.push(first.clone());
        }
        all
    }

    fn batch(&self, id: &str) -> Result<BatchFolder, Failure> {
        let known = self.batches().into_iter().find(|batch| batch.id == id).ok_or_else(|| unknown(id))?;
        BatchFolder::look(known.path)
    }

    /// What a comparison calls by this id.
    fn found(&self, id: &str) -> Result<Found, Failure> {
        match self.folder(id) {
            Some(run) => Ok(Found::Run(run)),
            None => self.batch(id).map(Found::Batch),
        }
    }

    fn folder(&self, id: &str) -> Option<RunFolder> {
        self.folders().into_iter().find(|run| run.id == id)
    }

    pub(super) fn answer(&self, path: &str, query: &str) -> Answer {
        let parts: Vec<String> = path.split('/').filter(|part| !part.is_empty()).map(decoded).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let answer = match parts[..] {
            [] => match &self.first {
                Some(Found::Run(first)) => Ok(Answer::redirect(&address(&first.id))),
                Some(Found::Batch(first)) => Ok(Answer::redirect(&batch_address(&first.id))),
                None => Ok(Answer::redirect("/runs")),
            },
            ["runs"] => Ok(Answer::html(self.list())),
            ["runs", "live"] => Ok(Answer::html(self.list_live())),
            ["page.js"] => Ok(Answer::new(200, "text/javascript; charset=utf-8", include_str!("page.js").to_owned())),
            ["compare"] => self.compare(query),
            ["run", id] => self.run(id),
            ["batch", id] => self.batch_page(id),
            ["batch", id, "live"] => self.batch(id).and_then(|batch| batch_report::body(&batch)).map(Answer::html),
            ["run", id, "live"] => self.run_live(id, parameter(query, "window")),
            _ => Ok(Answer::text(404, "no such page; / has the list of runs\n")),
        };
        answer.unwrap_or_else(|failure| match failure {
            Failure::Usage(text) => Answer::text(404, &format!("{text}\n")),
            Failure::Run(text) => Answer::text(500, &format!("{text}\n")),
        })
    }

    fn list(&self) -> String {
        let body = format!(
            "<h1>Runs</h1>\n<p class=\"dim\">in {}</p>\n\
             <p><input id=\"filter\" type=\"search\" placeholder=\"show only rows with …\" aria-label=\"filter\"> \
             <button id=\"pause\">pause</button> <span id=\"said\" class=\"dim\"></span></p>\n\
             <form action=\"/compare\"><div id=\"live\" data-source=\"/runs/live\">{}</div>\n\
             <p><button>compare the chosen</button></p></form>\n{SCRIPT}",
            escape(&self.dir.display().to_string()),
            self.list_live()
        );
        html::page("runs", &body)
    }

    fn list_live(&self) -> String {
        let now = unix_time();
        let mut rows: Vec<Row> = self.folders().into_iter().map(|folder| Row::read(folder, now)).collect();
        rows.reverse();
        let batches: String = self.batches().iter().map(batch_line).collect();
        if rows.is_empty() {
            return "<p>no runs; train one: <code>operant train ppo cartpole</code></p>\n".to_owned();
        }
        let header: String = runs::HEADER.iter().map(|name| format!("<th>{name}</th>")).collect();
        let mut table = format!("<table>\n<tr><th></th>{header}</tr>\n");
        for row in &rows {
            let [id, others @ ..] = row.cells();
            let cells: String = others.iter().map(|cell| format!("<td>{}</td>", escape(cell))).collect();
            let (link, id) = (escape(&address(&id)), escape(&id));
            let _ = writeln!(
                table,
                "<tr class=\"row\"><td><input type=\"checkbox\" name=\"run\" value=\"{id}\" aria-label=\"choose {id}\"></td>\
                 <td><a href=\"{link}\">{id}</a></td>{cells}</tr>"
            );
        }
        batches + &table + "</table>\n"
    }

    fn batch_page(&self, id: &str) -> Result<Answer, Failure> {
        let body = batch_report::body(&self.batch(id)?)?;
        let page = format!(
            "<p><a href=\"/runs\">all runs</a></p>\n<h1>{}</h1>\n\
             <p><input id=\"filter\" type=\"search\" placeholder=\"show only events with …\" aria-label=\"filter\"> \
             <button id=\"pause\">pause</button> <span id=\"said\" class=\"dim\"></span></p>\n<div id=\"live\" data-source=\"{}/live\">{body}</div>\n{SCRIPT}",
            escape(id),
            escape(&batch_address(id))
        );
        Ok(Answer::html(html::page(id, &page)))
    }

    fn compare(&self, query: &str) -> Result<Answer, Failure> {
        let chosen: Vec<String> = parameters(query).filter(|(name, _)| name == "run").map(|(_, id)| id).collect();
        if chosen.len() < 2 {
            return Ok(Answer::text(400, "choose two runs or more to compare, then go back and try again\n"));
        }
        let folders = chosen.iter().map(|id| self.found(id)).collect::<Result<Vec<_>, _>>()?;
        compare::page(&folders).map(Answer::html)
    }

    fn run(&self, id: &str) -> Result<Answer, Failure> {
        let live = self.live(id, None)?;
        let windows: String =
            WINDOWS.iter().map(|(seconds, name)| format!("<option value=\"{seconds}\">{name}</option>")).collect();
        let body = format!(
            "<p><a href=\"/runs\">all runs</a></p>\n<h1>{}</h1>\n\
             <p><select id=\"window\" aria-label=\"time range\">{windows}</select> \
             <input id=\"filter\" type=\"search\" placeholder=\"show only events with …\" aria-label=\"filter\"> {} \
             <button id=\"pause\">pause</button> <span id=\"said\" class=\"dim\"></span></p>\n\
             <div id=\"live\" data-source=\"{}/live\">{live}</div>\n{SCRIPT}",
            escape(id),
            event_filters(),
            escape(&address(id))
        );
        Ok(Answer::html(html::page(id, &body)))
    }

    fn run_live(&self, id: &str, window: Option<String>) -> Result<Answer, Failure> {
        let seconds = window.and_then(|text| text.parse::<f64>().ok()).filter(|seconds| *seconds > 0.0);
        self.live(id, seconds).map(Answer::html)
    }

    /// The part of a run's page that changes.
    fn live(&self, id: &str, window: Option<f64>) -> Result<String, Failure> {
        let folder = self.folder(id).ok_or_else(|| unknown(id))?;
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if !open.contains_key(id) {
            if open.len() >= OPEN {
                open.clear();
            }
            open.insert(id.to_owned(), Source::open(&folder)?);
        }
        let Some((source, data)) = open.get_mut(id) else { return Err(unknown(id)) };
        source.poll(data);
        Ok(changing(&folder, data, window))
    }
}

const SCRIPT: &str = "<script src=\"/page.js\"></script>\n";

fn unknown(id: &str) -> Failure {
    Failure::Usage(format!("no run {id:?} here; / has the list of runs"))
}

fn changing(folder: &RunFolder, data: &Data, window: Option<f64>) -> String {
    let total = data.total_steps.map_or_else(String::new, |total| format!(" of {}", grouped(total as f64)));
    let mut body = format!(
        "<p id=\"state\" data-status=\"{0}\"><b>{0}</b> · {1} on {2} · {3}{total} steps · {4}</p>\n",
        data.status.name(),
        escape(&data.algo),
        escape(&data.env),
        grouped(data.step() as f64),
        duration(data.seconds()),
    );
    if let Some(total) = data.total_steps.filter(|total| *total > 0) {
        let _ = writeln!(body, "<progress max=\"{total}\" value=\"{}\"></progress>", data.step().min(total));
    }
    let known = HEADLINE.iter().filter_map(|name| Some((*name, data.history.last(name)?)));
    let newest: Vec<String> =
        known.map(|(name, value)| format!("{name} <b>{}</b>", escape(&with_unit(value, data.unit(name))))).collect();
    let _ = writeln!(body, "<p>{}</p>", newest.join(" · "));
    let window = data.history.window(window);
    body += &html::plots("Metrics over steps", &report::plots(&data.history, window, &data.events));
    if data.status != Status::Running {
        body += &html::table("Results", &[], &report::results(folder));
    }
    if data.env == "growth" {
        body += &growth::panels(data);
    }
    body += &events(data);
    let rows: Vec<Vec<String>> = data.settings.iter().map(|(name, value)| vec![name.clone(), value.clone()]).collect();
    body + &html::table("Settings", &[], &rows)
}

/// Newest events first, each with what the page's filters ask for.
fn events(data: &Data) -> String {
    let mut table = String::from(
        "<h2>Events, newest first</h2>\n<table id=\"events\">\n<tr><th>step</th><th>kind</th><th>text</th></tr>\n",
    );
    for event in data.events.iter().rev().take(EVENTS) {
        let kind = event.kind.to_string();
        let env = growth_log::of_env(&event.text).map_or_else(String::new, |(env, _)| env.to_string());
        let _ = writeln!(
            table,
            "<tr class=\"row\" data-kind=\"{}\" data-severity=\"{}\" data-env=\"{env}\"><td class=\"number\">{}</td><td>{kind}</td><td>{}</td></tr>",
            kind.split('/').next().unwrap_or_default(),
            event.kind.severity() as u8,
            grouped(event.step as f64),
            escape(&event.text)
        );
    }
    table + "</table>\n"
}

/// Fields that leave only some events.
fn event_filters() -> String {
    let kinds: String = EventKind::names().map(|name| format!("<option>{name}</option>")).collect();
    let severities: String = Severity::ALL
        .map(|severity| format!("<option value=\"{}\">from {} on</option>", severity as u8, severity.name()))
        .concat();
    format!(
        "<select id=\"kind\" aria-label=\"kind of events\"><option value=\"\">events of every kind</option>{kinds}</select> \
         <select id=\"severity\" aria-label=\"severity of events\">{severities}</select> \
         <input id=\"env\" type=\"number\" min=\"0\" placeholder=\"every env\" aria-label=\"env of events\">"
    )
}

/// A batch in the list of runs.
fn batch_line(batch: &BatchFolder) -> String {
    let (link, id) = (escape(&batch_address(&batch.id)), escape(&batch.id));
    format!(
        "<p><input type=\"checkbox\" name=\"run\" value=\"{id}\" aria-label=\"choose {id}\"> <a href=\"{link}\">{id}</a> · {} seeds · {}</p>\n",
        batch.seeds,
        escape(&batch.status())
    )
}

/// Where a batch's page is.
fn batch_address(id: &str) -> String {
    address(id).replacen("/run/", "/batch/", 1)
}

/// Where a run's page is.
fn address(id: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let encoded = id.bytes().fold(String::new(), |mut text, byte| {
        let _ = if plain(byte) { write!(text, "{}", byte as char) } else { write!(text, "%{byte:02X}") };
        text
    });
    format!("/run/{encoded}")
}

/// A part of an address as it was before it was encoded.
fn decoded(part: &str) -> String {
    let bytes = part.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let byte = (bytes[at] == b'%')
            .then(|| std::str::from_utf8(bytes.get(at + 1..at + 3)?).ok())
            .flatten()
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        out.push(byte.unwrap_or(if bytes[at] == b'+' { b' ' } else { bytes[at] }));
        at += if byte.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn parameters(query: &str) -> impl Iterator<Item = (String, String)> {
    query.split('&').filter_map(|pair| pair.split_once('=')).map(|(name, value)| (decoded(name), decoded(value)))
}

/// A parameter of an address by its name.
pub(super) fn parameter(query: &str, name: &str) -> Option<String> {
    parameters(query).find(|(known, _)| known == name).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_encoded_and_decoded() {
        for id in ["ppo-cartpole-1", "a b", "ü/..%2F", "100%"] {
            let path = address(id);
            assert!(path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'?'), "{path}");
            assert_eq!(decoded(path.strip_prefix("/run/").unwrap()), id);
        }
        assert_eq!(parameter("a=1&run=x%20y&run=z", "run").as_deref(), Some("x y"));
        assert_eq!(decoded("%zz%4"), "%zz%4");
    }
}
