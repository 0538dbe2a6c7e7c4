//! Rules of games as search knows them: against twins written another way, and what holds for every game.

use operant::env::backgammon::{Backgammon, Plays, Position, ROLLS, State};
use operant::env::connect4::{Board, COLUMNS, Connect4, ROWS};
use operant::env::game::{Game, Turn, settle_chance, sign};
use operant::env::twenty48::{Tiles, Twenty48};
use operant::lanes::rng::HostRng;
use std::collections::{HashMap, HashSet};

/// States of random games, decisions and states before chance.
fn walk<G: Game>(games: u32, mut look: impl FnMut(&G::State, &[G::Action])) {
    let (mut room, mut found, mut chances) = (G::Room::default(), Vec::new(), vec![0.0; G::OUTCOMES]);
    for game in 0..games {
        let mut rng = HostRng::new(5, game, 0, 0);
        let mut state = G::start();
        loop {
            match G::turn(&state) {
                Turn::Over => break,
                Turn::Chance => {
                    look(&state, &[]);
                    let count = G::chances(&state, &mut chances);
                    let total: f32 = chances[..count].iter().sum();
                    assert!((total - 1.0).abs() < 1e-5, "{}: chances sum to {total}", G::NAME);
                    let mut one = [0.0; 64];
                    one[..count].copy_from_slice(&chances[..count]);
                    let outcome = operant::env::game::draw_outcome(&one[..count], &mut rng);
                    state = G::happened(&state, outcome);
                }
                Turn::Decision => {
                    G::actions(&state, &mut room, &mut found);
                    assert!(!found.is_empty(), "{}", G::NAME);
                    look(&state, &found);
                    state = G::after(&state, &found[rng.below(found.len() as u32) as usize]);
                }
            }
        }
        look(&state, &[]);
    }
}

/// What every game promises.
fn promises<G: Game>(games: u32) {
    let mut hashes: HashMap<u64, String> = HashMap::new();
    let mut obs = vec![0.0; G::OBSERVATION];
    let mut states = 0;
    walk::<G>(games, |state, actions| {
        states += 1;
        let mut words = [0; 8];
        G::write(state, &mut words[..G::WORDS]);
        assert_eq!(G::read(&words[..G::WORDS]).as_ref(), Some(state), "{}", G::text(state));
        assert_eq!(G::parse(&G::text(state)).as_ref(), Ok(state), "{}", G::text(state));
        let text = format!("{state:?}");
        assert_eq!(hashes.entry(G::hash(state)).or_insert_with(|| text.clone()), &text, "two states of one hash");
        G::observe(state, &mut obs);
        assert!(obs.iter().all(|x| (0.0..=G::HIGHEST).contains(x)), "{}", G::text(state));
        let indices: HashSet<_> = actions.iter().map(|action| G::policy_index(state, action)).collect();
        assert_eq!(indices.len(), actions.len(), "{}: actions with one index", G::text(state));
        assert!(indices.iter().all(|&(one, other)| one < G::POLICY && other.is_none_or(|other| other < G::POLICY)));
        let names: HashSet<_> = actions.iter().map(|action| G::action_text(state, action)).collect();
        assert!(names.len() == actions.len() || G::NAME == "backgammon");
        for symmetry in 0..G::SYMMETRIES {
            let image = G::image(state, symmetry);
            assert_eq!(G::image(&image, symmetry), *state);
            assert_eq!((G::turn(&image), G::settled(&image)), (G::turn(state), G::settled(state)));
        }
        if let Some([low, high]) = G::RANGE {
            assert!((low..=high).contains(&G::settled(state)));
        }
        // Heads say what the points were, for both players.
        if G::turn(state) == Turn::Over {
            let (mut heads, points) = ([0.0; 8], G::settled(state) * sign::<G>(state));
            let heads = &mut heads[..G::HEADS];
            G::heads_of(points, heads);
            assert!((G::value_of(heads) - points).abs() < 1e-5);
        }
    });
    assert!(states > 100);
}

#[test]
fn every_game_keeps_its_promises() {
    promises::<Connect4>(300);
    promises::<Twenty48>(10);
    promises::<Backgammon>(100);
}

/// Connect Four on a plain grid.
fn four_on_a_grid(cells: &[[u8; COLUMNS]; ROWS], who: u8) -> bool {
    let at = |row: i32, column: i32| {
        let inside = (0..ROWS as i32).contains(&row) && (0..COLUMNS as i32).contains(&column);
        inside && cells[row as usize][column as usize] == who
    };
    (0..ROWS as i32).any(|row| {
        (0..COLUMNS as i32).any(|column| {
            [(0, 1), (1, 0), (1, 1), (1, -1)].iter().any(|(dy, dx)| (0..4).all(|i| at(row + i * dy, column + i * dx)))
        })
    })
}

#[test]
fn connect_four_agrees_with_a_plain_grid() {
    let mut wins = [0; 3];
    for game in 0..2000 {
        let mut rng = HostRng::new(9, game, 0, 0);
        let (mut cells, mut board, mut moves) = ([[0; COLUMNS]; ROWS], Board::default(), 0);
        loop {
            let open: Vec<usize> = (0..COLUMNS).filter(|&column| cells[ROWS - 1][column] == 0).collect();
            let (won, lost) = (four_on_a_grid(&cells, 1), four_on_a_grid(&cells, 2));
            let over = won || lost || open.is_empty();
            assert_eq!(Connect4::turn(&board) == Turn::Over, over);
            assert_eq!(Connect4::settled(&board), f32::from(u8::from(won)) - f32::from(u8::from(lost)));
            if over {
                wins[usize::from(won) + 2 * usize::from(lost)] += 1;
                break;
            }
            let mut found = Vec::new();
            Connect4::actions(&board, &mut (), &mut found);
            assert_eq!(found.iter().map(|&column| usize::from(column)).collect::<Vec<_>>(), open);
            let column = open[rng.below(open.len() as u32) as usize];
            let row = (0..ROWS).find(|&row| cells[row][column] == 0).unwrap();
            cells[row][column] = 1 + (moves % 2) as u8;
            board = Connect4::after(&board, &(column as u8));
            moves += 1;
        }
    }
    // Random play: the first player wins about 55.6 %, the second 44.1 %.
    assert!((1000..1220).contains(&wins[1]) && (780..980).contains(&wins[2]), "{wins:?}");
}

/// Positions after so many moves, games that are over included once: OEIS A212693.
#[test]
fn connect_four_counts_positions() {
    let mut layer = HashSet::from([Board::default()]);
    let mut counts = vec![1];
    for _ in 0..8 {
        let next = |board: &Board| {
            let open = (0..COLUMNS).filter(|&column| board.open(column));
            let over = Connect4::turn(board) == Turn::Over;
            open.filter(|_| !over).map(|column| board.put(column)).collect::<Vec<_>>()
        };
        layer = layer.iter().flat_map(next).collect();
        counts.push(layer.len());
    }
    assert_eq!(counts, [1, 7, 49, 238, 1120, 4263, 16422, 54859, 184275]);
}

/// A row slid by moving one tile at a time.
fn slow_slide(row: [u32; 4]) -> ([u32; 4], u32) {
    let tiles: Vec<u32> = row.into_iter().filter(|&tile| tile > 0).collect();
    let (mut out, mut points, mut i) = (Vec::new(), 0, 0);
    while i < tiles.len() {
        if i + 1 < tiles.len() && tiles[i] == tiles[i + 1] {
            out.push(2 * tiles[i]);
            points += 2 * tiles[i];
            i += 2;
        } else {
            out.push(tiles[i]);
            i += 1;
        }
    }
    out.resize(4, 0);
    ([out[0], out[1], out[2], out[3]], points)
}

#[test]
fn tiles_slide_as_a_plain_grid_does() {
    let mut looked = 0;
    walk::<Twenty48>(6, |state, actions| {
        if actions.is_empty() {
            return;
        }
        looked += 1;
        let tile = |cells: u64, row: usize, column: usize| match cells >> (4 * (4 * row + column)) & 15 {
            0 => 0,
            exponent => 1 << exponent,
        };
        for way in 0..4_u8 {
            let (mut wanted, mut points) = ([[0; 4]; 4], 0);
            for line in 0..4 {
                let place = |i: usize| match way {
                    0 => (line, i),
                    1 => (line, 3 - i),
                    2 => (i, line),
                    _ => (3 - i, line),
                };
                let (row, gained) = slow_slide([0, 1, 2, 3].map(|i| tile(state.cells, place(i).0, place(i).1)));
                (0..4).for_each(|i| wanted[place(i).0][place(i).1] = row[i]);
                points += gained;
            }
            let after = Twenty48::after(state, &way);
            let got = [0, 1, 2, 3].map(|row| [0, 1, 2, 3].map(|column| tile(after.cells, row, column)));
            assert_eq!(got, wanted, "{} {way}", Twenty48::text(state));
            assert_eq!(after.score - state.score, points);
            assert_eq!(actions.contains(&way), after.cells != state.cells);
        }
    });
    assert!(looked > 500);
    let full = Twenty48::parse("2 4 2 4/4 2 4 2/2 4 2 4/4 2 4 2 : 7").unwrap();
    assert_eq!((Twenty48::turn(&full), full.score), (Turn::Over, 7));
    let one = Tiles { cells: 0, score: 0, waiting: 1 };
    let mut chances = [0.0; 32];
    assert_eq!(Twenty48::chances(&one, &mut chances), 32);
    assert!((chances[0] - 0.9 / 16.0).abs() < 1e-6 && (chances[1] - 0.1 / 16.0).abs() < 1e-6);
}

#[test]
fn backgammon_turns_change_players_and_passes_are_forced() {
    let (mut passes, mut doubles) = (0, 0);
    walk::<Backgammon>(60, |state: &State, actions| {
        if let [only] = actions
            && only.steps().next().is_none()
        {
            passes += 1;
            let after = Backgammon::after(state, only);
            assert_eq!((after.position, after.player), (state.position.swapped(), 1 - state.player));
        }
        for action in actions {
            let after = Backgammon::after(state, action);
            assert_eq!((after.player, after.dice, after.first), (1 - state.player, [0; 2], false));
            let (_, second) = Backgammon::policy_index(state, action);
            let steps = action.steps().count();
            assert_eq!(second.is_some(), steps > 2, "{}", action.text());
            doubles += usize::from(second.is_some());
        }
    });
    assert!(passes > 50 && doubles > 500, "{passes} passes, {doubles} doubles");
    // The first roll is never a double; later ones are one in six.
    let (mut chances, mut start) = ([0.0; 21], Backgammon::start());
    for (first, wanted) in [(true, 0.0), (false, 1.0 / 6.0)] {
        start.first = first;
        Backgammon::chances(&start, &mut chances);
        let double: f32 =
            ROLLS.iter().zip(chances).filter(|(roll, _)| roll[0] == roll[1]).map(|(_, chance)| chance).sum();
        assert!((double - wanted).abs() < 1e-6);
    }
}

/// A place's larger die first: `31` from the start, 8/5 6/5, leaves point 8 by the 3 and point 6 by the 1.
#[test]
fn a_play_is_told_by_the_places_that_checkers_leave() {
    let index = |state: &str, play: &str| {
        let state = Backgammon::parse(state).unwrap();
        let mut plays = Plays::default();
        plays.find(state.position, state.dice);
        Backgammon::policy_index(&state, plays.named(state.position, play).unwrap())
    };
    let start = Position::START.id();
    assert_eq!(index(&format!("{start} 0 31"), "8/5 6/5"), (8 * 26 + 6, None));
    assert_eq!(index(&format!("{start} 1 13"), "24/20"), (24 * 26 + 21, None));
    assert_eq!(index(&format!("{start} 0 11"), "8/7(2) 6/5(2)"), (8 * 26 + 8, Some(6 * 26 + 6)));
    assert!(Backgammon::parse("4HPwATDgc/ABMA 2").unwrap_err().to_string().contains("wanted a position id"));
}

#[test]
fn chance_settles_before_a_decision() {
    let mut chances = [0.0; 32];
    let state = settle_chance::<Twenty48>(Twenty48::start(), &mut chances, &mut HostRng::new(1, 2, 3, 4));
    assert_eq!((Twenty48::turn(&state), state.waiting), (Turn::Decision, 0));
    assert_eq!((0..16).filter(|cell| state.cells >> (4 * cell) & 15 != 0).count(), 2);
}
