//! Search without a network: golden trees, endings solved by brute force, signs, chance, noise, reuse, batches of leaves.

use operant::Error;
use operant::env::backgammon::{Backgammon, Position, State};
use operant::env::connect4::{Board, Connect4};
use operant::env::game::{Game, Turn, sign};
use operant::env::twenty48::Twenty48;
use operant::lanes::rng::HostRng;
use operant::search::mcts::{Answer, ChanceMode, Evaluator, Mcts, Null, Settings};
use operant::search::policy::{Choice, Share, action_logits};

fn searched<G: Game>(settings: &Settings, state: G::State, evaluator: &mut impl Evaluator<G>) -> Mcts<G> {
    let mut mcts = Mcts::new(settings).unwrap();
    mcts.begin(state, HostRng::new(3, 0, 0, 0));
    mcts.search(evaluator, &mut Vec::new());
    mcts
}

/// Value of a state for player 0 by looking at everything, to the end or to a depth at which it is 0.
fn brute<G: Game>(state: &G::State, depth: usize) -> f32 {
    match G::turn(state) {
        Turn::Over => G::settled(state),
        _ if depth == 0 => G::settled(state),
        Turn::Chance => {
            let mut chances = vec![0.0; G::OUTCOMES];
            let count = G::chances(state, &mut chances);
            let term = |outcome: usize| chances[outcome] * brute::<G>(&G::happened(state, outcome), depth - 1);
            (0..count).filter(|&outcome| chances[outcome] > 0.0).map(term).sum()
        }
        Turn::Decision => {
            let mut found = Vec::new();
            G::actions(state, &mut G::Room::default(), &mut found);
            let values = found.iter().map(|action| sign::<G>(state) * brute::<G>(&G::after(state, action), depth - 1));
            sign::<G>(state) * values.fold(f32::NEG_INFINITY, f32::max)
        }
    }
}

/// Says how many stones lie in the middle column: an evaluator whose trees can be worked out by hand.
struct Middle(Vec<f32>, Vec<f32>);

impl Evaluator<Connect4> for Middle {
    fn evaluate(&mut self, states: &[Board]) -> Answer<'_> {
        self.0.clear();
        self.1.clear();
        for state in states {
            let column = 0x3f << 21;
            let count = |stones: u64| (stones & column).count_ones() as f32;
            self.0.push((count(state.mover) - count(state.other())) / 8.0);
            self.1.extend([0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]);
        }
        Answer::outputs(&self.0, &self.1)
    }
}

/// By hand: priors are e/(e+6) = 0.3118 for the middle and 0.1147 for others. Simulation 1 takes the middle; its value for player 0 is
/// 1/8. Its bound then is 0.125 + 1.5·√2·0.3118/2 = 0.4557, above (0 + 0.125)/2 − 0.2 + 1.5·√2·0.1147 = 0.1058 of the others.
#[test]
fn golden_tree_of_four_simulations() {
    let settings = Settings { simulations: 4, ..Settings::default() };
    let mcts = searched::<Connect4>(&settings, Board::default(), &mut Middle(Vec::new(), Vec::new()));
    assert_eq!(mcts.visits(), [0.0, 0.0, 0.0, 4.0, 0.0, 0.0, 0.0]);
    let tree = mcts.tree();
    assert_eq!(tree.len(), 5);
    let text: Vec<String> =
        tree.states.iter().map(Connect4::text).map(|text| text.split('/').next_back().unwrap().into()).collect();
    assert_eq!(text[..3], [".......", "...x...", "...x..."]);
    // Values for player 0: the root 0, the middle 1/8, a stone of the other on top of it 0.
    assert_eq!(tree.values[..3], [0.0, 0.125, 0.0]);
    let sum: f32 = tree.sums[0];
    assert!((mcts.value() - sum / 5.0).abs() < 1e-6 && tree.visits[0] == 5.0);
    let prior = 1.0 / (1.0 + 6.0 / std::f32::consts::E);
    assert!((tree.prior[3] - prior).abs() < 1e-6);
}

/// Whoever moves wins at once or must stop the other: both players, so that a sign that is wrong for one shows.
#[test]
fn both_players_see_what_wins_and_what_must_be_stopped() {
    let settings = Settings { simulations: 300, ..Settings::default() };
    for (moves, best, value) in
        [("112233", 3, 1.0), ("1122337", 3, -1.0), ("4141414", 0, f32::NAN), ("71122335", 3, -1.0)]
    {
        let board = Board::from_moves(moves).unwrap();
        let mut mcts = searched::<Connect4>(&settings, board, &mut Null::default());
        let wins = brute::<Connect4>(&board, 1);
        assert_eq!(mcts.choose(0.0), best, "{moves}: {:?}", mcts.visits());
        if value == 1.0 {
            assert!(wins == 1.0 && mcts.value() > 0.8, "{moves}: {}", mcts.value());
        }
        assert!(mcts.action_value(best) >= mcts.action_value((best + 5) % mcts.actions().len()), "{moves}");
    }
}

/// Boards with few cells left: the search comes to the value that looking at everything gives, and plays a move that keeps it.
#[test]
fn endings_are_solved() {
    let mut solved = 0;
    for game in 0..6000 {
        let mut rng = HostRng::new(17, game, 0, 0);
        let mut board = Board::default();
        while board.stones() < 34 && Connect4::turn(&board) != Turn::Over {
            let open: Vec<usize> = (0..7).filter(|&column| board.open(column)).collect();
            board = board.put(open[rng.below(open.len() as u32) as usize]);
        }
        if Connect4::turn(&board) == Turn::Over {
            continue;
        }
        for transpositions in [false, true] {
            let settings = Settings { simulations: 3000, transpositions, ..Settings::default() };
            let mut mcts = searched::<Connect4>(&settings, board, &mut Null::default());
            let wanted = brute::<Connect4>(&board, 99);
            let action = mcts.choose(0.0);
            let chosen = mcts.actions()[action];
            assert_eq!(brute::<Connect4>(&board.put(usize::from(chosen)), 99), wanted, "{}", Connect4::text(&board));
            solved += 1;
        }
        if solved >= 60 {
            break;
        }
    }
    assert!(solved >= 60);
}

/// A race in which both bear off their last checkers, with all dice looked at: exactly the expectation of brute force.
#[test]
fn exact_chance_is_the_expectation_of_brute_force() {
    let side = |places: &[(usize, u8)]| {
        let mut counts = [0; 26];
        places.iter().for_each(|&(place, count)| counts[place] = count);
        operant::env::backgammon::Side::new(&counts).unwrap()
    };
    // One checker each: the mover on its 6 point, the other on its 1 point, which always gets off.
    let position = Position { mover: side(&[(6, 1)]), other: side(&[(1, 1)]) };
    for player in [0, 1] {
        let state = State { position, dice: [0; 2], player, first: false };
        let wanted = brute::<Backgammon>(&state, 9);
        // 27 of 36 rolls bear the checker off; both have borne off others, so it is a single game.
        let sign = if player == 0 { 1.0 } else { -1.0 };
        assert!((wanted - sign * (2.0 * 27.0 / 36.0 - 1.0)).abs() < 1e-6, "{wanted}");
        let settings = Settings { simulations: 600, chance: ChanceMode::Exact, ..Settings::default() };
        let mcts = searched::<Backgammon>(&settings, state, &mut Oracle(Vec::new()));
        assert!((mcts.tree().values[0] - wanted).abs() < 1e-5, "{} {wanted}", mcts.tree().values[0]);
        // What chance's node says after looking on: still that, but for worse actions that were tried on the way.
        let tree = mcts.tree();
        let now: f32 = tree.edges_of(0).map(|edge| tree.prior[edge] * tree.mean(tree.child[edge])).sum();
        assert!((now - wanted).abs() < 0.03, "{now} {wanted}");
        // Draws come there too, from an evaluator that knows nothing.
        let settings = Settings { simulations: 20_000, afterstates: false, ..Settings::default() };
        let mcts = searched::<Backgammon>(&settings, state, &mut Null::default());
        assert!((mcts.value() - wanted).abs() < 0.06, "{} {wanted}", mcts.value());
    }
}

/// Says what looking at everything says.
struct Oracle(Vec<f32>);

impl Evaluator<Backgammon> for Oracle {
    fn evaluate(&mut self, states: &[State]) -> Answer<'_> {
        self.0.clear();
        self.0.extend(states.iter().map(|state| sign::<Backgammon>(state) * brute::<Backgammon>(state, 9)));
        Answer::values(&self.0)
    }
}

/// Knows races of one checker each exactly, and says so.
struct Known;

impl Evaluator<Backgammon> for Known {
    fn evaluate(&mut self, states: &[State]) -> Answer<'_> {
        panic!("{} states were valued, all are known", states.len() - 1)
    }
    fn exact(&self, state: &State) -> Option<f32> {
        let value = brute::<Backgammon>(state, 12);
        Some(value * sign::<Backgammon>(state))
    }
}

struct Root(Known, [f32; 1]);

impl Evaluator<Backgammon> for Root {
    fn evaluate(&mut self, states: &[State]) -> Answer<'_> {
        assert_eq!(states.len(), 1, "only the root is asked for");
        Answer::values(&self.1)
    }
    fn exact(&self, state: &State) -> Option<f32> {
        self.0.exact(state)
    }
}

/// With leaves that are known exactly, before the roll and for whoever rolls, the search plays as looking at everything does.
#[test]
fn exact_leaves_play_endings_perfectly() {
    let mut rng = HostRng::new(23, 0, 0, 0);
    let mut looked = 0;
    while looked < 12 {
        let mut draw = |checkers: u8| {
            let mut counts = [0; 26];
            (0..checkers).for_each(|_| counts[1 + rng.below(6) as usize] += 1);
            operant::env::backgammon::Side::new(&counts).unwrap()
        };
        let position = Position { mover: draw(2), other: draw(1) };
        let (a, b) = (1 + rng.below(6) as u8, 1 + rng.below(6) as u8);
        let player = rng.below(2) as u8;
        let state = State { position, dice: [a.max(b), a.min(b)], player, first: false };
        let mut found = Vec::new();
        Backgammon::actions(&state, &mut Default::default(), &mut found);
        if found.len() < 2 {
            continue;
        }
        looked += 1;
        let settings = Settings { simulations: 64, ..Settings::default() };
        let mut mcts = searched::<Backgammon>(&settings, state, &mut Root(Known, [0.0]));
        let action = mcts.choose(0.0);
        let value =
            |i: usize| sign::<Backgammon>(&state) * brute::<Backgammon>(&Backgammon::after(&state, &found[i]), 12);
        let best = (0..found.len()).map(value).fold(f32::NEG_INFINITY, f32::max);
        assert!((value(action) - best).abs() < 1e-5, "{} {}", Backgammon::text(&state), found[action].text());
        assert!((mcts.action_value(action) - best).abs() < 1e-4, "the value of an exact leaf");
        assert_eq!(mcts.take_counters().evaluations, 1);
    }
}

/// A full board with one merge, after which the game lasts a few turns, by chance: brute force sees all of it, 21 positions. Every mode
/// comes near its value by means, and to it where it is proven.
#[test]
fn chance_by_samples_and_by_widening() {
    let modes =
        [(ChanceMode::Sample, true), (ChanceMode::Sample, false), (ChanceMode::Widen, true), (ChanceMode::Exact, true)];
    let short = Twenty48::parse("32 16 64 16/128 256 128 64/16 512 32 2/1024 2048 4 4 : 0").unwrap();
    let wanted = brute::<Twenty48>(&short, 40);
    // Thousands of points: 8 for the merge, the rest by chance.
    assert!((wanted - 0.01376).abs() < 1e-6, "{wanted}");
    for (chance, afterstates) in modes {
        for proofs in [true, false] {
            // Little is tried that looks worse: what is tried is part of means.
            let c_puct = 0.2;
            let settings = Settings {
                simulations: 4000,
                chance,
                afterstates,
                widening: 0.3,
                proofs,
                c_puct,
                ..Settings::default()
            };
            let mcts = searched::<Twenty48>(&settings, short, &mut Null::default());
            // Chance may keep an outcome back to the end, never one that a proof would need.
            assert!(proofs || !mcts.is_proven(), "{chance:?}");
            // Means hold first looks, of which an expectation has one per outcome, and actions that are worse; proofs hold neither.
            let near = match (mcts.is_proven(), chance) {
                (true, _) => 1e-6,
                (false, ChanceMode::Exact) => 0.06 * wanted,
                (false, _) => 0.03 * wanted,
            };
            assert!((mcts.value() - wanted).abs() < near, "{chance:?}, proofs {proofs}: {} {wanted}", mcts.value());
        }
    }
    let long = Twenty48::parse("2 4 8 16/4 8 16 32/8 16 32 64/16 32 . . : 0").unwrap();
    let kept = modes.map(|(chance, afterstates)| {
        let settings = Settings { simulations: 4000, chance, afterstates, widening: 0.05, ..Settings::default() };
        let mcts = searched::<Twenty48>(&settings, long, &mut Null::default());
        let tree = mcts.tree();
        let mut outcomes = 0;
        for node in 0..tree.len() as u32 {
            if Twenty48::turn(&tree.states[node as usize]) == Turn::Chance && tree.edges[node as usize].1 > 0 {
                let range = tree.edges_of(node);
                let total: f32 = tree.prior[range.clone()].iter().sum();
                assert!((total - 1.0).abs() < 1e-5);
                outcomes += range.filter(|&edge| tree.child[edge] != 0).count();
            }
        }
        outcomes
    });
    assert!(kept[2] < kept[0], "widening {} of {}", kept[2], kept[0]);
}

/// Boards of Connect Four with some cells left, over an evaluator that knows nothing: what a search says it has proven is what looking at
/// everything says, for both players, with leaves side by side and with shared nodes, and proofs are found in fewer evaluations.
#[test]
fn proofs_are_true_and_save_evaluations() {
    let (mut proven, mut spent) = (0, [0, 0]);
    for game in 0..400 {
        let mut rng = HostRng::new(29, game, 0, 0);
        let mut board = Board::default();
        while board.stones() < 30 && Connect4::turn(&board) != Turn::Over {
            let open: Vec<usize> = (0..7).filter(|&column| board.open(column)).collect();
            board = board.put(open[rng.below(open.len() as u32) as usize]);
        }
        if Connect4::turn(&board) == Turn::Over {
            continue;
        }
        let wanted = brute::<Connect4>(&board, 99);
        for (leaves, transpositions) in [(1, false), (8, false), (8, true)] {
            for (proofs, spent) in [true, false].into_iter().zip(&mut spent) {
                let settings = Settings { simulations: 1500, leaves, transpositions, proofs, ..Settings::default() };
                let mut mcts = searched::<Connect4>(&settings, board, &mut Null::default());
                *spent += mcts.take_counters().evaluations;
                assert!(proofs || !mcts.is_proven());
                if !mcts.is_proven() {
                    continue;
                }
                proven += 1;
                assert_eq!(mcts.value(), wanted, "{}", Connect4::text(&board));
                let action = mcts.choose(0.0);
                let after = board.put(usize::from(mcts.actions()[action]));
                assert_eq!(brute::<Connect4>(&after, 99), wanted, "{}", Connect4::text(&board));
                let mut policy = Vec::new();
                mcts.policy(&mut policy);
                for (share, &column) in policy.iter().zip(mcts.actions()) {
                    let keeps = brute::<Connect4>(&board.put(usize::from(column)), 99) == wanted;
                    assert!(*share == 0.0 || keeps, "{} gives {column} a share", Connect4::text(&board));
                }
                // Nothing that was under way is left in the sums.
                let tree = mcts.tree();
                for edge in tree.edges_of(0).filter(|&edge| tree.edge_visits[edge] > 0.0) {
                    assert!((tree.edge_sums[edge] / tree.edge_visits[edge]).abs() <= 1.0 + 1e-4);
                }
            }
        }
    }
    assert!(proven > 60, "{proven}");
    assert!(spent[0] < spent[1], "{spent:?}");
}

/// A roll of two equal dice is two choices: what the learner lowers, on average over the choices that it draws, is −Σ share · ln prior of the
/// priors that searches have.
#[test]
fn priors_of_doubles_are_what_is_learned() {
    let mut looked = 0;
    for seed in 0..40 {
        let mut rng = HostRng::new(31, seed, 0, 0);
        let mut state = Backgammon::start();
        for _ in 0..2 + 2 * rng.below(20) {
            state = operant::env::game::settle_chance::<Backgammon>(state, &mut [0.0; 21], &mut rng);
            let mut found = Vec::new();
            Backgammon::actions(&state, &mut Default::default(), &mut found);
            state = Backgammon::after(&state, &found[rng.below(found.len() as u32) as usize]);
            if Backgammon::turn(&state) == Turn::Over {
                break;
            }
        }
        if Backgammon::turn(&state) == Turn::Over {
            continue;
        }
        let die = 1 + (seed % 6) as u8;
        for dice in [[die, die], [6, 1]] {
            let state = State { dice, first: false, ..state };
            let mut found = Vec::new();
            Backgammon::actions(&state, &mut Default::default(), &mut found);
            let outputs: Vec<f32> = (0..Backgammon::POLICY).map(|_| rng.normal()).collect();
            let mut logits = vec![0.0; found.len()];
            let mut sums = vec![0.0; Backgammon::POLICY];
            action_logits::<Backgammon>(&state, &found, &outputs, &mut sums, &mut logits);
            assert!(sums.iter().all(|sum| *sum == 0.0));
            let total: f32 = logits.iter().map(|x| x.exp()).sum();
            let mut shares: Vec<Share> =
                found.iter().map(|action| (Backgammon::policy_index(&state, action), rng.unit())).collect();
            let all: f32 = shares.iter().map(|(_, share)| share).sum();
            shares.iter_mut().for_each(|(_, share)| *share /= all);
            let wanted: f32 = shares.iter().zip(&logits).map(|((_, share), logit)| -share * (logit - total.ln())).sum();
            // Cross-entropy of a choice over the outputs that are legal in it, weighed by how often it is drawn.
            let loss = |choice: Choice| {
                let mut target = vec![0.0; Backgammon::POLICY];
                choice.add_target(&shares, &mut target);
                let legal: std::collections::HashSet<usize> =
                    shares.iter().filter_map(|(outputs, _)| choice.output(*outputs)).collect();
                let sum: f32 = legal.iter().map(|&output| outputs[output].exp()).sum();
                legal.iter().map(|&output| -target[output] * (outputs[output] - sum.ln())).sum::<f32>()
            };
            let doubles = shares[0].0.1.is_some();
            let mean = if doubles {
                looked += 1;
                let firsts: std::collections::HashSet<usize> = shares.iter().map(|((first, _), _)| *first).collect();
                let chance = |first: usize| -> f32 {
                    shares.iter().filter(|((one, _), _)| *one == first).map(|(_, share)| share).sum()
                };
                let seconds: f32 = firsts.iter().map(|&first| chance(first) * loss(Choice::Second(first))).sum();
                0.5 * loss(Choice::First) + 0.5 * seconds
            } else {
                loss(Choice::Only)
            };
            assert!((mean - wanted).abs() < 1e-3 * wanted.max(1.0), "{}: {mean} {wanted}", Backgammon::text(&state));
            // Draws are as often as they are said to be.
            let drawn = Choice::draw(&shares, &mut rng);
            assert_eq!(drawn == Choice::Only, !doubles);
        }
    }
    assert!(looked > 10, "{looked}");
}

/// Many leaves at once must not turn the search into one look at each action.
#[test]
fn batches_of_leaves_do_not_collapse_the_tree() {
    let look = |leaves: usize, virtual_loss: f32| {
        let settings = Settings { simulations: 800, leaves, virtual_loss, ..Settings::default() };
        let mut mcts =
            searched::<Connect4>(&settings, Board::from_moves("4435").unwrap(), &mut Middle(Vec::new(), Vec::new()));
        let counters = mcts.take_counters();
        (
            counters.depth as f64 / counters.simulations as f64,
            mcts.choose(0.0),
            mcts.visits().iter().sum::<f32>(),
            counters,
        )
    };
    let (alone, action, visits, _) = look(1, 1.0);
    assert_eq!(visits, 800.0);
    let (many, same, visits, counters) = look(16, 1.0);
    assert_eq!((same, visits), (action, 800.0));
    assert_eq!(counters.simulations, 800);
    assert!(alone > 4.0 && many > 0.7 * alone, "depth {many} with 16 leaves, {alone} with one");
    for leaves in [101, 800] {
        let wrong = Settings { simulations: 800, leaves, ..Settings::default() }.check("search");
        assert!(matches!(wrong, Err(Error::Invalid(text)) if text.contains("an eighth of 800")));
    }
    // Whatever was under way has been taken back: sums are those of values alone.
    let settings = Settings { simulations: 64, leaves: 8, ..Settings::default() };
    let mcts = searched::<Connect4>(&settings, Board::default(), &mut Null::default());
    assert!(mcts.tree().edge_sums.iter().all(|sum| sum.abs() < 1e-4));
}

#[test]
fn transpositions_share_nodes() {
    let count = |transpositions: bool| {
        let settings = Settings { simulations: 2000, transpositions, ..Settings::default() };
        let mut mcts = searched::<Connect4>(&settings, Board::default(), &mut Null::default());
        let tree = mcts.tree();
        let mut states: Vec<Board> = tree.states.clone();
        states.sort_unstable_by_key(|board| (board.mover, board.all));
        states.dedup();
        (tree.len() - states.len(), mcts.take_counters())
    };
    let (twice, plain) = count(false);
    let (none, shared) = count(true);
    assert!(twice > 0 && none == 0 && plain.hits == 0 && shared.hits > 0);
    assert!(shared.evaluations < plain.evaluations);
}

#[test]
fn a_tree_is_kept_for_the_next_search() {
    let settings = Settings { simulations: 400, ..Settings::default() };
    let mut mcts = searched::<Connect4>(&settings, Board::default(), &mut Middle(Vec::new(), Vec::new()));
    let action = mcts.choose(0.0);
    let (visits, mean) = (mcts.visits()[action], mcts.action_value(action));
    let board = Board::default().put(usize::from(mcts.actions()[action]));
    let child = mcts.tree().child[mcts.tree().edges_of(0).start + action];
    let below = mcts.tree().visits[child as usize];
    mcts.take_counters();
    mcts.advance(board, action, HostRng::new(3, 0, 0, 1));
    assert_eq!((mcts.tree().states[0], mcts.tree().visits[0]), (board, below));
    assert!((mcts.value() - mean).abs() < 1e-5 && visits >= below);
    mcts.search(&mut Middle(Vec::new(), Vec::new()), &mut Vec::new());
    let counters = mcts.take_counters();
    assert_eq!(counters.simulations + counters.reused, 400);
    assert!(counters.reused > 50 && mcts.visits().iter().sum::<f32>() == 400.0);
    // A state that the tree does not know begins anew.
    mcts.advance(Board::from_moves("11").unwrap(), 0, HostRng::new(3, 0, 0, 2));
    assert_eq!(mcts.tree().len(), 1);
}

#[test]
fn forced_plays_are_not_searched() {
    // Both on the bar against a closed board: no move.
    let side = |places: &[(usize, u8)]| {
        let mut counts = [0; 26];
        places.iter().for_each(|&(place, count)| counts[place] = count);
        operant::env::backgammon::Side::new(&counts).unwrap()
    };
    let closed: Vec<(usize, u8)> = (1..=6).map(|point| (point, 2)).collect();
    let position = Position { mover: side(&[(25, 2), (6, 5)]), other: side(&closed) };
    let state = State { position, dice: [6, 1], player: 1, first: false };
    let mut mcts = searched::<Backgammon>(&Settings::default(), state, &mut Null::default());
    let mut policy = Vec::new();
    mcts.policy(&mut policy);
    assert_eq!((policy, mcts.choose(0.0), mcts.take_counters().evaluations), (vec![1.0], 0, 1));
    assert_eq!(mcts.actions()[0].text(), "no move");
}

#[test]
fn noise_and_temperature_spread_play_and_seeds_repeat() {
    let settings = Settings { simulations: 100, noise: 0.5, noise_alpha: 0.3, ..Settings::default() };
    let run = |seed: u64, settings: &Settings| {
        let mut mcts = Mcts::<Connect4>::new(settings).unwrap();
        mcts.begin(Board::default(), HostRng::new(seed, 0, 0, 0));
        mcts.search(&mut Null::default(), &mut Vec::new());
        (mcts.visits().to_vec(), mcts.tree().prior[..7].to_vec(), mcts.choose(1.0))
    };
    let (visits, prior, _) = run(1, &settings);
    assert_eq!(run(1, &settings).0, visits);
    assert_ne!(run(2, &settings).0, visits);
    assert!((prior.iter().sum::<f32>() - 1.0).abs() < 1e-5 && prior.iter().all(|p| *p >= 0.5 / 7.0));
    let quiet = Settings { noise: 0.0, ..settings };
    assert_eq!(run(1, &quiet).0, run(2, &quiet).0);
    let chosen: std::collections::HashSet<usize> = (0..50).map(|seed| run(seed, &quiet).2).collect();
    assert!(chosen.len() >= 4, "{chosen:?}");
    // The mean of Dirichlet noise is even: 7 actions, 400 draws.
    let mut sums = [0.0; 7];
    for seed in 0..400 {
        run(seed, &Settings { noise: 1.0, simulations: 1, ..quiet.clone() })
            .1
            .iter()
            .zip(&mut sums)
            .for_each(|(p, sum)| *sum += p / 400.0);
    }
    assert!(sums.iter().all(|mean| (mean - 1.0 / 7.0).abs() < 0.05), "{sums:?}");
}

/// Sequential halving: all its actions are tried, the last two equally often, and the policy moves to what is better. Without proofs, which
/// would end it at once.
#[test]
fn sequential_halving_at_the_root() {
    let settings = Settings { simulations: 32, gumbel: 4, proofs: false, ..Settings::default() };
    let board = Board::from_moves("112233").unwrap();
    for seed in 0..20 {
        let mut mcts = Mcts::<Connect4>::new(&settings).unwrap();
        mcts.begin(board, HostRng::new(seed, 0, 0, 0));
        mcts.search(&mut Null::default(), &mut Vec::new());
        let visits = mcts.visits().to_vec();
        assert_eq!(visits.iter().sum::<f32>(), 32.0);
        assert_eq!(visits.iter().filter(|n| **n > 0.0).count(), 4, "{visits:?}");
        let mut policy = Vec::new();
        mcts.policy(&mut policy);
        assert!((policy.iter().sum::<f32>() - 1.0).abs() < 1e-5);
        if visits[3] > 0.0 {
            // Column 4 wins: once tried it is chosen, and its share of the policy grows.
            assert!(mcts.choose(1.0) == 3 && policy[3] > 0.9, "{visits:?} {policy:?}");
        }
    }
}

/// Outcomes of chance that end the game are settled, never valued, and the points on the board stay part of every mean while leaves wait.
#[test]
fn exact_chance_to_the_end_of_games() {
    for (leaves, transpositions) in [(1, false), (4, false), (4, true)] {
        let settings =
            Settings { simulations: 48, leaves, chance: ChanceMode::Exact, transpositions, ..Settings::default() };
        let mut mcts = Mcts::<Twenty48>::new(&settings).unwrap();
        let (mut states, mut rng) = (Vec::new(), HostRng::new(5, 0, 0, 0));
        let mut chances = vec![0.0; Twenty48::OUTCOMES];
        let mut state = Twenty48::parse("2 4 8 16/4 8 16 32/8 16 32 64/16 32 64 . : 3000").unwrap();
        while Twenty48::turn(&state) != Turn::Over {
            mcts.begin(state, HostRng::new(3, 0, 0, 0));
            mcts.search(&mut Null::default(), &mut states);
            let settled = Twenty48::settled(&state);
            assert!(mcts.value() >= settled - 1e-4, "{} of {settled} with {leaves} leaves", mcts.value());
            let action = mcts.choose(0.0);
            let after = Twenty48::after(&state, &mcts.actions()[action]);
            state = operant::env::game::settle_chance::<Twenty48>(after, &mut chances, &mut rng);
        }
    }
}

/// A position of Connect Four after so many random moves that is not over.
fn random_board(game: u32, stones: u32) -> Option<Board> {
    let mut rng = HostRng::new(37, game, 0, 0);
    let mut board = Board::default();
    while board.stones() < stones && Connect4::turn(&board) != Turn::Over {
        let open: Vec<usize> = (0..7).filter(|&column| board.open(column)).collect();
        board = board.put(open[rng.below(open.len() as u32) as usize]);
    }
    (Connect4::turn(&board) != Turn::Over).then_some(board)
}

/// Searches that find proofs in different ways: by upper bounds, by sequential halving, with leaves side by side, with shared nodes.
fn ways_to_search() -> [Settings; 5] {
    let plain = Settings { simulations: 400, ..Settings::default() };
    [
        Settings { simulations: 2, ..plain.clone() },
        Settings { leaves: 8, transpositions: true, ..plain.clone() },
        Settings { simulations: 4, gumbel: 2, ..plain.clone() },
        Settings { gumbel: 4, ..plain.clone() },
        plain,
    ]
}

/// Whoever can win at once does, for any seed, also where priors are against it and another way to win is proven first.
#[test]
fn a_win_in_one_is_always_taken() {
    let wins = |board: &Board, column: u8| Connect4::turn(&board.put(usize::from(column))) == Turn::Over;
    let mut looked = 0;
    for board in (0..400).filter_map(|game| random_board(game, 14 + game % 16)) {
        let mut open = (0..7).filter(|&column| board.open(usize::from(column)));
        if !open.any(|column| wins(&board, column)) {
            continue;
        }
        looked += 1;
        for settings in ways_to_search() {
            for seed in 0..6 {
                let mut mcts = Mcts::<Connect4>::new(&settings).unwrap();
                mcts.begin(board, HostRng::new(seed, 0, 0, 0));
                mcts.search(&mut Middle(Vec::new(), Vec::new()), &mut Vec::new());
                let action = mcts.choose([0.0, 1.0][seed as usize % 2]);
                assert!(wins(&board, mcts.actions()[action]), "{} {settings:?}", Connect4::text(&board));
                let sign = sign::<Connect4>(&board);
                assert_eq!((mcts.value(), mcts.action_value(action)), (sign, 1.0));
                let mut policy = Vec::new();
                mcts.policy(&mut policy);
                let won: f32 =
                    policy.iter().zip(mcts.actions()).filter(|(_, a)| wins(&board, **a)).map(|(p, _)| p).sum();
                assert!((won - 1.0).abs() < 1e-6, "{policy:?}");
            }
        }
    }
    assert!(looked >= 23, "{looked}");
}

/// The last checkers can be borne off at once, or a checker can be left: whatever the opponent may still lose, the game ends there.
#[test]
fn the_last_checkers_are_borne_off() {
    let side = |places: &[(usize, u8)]| {
        let mut counts = [0; 26];
        places.iter().for_each(|&(place, count)| counts[place] = count);
        operant::env::backgammon::Side::new(&counts).unwrap()
    };
    let mover = side(&[(1, 1), (2, 1)]);
    // A single game, a gammon, a backgammon.
    for (other, points) in [(side(&[(6, 5)]), 1.0), (side(&[(12, 15)]), 2.0), (side(&[(1, 14), (24, 1)]), 3.0)] {
        let state = State { position: Position { mover, other }, dice: [2, 1], player: 1, first: false };
        for settings in ways_to_search() {
            for seed in 0..23 {
                let mut mcts = Mcts::<Backgammon>::new(&settings).unwrap();
                mcts.begin(state, HostRng::new(seed, 0, 0, 0));
                mcts.search(&mut Null::default(), &mut Vec::new());
                assert!(mcts.actions().len() > 1, "nothing is to be decided");
                let action = mcts.choose(0.0);
                let after = Backgammon::after(&state, &mcts.actions()[action]);
                assert_eq!(Backgammon::turn(&after), Turn::Over, "{}", mcts.actions()[action].text());
                assert_eq!((mcts.is_proven(), mcts.value()), (true, -points));
            }
        }
    }
}

/// Bounds of points hold for all that can follow, and say no more than the rules do.
#[test]
fn bounds_hold_to_the_end_of_games() {
    let mut tight = 0;
    for game in 0..200 {
        let mut rng = HostRng::new(41, game, 0, 0);
        let (mut state, mut bounds) = (Backgammon::start(), Vec::new());
        while Backgammon::turn(&state) != Turn::Over {
            bounds.push(Backgammon::bounds(&state).unwrap());
            state = operant::env::game::settle_chance::<Backgammon>(state, &mut [0.0; 21], &mut rng);
            let mut found = Vec::new();
            Backgammon::actions(&state, &mut Default::default(), &mut found);
            state = Backgammon::after(&state, &found[rng.below(found.len() as u32) as usize]);
        }
        let points = Backgammon::settled(&state);
        for [low, high] in bounds {
            assert!(low <= points && points <= high, "{points} is not in {low} to {high}");
            tight += usize::from(high - low < 6.0);
        }
    }
    assert!(tight > 1000, "{tight}");
}

/// Decisions to the end of the game if the winner hurries and the loser does not, with who wins: 1 for the mover, −1 for the other.
fn to_the_end(board: &Board) -> (i32, i32) {
    if Connect4::turn(board) == Turn::Over {
        let value = (Connect4::settled(board) * sign::<Connect4>(board)) as i32;
        return (value, 0);
    }
    let open = (0..7).filter(|&column| board.open(column));
    let worth = |column: usize| {
        let (value, decisions) = to_the_end(&board.put(column));
        (-value, decisions + 1)
    };
    open.map(worth).max_by_key(|&(value, decisions)| (value, -value * decisions)).unwrap()
}

/// Of actions that are proven to win the soonest is taken, of those that are proven to lose the latest; draws stay draws.
#[test]
fn proofs_are_played_out_the_shortest_way() {
    let (mut looked, mut slower, mut later) = (0, 0, 0);
    for board in (0..1000).filter_map(|game| random_board(game, 31)) {
        let open: Vec<usize> = (0..7).filter(|&column| board.open(column)).collect();
        if open.len() < 2 {
            continue;
        }
        let ends: Vec<(i32, i32)> = open.iter().map(|&column| to_the_end(&board.put(column))).collect();
        let best = -ends.iter().map(|end| end.0).min().unwrap();
        let kept = |at: usize| ends[at].0 == -best;
        let distances = || (0..open.len()).filter(|&at| kept(at)).map(|at| ends[at].1);
        let wanted = if best > 0 { distances().min() } else { distances().max() }.unwrap();
        for settings in ways_to_search() {
            let mut mcts = searched::<Connect4>(&settings, board, &mut Null::default());
            if !mcts.is_proven() {
                continue;
            }
            looked += 1;
            let action = mcts.choose(0.0);
            assert!(kept(action), "{}", Connect4::text(&board));
            if best != 0 {
                assert_eq!(ends[action].1, wanted, "{} {settings:?}", Connect4::text(&board));
                slower += usize::from(best > 0 && wanted > 0 && distances().any(|distance| distance > wanted));
                later += usize::from(best < 0 && distances().any(|distance| distance < wanted));
            }
        }
    }
    assert!(looked > 60 && slower > 5 && later > 2, "{looked} {slower} {later}");
}

/// A state before chance may be proven too, where nobody chooses.
#[test]
fn a_root_before_chance_is_proven() {
    let side = |places: &[(usize, u8)]| {
        let mut counts = [0; 26];
        places.iter().for_each(|&(place, count)| counts[place] = count);
        operant::env::backgammon::Side::new(&counts).unwrap()
    };
    let position = Position { mover: side(&[(1, 2)]), other: side(&[(6, 2)]) };
    let state = State { position, dice: [0; 2], player: 0, first: false };
    for settings in [ChanceMode::Sample, ChanceMode::Exact].map(|chance| Settings { chance, ..Settings::default() }) {
        let mcts = searched::<Backgammon>(&settings, state, &mut Oracle(Vec::new()));
        assert!(mcts.is_proven() && (mcts.value() - 1.0).abs() < 1e-6, "{}", mcts.value());
    }
}
