//! What networks see of backgammon, exact endings, players that look ahead, records of games.

use operant::env::backgammon::{
    BAR, Backgammon, Bearoff, CHECKERS, CONTACT_INPUTS, Outcome, Play, Plays, Points, Position, RACE_INPUTS, ROLLS,
    Side, State, chances, contact_inputs, ending, from_mat, race_inputs, roll, to_mat, to_sgf,
};
use operant::env::game::Game;
use operant::lanes::Backend;
use operant::lanes::rng::HostRng;
use operant::nn::{Act, Options};
use operant::search::backgammon::{
    BackgammonFile, BackgammonNet, ByValue, Depth, Evaluator, Kind, Leaves, RuleOfThumb, Score, Values, alone, contest,
};
use operant::search::mcts::{ChanceMode, Mcts, Settings};
use operant::search::versus::Random;
use std::sync::OnceLock;

/// Positions of games of random plays.
fn positions(seed: u64, wanted: usize) -> Vec<Position> {
    let mut found = Vec::new();
    let mut plays = Plays::default();
    for game in 0.. {
        let mut position = Position::START;
        for turn in 0.. {
            let mut rng = HostRng::new(seed, game, 0, turn);
            plays.find(position, roll(&mut rng, turn == 0));
            position = plays[rng.below(plays.len() as u32) as usize].result(position);
            if position.lost().is_some() {
                break;
            }
            found.push(position);
            if found.len() == wanted {
                return found;
            }
        }
    }
    found
}

fn side(counts: &[(usize, u8)]) -> Side {
    let mut all = [0; BAR + 1];
    counts.iter().for_each(|&(place, count)| all[place] = count);
    Side::new(&all).expect("at most fifteen")
}

/// Shots by brute force: every order of the dice, checker by checker. Rolls that hit, and the sum over rolls of the most pips taken.
fn shots(me: Side, foe: Side) -> (u32, u32) {
    fn walk(counts: [i32; 26], foe: Side, dice: &[usize], hits: &mut u32) {
        let Some((&die, rest)) = dice.split_first() else { return };
        let from: Vec<usize> = if counts[BAR] > 0 { vec![BAR] } else { (1..BAR).collect() };
        for place in from {
            if counts[place] == 0 || place <= die || foe.count(BAR - (place - die)) > 1 {
                continue;
            }
            let mut after = counts;
            after[place] -= 1;
            after[place - die] += 1;
            if foe.count(BAR - (place - die)) == 1 {
                *hits |= 1 << (place - die);
            }
            walk(after, foe, rest, hits);
        }
    }
    let counts = std::array::from_fn(|place| i32::from(me.count(place)));
    let (mut hitting, mut pips) = (0, 0);
    for a in 1..=6 {
        for b in 1..=6 {
            let mut hits = 0;
            if a == b {
                walk(counts, foe, &[a; 4], &mut hits);
            } else {
                walk(counts, foe, &[a, b], &mut hits);
                walk(counts, foe, &[b, a], &mut hits);
            }
            if hits != 0 {
                hitting += 1;
                pips += 31 - hits.leading_zeros();
            }
        }
    }
    (hitting, pips)
}

/// Where expert inputs begin, and those of the second side.
const EXPERT: usize = 96;
const SECOND: usize = CONTACT_INPUTS / 2;

#[test]
fn expert_inputs_are_what_they_say() {
    let close =
        |got: f32, wanted: f32, what: &str| assert!((got - wanted).abs() < 1e-4, "{what}: {got}, wanted {wanted}");
    for position in positions(1, 3000) {
        let mut out = vec![f32::NAN; CONTACT_INPUTS];
        contact_inputs(position, &mut out);
        assert!(out.iter().all(|x| x.is_finite() && (-2.0..=8.0).contains(x)), "{position:?}");
        for (me, foe, out) in
            [(position.mover, position.other, &out[..SECOND]), (position.other, position.mover, &out[SECOND..])]
        {
            for point in 1..BAR {
                let count = f32::from(me.count(point));
                let shown = &out[4 * (point - 1)..][..4];
                assert_eq!(shown[0] + 2.0 * shown[1] + shown[2] + 2.0 * shown[3], count, "checkers on {point}");
                assert_eq!(shown[0] == 1.0, count == 1.0, "a blot on {point}");
            }
            let x = &out[EXPERT..];
            close(x[50], me.pips() as f32 / 167.0, "pips");
            close(x[2] + x[3] + x[4], f32::from(me.off()) / 5.0, "borne off");
            close(x[0] + 2.0 * x[1], f32::from(me.count(BAR)), "on the bar");
            let (hitting, pips) = shots(me, foe);
            // With three or more on the bar a double may leave one there, whose further steps the input passes over.
            if me.count(BAR) < 3 {
                close(x[33], hitting as f32 / 36.0, "shots");
                close(x[35], pips as f32 / 432.0, "pips that shots take");
            }
            let free = |place: usize, by: usize| place <= by || foe.count(BAR - (place - by)) < 2;
            let escapes = |place: usize| {
                let ways = (1..=6).flat_map(|a| (1..=6).map(move |b| (a, b)));
                ways.filter(|&(a, b)| free(place, a + b) && (free(place, a) || free(place, b))).count() as f32
            };
            for place in 13..=BAR {
                close(x[5 + place - 13], 1.0 - escapes(place) / 36.0, "contained");
            }
            let rear = (1..=BAR).rev().find(|&place| me.count(place) > 0).expect("a checker");
            close(x[31], escapes(rear) / 36.0, "the last checker's escapes");
            let mobility: f32 =
                (7..=BAR).map(|place| f32::from(me.count(place)) * (place as f32 - 5.0) * escapes(place)).sum();
            close(x[32], mobility / 3600.0, "mobility");
            let made = |point: &usize| me.count(*point) > 1;
            close(x[56], (1..=6).filter(made).count() as f32 / 6.0, "home points");
            let run = (1..=24).map(|from| (from..=24).take_while(made).count()).max().unwrap_or(0);
            close(x[57], run as f32 / 6.0, "the longest prime");
            let on_bar = foe.count(BAR) > 0;
            close(x[38..44].iter().sum(), if on_bar { x[56] * 6.0 } else { 0.0 }, "home points against the bar");
            let mean = me.pips() as f32 / 15.0;
            let scatter: f32 =
                (0..=BAR).map(|place| f32::from(me.count(place)) * (place as f32 - mean) * (place as f32 - mean)).sum();
            assert!((x[62] - scatter / 1500.0).abs() < 1e-3, "scatter");
            let passed = BAR as i32 - (1..=BAR).rev().find(|&place| foe.count(place) > 0).unwrap_or(0) as i32;
            let behind: i32 = (1..=BAR).map(|place| i32::from(me.count(place)) * (place as i32 - passed).max(0)).sum();
            close(x[59], behind as f32 / 167.0, "pips until contact ends");
        }
    }
}

#[test]
fn races_are_told_from_contact_and_have_their_own_inputs() {
    let apart = Position { mover: side(&[(6, 5), (13, 2)]), other: side(&[(11, 3)]) };
    assert!(!apart.contact(), "13 and 25 - 11 = 14 have passed");
    let meeting = Position { mover: side(&[(6, 5), (15, 2)]), other: side(&[(11, 3)]) };
    assert!(meeting.contact());
    let mut out = vec![f32::NAN; RACE_INPUTS];
    race_inputs(apart, &mut out);
    assert!(out.iter().all(|x| x.is_finite()));
    // Eight borne off: the eighth of fourteen; pips by hundreds; quarters by thirties.
    let rest = &out[96..112];
    assert_eq!(rest.iter().position(|&x| x == 1.0), Some(7));
    assert!((rest[14] - 0.56).abs() < 1e-6 && (rest[15] - (5.0 + 2.0 * 3.0) / 30.0).abs() < 1e-6, "{rest:?}");
}

#[test]
fn a_batch_of_inputs_is_its_rows_on_every_instruction_set() {
    let found = positions(2, 500);
    for kind in Kind::ALL {
        let positions: Vec<Position> = found.iter().copied().filter(|&position| Kind::of(position) == kind).collect();
        assert!(positions.len() > 10);
        let mut rows = vec![f32::NAN; positions.len() * kind.inputs()];
        kind.write_inputs(Backend::fast(), &positions, &mut rows);
        for (&position, row) in positions.iter().zip(rows.chunks_exact(kind.inputs())) {
            let mut alone = vec![f32::NAN; kind.inputs()];
            match kind {
                Kind::Contact => contact_inputs(position, &mut alone),
                Kind::Race => race_inputs(position, &mut alone),
            }
            assert_eq!(alone, row);
        }
    }
}

#[test]
fn outcomes_are_cumulative_and_swap_sides() {
    let of = |points| Outcome::lost(points);
    assert_eq!([Points::Single, Points::Gammon, Points::Backgammon].map(|p| of(p).equity()), [-1.0, -2.0, -3.0]);
    // A backgammon is a gammon too.
    assert_eq!(of(Points::Backgammon).to_array(), [0.0, 0.0, 0.0, 1.0, 1.0]);
    assert_eq!(of(Points::Backgammon).swapped().to_array(), [1.0, 1.0, 1.0, 0.0, 0.0]);
    let some = Outcome::from_array([0.6, 0.3, 0.1, 0.2, 0.05]);
    assert_eq!(some.swapped().swapped().win_gammon, some.win_gammon);
    assert!((some.equity() + some.swapped().equity()).abs() < 1e-6);
    let wild = Outcome::from_array([0.3, 0.6, 0.7, 0.9, 0.2]).within_rules(Position::START);
    assert_eq!(wild.to_array(), [0.3, 0.3, 0.3, 0.7, 0.2]);
    let bearing_off = Position { mover: side(&[(6, 10)]), other: side(&[(24, 15)]) };
    let kept = Outcome::from_array([0.9, 0.5, 0.1, 0.05, 0.01]).within_rules(bearing_off);
    assert_eq!((kept.lose_gammon, kept.lose_backgammon, kept.win_gammon), (0.0, 0.0, 0.5));
}

fn table() -> &'static Bearoff {
    static TABLE: OnceLock<Bearoff> = OnceLock::new();
    TABLE.get_or_init(Bearoff::build)
}

/// The mover's chance before the roll, by the rules alone.
fn brute(position: Position, depth: usize) -> f64 {
    assert!(depth < 20, "small endings are short");
    let mut plays = Plays::default();
    let mut win = 0.0;
    for (dice, chance) in ROLLS.into_iter().zip(chances(false)) {
        plays.find(position, dice);
        let results: Vec<Position> = plays.iter().map(|play| play.result(position)).collect();
        let value = |after: Position| if after.lost().is_some() { 1.0 } else { 1.0 - brute(after, depth + 1) };
        win += f64::from(chance) * results.into_iter().map(value).fold(0.0, f64::max);
    }
    win
}

#[test]
fn endings_are_exact() {
    let cases = [
        (side(&[(1, 1)]), side(&[(1, 1)])),
        (side(&[(6, 1)]), side(&[(1, 1)])),
        (side(&[(5, 1), (2, 1)]), side(&[(1, 2)])),
        (side(&[(6, 1), (3, 1)]), side(&[(4, 1), (1, 1)])),
        (side(&[(6, 2)]), side(&[(3, 2)])),
    ];
    for (mover, other) in cases {
        let position = Position { mover, other };
        let outcome = table().outcome(position).expect("a small ending");
        let wanted = brute(position, 0);
        assert!((f64::from(outcome.win) - wanted).abs() < 1e-6, "{position:?}: {} and {wanted}", outcome.win);
        assert_eq!((outcome.win_gammon, outcome.lose_gammon), (0.0, 0.0));
    }
    // Two checkers on 6 and 5 and nobody to hurry: 7 of 36 rolls take both off (6-5 and doubles of 6, 5, 3; by the rules, not by pips).
    let position = Position { mover: side(&[(6, 1), (5, 1)]), other: side(&[(1, 1)]) };
    let mut plays = Plays::default();
    let off = |dice: [u8; 2], plays: &mut Plays| {
        plays.find(position, dice);
        plays.iter().any(|play| play.after().off() == CHECKERS)
    };
    let chance: f32 =
        ROLLS.into_iter().zip(chances(false)).filter(|(dice, _)| off(*dice, &mut plays)).map(|(_, c)| c).sum();
    assert!((table().outcome(position).expect("small").win - chance).abs() < 1e-6);
    // Before the roll, not after it: a sure win is one for the player on roll.
    assert_eq!(table().outcome(Position { mover: side(&[(1, 2)]), other: side(&[(1, 1)]) }).expect("small").win, 1.0);
}

#[test]
fn one_side_alone_needs_its_rolls() {
    // Checkers on the first point alone: a double takes four of them off, another roll two.
    fn needed(checkers: i32, rolls: usize) -> f32 {
        match (checkers <= 0, rolls) {
            (true, rolls) => f32::from(u8::from(rolls == 0)),
            (false, 0) => 0.0,
            _ => needed(checkers - 4, rolls - 1) / 6.0 + needed(checkers - 2, rolls - 1) * 5.0 / 6.0,
        }
    }
    for (mine, theirs) in [(7, 7), (8, 7), (9, 14), (14, 13)] {
        let later = |rolls: usize| (rolls..20).map(|rolls| needed(theirs, rolls)).sum::<f32>();
        let wanted: f32 = (0..20).map(|rolls| needed(mine, rolls) * later(rolls)).sum();
        let position = Position { mover: side(&[(1, mine as u8)]), other: side(&[(1, theirs as u8)]) };
        let win = table().outcome(position).expect("both at home, both with checkers off").win;
        assert!((win - wanted).abs() < 1e-4, "{mine} and {theirs} checkers: {win}, {wanted}");
    }
    // Against the exact table: the race that does not look at the opponent loses little.
    let seven = Position { mover: side(&[(2, 3), (5, 4)]), other: side(&[(1, 2), (6, 4)]) };
    let win = table().outcome(seven).expect("both at home, both with checkers off").win;
    assert!((0.0..=1.0).contains(&win));
    assert!(table().outcome(Position::START).is_none());
    assert!(
        table().outcome(Position { mover: side(&[(6, 15)]), other: side(&[(1, 1)]) }).is_none(),
        "a gammon can be lost"
    );
}

#[test]
fn tables_survive_a_file_and_damage_is_found() {
    let path = std::env::temp_dir().join(format!("operant-bearoff-{}", std::process::id()));
    table().save(&path).expect("a folder that one may write");
    assert_eq!(&Bearoff::load(&path).expect("as it was written"), table());
    let mut bytes = std::fs::read(&path).expect("just written");
    bytes[1000] ^= 1;
    std::fs::write(&path, &bytes).expect("the same file");
    let message = Bearoff::load(&path).expect_err("a flipped bit").to_string();
    assert!(message.contains("checksum") && message.contains("operant backgammon table"), "{message}");
    std::fs::remove_file(&path).expect("its own file");
}

fn small() -> (BackgammonNet, Evaluator) {
    let net = BackgammonNet { hidden: 24, activation: Act::Tanh };
    let evaluator = Evaluator::new(&net, &net.params(3).expect("a small net"), &Options::default()).expect("planned");
    (net, evaluator)
}

#[test]
fn values_do_not_depend_on_the_batch_and_know_results() {
    let (_, mut evaluator) = small();
    let mut list = positions(5, 1700);
    list.push(Position { mover: side(&[(24, 15)]), other: side(&[]) });
    let mut out = vec![Outcome::default(); list.len()];
    evaluator.evaluate(&list, &mut out);
    for (&position, outcome) in list.iter().zip(&out).step_by(97) {
        assert_eq!(evaluator.value(position), *outcome);
        assert_eq!(evaluator.fork().value(position), *outcome);
    }
    assert_eq!(out.last(), Some(&Outcome::lost(Points::Backgammon)));
}

#[test]
fn networks_survive_a_file() {
    let (net, mut evaluator) = small();
    let weights = net.params(3).expect("a small net");
    let bytes = BackgammonFile::to_bytes(&net, &weights).expect("saved");
    let (same, read) = BackgammonFile::from_bytes(&bytes).expect("read");
    assert_eq!((&same, &read), (&net, &weights));
    let mut again = Evaluator::new(&same, &read, &Options::default()).expect("planned");
    assert_eq!(again.value(Position::START), evaluator.value(Position::START));
    let message =
        BackgammonFile::from_bytes(&weights[0].to_bytes(&Default::default())).expect_err("half of it").to_string();
    assert!(message.contains("operant train td backgammon"), "{message}");
}

/// What a position is worth to who is on roll, so many rolls ahead, if both play by the values alone.
fn ahead(evaluator: &mut Evaluator, position: Position, rolls: usize) -> f32 {
    if rolls == 0 || position.lost().is_some() {
        return evaluator.value(position).equity();
    }
    let mut plays = Plays::default();
    let mut sum = 0.0;
    for (dice, chance) in ROLLS.into_iter().zip(chances(false)) {
        plays.find(position, dice);
        let valued =
            plays.iter().map(|play| play.result(position)).map(|after| (evaluator.value(after).equity(), after));
        let (_, after) = valued.reduce(|a, b| if b.0 < a.0 { b } else { a }).expect("a roll has a play");
        sum -= chance * ahead(evaluator, after, rolls - 1);
    }
    sum
}

#[test]
fn players_choose_what_is_best_one_to_three_rolls_ahead() {
    let (_, mut evaluator) = small();
    let mut plays = Plays::default();
    for (i, position) in positions(6, 900).into_iter().enumerate().step_by(60) {
        plays.find(position, ROLLS[i % 21]);
        let mut one = ByValue::new("one", evaluator.fork(), Depth::One);
        let judged = one.judge(position, &plays);
        let value = |evaluator: &mut Evaluator, play: &Play| -evaluator.value(play.result(position)).equity();
        let best = plays.iter().map(|play| value(&mut evaluator, play)).fold(f32::NEG_INFINITY, f32::max);
        assert!((judged[0].outcome.equity() - best).abs() < 1e-5, "values are those of the one who plays");
        for (rolls, depth) in [(1, Depth::Two), (2, Depth::Three)] {
            // Three rolls are 441 of an answer's plays: a few positions will do.
            if depth == Depth::Three && i % 300 != 0 {
                continue;
            }
            let mut far = ByValue::new("far", evaluator.fork(), depth);
            let judged = far.judge(position, &plays);
            assert_eq!((judged[0].rolls, far.rolls()), (rolls + 1, rolls + 1));
            // Before the roll, as for the cube, it looks as far ahead as after a play.
            let wanted = ahead(&mut evaluator, position, rolls);
            let found = far.outcome(position).equity();
            assert!((found - wanted).abs() < 1e-4, "{found} and {wanted}");
            for one in judged.iter().filter(|one| one.rolls == rolls + 1).take(4 - rolls) {
                let wanted = -ahead(&mut evaluator, plays[one.play].result(position), rolls);
                assert!((one.outcome.equity() - wanted).abs() < 1e-4, "{} and {wanted}", one.outcome.equity());
            }
        }
    }
}

#[test]
fn a_perfect_evaluator_plays_endings_as_the_table_does() {
    let (_, evaluator) = small();
    let mut player = ByValue::new("exact", evaluator.with_table(std::sync::Arc::new(table().clone())), Depth::One);
    let mut rng = HostRng::new(9, 0, 0, 0);
    let mut plays = Plays::default();
    for _ in 0..200 {
        let mut counts = [[0; BAR + 1]; 2];
        for side in &mut counts {
            (0..1 + rng.below(6)).for_each(|_| side[1 + rng.below(6) as usize] += 1);
        }
        let [mover, other] = counts.map(|counts| Side::new(&counts).expect("few"));
        let position = Position { mover, other };
        let mut win = 0.0;
        for (dice, chance) in ROLLS.into_iter().zip(chances(false)) {
            plays.find(position, dice);
            win += chance * player.judge(position, &plays)[0].outcome.win;
        }
        let exact = table().outcome(position).expect("small").win;
        assert!((win - exact).abs() < 1e-5, "{position:?}: {win} and {exact}");
    }
}

/// The networks as evaluator of a tree: a decision is worth its best play's value, plays that are worth more have larger priors, for either
/// player; with exact chance and all plays tried a search two rolls deep is the player that looks two rolls ahead; endings come from the table.
#[test]
fn value_networks_are_searched_without_a_policy() {
    let (_, evaluator) = small();
    for (i, position) in positions(17, 400).into_iter().enumerate().step_by(80) {
        let state = State { position, dice: ROLLS[i % 21], player: (i / 80 % 2) as u8, first: false };
        let mut plays = Plays::default();
        plays.find(position, state.dice);
        let mut one = ByValue::new("one", evaluator.fork(), Depth::One);
        let judged = one.judge(position, &plays);
        let sign = if state.player == 0 { 1.0 } else { -1.0 };
        let mut mcts = Mcts::<Backgammon>::new(&Settings { simulations: 1, ..Settings::default() }).unwrap();
        mcts.begin(state, HostRng::new(1, 0, 0, 0));
        mcts.search(&mut Leaves::new(evaluator.fork()), &mut Vec::new());
        let tree = mcts.tree();
        assert!((tree.values[0] * sign - judged[0].outcome.equity()).abs() < 1e-5);
        let prior = &tree.prior[tree.edges_of(0)];
        assert!(judged.windows(2).all(|pair| prior[pair[0].play] >= prior[pair[1].play]));
        if plays.len() == 1 {
            continue;
        }
        let settings = Settings {
            simulations: 2 * plays.len(),
            chance: ChanceMode::Exact,
            c_puct: 1e3,
            fpu_reduction: 0.0,
            ..Settings::default()
        };
        let mut mcts = Mcts::<Backgammon>::new(&settings).unwrap();
        mcts.begin(state, HostRng::new(1, 0, 0, 0));
        mcts.search(&mut Leaves::new(evaluator.fork()), &mut Vec::new());
        let tree = mcts.tree();
        for edge in tree.edges_of(0) {
            let child = tree.child[edge];
            let after = plays[edge - tree.edges_of(0).start].result(position);
            if child == 0 || tree.kinds[child as usize] == operant::search::tree::Kind::Known {
                continue;
            }
            let wanted = -ahead(&mut evaluator.fork(), after, 1);
            let found = tree.values[child as usize] * sign;
            assert!((found - wanted).abs() < 1e-4, "{found} and {wanted}");
        }
    }
    let few = Position { mover: side(&[(6, 2), (3, 1)]), other: side(&[(5, 2), (1, 4)]) };
    let exact = ending(few).expect("few checkers at home");
    assert!((exact - table().outcome(few).expect("small").win).abs() < 1e-7);
    let state = State { position: few, dice: [0; 2], player: 1, first: false };
    assert_eq!(Backgammon::exact(&state), Some(2.0 * exact - 1.0));
    assert_eq!((Backgammon::exact(&State { dice: [6, 5], ..state }), ending(Position::START)), (None, None));
    // A decision before such positions is proven: all that plays lead to is known.
    let state = State { dice: [2, 1], ..state };
    let mut mcts = Mcts::<Backgammon>::new(&Settings::default()).unwrap();
    mcts.begin(state, HostRng::new(1, 0, 0, 0));
    mcts.search(&mut Leaves::new(evaluator.fork()), &mut Vec::new());
    assert!(mcts.is_proven());
    assert_eq!(mcts.take_counters().evaluations, 1);
}

#[test]
fn contests_repeat_and_rules_of_thumb_beat_chance() {
    let run = |seed| contest(&mut RuleOfThumb, &mut Random, 200, seed).expect("played").0;
    let score: Score = run(1);
    assert_eq!(score.points, run(1).points);
    assert_ne!(score.points, run(2).points);
    assert!(score.mean() > 1.0, "{}", score.mean());
    assert!(score.standard_error() > 0.02 && score.standard_error() < 0.2, "{}", score.standard_error());
    let [won, lost] = score.shares(Points::Single);
    assert!((won + lost - 1.0).abs() < 1e-12);
}

#[test]
fn records_survive_a_mat_file_and_empty_plays_must_be_forced() {
    let records = alone(&mut Random, 30, 7).expect("played");
    let text = to_mat(&records, ["one", "two"]);
    let read = from_mat(&text).expect("what was written");
    assert_eq!(read.len(), records.len());
    for (read, record) in read.iter().zip(&records) {
        assert_eq!(read.first, record.first);
        assert_eq!(read.result(), record.result());
        assert_eq!(read.positions(), record.positions());
    }
    assert!(records.iter().flat_map(|record| &record.turns).any(|turn| turn.play.steps().next().is_none()));
    // As SGF: whose turn, dice and steps, in letters that both players share.
    let sgf = to_sgf(&records[..1], ["a]b", "two"]);
    let first = &records[0].turns[0];
    assert!(sgf.starts_with("(;FF[4]GM[6]") && sgf.contains("PW[a\\]b]") && sgf.ends_with(")\n"), "{sgf}");
    assert!(sgf.contains(&format!("\n;W[{}{}", first.dice[0], first.dice[1])), "{sgf}");
    assert_eq!(sgf.lines().count(), 1 + records[0].turns.len());
    for (line, what) in
        [("  1) 31:", "no move for 31, but 16 plays are legal"), ("  1) 31: 8/5 6/4", "not a legal way")]
    {
        let message =
            from_mat(&format!(" 0 point match\n\n Game 1\n one : 0    two : 0\n{line}\n")).expect_err(line).to_string();
        assert!(message.contains(what) && message.contains("line 5"), "{message}");
    }
}

/// What is not understood is told, never left out.
#[test]
fn damaged_mat_files_are_refused() {
    let mut player = RuleOfThumb;
    let (_, records) = contest(&mut player, &mut RuleOfThumb, 1, 5).unwrap();
    let text = to_mat(&records, ["one", "two"]);
    assert_eq!(from_mat(&text).unwrap().len(), 1);
    let refused = |text: &str, words: &str| {
        let message = from_mat(text).unwrap_err().to_string();
        assert!(message.contains(words), "{message}");
    };
    refused("", "no game in the .mat file");
    refused("hello\n", "no game in the .mat file");
    refused(
        &text.replacen(" 0 point", " 65 point", 1),
        "line 1 of the .mat file: a match to \"65\"; wanted 1 to 64 points",
    );
    // A comment is nobody's match, and a game may be given up in the row of its last move.
    let given_up = "; final, 7 point match\n 0 point match\n\n Game 1\n one : 0    two : 0\n  1) 31: 8/5 6/5          Wins 2 points\n";
    assert_eq!(from_mat(given_up).unwrap()[0].turns.len(), 1);
    let row = text.lines().position(|line| line.starts_with("  1) ")).unwrap();
    let first: Vec<String> = (text.lines().enumerate())
        .map(|(number, line)| if number == row { format!("  1) 99{}", &line[7..]) } else { line.to_owned() })
        .collect();
    refused(&first.join("\n"), &format!("line {} of the .mat file: \"99: ", row + 1));
    let wins = text.lines().find(|line| line.trim().starts_with("Wins ")).unwrap();
    refused(&text.replace(wins, "      Wins 7 points"), "\"Wins 7 points\", but the moves before win ");
}
