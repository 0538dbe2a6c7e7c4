//! Screens as text: what a user sees in a wide and in a narrow terminal, and what keys do.

use super::Leave;
use super::view::{Screen, View};
use crate::history::History;
use crate::live::{Data, Source};
use crate::run_folder::{RunFolder, Status};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use operant::telemetry::{Board, Episode, Event, EventKind, Jsonl, Metric, RingSink, Rule, unix_time};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use std::collections::VecDeque;

/// A run of 200 samples whose numbers are known.
fn data() -> Data {
    let mut history = History::default();
    for i in 0..200u64 {
        let x = i as f64;
        let metrics = [
            ("return", 20.0 + 2.0 * x),
            ("length", 20.0 + 2.0 * x),
            ("episodes", 10.0 * x),
            ("sps", 1.25e6),
            ("time/collect", 0.25),
            ("time/learn", 0.7),
            ("time/other", 0.05),
            ("cpu", 1.9),
            ("rss", 64.0 * 1024.0 * 1024.0),
            ("loss/policy", -0.01),
            ("loss/value", 50.0 - x / 10.0),
            ("entropy", 0.69 - x / 1000.0),
            ("approx_kl", 0.0123),
            ("clip_fraction", 0.08),
            ("explained_variance", x / 250.0),
            ("value/mean", x / 4.0),
            ("value/min", -1.5),
            ("value/max", x / 2.0),
            ("grad_norm", 0.5),
            ("learning_rate", 3e-4),
            ("gradient/actor.0.weight/norm", 0.4 - x / 1000.0),
            ("gradient/actor.0.weight/zeros", 0.125),
            ("gradient/actor.0.weight/update", 2e-3),
            ("gradient/actor.0.bias/norm", 0.03),
            ("gradient/actor.0.bias/zeros", 0.0),
            ("gradient/actor.0.bias/update", f64::NAN),
        ];
        history.push((i + 1) * 32_768, x / 40.0, metrics.into_iter());
    }
    let event = |kind, step, text: &str| Event { kind, step, unix_time: unix_time() - 60.0, text: text.to_owned() };
    let unit = |name: &str, unit: &str| (name.to_owned(), String::new(), unit.to_owned());
    Data {
        events_removed: 0,
        id: "ppo-cartpole-1-1".into(),
        algo: "ppo".into(),
        env: "cartpole".into(),
        status: Status::Running,
        pid: Some(4242),
        silence: 0.1,
        total_steps: Some(10_000_000),
        settings: vec![("algo".into(), "ppo".into()), ("ppo.learning_rate".into(), "0.0003".into())],
        history,
        episodes: (0..150)
            .map(|i| Episode { step: i * 1000, env: i % 64, episode_return: (i % 50) as f64 * 10.0, length: 10 + i })
            .collect::<VecDeque<_>>(),
        events: vec![
            event(EventKind::Started, 0, "ppo on cartpole"),
            event(EventKind::Alert(Rule::KlBlowUp), 65_536, "approx_kl is 0.3100, limit 0.2"),
            event(EventKind::Cleared(Rule::KlBlowUp), 98_304, "approx_kl is 0.0500, limit 0.2"),
            event(EventKind::Solved, 6_553_600, "mean return 475.2 over 100 episodes"),
        ],
        metrics: vec![unit("sps", "1/s"), unit("rss", "bytes"), unit("cpu", "cores")],
        missed: 3,
    }
}

fn screen(view: &View, data: &Data, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| view.draw(frame, data)).unwrap();
    let buffer = terminal.backend().buffer();
    let rows = buffer.content.chunks(usize::from(width));
    rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned() + "\n").collect()
}

fn press(view: &mut View, data: &Data, code: KeyCode) -> Option<Leave> {
    view.key(KeyEvent::new(code, KeyModifiers::NONE), data)
}

fn at(screen: Screen) -> View {
    let mut view = View::default();
    view.screen = screen;
    view
}

#[test]
fn overview_wide() {
    insta::assert_snapshot!(screen(&View::default(), &data(), 120, 36));
}

#[test]
fn overview_narrow() {
    insta::assert_snapshot!(screen(&View::default(), &data(), 50, 24));
}

#[test]
fn phases() {
    insta::assert_snapshot!(screen(&at(Screen::Phases), &data(), 80, 20));
}

#[test]
fn gradients() {
    insta::assert_snapshot!(screen(&at(Screen::Gradients), &data(), 80, 20));
}

#[test]
fn system() {
    insta::assert_snapshot!(screen(&at(Screen::System), &data(), 100, 22));
}

#[test]
fn episodes() {
    insta::assert_snapshot!(screen(&at(Screen::Episodes), &data(), 90, 20));
}

#[test]
fn events() {
    insta::assert_snapshot!(screen(&at(Screen::Events), &data(), 100, 12));
}

/// A run of growth: two slots, three envs, of which one has ended and one began anew.
fn growth_data() -> Data {
    let mut history = History::default();
    for i in 0..50u64 {
        let x = i as f64;
        let metrics = [
            ("return", x),
            ("entropy", 4.0 - x / 50.0),
            ("entropy/op", 1.7 - x / 50.0),
            ("entropy/slot", 0.7),
            ("entropy/curve", f64::NAN),
            ("reward/gain", 0.2 + x / 100.0),
            ("reward/rent", -0.1),
            ("reward/synergy", 0.0),
            ("op/wait", 0.75),
            ("op/germinate", 0.05),
            ("slot/0/alpha", 0.25),
            ("slot/0/contribution", f64::NAN),
            ("slot/1/alpha", 0.5),
            ("slot/1/contribution", 3.25),
            ("slot/0/shapley", -0.5),
            ("slot/1/shapley", 2.75),
            ("slot/1/shapley_error", 0.25),
            ("interaction/0-1", 0.9 - x / 100.0),
            ("outcome/accuracy", 60.0 + x / 4.0),
        ];
        history.push((i + 1) * 480, x, metrics.into_iter());
    }
    let event = |kind, text: &str| Event { kind, step: 480, unix_time: unix_time() - 60.0, text: text.to_owned() };
    let change = |text: &str| event(EventKind::Lifecycle, text);
    let events = vec![
        event(EventKind::Started, "ppo on growth"),
        change("env 0: epoch 3, slot 1: dormant to germinated conv_heavy"),
        change("env 0: epoch 4, slot 1: germinated to training conv_heavy"),
        change("env 2: epoch 4, slot 0: dormant to germinated norm"),
        change("env 1: epoch 9, slot 0: holding to fossilised conv_heavy"),
        change("env 1: epoch 10, slot 1: holding to pruned"),
        event(EventKind::Rollback, "env 1: epoch 11: divergence"),
        event(EventKind::Outcome, "env 1: accuracy 73.0 %, 1 fossils, 616 parameters of seeds"),
        event(EventKind::Outcome, "env 2: accuracy 71.5 %, 0 fossils, 32 parameters of seeds"),
        change("env 2: epoch 1, slot 1: dormant to germinated norm"),
    ];
    Data { env: "growth".into(), id: "ppo-growth-1-1".into(), history, events, ..data() }
}

#[test]
fn growth() {
    insta::assert_snapshot!(screen(&at(Screen::Growth), &growth_data(), 110, 30));
}

#[test]
fn events_by_kind_and_growth_where_something_grows() {
    let (cartpole, data) = (data(), growth_data());
    let mut view = View::default();
    press(&mut view, &cartpole, KeyCode::Char('7'));
    assert_eq!(view.screen, Screen::Overview, "nothing grows in cartpole");
    press(&mut view, &data, KeyCode::Char('7'));
    assert_eq!(view.screen, Screen::Growth);
    press(&mut view, &data, KeyCode::Char('6'));
    let text = |view: &View| screen(view, &data, 90, 14);
    assert!(text(&view).contains("events: 10, of these alerts: 0"));
    press(&mut view, &data, KeyCode::Char('f'));
    assert!(text(&view).contains("events of kind lifecycle: 6 of 10") && !text(&view).contains("ppo on growth"));
    press(&mut view, &data, KeyCode::Char('f'));
    assert!(text(&view).contains("events of kind outcome: 2 of 10") && text(&view).contains("71.5 %"));
    // Rollback, started, all again.
    for _ in 0..3 {
        press(&mut view, &data, KeyCode::Char('f'));
    }
    assert!(text(&view).contains("events: 10, of these alerts: 0"), "all again");
    press(&mut view, &data, KeyCode::Char('s'));
    assert!(text(&view).contains("events from warning on: 1 of 10") && text(&view).contains("divergence"));
    press(&mut view, &data, KeyCode::Char('e'));
    assert!(text(&view).contains("events from warning on, of env 0: 0 of 10"));
    press(&mut view, &data, KeyCode::Char('e'));
    assert!(text(&view).contains("events from warning on, of env 1: 1 of 10"));
    for _ in 0..2 {
        press(&mut view, &data, KeyCode::Char('s'));
    }
    assert!(text(&view).contains("events of env 1: 4 of 10"), "from info on: all");
    for _ in 0..2 {
        press(&mut view, &data, KeyCode::Char('e'));
    }
    assert!(text(&view).contains("events: 10, of these alerts: 0"), "all again");
}

#[test]
fn every_screen_fits_every_terminal() {
    let (full, mut empty, grown) = (data(), data(), growth_data());
    (empty.history, empty.episodes, empty.events) = (History::default(), VecDeque::new(), Vec::new());
    let screens = [
        Screen::Overview,
        Screen::Phases,
        Screen::Gradients,
        Screen::System,
        Screen::Episodes,
        Screen::Events,
        Screen::Growth,
    ];
    for (width, height) in [(1, 1), (3, 2), (20, 5), (40, 10), (60, 15), (80, 24), (300, 100)] {
        for shown in screens {
            for data in [&full, &empty, &grown] {
                let mut view = at(shown);
                screen(&view, data, width, height);
                press(&mut view, data, KeyCode::Char('?'));
                screen(&view, data, width, height);
            }
        }
    }
    assert!(screen(&View::default(), &empty, 80, 24).contains("waiting for the first sample"));
}

#[test]
fn keys_change_screen_range_and_pause() {
    let mut data = data();
    let mut view = View::default();
    let text = |view: &View, data: &Data| screen(view, data, 100, 30);
    assert!(text(&view, &data).contains("range: all"));
    press(&mut view, &data, KeyCode::Left);
    press(&mut view, &data, KeyCode::Left);
    assert_eq!(view.range(), Some(600.0));
    for _ in 0..9 {
        press(&mut view, &data, KeyCode::Left);
    }
    assert_eq!(view.range(), Some(1.0));
    // The last second of the run: 40 samples.
    let first = data.history.steps()[data.history.window(view.range()).start];
    assert_eq!(first, 160 * 32_768);
    (0..9).for_each(|_| assert_eq!(press(&mut view, &data, KeyCode::Right), None));
    assert_eq!(view.range(), None);
    press(&mut view, &data, KeyCode::Tab);
    assert_eq!(view.screen, Screen::Phases);
    press(&mut view, &data, KeyCode::BackTab);
    press(&mut view, &data, KeyCode::BackTab);
    assert_eq!(view.screen, Screen::Events);
    press(&mut view, &data, KeyCode::Char('1'));
    press(&mut view, &data, KeyCode::Char('p'));
    data.history.push(99_000_000, 100.0, [("return", 1.0)].into_iter());
    assert!(text(&view, &data).contains("paused") && text(&view, &data).contains("6,553,600 steps"));
    press(&mut view, &data, KeyCode::Char('p'));
    assert!(text(&view, &data).contains("99,000,000 steps"));
    press(&mut view, &data, KeyCode::Char('?'));
    assert!(text(&view, &data).contains("pause the view; the run goes on"));
    assert_eq!(press(&mut view, &data, KeyCode::Esc), None, "closes the help first");
    assert_eq!(press(&mut view, &data, KeyCode::Char('q')), Some(Leave::Quit));
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(view.key(interrupt, &data), Some(Leave::Interrupt));
}

#[test]
fn follows_a_run_through_its_end_and_its_resume() {
    let path = std::env::temp_dir().join(format!("operant-monitor-{}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    std::fs::write(path.join("run.toml"), "algo = \"ppo\"\nsteps = 1000\n[env]\nname = \"cartpole\"\n").unwrap();
    let board = || {
        let metrics = vec![Metric::new("return", "", ""), Metric::new("sps", "", "1/s")];
        let ring = RingSink::new(&path.join("live.ring"), "a run", "");
        Board::start(metrics, vec![Box::new(Jsonl::new(&path)), Box::new(ring)])
    };
    let wait = |source: &mut Source, data: &mut Data, done: &dyn Fn(&Data) -> bool| {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while !done(data) {
            assert!(std::time::Instant::now() < deadline, "{} samples, {:?}", data.history.len(), data.events);
            std::thread::sleep(std::time::Duration::from_millis(10));
            source.poll(data);
        }
    };
    let mut first = board();
    first.event(EventKind::Started, 0, "go");
    (1..=50).for_each(|step| first.sample(step * 10, step as f64));
    operant::telemetry::RingReader::wait(&path.join("live.ring"), std::time::Duration::from_secs(20)).unwrap();
    let folder = RunFolder::find(path.to_str().unwrap(), &path).unwrap();
    let (mut source, mut data) = Source::open(&folder).unwrap();
    assert_eq!((data.env.as_str(), data.total_steps, data.status), ("cartpole", Some(1000), Status::Running));
    wait(&mut source, &mut data, &|data| data.step() == 500 && data.events.len() == 1);
    first.event(EventKind::Stopped, 500, "by the user");
    first.finish();
    wait(&mut source, &mut data, &|data| data.status == Status::Stopped);
    let mut second = board();
    second.event(EventKind::Resumed, 300, "from 300");
    (31..=100).for_each(|step| second.sample(step * 10, step as f64));
    wait(&mut source, &mut data, &|data| data.step() == 1000 && data.status == Status::Running);
    assert_eq!(data.history.len(), 100);
    second.event(EventKind::Finished, 1000, "done");
    second.finish();
    wait(&mut source, &mut data, &|data| data.status == Status::Finished);
    let kinds: Vec<EventKind> = data.events.iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [EventKind::Started, EventKind::Stopped, EventKind::Resumed, EventKind::Finished]);
    // A viewer that comes later sees the same.
    let (_, late) = Source::open(&folder).unwrap();
    assert_eq!((late.history.steps(), late.events.len()), (data.history.steps(), 4));
    std::fs::remove_dir_all(path).unwrap();
}
