//! TD self-play: learns to beat random play in seconds, repeats with its seed on any number of threads, goes on exactly.

use operant::CATALOGUE;
use operant::algo::{Algorithm, Parts, Report};
use operant::config::{self, Table};
use operant::env::backgammon::Position;
use operant::nn::Options;
use operant::run::{Config, build_algorithm, build_env, build_pool};
use operant::search::backgammon::{BackgammonFile, ByValue, Depth, Evaluator, contest};
use operant::search::versus::Random;
use operant::{Error, Result};

fn build(env: &str, words: &[&str]) -> Result<Box<dyn Algorithm>> {
    let mut over = Table::new();
    words.iter().try_for_each(|word| config::assign(&mut over, word))?;
    let config = Config::resolve(&CATALOGUE, "td", env, over)?;
    let pool = build_pool(&config);
    build_algorithm(&config, build_env(&config, &pool)?, pool)
}

/// Games that end within a few iterations.
const SMALL: [&str; 7] = [
    "network.hidden=[16]",
    "num_envs=96",
    "td.turns=24",
    "td.batch_size=64",
    "td.replay=4096",
    "precision=f32",
    "steps=200000",
];

fn iterate(td: &mut dyn Algorithm, report: &mut Report, times: usize) {
    for _ in 0..times {
        report.begin();
        td.iterate(report);
        assert_eq!(report.diverged, None);
    }
}

fn saved(td: &dyn Algorithm) -> Parts {
    td.save().unwrap()
}

#[test]
fn self_play_learns_to_beat_random_play() {
    let words = ["network.hidden=[40]", "num_envs=128", "precision=f32", "threads=1", "steps=150000"];
    let mut td = build("backgammon", &words).unwrap();
    let mut report = Report::new(td.metrics().len());
    let iterations = 150_000 / td.steps_per_iteration() as usize;
    iterate(td.as_mut(), &mut report, iterations);
    let (net, weights) = BackgammonFile::from_bytes(&saved(&*td)["backgammon.safetensors"]).unwrap();
    let evaluator = Evaluator::new(&net, &weights, &Options::default()).unwrap();
    let mut player = ByValue::new("td", evaluator, Depth::One);
    let score = contest(&mut player, &mut Random, 300, 1).unwrap().0;
    assert!(score.mean() > 1.5, "{} points per game", score.mean());
    // Against itself nothing but the ends of games holds values where they belong: what is said of the opening is what then happens.
    let mut itself = ByValue::new("itself", Evaluator::new(&net, &weights, &Options::default()).unwrap(), Depth::One);
    let games = contest(&mut player, &mut itself, 400, 2).unwrap().1;
    let gammons = games.iter().filter(|game| game.result().unwrap().points > 1).count() as f32 / 400.0;
    let [win, won, _, lost, _] = player.value(Position::START).to_array();
    assert!((win - 0.5).abs() < 0.1, "wins {win}");
    assert!((won + lost - gammons).abs() < 0.15, "gammons {won} and {lost}, played {gammons}");
}

#[test]
fn the_same_seed_repeats_and_a_resumed_run_ends_with_the_same_bits() {
    let run = |words: &[&str]| {
        let mut td = build("backgammon", words).unwrap();
        let mut report = Report::new(td.metrics().len());
        iterate(td.as_mut(), &mut report, 9);
        assert!(report.episodes.count() > 50, "games ended: {}", report.episodes.count());
        td
    };
    let one = [&SMALL[..], &["threads=1"]].concat();
    let whole = run(&one);
    assert!(saved(&*run(&[&SMALL[..], &["threads=3"]].concat())) == saved(&*whole), "three threads");
    assert!(saved(&*run(&[&one[..], &["seed=2"]].concat())) != saved(&*whole), "another seed");
    let mut first = build("backgammon", &one).unwrap();
    let mut report = Report::new(first.metrics().len());
    iterate(first.as_mut(), &mut report, 5);
    let parts = saved(&*first);
    let mut second = build("backgammon", &one).unwrap();
    second.load(&parts).unwrap();
    iterate(second.as_mut(), &mut report, 4);
    assert!(saved(&*second) == saved(&*whole), "resumed");
    assert_eq!(second.steps(), whole.steps());
    let mut broken = parts.clone();
    broken.get_mut("td.bin").unwrap().truncate(1000);
    assert!(matches!(second.load(&broken), Err(Error::Saved(text)) if text.contains("td.bin")));
}

/// How the networks of a file value the opening.
fn opening(file: &[u8]) -> [f32; 5] {
    let (net, weights) = BackgammonFile::from_bytes(file).unwrap();
    Evaluator::new(&net, &weights, &Options::default()).unwrap().value(Position::START).to_array()
}

#[test]
fn a_run_begins_with_the_networks_of_a_file() {
    let folder = std::env::temp_dir().join(format!("operant-td-start-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("first.safetensors");
    let mut first = build("backgammon", &SMALL).unwrap();
    let mut report = Report::new(first.metrics().len());
    iterate(first.as_mut(), &mut report, 4);
    let networks = saved(&*first)["backgammon.safetensors"].clone();
    std::fs::write(&file, &networks).unwrap();
    let start = format!("td.start={}", file.display());
    let words = [&SMALL[..], &[start.as_str()]].concat();
    let mut second = build("backgammon", &words).unwrap();
    assert!(saved(&*second)["backgammon.safetensors"] == networks);
    let wide = build("backgammon", &[&words[..], &["network.hidden=[40]"]].concat()).unwrap();
    assert_eq!(opening(&saved(&*wide)["backgammon.safetensors"]), opening(&networks), "new units change no value");
    let other = [&words[..], &["network.hidden=[3]"]].concat();
    let mut unlike = build("backgammon", &other).unwrap();
    report.begin();
    unlike.iterate(&mut report);
    assert!(report.failed.take().unwrap().contains("at least its units (network.hidden)"));
    iterate(second.as_mut(), &mut report, 5);
    let parts = saved(&*second);
    assert!(parts["backgammon.safetensors"] != networks);
    // A run that goes on needs the file no more; one that begins does.
    std::fs::remove_file(&file).unwrap();
    let mut third = build("backgammon", &words).unwrap();
    report.begin();
    third.iterate(&mut report);
    assert!(report.failed.take().unwrap().contains("can't read td.start"));
    third.load(&parts).unwrap();
    iterate(third.as_mut(), &mut report, 1);
    iterate(second.as_mut(), &mut report, 1);
    assert!(saved(&*third) == saved(&*second));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn mistakes_are_named() {
    let message = |env: &str, words: &[&str]| build(env, words).map(drop).unwrap_err().to_string();
    assert!(message("cartpole", &[]).contains("wanted backgammon, got cartpole"));
    assert_eq!(message("backgammon", &["td.lambda=2"]), "td.lambda = 2: wanted 0 to 1");
    assert!(message("backgammon", &["network.hidden=[8,8]"]).contains("wanted one size"));
    assert!(message("backgammon", &["precision=f16"]).contains("wanted f32 or bf16"));
    assert!(message("backgammon", &["td.replay=10"]).contains("td.batch_size..="));
    let td = build("backgammon", &SMALL).unwrap();
    assert!(matches!(td.policy(), Err(Error::Invalid(text)) if text.contains("operant eval RUN --against")));
}
