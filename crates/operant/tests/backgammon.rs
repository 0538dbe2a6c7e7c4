//! Backgammon against a twin that follows the rules' words on plain arrays, GNU Backgammon's IDs, and what is known of random games.

use operant::env::backgammon::{
    BAR, CHECKERS, MatchId, OBSERVATION, Play, Plays, Points, Position, ROLLS, Side, chances, observe,
};
use std::collections::BTreeSet;

/// Random numbers (Steele, Lea, Flood: SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(z ^ z >> 31) * n as u128) >> 64) as usize
    }

    fn roll(&mut self) -> [u8; 2] {
        [1 + self.below(6) as u8, 1 + self.below(6) as u8]
    }
}

/// Checkers of both sides by place, each as its side counts.
type Board = [[u8; BAR + 1]; 2];

fn board(position: Position) -> Board {
    [position.mover, position.other].map(|side| std::array::from_fn(|place| side.count(place)))
}

/// Boards after moving one checker by `die`.
fn moved(board: &Board, die: usize) -> Vec<Board> {
    let [mine, theirs] = board;
    let mut boards = Vec::new();
    for from in 1..=BAR {
        if mine[from] == 0 || (mine[BAR] > 0 && from != BAR) {
            continue;
        }
        let mut next = *board;
        next[0][from] -= 1;
        if from > die {
            let to = from - die;
            if theirs[BAR - to] > 1 {
                continue;
            }
            next[0][to] += 1;
            if theirs[BAR - to] == 1 {
                next[1][BAR - to] = 0;
                next[1][BAR] += 1;
            }
        } else {
            let all_home = mine[7..].iter().all(|&count| count == 0);
            let farthest = mine[from + 1..].iter().all(|&count| count == 0);
            if !all_home || (from < die && !farthest) {
                continue;
            }
            next[0][0] += 1;
        }
        boards.push(next);
    }
    boards
}

/// Boards after as many of the dice as can be played in this order, and how many that is.
fn in_order(start: &Board, dice: &[usize]) -> (usize, BTreeSet<Board>) {
    let mut boards = BTreeSet::from([*start]);
    for (played, &die) in dice.iter().enumerate() {
        let next: BTreeSet<Board> = boards.iter().flat_map(|board| moved(board, die)).collect();
        if next.is_empty() {
            return (played, boards);
        }
        boards = next;
    }
    (dice.len(), boards)
}

/// Boards after any legal play of a roll.
fn twin(start: &Board, [a, b]: [u8; 2]) -> BTreeSet<Board> {
    let (large, small) = (usize::from(a.max(b)), usize::from(a.min(b)));
    if large == small {
        return in_order(start, &[large; 4]).1;
    }
    let (first, mut boards) = in_order(start, &[large, small]);
    let (second, others) = in_order(start, &[small, large]);
    match first.cmp(&second) {
        std::cmp::Ordering::Less => others,
        // One die alone: the larger, which was played first here.
        std::cmp::Ordering::Equal if first == 1 => boards,
        std::cmp::Ordering::Equal => {
            boards.extend(others);
            boards
        }
        std::cmp::Ordering::Greater => boards,
    }
}

/// Checkers anywhere that both sides can be at once.
fn anywhere(random: &mut Random) -> Position {
    let mut counts = [[0_u8; BAR + 1]; 2];
    let limit = [BAR, 12, 6][random.below(3)];
    for side in 0..2 {
        for _ in 0..random.below(usize::from(CHECKERS)) + 1 {
            let place = 1 + random.below(limit);
            if place == BAR || counts[1 - side][BAR - place] == 0 {
                counts[side][place] += 1;
            }
        }
    }
    let [mover, other] = counts.map(|counts| Side::new(&counts).expect("at most fifteen"));
    Position { mover, other }
}

#[test]
fn plays_are_those_of_the_rules() {
    let mut random = Random(1);
    let mut plays = Plays::default();
    let mut position = Position::START;
    let (mut round, mut compared) = (0, 0);
    while compared < 100_000 {
        round += 1;
        let dice = random.roll();
        // Every other position comes from play, the rest from anywhere.
        let here = if round % 2 == 0 { position } else { anywhere(&mut random) };
        if here.lost().is_some() || here.mover.off() == CHECKERS {
            position = Position::START;
            continue;
        }
        compared += 1;
        plays.find(here, dice);
        let found: Vec<Board> = plays
            .iter()
            .map(|play| {
                let [other, mover] = board(play.result(here));
                [mover, other]
            })
            .collect();
        let unique: BTreeSet<Board> = found.iter().copied().collect();
        assert_eq!(unique.len(), found.len(), "a play twice: {here:?} {dice:?}");
        assert_eq!(unique, twin(&board(here), dice), "{here:?} {dice:?}");
        if round % 2 == 0 {
            position = plays[random.below(plays.len())].result(here);
        }
    }
}

#[test]
fn larger_die_alone_and_both_if_possible() {
    // One checker on point 8, opposing points so that 6 and 1 cannot both be played: 6 must be.
    let mut mine = [0; BAR + 1];
    mine[8] = 1;
    let mut theirs = [0; BAR + 1];
    theirs[BAR - 1] = 2;
    let [mover, other] = [mine, theirs].map(|counts| Side::new(&counts).expect("few checkers"));
    let mut plays = Plays::default();
    plays.find(Position { mover, other }, [6, 1]);
    assert_eq!(plays.iter().map(Play::text).collect::<Vec<_>>(), ["8/2"]);
    // Both dice can be played if the checker on 8 stays: then they must be.
    mine[24] = 1;
    let mover = Side::new(&mine).expect("few checkers");
    plays.find(Position { mover, other }, [6, 1]);
    assert!(plays.iter().all(|play| play.steps().count() == 2));
    assert!(plays.len() > 1);
}

/// Positions that a turn can lead to from the opening, per roll; the twin counts them too.
#[test]
fn openings_have_their_number_of_plays() {
    let mut plays = Plays::default();
    let mut total = 0;
    for dice in ROLLS {
        plays.find(Position::START, dice);
        assert_eq!(plays.len(), twin(&board(Position::START), dice).len(), "{dice:?}");
        total += plays.len();
    }
    plays.find(Position::START, [3, 1]);
    let texts: Vec<String> = plays.iter().map(Play::text).collect();
    assert_eq!(plays.len(), 16);
    assert!(texts.contains(&"8/5 6/5".into()), "{texts:?}");
    assert_eq!(total, 447);
}

/// Every play of every roll after every opening play.
#[test]
fn second_turns_have_their_number_of_plays() {
    let (mut first, mut second) = (Plays::default(), Plays::default());
    let mut total = 0;
    for dice in ROLLS {
        first.find(Position::START, dice);
        for play in &first[..] {
            let position = play.result(Position::START);
            for dice in ROLLS {
                second.find(position, dice);
                assert_eq!(second.len(), twin(&board(position), dice).len(), "{position:?} {dice:?}");
                total += second.len();
            }
        }
    }
    assert_eq!(total, 202_782);
}

#[test]
fn random_games_end_as_they_are_known_to() {
    let mut random = Random(2);
    let mut plays = Plays::default();
    let mut ends = [0_u32; 4];
    const GAMES: u32 = 4000;
    for _ in 0..GAMES {
        let mut position = Position::START;
        let points = loop {
            plays.find(position, random.roll());
            position = plays[random.below(plays.len())].result(position);
            if let Some(points) = position.lost() {
                break points;
            }
        };
        ends[points as usize] += 1;
    }
    // Four standard errors are 3 %.
    for (points, share) in [(Points::Single, 0.38), (Points::Gammon, 0.363), (Points::Backgammon, 0.257)] {
        let seen = f64::from(ends[points as usize]) / f64::from(GAMES);
        assert!((seen - share).abs() < 0.031, "{points:?}: {seen}, wanted about {share}");
    }
}

#[test]
fn ids_are_those_of_gnu_backgammon() {
    assert_eq!(Position::START.id(), "4HPwATDgc/ABMA");
    // As the program (1.07) shows it with X on roll: X on 1, 12, 17 and 19, O with one checker on its first point and one on the bar.
    let counts = |pairs: &[(usize, u8)]| {
        let mut counts = [0; BAR + 1];
        pairs.iter().for_each(|&(place, count)| counts[place] = count);
        Side::new(&counts).expect("at most fifteen")
    };
    let x = counts(&[(1, 2), (12, 5), (17, 3), (19, 5)]);
    let o = counts(&[(1, 1), (12, 5), (17, 3), (19, 5), (BAR, 1)]);
    let position = Position { mover: x, other: o };
    assert_eq!(position.id(), "AfDB+UAD4IPzAQ");
    assert_eq!(position.swapped().id(), "A+CD8wEB8MH5QA");
    let mut random = Random(3);
    for _ in 0..2000 {
        let position = anywhere(&mut random);
        assert_eq!(Position::from_id(&position.id()).expect("its own id"), position);
    }
    for (id, what) in [
        ("4HPwATDgc/ABM", "13 characters"),
        ("4HPwATDgc/AB!A", "'!' is no digit"),
        ("//////////////", "more than 15"),
        ("AAAAAAAAAAAAgA", "after the last place"),
        ("AAAAAAAAAAAAAA", "nobody has a checker"),
    ] {
        let message = Position::from_id(id).expect_err(id).to_string();
        assert!(message.contains(what), "{message}");
    }
}

#[test]
fn plays_are_found_by_their_text() {
    let mut random = Random(4);
    let mut plays = Plays::default();
    let mut position = Position::START;
    for _ in 0..3000 {
        plays.find(position, random.roll());
        let play = plays[random.below(plays.len())];
        for play in plays.iter().take(20) {
            let named = plays.named(position, &play.text()).expect("its own text");
            assert_eq!(named.result(position), play.result(position), "{}", play.text());
        }
        position = play.result(position);
        if position.lost().is_some() {
            position = Position::START;
        }
    }
    plays.find(Position::START, [6, 5]);
    assert_eq!(plays.named(Position::START, "24/13").expect("a lover's leap").text(), "24/13");
    for (text, what) in [
        ("24/12", "not a legal way"),
        ("25/19", "places are 1 to 24"),
        ("5/4", "no checker"),
        ("24/13(9)", "is not 1 to 4"),
    ] {
        let message = plays.named(Position::START, text).expect_err(text).to_string();
        assert!(message.contains(what) && message.contains("such as"), "{message}");
    }
}

#[test]
fn chances_add_up_and_observations_count_checkers() {
    for first_turn in [true, false] {
        assert!((chances(first_turn).iter().sum::<f32>() - 1.0).abs() < 1e-6);
    }
    let mut out = [f32::NAN; OBSERVATION];
    observe(Position::START, &mut out);
    // Per side: five on 6 and 13, three on 8, two on 24.
    let side = 2.0 * (1.0 + 1.0 + 1.0 + 1.0) + 3.0 + 2.0;
    assert_eq!(out.iter().sum::<f32>(), 2.0 * side);
    assert_eq!(out[4 * 5..][..4], [1.0, 1.0, 1.0, 1.0]);
}

/// IDs that GNU Backgammon 1.07 showed: the first roll 31 of a match to 5; a cube of 4 that player 1 owns, with 55 rolled in a money session; 4 to 2 in the
/// Crawford game of a match to 5.
#[test]
fn match_ids_are_gnu_backgammons() {
    let first = MatchId::from_id("cImlAAAAAAAE").unwrap();
    assert_eq!((first.cube, first.owner, first.on_roll, first.turn), (1, None, 1, 1));
    assert_eq!((first.dice, first.length, first.scores, first.crawford), (Some([3, 1]), 5, [0, 0], false));
    let cube = MatchId::from_id("UokWAAAAAAAA").unwrap();
    assert_eq!((cube.cube, cube.owner, cube.dice, cube.length), (4, Some(1), Some([5, 5]), 0));
    let crawford = MatchId::from_id("8AmlAEAAEAAE").unwrap();
    assert_eq!((crawford.crawford, crawford.length, crawford.scores), (true, 5, [4, 2]));
    for id in ["cImlAAAAAAAE", "UokWAAAAAAAA", "8AmlAEAAEAAE", "cAngAAAAAAAE", "MIHlAAAAAAAE"] {
        assert_eq!(MatchId::from_id(id).unwrap().id(), id);
    }
    for (id, what) in [("cIml", "4 characters"), ("cIml!AAAAAAE", "'!' is no digit"), ("////////////", "no roll has")] {
        let message = MatchId::from_id(id).unwrap_err().to_string();
        assert!(message.contains(what), "{message}");
    }
}
