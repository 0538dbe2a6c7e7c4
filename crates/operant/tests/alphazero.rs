//! AlphaZero: learns Connect Four in a minute, says what is wrong with settings, hands out weights while games go on.

use operant::CATALOGUE;
use operant::Result;
use operant::algo::{Algorithm, Report};
use operant::config::{self, Table};
use operant::env::backgammon::Backgammon;
use operant::env::connect4::{Board, Connect4};
use operant::lanes::rng::HostRng;
use operant::nn::Options;
use operant::run::{Config, build_algorithm, build_env, build_pool};
use operant::search::connect4_solver::Solver;
use operant::search::mcts;
use operant::search::versus::{Perfect, Player, Random, Searcher, between, from_start, won_openings};

fn build(env: &str, words: &[&str]) -> Result<Box<dyn Algorithm>> {
    let mut over = Table::new();
    words.iter().try_for_each(|word| config::assign(&mut over, word))?;
    let config = Config::resolve(&CATALOGUE, "alphazero", env, over)?;
    let pool = build_pool(&config);
    build_algorithm(&config, build_env(&config, &pool)?, pool)
}

fn value(algorithm: &dyn Algorithm, report: &Report, name: &str) -> f64 {
    report.values[algorithm.metrics().iter().position(|metric| metric.name == name).unwrap()]
}

/// Mean points against random play of a search with so few simulations that the network decides.
fn against_random(algorithm: &dyn Algorithm, games: usize) -> f32 {
    let network = &algorithm.save().unwrap()["network.safetensors"];
    let settings = mcts::Settings { simulations: 16, ..mcts::Settings::default() };
    let mut searcher = Searcher::<Connect4>::new("trained", network, &settings, &Options::default()).unwrap();
    let results = between(&mut searcher, &mut Random, &from_start::<Connect4>(games), 5).unwrap();
    results.iter().map(|played| played.points).sum::<f32>() / games as f32
}

#[test]
fn a_short_run_beats_random_play_by_far() {
    let words = [
        "threads=1",
        "num_envs=64",
        "steps=40000",
        "network.hidden=[64,64]",
        "alphazero.search.simulations=32",
        "alphazero.search.leaves=2",
        "alphazero.learning_starts=1000",
        "alphazero.batch_size=256",
    ];
    let mut algorithm = build("connect4", &words).unwrap();
    let before = against_random(&*algorithm, 200);
    let mut report = Report::new(algorithm.metrics().len());
    let mut losses = Vec::new();
    while algorithm.steps() < 40_000 {
        report.begin();
        algorithm.iterate(&mut report);
        assert_eq!(report.diverged, None);
        let updates = value(&*algorithm, &report, "updates");
        if updates > 0.0 {
            losses.push(value(&*algorithm, &report, "loss/policy"));
        }
    }
    let after = against_random(&*algorithm, 200);
    assert!(after > 0.9 && after > before, "{before} before, {after} after");
    assert!(losses.len() > 5 && losses[losses.len() - 1] < losses[0], "{losses:?}");
    assert!(report.episodes.count() > 500);
}

#[test]
fn games_with_chance_learn_without_a_number_that_is_not_finite() {
    let words = [
        "threads=2",
        "num_envs=16",
        "precision=f32",
        "network.hidden=[32]",
        "alphazero.search.simulations=8",
        "alphazero.search.leaves=1",
        "alphazero.moves=40",
        "alphazero.most_moves=120",
        "alphazero.learning_starts=200",
        // So small that many a batch has no decision.
        "alphazero.batch_size=2",
        "alphazero.reuse=0.2",
        "alphazero.publish_every=3",
    ];
    for env in ["2048", "backgammon"] {
        let mut algorithm = build(env, &words).unwrap();
        let mut report = Report::new(algorithm.metrics().len());
        let mut updates = 0.0;
        for _ in 0..8 {
            report.begin();
            algorithm.iterate(&mut report);
            assert_eq!(report.diverged, None);
            updates += value(&*algorithm, &report, "updates");
            if updates > 0.0 && value(&*algorithm, &report, "updates") > 0.0 {
                assert!(value(&*algorithm, &report, "loss/policy").is_finite());
                assert!((0.0..=1.0).contains(&value(&*algorithm, &report, "time/hidden")));
            }
        }
        assert!(updates > 20.0, "{env}: {updates} updates");
        assert!(report.episodes.count() > 0, "{env}");
    }
}

#[test]
fn mistakes_are_named() {
    let message = |env: &str, words: &[&str]| build(env, words).map(drop).unwrap_err().to_string();
    assert!(
        message("cartpole", &["network.activation=relu"]).contains("wanted connect4, 2048 or backgammon, got cartpole")
    );
    assert!(message("connect4", &["network.activation=tanh"]).contains("wanted relu"));
    assert!(message("connect4", &["network.hidden=[64,32]"]).contains("once per residual block"));
    assert!(
        message("connect4", &["alphazero.search.leaves=100"]).contains("alphazero.search.leaves = 100: wanted 1..=20")
    );
    assert!(message("connect4", &["alphazero.search.leavs=1"]).contains("did you mean"));
    assert!(message("backgammon", &["alphazero.td_lambda=0.9"]).contains("wanted 1 for backgammon"));
    let algorithm = build("connect4", &["num_envs=4"]).unwrap();
    assert!(algorithm.policy().unwrap_err().to_string().contains("--against"));
}

/// Scores from P. Pons's test set of endings.
#[test]
fn the_solver_knows_published_scores() {
    let mut solver = Solver::default();
    for (moves, score) in [
        ("2252576253462244111563365343671351441", -1),
        ("7422341735647741166133573473242566", 1),
        ("23163416124767223154467471272416755633", 0),
        ("65214673556155731566316327373221417", -1),
    ] {
        assert_eq!(solver.score(Board::from_moves(moves).unwrap()), score, "{moves}");
    }
}

/// Endings by looking at everything, and play that keeps what they are worth.
#[test]
fn the_solver_agrees_with_looking_at_everything() {
    fn brute(board: Board) -> i32 {
        let mut best = i32::MIN;
        for column in (0..7).filter(|&column| board.open(column)) {
            let after = board.put(column);
            let score = match operant::env::connect4::four(after.other()) {
                true => (43 - board.stones() as i32) / 2,
                false if after.stones() == 42 => 0,
                false => -brute(after),
            };
            best = best.max(score);
        }
        best
    }
    let mut solver = Solver::default();
    let mut looked = 0;
    for game in 0..4000 {
        let mut rng = HostRng::new(4, game, 0, 0);
        let mut board = Board::default();
        while board.stones() < 32 && !operant::env::connect4::four(board.other()) {
            let open: Vec<usize> = (0..7).filter(|&column| board.open(column)).collect();
            board = board.put(open[rng.below(open.len() as u32) as usize]);
        }
        if operant::env::connect4::four(board.other()) {
            continue;
        }
        let wanted = brute(board);
        assert_eq!((solver.score(board), solver.outcome(board)), (wanted, wanted.signum()));
        looked += 1;
    }
    assert!(looked > 20, "{looked}");
}

#[test]
fn perfect_play_wins_what_is_won() {
    let mut perfect = Perfect::default();
    let openings = won_openings(6, 16, 1, &mut perfect.solver);
    assert!(openings.len() == 6 && openings.iter().all(|opening| opening.state.stones() == 16));
    let results = between::<Connect4>(&mut perfect, &mut Random, &openings, 2).unwrap();
    assert!(results.iter().all(|played| played.points == 1.0));
    let mut out = Vec::new();
    perfect.choose(&[Board::from_moves("112233").unwrap()], &[HostRng::new(0, 0, 0, 0)], &mut out).unwrap();
    assert_eq!(out, [3]);
}

/// Replay by surprise draws other positions than even replay does: those whose values searches moved most.
#[test]
fn prioritised_replay_is_not_even() {
    let surprise = |priority: &str| {
        let words = [
            "threads=1",
            "num_envs=32",
            "network.hidden=[32]",
            "alphazero.search.simulations=32",
            "alphazero.search.leaves=2",
            "alphazero.learning_starts=500",
            "alphazero.batch_size=128",
            priority,
        ];
        let mut algorithm = build("connect4", &words).unwrap();
        let mut report = Report::new(algorithm.metrics().len());
        let (mut sum, mut count) = (0.0, 0.0);
        for _ in 0..12 {
            report.begin();
            algorithm.iterate(&mut report);
            if value(&*algorithm, &report, "updates") > 0.0 {
                sum += value(&*algorithm, &report, "surprise");
                count += 1.0;
            }
        }
        sum / count
    };
    let [even, half, all] = ["0.0", "0.5", "1.0"].map(|share| surprise(&format!("alphazero.priority={share}")));
    assert!((even - 1.0).abs() < 0.05, "{even}");
    // Drawn in proportion to x, the mean of x is E[x²]/E[x]², which is above 1 unless all are alike.
    assert!(half > 1.1 && all > half + 0.1, "{even} {half} {all}");
    assert!(build("connect4", &["alphazero.priority=1.5"]).is_err());
}

/// Value networks that ship with the program teach the residual one: its values come near theirs, and it plays well before it ever searched
/// to learn.
#[test]
fn a_teacher_saves_the_first_games() {
    const TEACHER: &str =
        concat!("alphazero.teacher=", env!("CARGO_MANIFEST_DIR"), "/../../models/backgammon.safetensors");
    let words = [
        TEACHER,
        "alphazero.pretrain=400",
        "threads=2",
        "num_envs=64",
        "network.hidden=[64,64]",
        "alphazero.search.simulations=8",
        "alphazero.search.leaves=1",
        "alphazero.learning_starts=1000",
        "alphazero.batch_size=256",
        "alphazero.pretrain_learning_rate=3e-3",
    ];
    let mut algorithm = build("backgammon", &words).unwrap();
    let mut report = Report::new(algorithm.metrics().len());
    let (mut errors, mut shares, mut note) = (Vec::new(), Vec::new(), None);
    while note.is_none() {
        report.begin();
        algorithm.iterate(&mut report);
        assert!(report.diverged.is_none() && report.failed.is_none());
        errors.extend(Some(value(&*algorithm, &report, "teacher_error")).filter(|error| error.is_finite()));
        shares.push(value(&*algorithm, &report, "pretrained"));
        assert!(algorithm.save().unwrap().contains_key("teacher.safetensors") != report.note.is_some());
        note = report.note.take();
    }
    assert!(shares.is_sorted() && shares.last() == Some(&1.0), "{shares:?}");
    // The first games are still in their openings, where nobody is far ahead: the error rises at first.
    let (worst, last) = (errors.iter().copied().fold(0.0, f64::max), errors[errors.len() - 1]);
    assert!(worst > 0.5 && last < 0.4 * worst, "{errors:?}");
    let network = &algorithm.save().unwrap()["network.safetensors"];
    let settings = mcts::Settings { simulations: 16, ..mcts::Settings::default() };
    let mut taught = Searcher::<Backgammon>::new("taught", network, &settings, &Options::default()).unwrap();
    let games = between(&mut taught, &mut Random, &from_start::<Backgammon>(60), 5).unwrap();
    let points = games.iter().map(|played| played.points).sum::<f32>() / 60.0;
    assert!(points > 1.2, "{points} points per game against random play");
    // Now by search.
    report.begin();
    algorithm.iterate(&mut report);
    assert!(value(&*algorithm, &report, "evals") > 1.0 && value(&*algorithm, &report, "pretrained").is_nan());

    let message = |env: &str, words: &[&str]| build(env, words).map(drop).unwrap_err().to_string();
    assert!(message("connect4", &[TEACHER]).contains("connect4 has none; wanted backgammon"));
    assert!(message("backgammon", &[TEACHER, "steps=1000"]).contains("wanted fewer batches, or more steps than 1000"));
    // A teacher that is gone stops a run that needs it, with its name.
    let mut lost = build("backgammon", &["alphazero.teacher=gone.safetensors"]).unwrap();
    lost.iterate(&mut report);
    let reason = report.failed.take().unwrap();
    assert!(reason.contains("gone.safetensors") && lost.steps() == 0, "{reason}");
}

/// Players keep the weights that they have while a learner is spoiled, and a checkpoint holds both.
#[test]
fn worse_weights_do_not_play() {
    let words = |more: &'static str| {
        let own = ["threads=1", "num_envs=32", "network.hidden=[32]", "alphazero.anneal_lr=false", more];
        let gate = ["alphazero.gate=loss", "alphazero.held_back=100", "alphazero.gate_margin=0.02"];
        let search = ["alphazero.search.simulations=16", "alphazero.search.leaves=2"];
        let learning = ["alphazero.learning_starts=200", "alphazero.batch_size=128"];
        [&own[..], &gate, &search, &learning].concat()
    };
    let mut good = build("connect4", &words("alphazero.learning_rate=1e-3")).unwrap();
    let mut report = Report::new(good.metrics().len());
    let iterate = |algorithm: &mut dyn Algorithm, report: &mut Report| {
        report.begin();
        algorithm.iterate(report);
        (value(algorithm, report, "promoted"), value(algorithm, report, "loss/held_back"))
    };
    let (mut promoted, mut losses) = (0.0, Vec::new());
    for _ in 0..16 {
        let (up, loss) = iterate(&mut *good, &mut report);
        promoted += if up.is_finite() { up } else { 0.0 };
        losses.extend(Some(loss).filter(|loss| loss.is_finite()));
    }
    assert!(promoted > 5.0 && losses.len() > 3 && losses[losses.len() - 1] < losses[0], "{promoted} {losses:?}");
    let saved = good.save().unwrap();
    let mut spoiled = build("connect4", &words("alphazero.learning_rate=3")).unwrap();
    spoiled.load(&saved).unwrap();
    for _ in 0..3 {
        assert_eq!(iterate(&mut *spoiled, &mut report), (0.0, losses[losses.len() - 1]));
        // Weights of that size need not be finite: they are not in use either.
        if let Some(reason) = report.diverged.take() {
            assert!(reason.contains(" is not finite, first in \""), "{reason}");
        }
    }
    let after = spoiled.save().unwrap();
    assert!(after["network.safetensors"] == saved["network.safetensors"]);
    assert!(after["learning.safetensors"] != saved["learning.safetensors"]);
    assert!(!build("connect4", &["num_envs=4"]).unwrap().save().unwrap().contains_key("gate.bin"));
    let refused = build("connect4", &["alphazero.gate=loss", "alphazero.publish_every=3"]).map(drop).unwrap_err();
    assert!(refused.to_string().contains("wanted 0 with a gate"), "{refused}");
}
