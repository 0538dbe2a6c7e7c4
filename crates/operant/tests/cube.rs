//! Cubes against a simulation of stickers in space, group identities and published counts.

use operant::env::cube::{
    Cubies, DistanceTable, FACES, Metric, POCKET_STATES, Pocket, parse_facelets, parse_moves, print_facelets,
    print_moves,
};
use operant::env::puzzle::{CubePuzzle, PocketPuzzle, Puzzle, View};
use operant::env::{Actions, AutoReset, Options, RowBuf, Seeds, VecEnv, find};
use operant::lanes::rng::HostRng;
use std::sync::OnceLock;

type Vector = [i32; 3];

/// Outward normals of U R F D L B; x to the right, y up, z to the viewer.
const NORMALS: [Vector; 6] = [[0, 1, 0], [1, 0, 0], [0, 0, 1], [0, -1, 0], [-1, 0, 0], [0, 0, -1]];
/// Directions of a face's columns and rows, as it is looked at in the unfolded cube.
const RIGHT: [Vector; 6] = [[1, 0, 0], [0, 0, -1], [1, 0, 0], [1, 0, 0], [0, 0, 1], [-1, 0, 0]];
const DOWN: [Vector; 6] = [[0, 0, 1], [0, -1, 0], [0, -1, 0], [0, 0, -1], [0, -1, 0], [0, -1, 0]];

/// A cube of stickers, each with a place in space and a direction.
struct Stickers {
    size: usize,
    at: Vec<(Vector, Vector)>,
    colour: Vec<usize>,
}

impl Stickers {
    fn new(size: usize) -> Self {
        let (mut at, mut colour) = (Vec::new(), Vec::new());
        let step = |i: usize| 2 * i as i32 - (size as i32 - 1);
        for face in 0..6 {
            for row in 0..size {
                for column in 0..size {
                    let place = |axis: usize| {
                        NORMALS[face][axis] * (size as i32 - 1)
                            + RIGHT[face][axis] * step(column)
                            + DOWN[face][axis] * step(row)
                    };
                    at.push(([place(0), place(1), place(2)], NORMALS[face]));
                    colour.push(face);
                }
            }
        }
        Self { size, at, colour }
    }

    /// A clockwise quarter turn of a layer, seen from outside: by −90 degrees about the normal.
    fn turn(&mut self, face: usize) {
        let normal = NORMALS[face];
        let dot = |a: Vector, b: Vector| (0..3).map(|i| a[i] * b[i]).sum::<i32>();
        let rotate = |v: Vector| -> Vector {
            let along = dot(v, normal);
            let cross = |i: usize| v[(i + 1) % 3] * normal[(i + 2) % 3] - v[(i + 2) % 3] * normal[(i + 1) % 3];
            std::array::from_fn(|i| normal[i] * along + cross(i))
        };
        let moved: Vec<((Vector, Vector), usize)> = self
            .at
            .iter()
            .zip(&self.colour)
            .map(|(&(place, facing), &colour)| match dot(place, normal) == self.size as i32 - 1 {
                true => ((rotate(place), rotate(facing)), colour),
                false => ((place, facing), colour),
            })
            .collect();
        let colours = self.at.iter().map(|spot| moved.iter().find(|(at, _)| at == spot).unwrap().1).collect();
        self.colour = colours;
    }

    fn text(&self) -> String {
        self.colour.iter().map(|&colour| FACES[colour]).collect()
    }
}

fn table(metric: Metric) -> &'static DistanceTable {
    static TABLES: OnceLock<[DistanceTable; 2]> = OnceLock::new();
    let tables =
        TABLES.get_or_init(|| [Metric::Quarter, Metric::Half].map(|m| DistanceTable::build(&Pocket::new(), m)));
    &tables[usize::from(metric == Metric::Half)]
}

fn words(text: &str) -> Cubies {
    parse_moves(text).unwrap().iter().fold(Cubies::SOLVED, |cube, &(face, quarters)| cube.turned(face, quarters))
}

#[test]
fn turns_are_those_of_stickers_in_space() {
    for size in [2, 3] {
        let (mut cube, mut stickers) = (Cubies::SOLVED, Stickers::new(size));
        let mut rng = HostRng::new(1, 0, 0, 0);
        for _ in 0..500 {
            assert_eq!(print_facelets(&cube, size), stickers.text());
            assert_eq!(print_facelets(&parse_facelets(&stickers.text(), size).unwrap(), size), stickers.text());
            let face = rng.below(6) as usize;
            cube = cube.turned(face, 1);
            stickers.turn(face);
        }
    }
}

/// Plays random actions in an env and in stickers, and compares what is seen.
fn env_agrees(name: &str, size: usize, faces: &[usize], half_turns: bool) {
    let options = Options { autoreset: AutoReset::Disabled, time_limit: Some(None), ..Options::new(16) };
    let mut envs = find(name).unwrap().build(&[("half_turns", f64::from(u8::from(half_turns)))], &options).unwrap();
    let mut row = RowBuf::new(envs.spec(), 16);
    envs.reset(Seeds::One(3), None, row.row());
    // From the solved state.
    let home = match size {
        2 => vec![0x0654_3210, 0],
        _ => CubePuzzle::of_cubies(&Cubies::SOLVED).to_vec(),
    };
    let columns: Vec<Vec<i32>> = home.iter().map(|&word| vec![word; 16]).collect();
    let columns: Vec<(usize, &[i32])> = columns.iter().enumerate().map(|(i, words)| (i, &words[..])).collect();
    envs.write(&columns).unwrap();
    let mut stickers: Vec<Stickers> = (0..16).map(|_| Stickers::new(size)).collect();
    let mut rng = HostRng::new(4, 0, 0, 0);
    let actions = faces.len() as u32 * if half_turns { 3 } else { 2 };
    for _ in 0..60 {
        let chosen: Vec<i32> = (0..16).map(|_| rng.below(actions) as i32).collect();
        envs.step(Actions::I32(&chosen), row.row());
        for (env, stickers) in stickers.iter_mut().enumerate() {
            let (face, power) = (chosen[env] as usize % faces.len(), chosen[env] as usize / faces.len());
            (0..[1, 3, 2][power]).for_each(|_| stickers.turn(faces[face]));
            let width = envs.spec().observation.len();
            let seen = &row.obs[env * width..(env + 1) * width];
            for (facelet, &colour) in stickers.colour.iter().enumerate() {
                let wanted: Vec<f32> = (0..6).map(|c| f32::from(u8::from(c == colour))).collect();
                assert_eq!(seen[facelet * 6..][..6], wanted, "{name}: facelet {facelet}");
            }
            let solved = stickers.colour.chunks(size * size).all(|face| face.iter().all(|c| *c == face[0]));
            assert_eq!(row.terminated[env] == 1, solved);
            assert!((row.reward[env] - if solved { 0.99 } else { -0.01 }).abs() < 1e-6);
        }
    }
}

#[test]
fn envs_show_the_stickers_of_space() {
    for half_turns in [false, true] {
        env_agrees("cube2", 2, &[1, 0, 2], half_turns);
        env_agrees("cube3", 3, &[0, 1, 2, 3, 4, 5], half_turns);
    }
}

#[test]
fn scrambles_have_their_depth_and_change_while_running() {
    let distances = |envs: &dyn VecEnv| -> Vec<usize> {
        let n = envs.num_envs();
        let (mut corners, mut twists) = (vec![0; n], vec![0; n]);
        envs.read(0, &mut corners);
        envs.read(1, &mut twists);
        let distance = |env: usize| {
            let mut cube = Cubies::SOLVED;
            for place in 0..7 {
                cube.corners[place] = (corners[env] >> (4 * place) & 15) as u8;
                cube.twists[place] = (twists[env] >> (4 * place) & 15) as u8;
            }
            table(Metric::Quarter).distance(Pocket::index(&cube))
        };
        (0..n).map(distance).collect()
    };
    let mut envs = find("cube2").unwrap().build(&[("scramble_depth", 3.0)], &Options::new(600)).unwrap();
    let mut row = RowBuf::new(envs.spec(), 600);
    envs.reset(Seeds::One(1), None, row.row());
    let before = distances(&*envs);
    assert!(before.iter().all(|&d| d == 1 || d == 3) && before.contains(&3), "an odd number of quarter turns");
    envs.set_param("scramble_depth", 14.0).unwrap();
    envs.set_param("mixed", 1.0).unwrap();
    envs.reset(Seeds::One(2), None, row.row());
    let after = distances(&*envs);
    assert!((1..=9).all(|d| after.contains(&d)) && !after.contains(&0));
}

#[test]
fn group_identities_hold() {
    for face in 0..6 {
        assert_eq!(Cubies::SOLVED.turned(face, 1).turned(face, 3), Cubies::SOLVED);
        let mut cube = Cubies::SOLVED;
        for turn in 1..=4 {
            cube = cube.turned(face, 1);
            assert_eq!(cube == Cubies::SOLVED, turn == 4);
        }
    }
    let order = |text: &str| {
        let once = words(text);
        let (mut cube, mut order) = (once, 1);
        while cube != Cubies::SOLVED {
            (cube, order) = (cube.then(&once), order + 1);
        }
        order
    };
    // Joyner, "Adventures in Group Theory": orders of some elements.
    assert_eq!((order("R U R' U'"), order("R U"), order("R U' "), order("R2 U2")), (6, 105, 63, 6));
    // Opposite faces commute, others do not.
    assert_eq!(words("R L R' L'"), Cubies::SOLVED);
    assert_eq!(words("R L"), words("L R"));
    assert_ne!(words("R U"), words("U R"));
    let cube = words("R U2 F' L D B2 R' U");
    assert_eq!(cube.then(&cube.inverse()), Cubies::SOLVED);
    let (puzzle, pocket) = (CubePuzzle::new(View::Cubies, true).unwrap(), Pocket::new());
    // R U R' U' as actions of each cube: home after six times, and not before.
    let (mut state, mut small) = (puzzle.solved(), Pocket::SOLVED);
    for time in 1..=6 {
        state = [1, 0, 7, 6].iter().fold(state, |state, &m| puzzle.turned(state, m));
        small = [0, 1, 3, 4].iter().fold(small, |state, &m| pocket.turned(state, m));
        assert_eq!((state == puzzle.solved(), small == Pocket::SOLVED), (time == 6, time == 6));
    }
    for m in 0..18 {
        assert_eq!(puzzle.turned(puzzle.turned(puzzle.solved(), m), puzzle.inverse(m)), puzzle.solved());
    }
}

#[test]
fn the_packed_cube_turns_as_its_pieces() {
    let puzzle = CubePuzzle::new(View::Cubies, true).unwrap();
    let (mut state, mut cube) = (puzzle.solved(), Cubies::SOLVED);
    let mut rng = HostRng::new(9, 0, 0, 0);
    for _ in 0..1000 {
        let m = rng.below(18) as usize;
        state = puzzle.turned(state, m);
        cube = cube.turned(m % 6, [1, 3, 2][m / 6]);
        assert_eq!(CubePuzzle::cubies(state), cube);
        assert_eq!(CubePuzzle::of_cubies(&cube), state);
        let mut shown = [0; 20];
        puzzle.encode(state, &mut shown);
        assert!(shown.iter().enumerate().all(|(piece, &entry)| entry as usize / 24 == piece));
    }
}

#[test]
fn every_state_is_as_far_as_published() {
    // https://www.jaapsch.net/puzzles/cube2.htm
    let quarter = [1, 6, 27, 120, 534, 2256, 8969, 33058, 114149, 360508, 930588, 1350852, 782536, 90280, 276].to_vec();
    let half = [1, 9, 54, 321, 1847, 9992, 50136, 227536, 870072, 1887748, 623800, 2644].to_vec();
    assert_eq!(table(Metric::Quarter).counts(), quarter);
    assert_eq!(table(Metric::Half).counts(), half);
}

#[test]
fn numbers_and_pieces_are_the_same_states() {
    let (pocket, mut rng) = (Pocket::new(), HostRng::new(5, 0, 0, 0));
    for _ in 0..2000 {
        let state = Pocket::random(&mut rng);
        let cube = Pocket::cubies(state);
        assert_eq!(Pocket::index(&cube), state);
        assert_eq!(Pocket::index_of_any(&cube).unwrap(), state);
        let action = rng.below(9) as usize;
        let (face, quarters) = Pocket::action_move(action);
        assert_eq!(Pocket::action_of((face, quarters)), Some(action));
        assert_eq!(Pocket::index(&cube.turned(face, quarters)), pocket.turned(state, action));
        // L is R with the whole cube held otherwise, D is U and B is F: the distance can't differ by more than one.
        for opposite in [3, 4, 5] {
            let other = Pocket::index_of_any(&cube.turned(opposite, 1)).unwrap();
            let distance = |state| table(Metric::Quarter).distance(state);
            assert_eq!(distance(other).abs_diff(distance(state)), 1, "a quarter turn changes the parity");
        }
    }
}

#[test]
fn solutions_are_shortest_and_draws_exact() {
    let pocket = Pocket::new();
    for metric in [Metric::Quarter, Metric::Half] {
        let table = table(metric);
        for distance in 0..table.counts().len() {
            for state in table.draw(distance, 5, 7).unwrap() {
                let solution = table.solve(&pocket, state);
                assert_eq!((solution.len(), table.distance(state)), (distance, distance));
                assert_eq!(solution.iter().fold(state, |state, &m| pocket.turned(state, m)), Pocket::SOLVED);
            }
        }
        assert_eq!(table.draw(6, 9, 1), table.draw(6, 9, 1));
        assert_ne!(table.draw(6, 9, 1), table.draw(6, 9, 2));
        let most = table.counts().len() - 1;
        let wanted = format!("no state is at distance {} in {}: wanted 0..={most}", most + 1, metric.name());
        assert_eq!(table.draw(most + 1, 1, 1).unwrap_err().to_string(), wanted);
    }
}

#[test]
fn images_are_equally_far_and_follow_their_moves() {
    let (pocket, table, mut rng) = (Pocket::new(), table(Metric::Quarter), HostRng::new(6, 0, 0, 0));
    // About the axis from URF to DBL: R to F, U to R, F to U, or the other way round.
    for _ in 0..300 {
        let actions: Vec<usize> = (0..rng.below(20)).map(|_| rng.below(6) as usize).collect();
        let after = |map: [usize; 3], mirrored: bool| {
            let turn = |state, &action: &usize| {
                let inverse = (action >= 3) != mirrored;
                pocket.turned(state, map[action % 3] + 3 * usize::from(inverse))
            };
            actions.iter().fold(Pocket::SOLVED, turn)
        };
        let images = Pocket::images(after([0, 1, 2], false));
        assert!(images.iter().all(|&image| table.distance(image) == table.distance(images[0])));
        for map in [[0, 1, 2], [1, 2, 0], [2, 0, 1]] {
            assert!(images.contains(&after(map, false)));
        }
        // Mirrors swap two of the faces and turn the other way.
        for map in [[2, 1, 0], [1, 0, 2], [0, 2, 1]] {
            assert!(images.contains(&after(map, true)));
        }
        let back: Vec<usize> = actions.iter().rev().map(|&action| Pocket::inverse(action)).collect();
        assert!(images.contains(&back.iter().fold(Pocket::SOLVED, |state, &m| pocket.turned(state, m))));
    }
    let representatives = pocket.representatives();
    let orbits = (0..POCKET_STATES).filter(|&i| representatives[i] as usize == i).count();
    assert!((306_180..320_000).contains(&orbits), "{orbits}: a twelfth of all, and those with fewer images");
}

#[test]
fn notation_comes_back_and_mistakes_are_named() {
    let moves = parse_moves(" R U' F2  L D2' B3 ").unwrap();
    assert_eq!(moves, [(1, 1), (0, 3), (2, 2), (4, 1), (3, 2), (5, 3)]);
    assert_eq!(print_moves(&moves), "R U' F2 L D2 B'");
    assert_eq!(
        parse_moves("R X").unwrap_err().to_string(),
        "move \"X\": wanted a face U R F D L B with nothing, 2 or ' behind it, as in R U' F2"
    );
    for wrong in ["r", "R''", "R4", "'", "RU"] {
        assert!(parse_moves(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn impossible_facelets_are_refused_with_the_reason() {
    let reason = |text: &str, size: usize| {
        let message = parse_facelets(text, size).unwrap_err().to_string();
        message.split_once(": ").unwrap().1.to_owned()
    };
    let solved = |size: usize| print_facelets(&Cubies::SOLVED, size);
    assert!(reason("UUU", 2).starts_with("3 letters, wanted 24"));
    assert_eq!(
        reason(&solved(2).replace("DDDD", "DDDX"), 2),
        "'X' names no face; stickers are named by the face whose colour they have, U R F D L B"
    );
    assert_eq!(reason(&solved(2).replace("DDDD", "DDDU"), 2), "5 stickers of U, wanted 4");
    let twisted = print_facelets(&Cubies { twists: [1, 0, 0, 0, 0, 0, 0, 0], ..Cubies::SOLVED }, 2);
    assert!(reason(&twisted, 2).starts_with("one corner is twisted"));
    // U and D stickers of one corner each are swapped: no corner shows D beside R and F where U was.
    let mut letters: Vec<char> = solved(2).chars().collect();
    letters.swap(3, 4);
    assert_eq!(reason(&letters.iter().collect::<String>(), 2), "no corner has the colours RUF that are at URF");
    let two = Cubies { corners: [0, 0, 2, 3, 4, 5, 6, 7], ..Cubies::SOLVED };
    let counts = reason(&print_facelets(&two, 2), 2);
    assert!(counts.contains("stickers of"), "{counts}");
    let flipped = Cubies { flips: [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], ..Cubies::SOLVED };
    assert!(reason(&print_facelets(&flipped, 3), 3).starts_with("one edge is flipped"));
    let mut swapped = Cubies::SOLVED;
    swapped.edges.swap(0, 1);
    assert!(reason(&print_facelets(&swapped, 3), 3).starts_with("two pieces are swapped"));
    let mut centres: Vec<char> = solved(3).chars().collect();
    centres.swap(4, 13);
    assert_eq!(reason(&centres.iter().collect::<String>(), 3), "the centre of U is R, wanted U");
    assert_eq!(parse_facelets(&solved(3).to_lowercase(), 3).unwrap(), Cubies::SOLVED);
}

#[test]
fn a_table_comes_back_and_a_damaged_one_does_not() {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("cube2-table");
    let table = table(Metric::Half);
    table.save(&path).unwrap();
    assert!(DistanceTable::load(&path).unwrap() == *table);
    let mut bytes = std::fs::read(&path).unwrap();
    assert!(bytes.len() < 4_000_000);
    bytes[1_000_000] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let message = DistanceTable::load(&path).unwrap_err().to_string();
    assert!(message.contains("checksum does not match; build it again (operant cube2 table)"), "{message}");
    std::fs::write(&path, "nonsense, long enough to hold a checksum").unwrap();
    assert!(DistanceTable::load(&path).unwrap_err().to_string().contains("begins with other words"));
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn an_env_with_symmetry_shows_and_turns_images_alike() {
    let (puzzle, table) = (PocketPuzzle::new(View::Cubies, false, false), table(Metric::Quarter));
    let mut rng = HostRng::new(8, 0, 0, 0);
    for (view, numbers) in [(0.0, 144), (1.0, 147), (2.0, 21)] {
        let options = Options { autoreset: AutoReset::Disabled, ..Options::new(12) };
        let mut env = find("cube2").unwrap().build(&[("symmetry", 1.0), ("view", view)], &options).unwrap();
        let mut row = RowBuf::new(env.spec(), 12);
        env.reset(Seeds::One(1), None, row.row());
        let width = env.spec().observation.len();
        assert_eq!(width, numbers);
        for _ in 0..200 {
            let images = Pocket::images(Pocket::random(&mut rng));
            let words = images.map(|state| puzzle.words(state));
            let columns = [words.map(|words| words[0]), words.map(|words| words[1])];
            env.write(&[(0, &columns[0][..]), (1, &columns[1][..])]).unwrap();
            env.observe(row.row());
            // Rotations and mirror images look alike; inverses, at odd places, look alike among themselves.
            let seen: Vec<Vec<f32>> = row.obs.chunks_exact(width).map(<[f32]>::to_vec).collect();
            assert!((0..12).all(|i| seen[i] == seen[i % 2]));
            if numbers == 21 {
                // The image that is seen is one of the six; of its places each two, in order, make an entry.
                let pairs = |state: u32| {
                    let cube = Pocket::cubies(state);
                    let code = |at: usize| usize::from(cube.corners[at]) * 3 + usize::from(cube.twists[at]);
                    let both = (1..7).flat_map(|b| (0..b).map(move |a| (a, b))).enumerate();
                    both.map(|(pair, (a, b))| ((pair * 21 + code(a)) * 21 + code(b)) as f32).collect::<Vec<_>>()
                };
                assert!((0..2).all(|i| images.iter().skip(i).step_by(2).any(|&state| pairs(state) == seen[i])));
            }
            let action = rng.below(6) as i32;
            env.step(Actions::I32(&[action; 12]), row.row());
            let mut after = [[0; 12]; 2];
            let [corners, twists] = &mut after;
            env.read(0, corners);
            env.read(1, twists);
            // Of the six images each took the same turn of the one state that stands for them.
            assert!((0..12).all(|i| (after[0][i], after[1][i]) == (after[0][i % 2], after[1][i % 2])));
            let distance = |corners: i32, twists: i32| {
                let found = (0..6).map(|m| puzzle.turned(images[0], m)).flat_map(Pocket::images);
                let found = found.into_iter().find(|&state| puzzle.words(state) == [corners, twists]);
                table.distance(found.expect("a turn of some image"))
            };
            assert_eq!(distance(after[0][0], after[1][0]).abs_diff(table.distance(images[0])), 1);
        }
    }
}

/// Numbers that are 1 name places that an independent reading of the pieces finds the pieces at.
#[test]
fn cubies_show_where_every_piece_is() {
    let mut rng = HostRng::new(5, 0, 0, 0);
    for (name, faces, corners, edges) in [("cube2", &[0, 1, 2][..], 7, 0), ("cube3", &[0, 1, 2, 3, 4, 5][..], 8, 12)] {
        let mut env = find(name).unwrap().build(&[("view", 1.0)], &Options::new(1)).unwrap();
        let mut row = RowBuf::new(env.spec(), 1);
        env.reset(Seeds::One(1), None, row.row());
        for _ in 0..200 {
            let mut cube = Cubies::SOLVED;
            for _ in 0..20 {
                cube = cube.turned(faces[rng.below(faces.len() as u32) as usize], 1 + rng.below(3) as usize);
            }
            let words = match name {
                "cube2" => PocketPuzzle::new(View::Cubies, false, false).words(Pocket::index(&cube)).to_vec(),
                _ => CubePuzzle::of_cubies(&cube).to_vec(),
            };
            let columns: Vec<(usize, &[i32])> = words.chunks(1).enumerate().collect();
            env.write(&columns).unwrap();
            env.observe(row.row());
            let wanted = (0..corners)
                .map(|place| format!("corner {} is at {place} twisted {}", cube.corners[place], cube.twists[place]))
                .chain(
                    (0..edges)
                        .map(|place| format!("edge {} is at {place} flipped {}", cube.edges[place], cube.flips[place])),
                );
            let shown = env.spec().observation.iter().zip(&row.obs).filter(|(_, x)| **x == 1.0);
            let mut shown: Vec<String> = shown.map(|(channel, _)| channel.name.to_string()).collect();
            let mut wanted: Vec<String> = wanted.collect();
            shown.sort();
            wanted.sort();
            assert_eq!(shown, wanted);
            assert!(row.obs.iter().all(|&x| x == 0.0 || x == 1.0));
        }
    }
}
