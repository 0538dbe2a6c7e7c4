//! The cube, the score and what they make of a game: rules, worths, files with doubles in them.

use operant::env::backgammon::{
    BAR, Decision, Doubled, Match, Outcome, Phase, Plays, Position, ROLLS, Record, Side, Stakes, Turn, from_mat, roll,
    to_mat, to_sgf,
};
use operant::lanes::rng::HostRng;
use operant::search::backgammon::{Advice, Cubeful, EFFICIENCY, MatchEquity, efficiency};

fn side(checkers: &[(usize, u8)]) -> Side {
    let mut counts = [0; BAR + 1];
    checkers.iter().for_each(|&(place, count)| counts[place] = count);
    Side::new(&counts).unwrap()
}

/// Chances without gammons.
fn single(win: f32) -> Outcome {
    Outcome { win, ..Outcome::default() }
}

/// A match to 25 in which the players need so many points, with a cube in the middle.
fn away(own: u16, other: u16, crawford: bool) -> Stakes {
    Stakes { scores: [25 - own, 25 - other], crawford, ..Stakes::match_to(25).unwrap() }
}

/// A game in which the player on roll has borne off all but one checker, and the other none.
fn nearly_won(stakes: Stakes) -> Match {
    let position = Position { mover: side(&[(1, 1)]), other: side(&[(13, 10), (6, 5)]) };
    Match::at(stakes, position, 0, None)
}

fn win_now(state: Match) -> Match {
    let state = if state.phase == Phase::Cube { state.after(Decision::Roll).unwrap() } else { state };
    let state = state.rolled([2, 1]).unwrap();
    let (mut plays, mut all) = (Plays::default(), Vec::new());
    state.decisions(&mut plays, &mut all);
    state.after(all[0]).unwrap()
}

#[test]
fn the_cube_goes_from_hand_to_hand() {
    let money = Stakes::money(false);
    let first = Match::begin(money, 1);
    // Nobody doubles before the opening roll, which is no double.
    assert_eq!((first.phase, first.who(), first.can_double()), (Phase::Roll, None, false));
    assert!(first.after(Decision::Double).unwrap_err().to_string().contains("wanted the dice first"));
    assert!(first.rolled([3, 3]).unwrap_err().to_string().contains("that differ"));
    let state = nearly_won(money);
    assert_eq!((state.phase, state.who()), (Phase::Cube, Some(0)));
    let offered = state.after(Decision::Double).unwrap();
    assert_eq!((offered.phase, offered.who()), (Phase::Offered, Some(1)));
    assert!(offered.after(Decision::Roll).unwrap_err().to_string().contains("wanted a take or a drop"));
    let dropped = offered.after(Decision::Drop).unwrap().won().unwrap();
    assert_eq!((dropped.player, dropped.points, dropped.by), (0, 1, None));
    let taken = offered.after(Decision::Take).unwrap();
    assert_eq!((taken.stakes.cube, taken.stakes.owner, taken.phase), (2, Some(1), Phase::Roll));
    assert!(taken.stakes.may_double(1) && !taken.stakes.may_double(0));
    let won = win_now(taken).won().unwrap();
    assert_eq!((won.player, won.points), (0, 4), "a gammon with the cube at 2");
    // Without a double a gammon counts once under Jacoby's rule, twice with a cube that was turned.
    let points = |stakes: Stakes, double: bool| {
        let state = nearly_won(stakes);
        let state = match double {
            true => state.after(Decision::Double).unwrap().after(Decision::Take).unwrap(),
            false => state,
        };
        win_now(state).won().unwrap().points
    };
    let jacoby = Stakes::money(true);
    assert_eq!([points(jacoby, false), points(jacoby, true), points(money, false)], [1, 4, 2]);
    // Matches know no such rule.
    assert_eq!(points(Stakes { jacoby: true, ..away(9, 9, false) }, false), 2);
}

#[test]
fn matches_have_one_crawford_game_and_an_end() {
    let start = Stakes::match_to(5).unwrap();
    let close = start.next(0, 4).unwrap();
    assert_eq!((close.scores, close.crawford, close.cube), ([4, 0], true, 1));
    assert_eq!(nearly_won(close).phase, Phase::Roll, "no double in the Crawford game");
    assert!(!close.may_double(1));
    let after = close.next(1, 2).unwrap();
    assert_eq!((after.scores, after.crawford), ([4, 2], false));
    assert!(after.may_double(1));
    // For the leader the cube is dead: one point is enough.
    assert_eq!(nearly_won(after).phase, Phase::Roll);
    assert!(Match::at(after, Position::START, 1, None).can_double());
    assert_eq!(after.next(1, 2).unwrap().scores, [4, 4]);
    assert!(!after.next(1, 2).unwrap().crawford);
    assert_eq!(after.next(0, 1), None);
    assert!(Stakes::match_to(1).unwrap().crawford);
    assert!(Stakes::match_to(65).unwrap_err().to_string().contains("wanted 1..=64"));
    let wrong = |stakes: Stakes| stakes.check().unwrap_err().to_string();
    assert!(wrong(Stakes { scores: [5, 0], ..start }).contains("it is over"));
    assert!(wrong(Stakes { cube: 2, ..start }).contains("nobody owns"));
    for stakes in [start, Stakes::money(false), Stakes { cube: 2, owner: Some(0), ..close }] {
        assert!(wrong(Stakes { crawford: true, ..stakes }).contains("wanted a player one point away"));
    }
    // Who chose to roll can't double any more.
    let rolls = nearly_won(start).after(Decision::Roll).unwrap();
    assert!(rolls.after(Decision::Double).is_err());
    // At 3 away, a cube of 4 does nothing more.
    let dead = Stakes { cube: 4, owner: Some(0), ..away(3, 9, false) };
    assert!(dead.is_dead(0, 4) && !dead.is_dead(1, 4) && dead.may_double(0) && !nearly_won(dead).can_double());
}

#[test]
fn match_equities_are_those_of_the_books() {
    let table = MatchEquity::get();
    for own in 1..=64 {
        for other in 1..=64 {
            let chance = table.before_crawford(own, other);
            assert!((chance + table.before_crawford(other, own) - 1.0).abs() < 1e-12);
            if other > 1 {
                assert!(chance >= table.before_crawford(own, other - 1) - 1e-9, "{own} away against {other}");
            }
        }
    }
    // Published tables differ by a percent or two among themselves.
    for (own, other, book) in [
        (1, 2, 0.68),
        (1, 3, 0.75),
        (1, 5, 0.84),
        (2, 3, 0.60),
        (2, 4, 0.67),
        (3, 5, 0.65),
        (5, 7, 0.62),
        (7, 11, 0.70),
    ] {
        let chance = table.before_crawford(own, other);
        assert!((chance - book).abs() < 0.02, "{own} away against {other}: {chance}");
    }
    assert!((table.after_crawford(3) - 0.68).abs() < 0.03 && (table.after_crawford(2) - 0.5).abs() < 0.02);
}

/// The smallest chance with which a double is taken.
fn take_point(stakes: Stakes, efficiency: f64) -> f64 {
    let takes = |win: f32| Cubeful::new(single(1.0 - win), stakes, 0, efficiency).choice().takes();
    let (mut low, mut high) = (0.0_f32, 1.0);
    for _ in 0..30 {
        let middle = 0.5 * (low + high);
        if takes(middle) { high = middle } else { low = middle }
    }
    f64::from(high)
}

#[test]
fn money_take_points_are_janowskis() {
    let money = Stakes::money(false);
    assert!((take_point(money, 0.0) - 0.25).abs() < 1e-4);
    assert!((take_point(money, 1.0) - 0.20).abs() < 1e-4);
    assert!((take_point(money, EFFICIENCY) - 0.5 / (2.0 + 0.5 * EFFICIENCY)).abs() < 1e-4, "21.4 %");
    // With gammons: W and L are what a won and a lost game are worth.
    for efficiency in [0.0, 0.5, EFFICIENCY, 1.0] {
        let outcome = Outcome { win: 0.6, win_gammon: 0.18, lose_gammon: 0.04, ..Outcome::default() };
        let (p, w, l) = (0.6, 1.3, 1.1);
        let worth =
            |owner: Option<u8>, cube| Cubeful::new(outcome, Stakes { owner, cube, ..money }, 0, efficiency).no_double();
        let owned = 2.0 * (p * (w + l + 0.5 * efficiency) - l);
        assert!((worth(Some(0), 2) - owned).abs() < 1e-4, "{efficiency}");
        let other = 2.0 * (p * (w + l + 0.5 * efficiency) - l - 0.5 * efficiency);
        assert!((worth(Some(1), 2) - other).abs() < 1e-4, "{efficiency}");
        let live = 4.0 / 3.0 * (p * (w + l + 0.5) - l - 0.25);
        let middle = efficiency * live + (1.0 - efficiency) * (p * (w + l) - l);
        assert!((worth(None, 1) - middle).abs() < 1e-4, "{efficiency}");
    }
    // Under Jacoby's rule there is a reason to double that no gammon chances give otherwise.
    let gammons = Outcome { win: 0.75, win_gammon: 0.6, ..Outcome::default() };
    let advice = |stakes: Stakes| Cubeful::new(gammons, stakes, 0, EFFICIENCY).choice().advice;
    assert_eq!((advice(money), advice(Stakes::money(true))), (Advice::TooGood, Advice::DoubleDrop));
    assert_eq!(Cubeful::new(single(0.5), money, 0, EFFICIENCY).choice().advice, Advice::NoDouble);
    assert_eq!(Cubeful::new(single(0.75), money, 0, EFFICIENCY).choice().advice, Advice::DoubleTake);
    assert_eq!(Cubeful::new(single(0.85), money, 0, EFFICIENCY).choice().advice, Advice::DoubleDrop);
}

/// GNU Backgammon 1.07, 0-ply, says of the beginning with these chances: no double +0.092, double and take −0.191, for money and at 5 away
/// each.
#[test]
fn the_beginning_is_worth_what_gnubg_says() {
    let outcome = Outcome::from_array([0.521, 0.154, 0.008, 0.130, 0.008]);
    for stakes in [Stakes::money(false), Stakes::match_to(5).unwrap()] {
        let cubeful = Cubeful::new(outcome, stakes, 0, EFFICIENCY);
        let choice = cubeful.choice();
        let [waits, doubles] = [choice.no_double, choice.take].map(|worth| cubeful.equity(worth));
        assert!((waits - 0.092).abs() < 0.005 && (doubles + 0.191).abs() < 0.01, "{waits} {doubles}");
    }
}

#[test]
fn what_one_wins_the_other_loses() {
    let mut rng = HostRng::new(5, 0, 0, 0);
    for _ in 0..2000 {
        let win = rng.unit();
        let (won, lost) = (win * rng.unit(), (1.0 - win) * rng.unit());
        let outcome = Outcome::from_array([win, won, won * rng.unit(), lost, lost * rng.unit()]);
        let length = [0, 1, 3, 7, 15][rng.below(5) as usize];
        let mut stakes = if length == 0 { Stakes::money(rng.below(2) == 0) } else { Stakes::match_to(length).unwrap() };
        if length > 0 {
            stakes.scores = [0; 2].map(|_: u16| rng.below(u32::from(length)) as u16);
            let close = stakes.scores.iter().any(|&score| score + 1 == length);
            stakes.crawford = close && rng.below(2) == 0;
        }
        if !stakes.crawford && rng.below(2) == 0 {
            (stakes.cube, stakes.owner) = (2 << rng.below(3), Some(rng.below(2) as u8));
        }
        let sum = if length == 0 { 0.0 } else { 1.0 };
        for efficiency in [0.0, EFFICIENCY, 1.0] {
            let [one, two] = [(outcome, 0), (outcome.swapped(), 1)]
                .map(|(outcome, player)| Cubeful::new(outcome, stakes, player, efficiency).no_double());
            assert!((one + two - sum).abs() < 1e-5, "{outcome:?} {stakes:?}: {one} and {two}");
        }
        let cubeful = Cubeful::new(outcome, stakes, 0, EFFICIENCY);
        let choice = cubeful.choice();
        assert!(
            cubeful.on_roll() >= choice.no_double - 1e-9 && [choice.take, choice.drop].iter().all(|x| x.is_finite())
        );
        // A win is worth 1 of the cube, a loss −1.
        let sure = |win: f32| Cubeful::new(single(win), stakes, 0, 0.0);
        let [won, lost] = [1.0, 0.0].map(|win| sure(win).equity(sure(win).no_double()));
        assert!((won - 1.0).abs() < 1e-6 && (lost + 1.0).abs() < 1e-6, "{stakes:?}: {won} {lost}");
    }
}

#[test]
fn scores_change_what_is_right() {
    let choice = |win: f32, stakes: Stakes| Cubeful::new(single(win), stakes, 0, EFFICIENCY).choice();
    // 2 away each: the cube is the last one; to double costs nothing, whoever is ahead, as long as it is taken.
    for win in [0.35, 0.45, 0.5, 0.6, 0.65] {
        assert_eq!(choice(win, away(2, 2, false)).advice, Advice::DoubleTake, "{win}");
    }
    assert_eq!(choice(0.75, away(2, 2, false)).advice, Advice::DoubleDrop);
    // After the Crawford game the one who is behind doubles at once; the leader's cube is dead.
    for (needs, win) in [(2, 0.3), (3, 0.2), (4, 0.4), (7, 0.1)] {
        assert!(choice(win, away(needs, 1, false)).doubles(), "{needs} away");
    }
    assert!(!Cubeful::new(single(0.7), away(1, 4, false), 0, EFFICIENCY).can_double());
    assert!(!Cubeful::new(single(0.7), away(4, 1, true), 0, EFFICIENCY).can_double());
    // At 3 away against 2 the trailer turns the cube earlier than for money, for the leader's is dead at once.
    let window = |stakes: Stakes| (1..100).find(|&percent| choice(percent as f32 / 100.0, stakes).doubles());
    assert!(window(away(3, 2, false)) < window(Stakes::money(false)));
    // A gammon that wins the match makes a double of the trailer dangerous to take.
    let gammons = |stakes| {
        let outcome = Outcome { win: 0.7, win_gammon: 0.3, lose_gammon: 0.05, ..Outcome::default() };
        Cubeful::new(outcome, stakes, 0, EFFICIENCY).choice()
    };
    assert!(!gammons(away(4, 4, false)).takes() && choice(0.7, away(4, 4, false)).takes());
}

/// The chance to win by the dice of one roll, for who bears off all checkers or loses.
fn last_roll(position: Position) -> f64 {
    let (mut plays, mut ways) = (Plays::default(), 0);
    for dice in ROLLS {
        plays.find(position, dice);
        let all_off = plays.iter().any(|play| play.result(position).lost().is_some());
        // A double is one of 36 throws, another roll two.
        ways += if all_off { 1 + u32::from(dice[0] != dice[1]) } else { 0 };
    }
    f64::from(ways) / 36.0
}

/// Where the opponent bears off for certain in the next roll, all is decided by one roll: nothing is left to estimate.
#[test]
fn last_rolls_are_exact() {
    let mut looked = Vec::new();
    for (a, b) in (1..=6).flat_map(|a| (0..=a).map(move |b| (a, b))) {
        let mut checkers = vec![(a, 1)];
        match b {
            0 => {}
            b if b == a => checkers[0].1 = 2,
            b => checkers.push((b, 1)),
        }
        let position = Position { mover: side(&checkers), other: side(&[(1, 1)]) };
        let win = last_roll(position);
        assert_eq!(efficiency(position), 0.0);
        let choice = Cubeful::new(single(win as f32), Stakes::money(false), 0, efficiency(position)).choice();
        let equity = 2.0 * win - 1.0;
        assert!((choice.no_double - equity).abs() < 1e-6 && (choice.take - 2.0 * equity).abs() < 1e-6);
        let wanted = match win {
            win if win < 0.5 => Advice::NoDouble,
            win if win <= 0.75 => Advice::DoubleTake,
            _ => Advice::DoubleDrop,
        };
        looked.push(wanted);
        assert_eq!(choice.advice, wanted, "{checkers:?}: {win}");
    }
    for advice in [Advice::NoDouble, Advice::DoubleTake, Advice::DoubleDrop] {
        assert!(looked.iter().filter(|&&other| other == advice).count() > 2, "{advice:?} in {looked:?}");
    }
    assert_eq!(efficiency(Position::START), EFFICIENCY);
    // Two checkers far out may stay: the game may go on.
    let position = Position { mover: side(&[(6, 2)]), other: side(&[(6, 1), (5, 1)]) };
    assert_eq!(efficiency(position), EFFICIENCY);
    // Two on the ace point are gone after any roll; three may take two rolls.
    for (checkers, wanted) in [(2, 0.0), (3, EFFICIENCY), (4, EFFICIENCY)] {
        let position = Position { mover: side(&[(1, 6)]), other: side(&[(1, checkers)]) };
        assert_eq!(efficiency(position), wanted, "{checkers}");
    }
}

/// Games with a cube that is turned at random.
fn random_match(seed: u64, stakes: Stakes, most: usize) -> Vec<Record> {
    let (mut records, mut plays, mut all) = (Vec::new(), Plays::default(), Vec::new());
    let mut next = Some(stakes);
    while let Some(stakes) = next.filter(|_| records.len() < most) {
        let mut rng = HostRng::new(seed, records.len() as u32, 0, 0);
        let first = rng.below(2) as u8;
        let mut state = Match::begin(stakes, first);
        let mut record = Record { stakes, with_cube: true, first: usize::from(first), ..Record::default() };
        while state.won().is_none() {
            if state.phase == Phase::Roll {
                state = state.rolled(roll(&mut rng, state.board.first)).unwrap();
                continue;
            }
            state.decisions(&mut plays, &mut all);
            let turn = record.turns.len();
            let pick = match state.phase {
                Phase::Cube => usize::from(rng.below(12) == 0),
                Phase::Offered => usize::from(rng.below(5) == 0),
                _ => rng.below(all.len() as u32) as usize,
            };
            match all[pick] {
                Decision::Take => record.doubles.push(Doubled { turn, taken: true }),
                Decision::Drop => record.doubles.push(Doubled { turn, taken: false }),
                Decision::Play(play) => record.turns.push(Turn { dice: state.board.dice, play }),
                Decision::Roll | Decision::Double => {}
            }
            state = state.after(all[pick]).unwrap();
        }
        assert_eq!(record.result(), state.won());
        next = state.next_stakes();
        records.push(record);
    }
    records
}

#[test]
fn files_keep_doubles_and_scores() {
    for (seed, length, jacoby) in [(1, 0, false), (5, 0, true), (2, 3, false), (3, 9, false), (4, 25, false)] {
        let stakes = if length == 0 { Stakes::money(jacoby) } else { Stakes::match_to(length).unwrap() };
        let records = random_match(seed, stakes, 40);
        let text = to_mat(&records, ["one", "two"]);
        assert_eq!(from_mat(&text).unwrap(), records, "{text}");
        let over = length > 0;
        let begins = if jacoby { "; [Jacoby \"On\"]\n" } else { "" };
        assert!(
            text.starts_with(&format!("{begins} {length} point match\n")) && text.contains("and the match") == over
        );
        let sgf = to_sgf(&records, ["one", "two"]);
        let doubles: usize = records.iter().map(|record| record.doubles.len()).sum();
        assert!(sgf.matches("[double]").count() == doubles && doubles > 0);
        assert_eq!(sgf.matches("[take]").count() + sgf.matches("[drop]").count(), doubles);
        let crawford = records.iter().filter(|record| record.stakes.crawford).count();
        assert!(sgf.matches("CrawfordGame").count() == crawford && crawford <= 1);
    }
    let game = |rows: &str| from_mat(&format!(" 0 point match\n\n Game 1\n one : 0    two : 0\n{rows}\n"));
    for (rows, what) in [
        ("  1) 31: 8/5 6/5    Doubles => 4", "wanted a cube of 2"),
        ("  1) 31: 8/5 6/5    Takes", "wanted a double or a roll"),
        ("  1) 31: 8/5 6/5    Doubles => 2\n  2) 52: 13/8 13/11", "wanted Takes or Drops"),
        ("  1)  Doubles => 2", "wanted the dice first"),
    ] {
        let message = game(rows).expect_err(rows).to_string();
        assert!(message.contains(what), "{message}");
    }
    // Who took owns the cube.
    let rows = "  1) 31: 8/5 6/5                      Doubles => 2\n  2)  Takes                           52: 13/8 13/11\n  3)  Doubles => 4                        Drops";
    let record = &game(rows).unwrap()[0];
    let won = record.result().unwrap();
    assert_eq!((won.player, won.points, record.turns.len()), (0, 2, 2));
    assert_eq!(record.doubles, [Doubled { turn: 1, taken: true }, Doubled { turn: 2, taken: false }]);
}
