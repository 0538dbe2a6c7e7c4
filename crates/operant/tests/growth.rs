//! The growth env: lives of seeds, alphas, rewards, the governor, worth, and what every env promises.

use operant::device::CpuPool;
use operant::env::growth::{
    Alpha, CLASSES, Choice, Curve, Epoch, Gates, Governor, Happened, Heuristic, Key, Kind, Ledger, Measured, Mode, Op,
    Panic, REWARDS, STYLES, Slot, Stage, Task, allowed, attribution, counted, potential,
};
use operant::env::{
    ActionSpace, Actions, AutoReset, Growth, HostEnv, Options, Params, RowBuf, Seeds, Told, VecEnv, find,
};
use operant::lanes::rng::HostRng;
use operant::nn::grow::{Blueprint, Grown, Seed, Topology, Training};
use operant::nn::ops::Blend;
use proptest::prelude::*;
use std::sync::Arc;

/// Parameters with which an epoch takes about a millisecond.
const SMALL: &[(&str, f64)] = &[
    ("host", 4.0),
    ("epochs", 24.0),
    ("min_epochs", 1.0),
    ("prune_age", 1.0),
    ("embargo", 2.0),
    ("train_samples", 48.0),
    ("val_samples", 40.0),
    ("batch", 16.0),
    ("side", 4.0),
];

fn small(more: &[(&str, f64)]) -> Growth {
    let mut env = Growth::default();
    SMALL.iter().chain(more).for_each(|(name, value)| env.set(name, *value).unwrap());
    env.validate().unwrap();
    env.reset(&mut HostRng::new(5, 0, 0, 0));
    env
}

fn vector(n: usize, more: &[(&str, f64)], options: Options) -> Box<dyn VecEnv> {
    let params: Vec<(&str, f64)> = SMALL.iter().chain(more).copied().collect();
    find("growth").unwrap().build(&params, &Options { num_envs: n, ..options }).unwrap()
}

/// A choice of every head among those that the mask leaves.
fn legal_actions(legal: &[u8], heads: &[usize], rng: &mut HostRng) -> Vec<i32> {
    let mut at = 0;
    let mut pick = |size: usize| {
        let open: Vec<i32> = (0..size).filter(|i| legal[at + i] == 1).map(|i| i as i32).collect();
        at += size;
        assert!(!open.is_empty(), "a head without a legal choice");
        open[rng.below(open.len() as u32) as usize]
    };
    heads.iter().map(|&size| pick(size)).collect()
}

fn heads(envs: &dyn VecEnv) -> Vec<usize> {
    let ActionSpace::MultiDiscrete(heads) = &envs.spec().action else { panic!("several choices") };
    heads.to_vec()
}

/// Plays random legal choices and gives every row.
fn rows(envs: &mut dyn VecEnv, row: &mut RowBuf, rng: &mut HostRng, steps: usize) -> Vec<RowBuf> {
    let (heads, choices) = (heads(envs), envs.spec().action.choices());
    let mut played = Vec::new();
    for _ in 0..steps {
        let actions: Vec<i32> = row.legal.chunks(choices).flat_map(|legal| legal_actions(legal, &heads, rng)).collect();
        envs.step(Actions::I32(&actions), row.row());
        played.push(row.clone());
    }
    played
}

fn begin(envs: &mut dyn VecEnv, seed: u64) -> RowBuf {
    let mut row = RowBuf::new(envs.spec(), envs.num_envs());
    envs.reset(Seeds::One(seed), None, row.row());
    row
}

#[test]
fn envs_may_begin_with_the_same_host() {
    let first = |same: f64, seed: u64| begin(vector(2, &[("same_host", same)], Options::new(2)).as_mut(), seed).obs;
    let (own, shared) = (first(0.0, 3), first(1.0, 3));
    let half = own.len() / 2;
    assert!(own[..half] != own[half..], "hosts of their own have losses of their own");
    assert!(shared[..half] == shared[half..] && shared != first(1.0, 4));
}

fn same(a: &[RowBuf], b: &[RowBuf]) -> bool {
    let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    a.len() == b.len()
        && a.iter().zip(b).all(|(a, b)| {
            bits(&a.obs) == bits(&b.obs)
                && bits(&a.reward) == bits(&b.reward)
                && a.terminated == b.terminated
                && a.legal == b.legal
        })
}

#[test]
fn observations_and_actions_have_their_sizes() {
    let envs = vector(1, &[("host", 0.0)], Options::new(1));
    assert_eq!(envs.spec().observation.len(), 23 + 3 * (31 + 4));
    assert_eq!(heads(envs.as_ref()), [6, 3, 13, 4, 3, 3, 4, 5]);
}

#[test]
fn episodes_repeat_on_any_threads_and_go_on_after_save_and_load() {
    let mut envs = vector(5, &[], Options::new(5));
    let mut row = begin(envs.as_mut(), 3);
    let mut rng = HostRng::new(1, 0, 0, 0);
    let first = rows(envs.as_mut(), &mut row, &mut rng, 17);
    assert!(first.iter().flat_map(|row| &row.obs).all(|x| x.is_finite() && x.abs() <= 2.0));
    let (saved, at, drawn) = (envs.save(), row.clone(), rng);
    let rest = rows(envs.as_mut(), &mut row, &mut rng, 20);
    assert!(rest.iter().any(|row| row.terminated.contains(&1)), "an episode ends on the way");
    // The same seed on three threads.
    let options = Options { pool: Arc::new(CpuPool::new(3)), always_split: true, ..Options::new(5) };
    let mut again = vector(5, &[], options);
    let mut row = begin(again.as_mut(), 3);
    assert!(same(&first, &rows(again.as_mut(), &mut row, &mut HostRng::new(1, 0, 0, 0), 17)));
    // In the middle of other episodes, from bytes.
    let mut other = vector(5, &[], Options::new(5));
    let mut row = begin(other.as_mut(), 8);
    rows(other.as_mut(), &mut row, &mut HostRng::new(2, 0, 0, 0), 9);
    other.load(&saved).unwrap();
    (row, rng) = (at, drawn);
    assert!(same(&rest, &rows(other.as_mut(), &mut row, &mut rng, 20)), "a saved episode goes on exactly");
    let mut damaged = saved.clone();
    damaged[saved.len() / 2] ^= 1;
    for bytes in [&saved[..saved.len() - 1], &saved[..40], &damaged] {
        assert!(other.load(bytes).is_err());
    }
    // Env 2 alone is env 2 of five.
    let mut alone = vector(1, &[], Options { first_env: 2, ..Options::new(1) });
    let row = begin(alone.as_mut(), 3);
    let width = row.obs.len();
    let mut five = vector(5, &[], Options::new(5));
    assert_eq!(begin(five.as_mut(), 3).obs[2 * width..3 * width], row.obs);
    assert_ne!(begin(five.as_mut(), 4).obs[2 * width..3 * width], row.obs, "another seed, another host");
}

/// Random legal play: every change of stage is one of a seed's life, something of every kind happens, and the parts of a
/// reward add up to it. The next step begins the next episode, so the last state of each is looked at too.
#[test]
fn no_masked_choice_leads_out_of_a_seeds_life() {
    let mut seen = std::collections::HashSet::new();
    for (seed, reward) in (0..7u32).map(|i| (u64::from(i), f64::from(i))) {
        let mut env = small(&[("reward", reward), ("gates", 1.0), ("epochs", 60.0)]);
        env.reset(&mut HostRng::new(seed, 0, 0, 0));
        let heads = [6, 3, 13, 4, 3, 3, 4, 5];
        let mut legal = vec![0; heads.iter().sum()];
        let mut rng = HostRng::new(seed, 1, 0, 0);
        loop {
            env.legal(&mut legal);
            assert_eq!(legal[0], 1, "waiting is always allowed");
            let a = legal_actions(&legal, &heads, &mut rng);
            let choice = choice(&a);
            let (reward, done) = env.choose(&choice);
            let state = &env.episode().unwrap().state;
            assert!((state.parts.total() - reward).abs() < 1e-6 && reward.is_finite());
            for happened in &state.happened {
                if let Happened::Stage { from, to, .. } = happened {
                    assert!(from.may_become(*to), "{} to {}", from.name(), to.name());
                    seen.insert((from.name(), to.name()));
                }
            }
            for (slot, planted) in state.slots.iter().zip(&state.planted) {
                let has_seed = slot.stage.is_live() || slot.stage == Stage::Fossilised;
                assert_eq!(planted.is_some(), has_seed, "a seed where the stage says so: {}", slot.stage.name());
                assert!(planted.is_none_or(|planted| planted.blueprint != Blueprint::Noop.index()));
                assert!((0.0..=1.0).contains(&slot.alpha.value) && (has_seed || slot.alpha.value == 0.0));
            }
            if done {
                break;
            }
        }
    }
    for step in
        [("dormant", "germinated"), ("germinated", "training"), ("training", "blending"), ("embargoed", "resetting")]
    {
        assert!(seen.contains(&step), "{step:?} never happened: {seen:?}");
    }
}

fn any_slot() -> impl Strategy<Value = Slot> {
    let measured =
        (prop::option::of(-20.0..20.0f32), prop::option::of(0.0..200.0f32), prop::option::of(-20.0..20.0f32));
    let alpha =
        (prop::sample::select(vec![0.0f32, 0.3, 1.0]), prop::sample::select(vec![Mode::Hold, Mode::Up, Mode::Down]));
    let stage = prop::sample::select(Stage::ALL.to_vec());
    (stage, 0..30u32, 0..30u32, measured, alpha, any::<bool>()).prop_map(
        |(stage, in_stage, age, m, (value, mode), pruning)| {
            let mut measured = Measured { improvement: m.0, contribution: m.2, ..Measured::default() };
            measured.note_gradient(m.1);
            let alpha = Alpha { value, mode, target: value, ..Alpha::default() };
            Slot { stage, in_stage, age, measured, alpha, pruning, ..Slot::default() }
        },
    )
}

proptest! {
    /// Whatever slots there are: what is allowed leads along a seed's life, and unmeasured health opens no gate.
    #[test]
    fn gates_hold_in_every_state(slots in prop::collection::vec(any_slot(), 1..5), strict: bool) {
        let gates = Gates { strict, min_epochs: 10, prune_age: 5, embargo: 5 };
        prop_assert!(allowed(&slots, Op::Wait, &gates).all(|x| x));
        for (op, _) in Op::ALL {
            let open = slots.iter().zip(allowed(&slots, op, &gates)).filter(|(_, allowed)| *allowed);
            for (slot, _) in open {
                let m = &slot.measured;
                let next = match op {
                    Op::Wait | Op::SetAlpha => continue,
                    Op::Germinate => {
                        prop_assert!(slots.iter().all(|slot| !slot.stage.is_busy()));
                        Stage::Germinated
                    }
                    Op::Prune => {
                        prop_assert!(slot.age >= 5 && slot.alpha.mode == Mode::Hold);
                        Stage::Pruned
                    }
                    Op::Fossilise => {
                        prop_assert!(m.gradient_ratio.is_some() && m.contribution.is_some());
                        prop_assert!(!strict || m.contribution >= Some(1.0));
                        Stage::Fossilised
                    }
                    Op::Advance if slot.stage == Stage::Training => {
                        prop_assert!(slot.in_stage >= 10 && m.gradient_ratio.is_some_and(|ratio| ratio <= 100.0));
                        prop_assert!(!strict || (m.improvement >= Some(0.5) && m.gradient_ratio >= Some(0.1)));
                        Stage::Blending
                    }
                    Op::Advance => {
                        prop_assert!(slot.alpha.value == 1.0 && (!strict || slot.in_stage >= 10));
                        Stage::Holding
                    }
                };
                prop_assert!(slot.stage.may_become(next), "{} to {}", slot.stage.name(), next.name());
            }
        }
        // An epoch changes stages only along the same lines: `go` would panic.
        for mut slot in slots {
            slot.tick(&gates);
        }
    }

    /// α goes from start to target without turning back, and is there at the end to the bit.
    #[test]
    fn alphas_arrive(from in 0.0..1.0f32, to in 0.0..1.0f32, ticks in 0..9u32, curve in 0..5usize) {
        let mut alpha = Alpha::default();
        prop_assert!(alpha.retarget(from, 0, Curve::Linear));
        prop_assert_eq!(alpha.value, from);
        prop_assert!(alpha.retarget(to, ticks, Curve::ALL[curve]));
        prop_assert!(alpha.mode == Mode::Hold || !alpha.retarget(0.5, 3, Curve::Linear), "only from hold");
        let mut before = from;
        for _ in 0..ticks {
            alpha.tick();
            prop_assert!((alpha.value - before) * (to - from) >= -1e-6);
            before = alpha.value;
        }
        prop_assert_eq!((alpha.value, alpha.mode), (to, Mode::Hold));
    }

    /// Exact Shapley values are means over all orders, share out all there is, and permutations come near them.
    #[test]
    fn shapley_values_are_means_over_orders(scores in prop::collection::vec(-10.0..10.0f64, 16)) {
        let exact = attribution::exact(&scores);
        let mut sums = [0.0; 4];
        let mut orders = 0;
        for order in 0..256usize {
            let order: Vec<usize> = (0..4).map(|i| order >> (2 * i) & 3).collect();
            if (0..4).any(|i| !order.contains(&i)) {
                continue;
            }
            orders += 1;
            let mut s = 0;
            for i in order {
                sums[i] += scores[s | 1 << i] - scores[s];
                s |= 1 << i;
            }
        }
        prop_assert_eq!(orders, 24);
        for (value, sum) in exact.values.iter().zip(sums) {
            prop_assert!((value - sum / 24.0).abs() < 1e-9);
        }
        prop_assert!((exact.values.iter().sum::<f64>() - (scores[15] - scores[0])).abs() < 1e-9);
        let mut asked = std::collections::HashMap::new();
        let drawn = attribution::permutations(4, 0.0, 400, 1, |s| { *asked.entry(s).or_insert(0) += 1; scores[s as usize] });
        prop_assert!(asked.values().all(|times| *times == 1) && drawn.scored == asked.len());
        for (i, value) in exact.values.iter().enumerate() {
            prop_assert!((value - drawn.values[i]).abs() <= 6.0 * drawn.errors[i] + 1e-9, "{} and {}", value, drawn.values[i]);
        }
    }
}

#[test]
fn worth_in_additive_games_is_what_each_adds() {
    let worth = [3.0, -1.0, 0.5, 2.0, 0.0, 1.0, -2.0, 4.0, 0.25, 1.5];
    let score = |s: u32| (0..10).filter(|i| s >> i & 1 == 1).map(|i| worth[i]).sum::<f64>();
    let drawn = attribution::permutations(10, 1e-9, 50, 3, score);
    assert!(drawn.values.iter().zip(worth).all(|(a, b)| (a - b).abs() < 1e-9) && drawn.scored < 60, "an early stop");
    let table = attribution::table(3, score);
    assert_eq!(attribution::contributions(&table), [3.0, -1.0, 0.5]);
    assert_eq!(attribution::interaction(&table, 0, 2), 0.0);
}

#[test]
fn the_governor_sees_planted_accidents() {
    let calm = |loss: f32| {
        let mut governor = Governor::default();
        (0..15).for_each(|i| assert_eq!(governor.look(loss + 0.01 * i as f32, true, CLASSES), None));
        governor
    };
    assert_eq!(calm(1.0).look(f32::NAN, true, CLASSES), Some(Panic::NotFinite));
    assert_eq!(Governor::default().look(1.0, false, CLASSES), Some(Panic::NotFinite));
    let chance = (CLASSES as f32).ln();
    assert_eq!(calm(0.5).look(1.05 * chance, true, CLASSES), Some(Panic::Collapse));
    assert_eq!(calm(2.0).look(1.05 * chance, true, CLASSES), None, "it had not learned much");
    let mut governor = calm(2.0);
    assert_eq!([20.0, 21.0].map(|loss| governor.look(loss, true, CLASSES)), [None; 2]);
    assert!(!governor.is_calm());
    assert_eq!(governor.look(20.0, true, CLASSES), Some(Panic::Divergence));
    assert_eq!([20.0, 2.0, 20.0, 21.0].map(|loss| governor.look(loss, true, CLASSES)), [None; 4], "three in a row");
}

/// Weights that are no numbers: the governor sets it back, seeds that live go, the episode goes on with numbers.
#[test]
fn a_host_that_breaks_is_set_back() {
    let mut env = small(&[("reward", 0.0), ("epochs", 40.0)]);
    let germinate = Choice { op: Op::Germinate as usize, slot: 1, blueprint: 1, ..Choice::default() };
    let mut rolled_back = 0;
    env.choose(&germinate);
    env.cohort_mut().unwrap().poison(0).unwrap();
    for _ in 0..5 {
        let (reward, _) = env.choose(&Choice::default());
        let state = &env.episode().unwrap().state;
        assert!(reward.is_finite() && state.history.iter().flatten().all(|x| x.is_finite()));
        if state.happened.iter().any(|happened| matches!(happened, Happened::Rollback(_))) {
            rolled_back += 1;
            assert!(state.parts.rollback == -10.0 && state.slots.iter().all(|slot| !slot.stage.is_live()));
        }
    }
    assert!(rolled_back >= 1 && env.episode().unwrap().state.rollbacks == rolled_back);
    let params = env.cohort_mut().unwrap().network(0).params();
    assert!(params.values().iter().all(|x| x.is_finite()), "weights of the last good snapshot");
}

#[test]
fn rewards_are_their_formulas() {
    assert_eq!([counted(-2.0, 5.0), counted(3.0, 0.0), counted(3.0, -1.0), counted(2.0, 5.0)], [-2.0, 0.0, 0.0, 2.0]);
    assert!((counted(6.0, 2.0) - 3.0).abs() < 1e-6);
    let holding = Slot { stage: Stage::Holding, in_stage: 4, ..Slot::default() };
    let fossil = Slot { stage: Stage::Fossilised, ..Slot::default() };
    assert!((potential(&holding) - (5.5 + 1.2)).abs() < 1e-6 && potential(&fossil) == 6.0);
    let (before, after) = ([holding, Slot::default()], [fossil, Slot::default()]);
    let epoch = Epoch {
        before: &before,
        after: &after,
        born: &[0, 0],
        done: Some((Op::Fossilise, 0)),
        accuracy: [40.0, 44.0],
        parameters: [1000, 1000],
        interactions: 0.0,
        gamma: 0.5,
        last: false,
        rolled_back: false,
    };
    let reward = |kind: Kind, epoch: &Epoch| epoch.reward(kind, &mut Ledger::default());
    let shaped = reward(Kind::Shaped, &epoch);
    assert!((shaped.shaping - 0.3 * (0.5 * 6.0 - 6.7)).abs() < 1e-5);
    assert!((shaped.rent + 0.5 * 2f32.ln()).abs() < 1e-6 && shaped.action == -0.01 && shaped.occupancy == -0.002);
    let last = Epoch { last: true, ..epoch };
    assert!((reward(Kind::Shaped, &last).end - (0.05 * 44.0 + 3.0 * (1f32 / 3.0).tanh())).abs() < 1e-5);
    assert!((reward(Kind::Sparse, &last).total() - (0.44 - 0.1 * 1000.0 / 500_000.0)).abs() < 1e-6);
    assert_eq!(reward(Kind::Sparse, &epoch).total(), 0.0);
    assert_eq!(reward(Kind::Minimal, &epoch).total(), 4.0);
    assert_eq!(REWARDS.iter().position(|name| *name == "area"), Some(7));
    assert_eq!(reward(Kind::from_index(7), &epoch).total(), 0.44);
    assert!((reward(Kind::Basic, &epoch).total() - (4.0 - 0.5 * 2f32.ln())).abs() < 1e-6);
    assert!((reward(Kind::Simplified, &last).end - (3.0 * 0.44 + 2.0)).abs() < 1e-6);
    assert_eq!(reward(Kind::Basic, &Epoch { rolled_back: true, ..epoch }).rollback, -10.0);
    // Credit of 20 points of contribution: 2.0, of which 0.6 at once and 1.4 in drops of at most 0.1.
    let mut before = before;
    before[0].measured.contribution = Some(20.0);
    let epoch = Epoch { before: &before, ..epoch };
    assert_eq!(reward(Kind::Escrow, &epoch).attribution, 2.0);
    let mut ledger = Ledger::default();
    assert!((epoch.reward(Kind::BasicPlus, &mut ledger).attribution - 0.6).abs() < 1e-6);
    let quiet = Epoch { done: None, ..epoch };
    let drops: Vec<f32> = (0..16).map(|_| quiet.reward(Kind::BasicPlus, &mut ledger).attribution).collect();
    assert!((drops.iter().sum::<f32>() - 1.4).abs() < 1e-5 && drops.iter().all(|drop| *drop <= 0.1 + 1e-6));
}

#[test]
fn the_synthetic_task_repeats_and_files_are_asked_for() {
    let key = Key { task: 0, side: 8, train: 50, validation: 20, modes: 2, seed: 1, context: 0 };
    let task = Task::get(key).unwrap();
    assert_eq!((task.train.targets.len(), task.validation.images.len()), (50, 20 * 8 * 8 * 3));
    let first = task.train.images.clone();
    drop(task);
    assert_eq!(Task::get(key).unwrap().train.images, first, "the same again");
    assert_ne!(Task::get(Key { seed: 2, ..key }).unwrap().train.images, first);
    let variance = first.iter().map(|x| x * x).sum::<f32>() / first.len() as f32;
    assert!((0.9..1.6).contains(&variance), "{variance}");
    let folder = std::env::temp_dir().join(format!("operant-cifar-{}", std::process::id()));
    operant::env::growth::set_task_data(&folder);
    let cifar = Key { task: 1, side: 32, train: 3, validation: 2, modes: 1, seed: 0, context: 0 };
    let message = Task::check(cifar).unwrap_err().to_string();
    assert!(message.contains("data_batch_1.bin") && message.contains("--task-data"), "{message}");
    // Files of its format: class, then planes of colours.
    std::fs::create_dir_all(&folder).unwrap();
    let record = |class: u8| [vec![class], vec![255; 1024], vec![0; 1024], vec![128; 1024]].concat();
    std::fs::write(folder.join("data_batch_1.bin"), [record(3), record(1), record(9)].concat()).unwrap();
    std::fs::write(folder.join("test_batch.bin"), [record(0), record(7)].concat()).unwrap();
    let task = Task::get(cifar).unwrap();
    assert_eq!((&task.train.targets[..], &task.validation.targets[..]), (&[3, 1, 9][..], &[0, 7][..]));
    let pixel = [(1.0 - 0.4914) / 0.2470, -0.4822 / 0.2435, (128.0 / 255.0 - 0.4465) / 0.2616];
    assert!(task.train.images[..3].iter().zip(pixel).all(|(a, b): (&f32, f32)| (a - b).abs() < 1e-5));
    std::fs::write(folder.join("test_batch.bin"), [record(10)].concat()).unwrap();
    assert!(Task::check(Key { train: 2, ..cifar }).unwrap_err().to_string().contains("no CIFAR-10 records"));
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Both motifs are needed, samples repeat by key, and fresh ones come from the same source.
#[test]
fn motifs_are_told_by_pairs() {
    let key = Key { task: 2, side: 8, train: 3000, validation: 20, modes: 6, seed: 1, context: 0 };
    let task = Task::get(key).unwrap();
    assert_eq!(task.image, [8, 8, 3]);
    let mut counts = [0; CLASSES];
    task.train.targets.iter().for_each(|&class| counts[class as usize] += 1);
    // 36 pairs among 10 classes: 3 or 4 each.
    assert!(counts.iter().all(|count| (180..430).contains(count)), "{counts:?}");
    assert!(Task::check(Key { side: 5, ..key }).unwrap_err().to_string().contains("at least 6"));
    // A few samples that stay are learned by heart; new ones cannot be.
    let gap = |fresh: f64| {
        let settings = [("task", 2.0), ("modes", 4.0), ("side", 8.0), ("train_samples", 64.0), ("val_samples", 200.0)];
        let mut env = small(&[&settings[..], &[("epochs", 40.0), ("fresh", fresh)]].concat());
        while !env.choose(&Choice::default()).1 {}
        let episode = env.episode().unwrap();
        episode.loss() - episode.state.train_loss
    };
    let (few, fresh) = (gap(0.0), gap(1.0));
    assert!(few > 0.3 && fresh < 0.5 * few, "{few} and {fresh}");
}

/// Germinates where it may, brings on what may come on, and else waits.
fn eager(env: &mut Growth) -> bool {
    let episode = env.episode().unwrap();
    let first = |op: Op| episode.allowed(op).iter().position(|allowed| *allowed).map(|slot| (op, slot));
    let choice = first(Op::Advance).or_else(|| first(Op::Germinate)).map_or_else(Choice::default, |(op, slot)| {
        Choice { op: op as usize, slot, blueprint: Blueprint::ConvSmall.index(), target: 2, ..Choice::default() }
    });
    env.choose(&choice).1
}

/// Shapley values of up to three seeds, and of up to eight when an episode ends, share out all that they add, and are told beside
/// interactions; of more they are drawn when an episode ends.
#[test]
fn what_seeds_are_worth_is_measured_and_told() {
    let mut env = small(&[("epochs", 60.0), ("min_epochs", 0.0), ("prune_age", 100.0)]);
    let mut told = Told::default();
    env.tell(&mut told);
    let names: Vec<&str> = told.names().filter(|name| name.contains("shapley") || name.starts_with("inter")).collect();
    assert_eq!(names.len(), 2 * 3 + 3, "{names:?}");
    while env.episode().unwrap().heard().len() < 2 {
        assert!(!eager(&mut env), "two seeds are heard before the episode ends");
    }
    let heard = env.episode().unwrap().heard();
    let worth = env.episode().unwrap().state.worth.clone();
    let none = env.cohort_mut().unwrap().forced_scores(0, &heard, &[0]).unwrap()[0] as f32;
    let sum: f32 = worth.shapley.iter().map(|(_, value, _)| value).sum();
    assert!((sum - (env.episode().unwrap().accuracy() - none)).abs() < 1e-3, "{worth:?} and {none}");
    assert!(worth.shapley.iter().all(|(slot, _, error)| heard.contains(slot) && error.is_none()));
    assert_eq!(worth.pairs.len(), 1);
    // Of two players each has half of the interaction beside what it gets alone: half of what both contribute last and first.
    let contribution = |slot: usize| env.episode().unwrap().state.slots[slot].measured.contribution.unwrap();
    let between = worth.between(heard[0], heard[1]).unwrap();
    assert!((worth.of(heard[0]).unwrap().0 - (contribution(heard[0]) - 0.5 * between)).abs() < 1e-3);
    told.clear();
    env.tell(&mut told);
    let means: Vec<(&str, f64)> = told.names().collect::<Vec<_>>().into_iter().zip(told.take_means()).collect();
    let number = |name: String| means.iter().find(|(known, _)| *known == name).unwrap().1;
    assert_eq!(number(format!("slot/{}/shapley", heard[0])), f64::from(worth.of(heard[0]).unwrap().0));
    assert!(number(format!("slot/{}/shapley_error", heard[0])).is_nan(), "exact");
    assert_eq!(number(format!("interaction/{}-{}", heard[0], heard[1])), f64::from(between));

    let mut env = small(&[("host", 2.0), ("epochs", 40.0), ("min_epochs", 0.0), ("prune_age", 100.0)]);
    while !eager(&mut env) {}
    let episode = env.episode().unwrap();
    assert!(episode.heard().len() > 3, "{:?}", episode.heard());
    let (worth, heard, accuracy) = (episode.state.worth.clone(), episode.heard(), episode.accuracy());
    let n = heard.len();
    assert_eq!((worth.shapley.len(), worth.pairs.len()), (n, n * (n - 1) / 2));
    assert!(worth.shapley.iter().all(|(.., error)| error.is_none()), "exact");
    let none = env.cohort_mut().unwrap().forced_scores(0, &heard, &[0]).unwrap()[0] as f32;
    let sum: f32 = worth.shapley.iter().map(|(_, value, _)| value).sum();
    assert!((sum - (accuracy - none)).abs() < 1e-3, "{worth:?}, {accuracy} and {none}");

    let many = [("host", 8.0), ("epochs", 60.0), ("min_epochs", 0.0), ("prune_age", 100.0), ("train_samples", 16.0)];
    let mut env = small(&many);
    while !eager(&mut env) {}
    let episode = env.episode().unwrap();
    assert!(episode.heard().len() > 8, "{:?}", episode.heard());
    let worth = &episode.state.worth;
    assert_eq!(worth.shapley.len(), episode.heard().len());
    assert!(worth.shapley.iter().all(|(.., error)| error.is_some()) && worth.pairs.is_empty());
    assert!(worth.to_string().contains("(Shapley, points)") && worth.to_string().contains(" ± "));
}

/// A gate's weights are a seed's too, from the choice that gives it one on.
#[test]
fn gates_count_among_parameters() {
    let mut env = small(&[]);
    let germinate =
        Choice { op: Op::Germinate as usize, slot: 0, blueprint: Blueprint::ConvSmall.index(), ..Choice::default() };
    let gated = STYLES.iter().position(|(_, blend, _)| *blend == Blend::Gate).unwrap();
    env.choose(&Choice { style: gated, ..germinate });
    let episode = env.episode().unwrap();
    let planted: usize = episode.state.planted.iter().flatten().map(|planted| planted.parameters).sum();
    let mut network = Topology::new(episode.host(), [4, 4, 3], CLASSES);
    let (shapes, _) = network.sizes().unwrap();
    network.seeds[0] = Some(Seed { blueprint: Blueprint::ConvSmall, blend: Blend::Gate, detached: true });
    let grown = Grown::new(network, Training::default(), 0).unwrap();
    let of_seeds = grown.weights().tensors.into_iter().filter(|(name, _)| name.starts_with("seed."));
    let all: usize = of_seeds.map(|(_, [values, ..])| values.len()).sum();
    let counted = episode.seed_parameters();
    assert_eq!((counted, counted - planted), (all, shapes[0].last().unwrap() + 1));
}

/// Where the deepest slot is too dear for all that the heuristic knows, it takes another.
#[test]
fn the_heuristic_takes_the_deepest_slot_that_it_can_pay() {
    let mut env = small(&[("host", 2.0), ("epochs", 20.0), ("max_parameters", 1500.0), ("train_samples", 16.0)]);
    let slots = env.episode().unwrap().state.slots.len();
    let mut heuristic = Heuristic::new(slots);
    while !env.choose(&heuristic.choose(env.episode().unwrap())).1 {}
    let planted: Vec<bool> = env.episode().unwrap().state.planted.iter().map(Option::is_some).collect();
    assert!(planted.contains(&true) && !planted[slots - 1], "{planted:?}");
}

/// A seed whose gradient goes astray, and what seeds are worth when one is kept, are events.
#[test]
fn worth_and_gradients_that_go_astray_are_events() {
    let mut measured = Measured::default();
    measured.note_gradient(Some(1.0));
    assert!(!measured.sickened(), "nothing was measured before");
    measured.note_gradient(Some(2e3));
    assert!(measured.sickened());
    measured.note_gradient(Some(2e3));
    assert!(!measured.sickened(), "told once");
    let mut env = small(&[("epochs", 60.0), ("min_epochs", 0.0), ("prune_age", 100.0)]);
    let kept = loop {
        if let Some(slot) = env.episode().unwrap().allowed(Op::Fossilise).iter().position(|allowed| *allowed) {
            break slot;
        }
        assert!(!eager(&mut env), "a seed holds before the episode ends");
    };
    env.choose(&Choice { op: Op::Fossilise as usize, slot: kept, ..Choice::default() });
    let mut told = Told::default();
    env.tell(&mut told);
    let worth: Vec<&String> =
        told.events.iter().filter(|(kind, _)| kind.to_string() == "worth").map(|(_, text)| text).collect();
    assert!(worth.len() == 1 && worth[0].contains(&format!("slot {kept} ")), "{:?}", told.events);
}

/// An action in the order of its heads.
fn choice(action: &[i32]) -> Choice {
    Choice::of(|head| action[head] as usize)
}

/// What a head that does not matter chooses changes nothing: the promise that learners rely on.
#[test]
fn heads_that_do_not_matter_change_nothing() {
    let mut rng = HostRng::new(5, 0, 0, 0);
    let spec = small(&[]).spec();
    let ActionSpace::MultiDiscrete(heads) = &spec.action else { panic!("several choices") };
    assert_eq!(heads.names().len(), heads.len());
    let [mut one, mut two] = [(); 2].map(|()| small(&[("epochs", 60.0)]));
    let mut done = [0; 6];
    for _ in 0..60 {
        let mut legal = vec![0; spec.action.choices()];
        one.legal(&mut legal);
        let ops: Vec<usize> = (0..6).filter(|&op| legal[op] == 1).collect();
        // On along a seed's life, and now and then out of it.
        let due = |op: usize| ops.contains(&op) && [true, true, done[2] < 2, done[3] < done[5], done[4] < 1, true][op];
        let op = [2, 5, 4, 3, 1].into_iter().find(|&op| due(op)).unwrap_or(0);
        let mut action: Vec<i32> = heads.iter().map(|&size| rng.below(size as u32) as i32).collect();
        (action[0], action[5]) = (op as i32, 2);
        let allowed = one.episode().unwrap().allowed(Op::ALL[op].0);
        action[1] = allowed.iter().position(|allowed| *allowed).unwrap() as i32;
        let mut other = action.clone();
        for (head, choice) in other.iter_mut().enumerate() {
            if !heads.matters(op, head) {
                *choice = rng.below(heads[head] as u32) as i32;
            }
        }
        one.choose(&choice(&action));
        two.choose(&choice(&other));
        assert_eq!(one.episode().unwrap().state, two.episode().unwrap().state, "{action:?} and {other:?}");
        done[op] += 1;
    }
    assert!(done[1] > 0 && done[3] > 0 && done[5] > 0, "{done:?}");
}

/// The heuristic keeps something, and events reach whoever asks the vector env.
#[test]
fn the_heuristic_grows_a_host() {
    let mut env = small(&[("epochs", 80.0), ("train_samples", 256.0), ("val_samples", 128.0), ("side", 8.0)]);
    let mut heuristic = Heuristic::new(3);
    let mut stages = Vec::new();
    loop {
        let choice = heuristic.choose(env.episode().unwrap());
        let (_, done) = env.choose(&choice);
        let state = &env.episode().unwrap().state;
        assert!(choice.op == 0 || state.last.1, "the heuristic chooses only what is allowed: {choice:?}");
        stages.extend(state.happened.iter().filter_map(|happened| match happened {
            Happened::Stage { to, .. } => Some(to.name()),
            Happened::Rollback(_) => None,
        }));
        if done {
            break;
        }
    }
    assert!(stages.contains(&"holding") && stages.contains(&"blending"), "{stages:?}");
    let mut envs = vector(2, &[("epochs", 6.0)], Options { autoreset: AutoReset::SameStep, ..Options::new(2) });
    let mut row = begin(envs.as_mut(), 1);
    let mut told = Told::default();
    for step in 0..6 {
        let op = i32::from(step == 0);
        let actions: Vec<i32> = (0..2).flat_map(|_| [op, 0, 1, 0, 0, 2, 0, 0]).collect();
        envs.step(Actions::I32(&actions), row.row());
    }
    envs.take_told(&mut told);
    let texts: Vec<String> = told.events.iter().map(|(kind, text)| format!("{kind}: {text}")).collect();
    assert_eq!(texts[0], "lifecycle: env 0: epoch 1, slot 0: dormant to germinated conv_light");
    assert_eq!(texts.iter().filter(|text| text.starts_with("outcome: env")).count(), 2, "{texts:?}");
    let numbers: Vec<(&str, f64)> = told.names().collect::<Vec<_>>().into_iter().zip(told.take_means()).collect();
    let number = |name: &str| numbers.iter().find(|number| number.0 == name).unwrap().1;
    // Six steps, of which the first germinated in both envs; two episodes ended.
    assert!((number("op/germinate") - 1.0 / 6.0).abs() < 1e-9 && (number("op/wait") - 5.0 / 6.0).abs() < 1e-9);
    assert!((0.0..=100.0).contains(&number("outcome/accuracy")) && number("outcome/parameters") > 0.0);
    assert!(number("slot/0/contribution").is_nan(), "a seed that was never heard");
    told.clear();
    envs.take_told(&mut told);
    assert!(told.events.is_empty() && told.take_means().all(f64::is_nan), "each is told once");
}
