//! Value iteration: learns shallow states in seconds, repeats with its seed, goes on exactly.

use operant::CATALOGUE;
use operant::algo::{Algorithm, Parts, Report};
use operant::config::{self, Table};
use operant::env::cube::{DistanceTable, Metric};
use operant::env::puzzle::{Puzzle, View};
use operant::nn::Options;
use operant::run::{Config, build_algorithm, build_env, build_pool};
use operant::search::{Evaluator, HeldOut, PuzzleName, ValueFile, Values, greedy};
use operant::{Error, Result};
use std::sync::Arc;

fn build(env: &str, words: &[&str]) -> Result<Box<dyn Algorithm>> {
    let mut over = Table::new();
    words.iter().try_for_each(|word| config::assign(&mut over, word))?;
    let config = Config::resolve(&CATALOGUE, "davi", env, over)?;
    let pool = build_pool(&config);
    build_algorithm(&config, build_env(&config, &pool)?, pool)
}

/// A network that learns in seconds.
const SMALL: [&str; 7] = [
    "network.hidden=[64,64]",
    "davi.batch_size=256",
    "davi.batches=5",
    "davi.target_interval=20",
    "precision=f32",
    "threads=1",
    "davi.view=cubies",
];

fn iterate(davi: &mut dyn Algorithm, report: &mut Report, times: usize) {
    for _ in 0..times {
        report.begin();
        davi.iterate(report);
        assert_eq!(report.diverged, None);
    }
}

fn saved(davi: &dyn Algorithm) -> Parts {
    davi.save().unwrap()
}

fn reported(davi: &dyn Algorithm, report: &Report, name: &str) -> f64 {
    report.values[davi.metrics().iter().position(|metric| metric.name == name).unwrap()]
}

#[test]
fn a_run_has_the_steps_that_it_was_asked_for_and_tests_itself() {
    let mut davi = build("cube2", &[&SMALL[..], &["davi.symmetry=false", "steps=3000"]].concat()).unwrap();
    let mut report = Report::new(davi.metrics().len());
    let mut seen = Vec::new();
    for _ in 0..3 {
        iterate(davi.as_mut(), &mut report, 1);
        seen.push((davi.steps(), report.score.is_some()));
        let (rate, moves) = (reported(&*davi, &report, "solve_rate"), reported(&*davi, &report, "solve_moves"));
        assert!((0.0..=1.0).contains(&rate) && (1.0..=30.0).contains(&moves), "{rate} {moves}");
    }
    // Batches of 256, five of an iteration; the last is a part of one.
    assert_eq!(seen, [(1280, true), (2560, false), (3000, true)]);
    let parts = saved(&*davi);
    let mut again = build("cube2", &[&SMALL[..], &["davi.symmetry=false", "steps=4000"]].concat()).unwrap();
    again.load(&parts).unwrap();
    iterate(again.as_mut(), &mut report, 1);
    assert_eq!(again.steps(), 4000);
}

/// Told by the names that files and screens have for the numbers, as PPO tells it.
#[test]
fn divergence_names_the_metric() {
    for (env, algo) in [("cube2", "davi"), ("cartpole", "dqn")] {
        let mut over = Table::new();
        let words = ["learning_rate=1e30", "max_grad_norm=0"].map(|word| format!("{algo}.{word}"));
        let small =
            SMALL.iter().filter(|word| word.starts_with(algo) || !word.contains('.')).map(|word| (*word).to_owned());
        small.chain(words).for_each(|word| config::assign(&mut over, &word).unwrap());
        let config = Config::resolve(&CATALOGUE, algo, env, over).unwrap();
        let pool = build_pool(&config);
        let mut run = build_algorithm(&config, build_env(&config, &pool).unwrap(), pool).unwrap();
        let mut report = Report::new(run.metrics().len());
        let reason = (0..100).find_map(|_| {
            report.begin();
            run.iterate(&mut report);
            report.diverged.take()
        });
        let reason = reason.expect("no network stands such steps");
        let named = run.metrics().iter().any(|metric| reason.starts_with(&format!("{} is not finite", metric.name)));
        assert!(named && reason.contains(", first in \""), "{algo}: {reason}");
    }
}

#[test]
fn shallow_states_are_learned_exactly() {
    let words = [&SMALL[..], &["davi.symmetry=false", "davi.scramble_depth=4", "steps=600000"]].concat();
    let mut davi = build("cube2", &words).unwrap();
    let mut report = Report::new(davi.metrics().len());
    while davi.steps() < 600_000 {
        iterate(davi.as_mut(), &mut report, 1);
    }
    // Its own test at the end. A state 4 moves away has neighbours further out, of which nothing was learned.
    let rate = reported(&*davi, &report, "solve_rate");
    assert!(rate > 0.8, "{rate}");
    let (file, params) = ValueFile::from_bytes(&saved(&*davi)["value.safetensors"]).unwrap();
    let puzzle = Arc::new(file.puzzle.pocket().unwrap());
    let table = DistanceTable::build(puzzle.pocket(), Metric::Quarter);
    let mut values = Evaluator::new(Arc::clone(&puzzle), &file.net, params, &Options::default()).unwrap();
    // All states up to distance 3.
    let states: Vec<u32> = (1..=3).flat_map(|depth| table.draw(depth, 200, 1).unwrap()).collect();
    let mut found = Vec::new();
    values.values(&states, &mut found);
    let error = |(&state, &value): (&u32, &f32)| (value - table.distance(state) as f32).abs();
    let mean = states.iter().zip(&found).map(error).sum::<f32>() / states.len() as f32;
    assert!(mean < 0.3, "mean error {mean}");
    let walks = greedy(&*puzzle, &mut values, &states, 20, false);
    let solved = walks.iter().zip(&states).filter(|(walk, _)| walk.moves.is_some()).count();
    assert_eq!(solved, states.len());
}

/// A teacher's targets are what it says: walks are never shorter than the shortest way, and the table has that.
#[test]
fn a_teacher_says_how_far_states_are() {
    let mean = |teacher: &str| {
        let words = ["davi.symmetry=false", "davi.scramble_depth=8", "davi.pretrain=1", "davi.learning_rate=1e-9"];
        let mut davi = build("cube2", &[&SMALL[..], &words, &[teacher, "steps=20000"]].concat()).unwrap();
        let mut report = Report::new(davi.metrics().len());
        iterate(davi.as_mut(), &mut report, 10);
        reported(&*davi, &report, "target/mean")
    };
    let (walks, table) = (mean("davi.teacher=walks"), mean("davi.teacher=table"));
    // Walks of 1 to 8 moves alike that never go straight back: 4.5, of which shortest ways save a part.
    assert!((walks - 4.5).abs() < 0.1 && table < walks - 0.05 && table > 3.5, "{walks} {table}");
    let refused = build("cube3", &["davi.teacher=table", "davi.pretrain=0.1"]).err().unwrap();
    assert!(refused.to_string().contains("wanted walks"), "{refused}");
    // Then the copy takes over: with a network that says nothing yet, targets are near 1.
    let words = ["davi.symmetry=false", "davi.pretrain=0.1", "davi.learning_rate=1e-9", "steps=20000"];
    let mut davi = build("cube2", &[&SMALL[..], &words].concat()).unwrap();
    let mut report = Report::new(davi.metrics().len());
    iterate(davi.as_mut(), &mut report, 10);
    assert!(reported(&*davi, &report, "target/mean") < 2.5);
}

#[test]
fn the_same_seed_repeats_and_a_resumed_run_ends_with_the_same_bits() {
    for (env, more) in [("cube2", &["davi.symmetry=true", "davi.view=pairs", "davi.held_out=0.1"][..]), ("cube3", &[])]
    {
        let words = [&SMALL[..], more].concat();
        let run = |words: &[&str]| {
            let mut davi = build(env, words).unwrap();
            let mut report = Report::new(davi.metrics().len());
            iterate(davi.as_mut(), &mut report, 7);
            (davi, report)
        };
        let (whole, _) = run(&words);
        assert!(saved(&*run(&words).0) == saved(&*whole), "{env}: the same seed");
        assert!(saved(&*run(&[&words[..], &["seed=2"]].concat()).0) != saved(&*whole), "{env}: another seed");
        // Between two renewals of the copy: 5 batches of an iteration, 20 of an interval.
        let mut first = build(env, &words).unwrap();
        let mut report = Report::new(first.metrics().len());
        iterate(first.as_mut(), &mut report, 3);
        let parts = saved(&*first);
        let mut second = build(env, &words).unwrap();
        second.load(&parts).unwrap();
        iterate(second.as_mut(), &mut report, 4);
        assert!(saved(&*second) == saved(&*whole), "{env}: resumed");
        assert_eq!(second.steps(), whole.steps());
    }
}

#[test]
fn orbits_are_held_out_whole_in_their_share_and_not_close_to_solved() {
    let name = PuzzleName { env: "cube2".into(), view: View::Cubies, symmetry: true, half_turns: false };
    let puzzle = name.pocket().unwrap();
    let table = DistanceTable::build(puzzle.pocket(), Metric::Quarter);
    let held_out = HeldOut::new(&puzzle, 0.1, 5);
    let mut entries = [0; 7];
    let mut held = |state: u32| {
        let representative = puzzle.representative(state);
        puzzle.encode(representative, &mut entries);
        held_out.holds(representative, &entries)
    };
    let count = (0..20_000u32).filter(|&i| held(i * 183)).count();
    assert!((1600..2400).contains(&count), "{count} of 20,000");
    for state in (0..2000).map(|i| i * 1801) {
        let images = operant::env::cube::Pocket::images(state);
        assert!(images.iter().all(|&image| held(image) == held(state)));
    }
    let nearest =
        (0..puzzle.states().unwrap() as u32).filter(|&state| held(state)).map(|state| table.distance(state)).min();
    assert_eq!(nearest, Some(6));
}

#[test]
fn mistakes_are_named() {
    let message = |env: &str, words: &[&str]| build(env, words).map(drop).unwrap_err().to_string();
    assert!(message("cartpole", &[]).contains("wanted cube2 or cube3, got cartpole"));
    assert_eq!(message("cube2", &["davi.batch_size=0"]), "davi.batch_size = 0: wanted 1..=1048576");
    assert!(message("cube3", &["davi.symmetry=true"]).contains("it is for cube2"));
    assert!(message("cube3", &["davi.view=pairs"]).contains("pairs are for cube2"));
    assert!(message("cube2", &["davi.held_out=1"]).contains("wanted 0 to 0.9"));
    assert!(message("cube2", &["precision=f16"]).contains("wanted f32 or bf16"));
    for word in ["network.memory=lstm", "network.encoder=flat"] {
        assert!(message("cube2", &[word]).starts_with("network.memory, network.encoder: "), "{word}");
    }
    let davi = build("cube2", &[&SMALL[..], &["davi.symmetry=false"]].concat()).unwrap();
    assert!(matches!(davi.policy(), Err(Error::Invalid(text)) if text.contains("operant eval --search")));
}
