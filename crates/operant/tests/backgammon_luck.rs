//! Luck of rolls and of games: 0 on average in every position, by the evaluator's best plays alone, and most of a result's spread.

use operant::env::backgammon::{BAR, Match, Plays, Position, ROLLS, Record, Side, Stakes, roll};
use operant::lanes::rng::HostRng;
use operant::nn::{Act, Options, Precision};
use operant::search::backgammon::{
    BackgammonFile, BackgammonNet, ByValue, Depth, Evaluator, Luck, RuleOfThumb, alone, contest, luck_of_games,
    mean_of_pairs, play_session,
};
use operant::search::versus::Random;

/// Networks that have learned nothing: quick, and luck is 0 on average by any values.
fn quick() -> Evaluator {
    let net = BackgammonNet { hidden: 8, activation: Act::Relu };
    Evaluator::new(&net, &net.params(3).unwrap(), &Options::default()).unwrap()
}

/// The networks that come with the program, on AMX tiles where the machine has them: in a debug build products of f32 take nine tenths of the
/// time.
fn shipped() -> Evaluator {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/backgammon.safetensors");
    let (net, weights) = BackgammonFile::from_bytes(&std::fs::read(path).unwrap()).unwrap();
    Evaluator::new(&net, &weights, &Options { precision: Precision::Bf16, ..Options::default() }).unwrap()
}

/// All positions before a roll of some games of random plays, which last long and see everything.
fn positions(games: u32) -> Vec<Position> {
    let (mut found, mut plays) = (Vec::new(), Plays::default());
    for game in 0..games {
        let mut position = Position::START;
        for turn in 0.. {
            if position.lost().is_some() {
                break;
            }
            found.push(position);
            let mut rng = HostRng::new(5, game, 0, turn);
            plays.find(position, roll(&mut rng, turn == 0));
            position = plays[rng.below(plays.len() as u32) as usize].result(position);
        }
    }
    found
}

fn side(counts: &[(usize, u8)]) -> Side {
    let mut all = [0; BAR + 1];
    counts.iter().for_each(|&(place, count)| all[place] = count);
    Side::new(&all).expect("at most fifteen")
}

/// Chances by counting: a double is one of 36 throws, any other roll two; when a game begins, none and two of 30.
fn mean(luck: &[f64; 21], first_turn: bool) -> f64 {
    let throws = |[a, b]: [u8; 2]| if a != b { 2.0 } else { f64::from(u8::from(!first_turn)) };
    let all: f64 = ROLLS.map(throws).iter().sum();
    assert_eq!(all, if first_turn { 30.0 } else { 36.0 });
    ROLLS.iter().zip(luck).map(|(&dice, luck)| throws(dice) * luck).sum::<f64>() / all
}

#[test]
fn luck_is_zero_on_average_in_every_position() {
    let mut luck = Luck::new(quick());
    let closed = side(&[(1, 2), (2, 2), (3, 2), (4, 2), (5, 2), (6, 2), (7, 2), (8, 1)]);
    let mut all: Vec<Position> = positions(6).into_iter().step_by(3).collect();
    all.extend([
        // Nothing can be played, whatever is rolled: no roll is luckier than another.
        Position { mover: side(&[(BAR, 1), (6, 5), (8, 3), (13, 5)]), other: closed },
        // The game ends with this roll or with the next one; only a double ends it; a gammon is still to be won.
        Position { mover: side(&[(1, 1)]), other: side(&[(1, 1)]) },
        Position { mover: side(&[(6, 1), (5, 1)]), other: side(&[(3, 2)]) },
        Position { mover: side(&[(1, 4)]), other: side(&[(2, 1), (1, 1)]) },
        Position { mover: side(&[(2, 2)]), other: side(&[(6, 5), (7, 5), (20, 5)]) },
    ]);
    let seen = |what: &str, holds: &dyn Fn(&Position) -> bool| {
        assert!(all.iter().filter(|position| holds(position)).count() > 1, "no position {what}");
    };
    seen("with a checker on the bar", &|position| position.mover.count(BAR) > 0);
    seen("with checkers borne off", &|position| position.mover.off() > 0 && position.other.off() > 0);
    seen("of races", &|position| !position.contact());
    let score = Stakes { scores: [1, 3], ..Stakes::match_to(5).unwrap() };
    let of_stakes = [Stakes::money(false), Stakes::money(true).doubled(0), Stakes::default().doubled(1), score];
    for (number, &position) in all.iter().enumerate() {
        for first_turn in [false, true] {
            let of_rolls = luck.of_rolls(position, first_turn);
            assert!(mean(&of_rolls, first_turn).abs() < 1e-7, "{position:?}: {of_rolls:?}");
        }
        let state = Match::at(of_stakes[number % 4], position, (number / 4 % 2) as u8, None);
        let of_rolls = luck.of_rolls_in(&state);
        assert!(mean(&of_rolls, false).abs() < 1e-6, "{state:?}: {of_rolls:?}");
    }
    let passed = luck.of_rolls(all[all.len() - 5], false);
    assert!(passed.iter().all(|luck| luck.abs() < 1e-6), "{passed:?}");
    // Whoever rolls bears off the last checker: it is no luck to win a game that is won.
    assert!(luck.of_rolls(all[all.len() - 4], false).iter().all(|luck| luck.abs() < 1e-6));
    let only_doubles = luck.of_rolls(all[all.len() - 2], false);
    assert!(ROLLS.iter().zip(only_doubles).all(|([a, b], luck)| (a == b) == (luck > 0.0)), "{only_doubles:?}");
}

/// The definition, play by play.
#[test]
fn luck_is_of_the_best_play_and_of_nothing_that_was_played() {
    let (mut evaluator, mut plays) = (quick(), Plays::default());
    let mut luck = Luck::new(evaluator.fork());
    for position in positions(2).into_iter().step_by(40) {
        let worth: Vec<f64> = (ROLLS.into_iter())
            .map(|dice| {
                plays.find(position, dice);
                let after = plays.iter().map(|play| -evaluator.value(play.result(position)).equity());
                f64::from(after.fold(f32::NEG_INFINITY, f32::max))
            })
            .collect();
        let worth: [f64; 21] = worth.try_into().unwrap();
        for first_turn in [false, true] {
            for ((luck, dice), worth_of_roll) in luck.of_rolls(position, first_turn).iter().zip(ROLLS).zip(worth) {
                let wanted = worth_of_roll - mean(&worth, first_turn);
                assert!((luck - wanted).abs() < 1e-5, "{position:?} {dice:?}: {luck}, wanted {wanted}");
            }
        }
    }
    // Same dice, other plays: the first roll's luck is the same, whatever was made of it.
    let (_, games) = contest(&mut Random, &mut RuleOfThumb, 2, 3).unwrap();
    let first: Vec<Record> =
        games.iter().map(|game| Record { turns: game.turns[..1].to_vec(), ..game.clone() }).collect();
    assert_ne!(first[0].turns[0].play, first[1].turns[0].play);
    assert_eq!(luck.of_game(&first[0]).unwrap(), -luck.of_game(&first[1]).unwrap());
}

/// Games of each test that plays: fewer where a debug build multiplies slowly.
fn games() -> usize {
    if Precision::Bf16.served().1.is_none() { 60 } else { 24 }
}

/// Spread of single numbers, whose pairs are not independent.
fn deviation(list: &[f64]) -> f64 {
    let mean = list.iter().sum::<f64>() / list.len() as f64;
    (list.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (list.len() - 1) as f64).sqrt()
}

/// Results of the first player less luck. Luck must be nothing on average, and so often the rest's spread that of results, at least.
fn less_luck(what: &str, results: &[f64], luck: &[f64], times: f64) -> Vec<f64> {
    let (mean, error) = mean_of_pairs(luck);
    assert!(mean.abs() < 4.0 * error, "{what}: luck {mean} ± {error}");
    let rest: Vec<f64> = results.iter().zip(luck).map(|(result, luck)| result - luck).collect();
    let [(mean, error), (mean_of_rest, error_of_rest)] = [results, &rest].map(mean_of_pairs);
    let [spread, spread_of_rest] = [results, &rest].map(deviation);
    println!(
        "{what}: {mean:+.3} ± {error:.3}, adjusted {mean_of_rest:+.3} ± {error_of_rest:.3}; deviation {spread:.3}, \
         adjusted {spread_of_rest:.3}"
    );
    assert!((mean - mean_of_rest).abs() < 4.0 * error.hypot(error_of_rest), "{what}: {mean} and {mean_of_rest}");
    assert!(spread_of_rest * times < spread, "{what}: {spread_of_rest} of {spread}");
    rest
}

/// Points of a game, as player 0 has them.
fn points(game: &Record) -> f64 {
    let won = game.result().expect("played to its end");
    if won.player == 0 { f64::from(won.points) } else { -f64::from(won.points) }
}

#[test]
fn results_less_luck_have_the_same_mean_and_less_spread() {
    let evaluator = shipped();
    let mut network = ByValue::new("network", evaluator.fork(), Depth::One);
    let (score, games) = contest(&mut network, &mut RuleOfThumb, games(), 11).unwrap();
    let luck = luck_of_games(&evaluator, &games, 2).unwrap();
    assert_eq!(luck[..2], luck_of_games(&evaluator, &games[..2], 1).unwrap(), "any number of threads");
    let results: Vec<f64> = games.iter().map(points).collect();
    assert!(results.iter().zip(&score.points).all(|(result, &points)| *result == f64::from(points)));
    less_luck("against rules of thumb", &results, &luck, 1.5);
    // The other one first: the same games, lost where they were won.
    let (swapped, games) = contest(&mut RuleOfThumb, &mut network, 4, 11).unwrap();
    let luck_of_other = luck_of_games(&evaluator, &games, 2).unwrap();
    for pair in [0, 2] {
        assert_eq!((swapped.points[pair], swapped.points[pair + 1]), (-score.points[pair + 1], -score.points[pair]));
        assert_eq!((luck_of_other[pair], luck_of_other[pair + 1]), (-luck[pair + 1], -luck[pair]));
    }
}

/// Between players who play as well as the evaluator judges, little but luck decides, with the cube too.
#[test]
fn luck_is_most_of_what_even_players_win_by() {
    let evaluator = shipped();
    let player = || ByValue::new("network", evaluator.fork(), Depth::One);
    let count = games();
    let games = alone(&mut player(), count, 2).unwrap();
    let luck = luck_of_games(&evaluator, &games, 2).unwrap();
    less_luck("alone", &games.iter().map(points).collect::<Vec<_>>(), &luck, 2.5);
    // Every second session: those between have the same dice.
    let sessions = |stakes: Stakes, most_games: usize, count: u32| -> Vec<Vec<Record>> {
        let play = |session| play_session([&mut player(), &mut player()], stakes, most_games, 3, 2 * session).unwrap();
        (0..count).map(play).collect()
    };
    let games = sessions(Stakes::money(false), 1, count as u32).concat();
    let luck = luck_of_games(&evaluator, &games, 2).unwrap();
    less_luck("with the cube", &games.iter().map(points).collect::<Vec<_>>(), &luck, 1.5);
    let matches = sessions(Stakes::match_to(2).unwrap(), usize::MAX, count as u32 / 2);
    let won: Vec<f64> =
        matches.iter().map(|games| f64::from(u8::from(points(&games[games.len() - 1]) > 0.0))).collect();
    let luck: Vec<f64> =
        matches.iter().map(|games| luck_of_games(&evaluator, games, 2).unwrap().iter().sum()).collect();
    less_luck("matches", &won, &luck, 1.5);
}
