//! Every env of the registry passes every check; those whose steps are slow have tests of their own (`growth.rs`). One test
//! per check, so that a failure names it.

use operant::env::check::CHECKS;
use operant::env::{Options, VARIANTS, all, find};

fn run(name: &str) {
    let (_, check) = CHECKS.iter().find(|(known, _)| *known == name).expect("a check of this name");
    let failed: Vec<String> = all()
        .chain(VARIANTS)
        .filter(|entry| !entry.is_slow())
        .filter_map(|entry| check(entry).err().map(|found| format!("{}: {found}", entry.spec().name)))
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

macro_rules! checks {
    ($($test:ident $name:literal)+) => {
        $(#[test] fn $test() { run($name); })+
        /// A check that was added without a test here fails this one.
        #[test]
        fn every_check_has_a_test() {
            let tested = [$($name),+];
            CHECKS.iter().for_each(|(name, _)| assert!(tested.contains(name), "add a test for: {name}"));
        }
    };
}

checks! {
    spec "describes itself consistently"
    params "parameters can be set, and only to allowed values"
    lanes "gives the same bits on every lane width"
    fast_math "stays near strict mode in fast mode"
    threads "gives the same bits on any number of threads"
    parts "gives the same bits when parts take turns"
    seeds "repeats with its seed and differs without"
    alone "replays any env alone"
    bounds "keeps observations finite and within bounds"
    legal "leaves a legal choice"
    autoreset "ends episodes alike in every auto-reset mode"
    time_limit "truncates at the time limit and not before"
    statistics "sums rewards into returns"
    save_load "goes on exactly after save and load"
    state "goes on exactly after its state was read and written"
    draw "draws a picture if it says so"
}

#[test]
fn names_are_unique_and_found_in_any_case() {
    for (i, entry) in all().enumerate() {
        let spec = entry.spec();
        for name in [spec.name, spec.id, &spec.id.to_uppercase()] {
            assert_eq!(find(name).unwrap().spec().name, spec.name);
        }
        assert!(all().take(i).all(|other| !other.answers_to(spec.name) && !other.answers_to(spec.id)));
    }
    let message = find("cartpol").unwrap_err().to_string();
    assert_eq!(message, "unknown env \"cartpol\"; did you mean \"cartpole\"? (operant list)");
}

#[test]
fn every_env_takes_a_time_limit_among_its_parameters() {
    for entry in all().filter(|entry| !entry.is_slow()) {
        let limit =
            |steps: f64| entry.build(&[("time_limit", steps)], &Options::new(2)).map(|env| env.spec().time_limit);
        assert_eq!((limit(7.0), limit(0.0)), (Ok(Some(7)), Ok(None)), "{}", entry.spec().name);
        let message = limit(-1.0).unwrap_err().to_string();
        assert_eq!(message, "env.time_limit = -1: wanted a whole number of steps, or 0 for none");
    }
    let cartpole = find("cartpole").unwrap();
    let both = cartpole.build(&[("time_limit", 3.0), ("gravity", 5.0)], &Options::new(2)).unwrap();
    assert!(both.spec().time_limit == Some(3) && both.params().iter().any(|p| p.name == "gravity" && p.value == 5.0));
}
