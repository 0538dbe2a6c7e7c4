//! Searches and iterations of AlphaZero never allocate. One test: the count is of the process.

use operant::CATALOGUE;
use operant::algo::Report;
use operant::config::{self, Table};
use operant::device::alloc::{CountingAllocator, allocations};
use operant::env::backgammon::{BAR, Backgammon, Position, Side, State};
use operant::env::connect4::Connect4;
use operant::env::game::{Game, Turn, settle_chance};
use operant::env::twenty48::Twenty48;
use operant::lanes::rng::HostRng;
use operant::run::{Config, build_algorithm, build_env, build_pool};
use operant::search::mcts::{ChanceMode, Evaluator, Mcts, Null, Settings};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Allocations of some games after the first.
fn of_games<G: Game>(settings: &Settings, most: u32) -> u64 {
    let mut mcts = Mcts::<G>::new(settings).unwrap();
    let (mut null, mut states, mut chances) = (Null::default(), Vec::with_capacity(4096), vec![0.0; G::OUTCOMES]);
    // Its room grows with the largest batch, which may come in any game.
    let _ = Evaluator::<G>::evaluate(&mut null, &[G::start(); 4096]);
    let mut before = 0;
    for game in 0..4 {
        let mut rng = HostRng::new(1, game, 0, 0);
        let mut state = settle_chance::<G>(G::start(), &mut chances, &mut rng);
        mcts.begin(state, HostRng::new(1, game, 1, 0));
        for turn in 1..most {
            mcts.search(&mut null, &mut states);
            let action = mcts.choose(1.0);
            state = settle_chance::<G>(G::after(&state, &mcts.actions()[action]), &mut chances, &mut rng);
            if G::turn(&state) == Turn::Over {
                break;
            }
            mcts.advance(state, action, HostRng::new(1, game, 1, turn));
        }
        if game == 0 {
            before = allocations();
        }
    }
    allocations() - before
}

/// A search whose tree may be full before its simulations are done, with many leaves waiting at once: a race from twelve points, where
/// nothing is blocked and doubles have hundreds of plays.
fn a_full_tree_does_not_grow() {
    let mut counts = [0; BAR + 1];
    counts[1..=12].fill(1);
    counts[10..=12].fill(2);
    let side = Side::new(&counts).unwrap();
    let state = State { position: Position { mover: side, other: side }, dice: [2, 1], player: 0, first: false };
    let settings = Settings { simulations: 400, leaves: 50, ..Settings::default() };
    let mut mcts = Mcts::<Backgammon>::new(&settings).unwrap();
    let (mut null, mut states) = (Null::default(), Vec::with_capacity(4096));
    let capacity = |mcts: &Mcts<Backgammon>| {
        let tree = mcts.tree();
        (tree.states.capacity(), tree.actions.capacity(), tree.child.capacity(), tree.prior.capacity())
    };
    let (before, mut full) = (capacity(&mcts), 0);
    for search in 0..20 {
        mcts.begin(state, HostRng::new(1, search, 0, 0));
        mcts.search(&mut null, &mut states);
        full += usize::from(mcts.take_counters().simulations < 400);
        assert_eq!(capacity(&mcts), before);
    }
    assert!(full > 0, "no tree was full");
}

#[test]
fn nothing_is_allocated_on_the_way() {
    for transpositions in [false, true] {
        for chance in [ChanceMode::Sample, ChanceMode::Widen, ChanceMode::Exact] {
            let settings =
                Settings { simulations: 64, leaves: 4, noise: 0.2, transpositions, chance, ..Settings::default() };
            assert_eq!(of_games::<Connect4>(&settings, 50), 0);
            assert_eq!(of_games::<Twenty48>(&settings, 60), 0);
            assert_eq!(of_games::<Backgammon>(&settings, 60), 0);
        }
    }
    a_full_tree_does_not_grow();
    let gumbel = Settings { simulations: 32, gumbel: 8, ..Settings::default() };
    assert_eq!(of_games::<Backgammon>(&gumbel, 60), 0);
    for env in ["connect4", "backgammon"] {
        let mut over = Table::new();
        let words = [
            "threads=2",
            "num_envs=40",
            "network.hidden=[16]",
            "alphazero.search.simulations=16",
            "alphazero.search.leaves=2",
            "alphazero.moves=30",
            "alphazero.most_moves=60",
            "alphazero.learning_starts=100",
            "alphazero.batch_size=64",
        ];
        words.iter().for_each(|word| config::assign(&mut over, word).unwrap());
        let config = Config::resolve(&CATALOGUE, "alphazero", env, over).unwrap();
        let pool = build_pool(&config);
        let mut alphazero = build_algorithm(&config, build_env(&config, &pool).unwrap(), pool).unwrap();
        let mut report = Report::new(alphazero.metrics().len());
        let mut iterate = |times: usize| {
            for _ in 0..times {
                report.begin();
                alphazero.iterate(&mut report);
            }
        };
        iterate(6);
        let before = allocations();
        iterate(5);
        assert_eq!(allocations() - before, 0, "{env}");
    }
}
