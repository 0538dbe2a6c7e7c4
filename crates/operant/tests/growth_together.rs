//! Envs of growth whose hosts train together: on the CPU the bits of envs alone, on a GPU their numbers.

use operant::device::cuda::Gpu;
use operant::device::{CpuPool, Device};
use operant::env::growth::{Apart, Bodies, Choice, GrowthVec, Happened, Op, Stage, Together};
use operant::env::{ActionSpace, Actions, AutoReset, Growth, Options, Params, RowBuf, Seeds, Told, VecEnv, find};
use operant::lanes::rng::HostRng;
use operant::nn::grow::Blueprint;
use std::sync::Arc;

/// Parameters with which an epoch takes about a millisecond.
const SMALL: &[(&str, f64)] = &[
    ("host", 4.0),
    ("epochs", 24.0),
    ("min_epochs", 1.0),
    ("prune_age", 1.0),
    ("embargo", 1.0),
    ("train_samples", 44.0),
    ("val_samples", 40.0),
    ("batch", 16.0),
    ("side", 8.0),
    ("reward", 5.0),
    ("precision", 1.0),
    ("learning_rate", 0.02),
];

fn params<'a>(more: &[(&'a str, f64)]) -> Vec<(&'a str, f64)> {
    SMALL.iter().chain(more).copied().collect()
}

fn env(more: &[(&str, f64)]) -> Growth {
    let mut env = Growth::default();
    params(more).into_iter().for_each(|(name, value)| env.set(name, value).unwrap());
    env
}

fn apart(n: usize, more: &[(&str, f64)], options: &Options) -> GrowthVec<Apart> {
    let env = env(more);
    let bodies = Apart::new(&env.frame().unwrap(), n).unwrap();
    GrowthVec::new(env, bodies, &Options { num_envs: n, ..options.clone() }).unwrap()
}

fn on_gpu(n: usize, more: &[(&str, f64)]) -> GrowthVec<Together> {
    let env = env(more);
    let device = Device::Cuda(Gpu::open(0).unwrap());
    let options = Options { device, pool: Arc::new(CpuPool::new(3)), ..Options::new(n) };
    let bodies = env.together(&options).unwrap();
    GrowthVec::new(env, bodies, &options).unwrap()
}

fn begin(envs: &mut dyn VecEnv, seed: u64) -> RowBuf {
    let mut row = RowBuf::new(envs.spec(), envs.num_envs());
    envs.reset(Seeds::One(seed), None, row.row());
    assert_eq!(envs.failure(), None);
    row
}

/// Plays random legal choices and gives every row.
fn rows(envs: &mut dyn VecEnv, row: &mut RowBuf, rng: &mut HostRng, steps: usize) -> Vec<RowBuf> {
    let ActionSpace::MultiDiscrete(heads) = envs.spec().action.clone() else { panic!("several choices") };
    let choices = envs.spec().action.choices();
    let mut played = Vec::new();
    for _ in 0..steps {
        let mut actions = Vec::new();
        for legal in row.legal.chunks(choices) {
            let mut at = 0;
            for &size in heads.iter() {
                let open: Vec<usize> = (0..size).filter(|i| legal[at + i] == 1).collect();
                actions.push(open[rng.below(open.len() as u32) as usize] as i32);
                at += size;
            }
        }
        envs.step(Actions::I32(&actions), row.row());
        assert_eq!(envs.failure(), None);
        played.push(row.clone());
    }
    played
}

#[track_caller]
fn assert_same(a: &[RowBuf], b: &[RowBuf]) {
    let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    assert_eq!(a.len(), b.len());
    for (step, (a, b)) in a.iter().zip(b).enumerate() {
        assert_eq!(bits(&a.obs), bits(&b.obs), "observations of step {step}");
        assert_eq!(bits(&a.reward), bits(&b.reward), "rewards of step {step}");
        assert_eq!((&a.terminated, &a.legal), (&b.terminated, &b.legal), "flags of step {step}");
    }
}

/// What differs in how samples come.
const WAYS: [&[(&str, f64)]; 4] =
    [&[], &[("augment", 1.0)], &[("task", 2.0), ("fresh", 1.0)], &[("augment", 1.0), ("fresh", 1.0)]];

#[test]
fn envs_together_give_the_bits_of_each_alone() {
    for (way, autoreset) in WAYS.iter().zip([AutoReset::SameStep, AutoReset::NextStep].into_iter().cycle()) {
        let options = Options { autoreset, ..Options::new(3) };
        let mut alone = find("growth").unwrap().build(&params(way), &options).unwrap();
        let mut together = apart(3, way, &options);
        let (mut left, mut right) = (begin(alone.as_mut(), 3), begin(&mut together, 3));
        assert_same(&[left.clone()], &[right.clone()]);
        let mut rng = [HostRng::new(1, 0, 0, 0); 2];
        let first = rows(alone.as_mut(), &mut left, &mut rng[0], 30);
        assert_same(&first, &rows(&mut together, &mut right, &mut rng[1], 30));
        assert!(first.iter().any(|row| row.terminated.contains(&1)), "an episode ends on the way");
        let mut told = [Told::default(), Told::default()];
        alone.take_told(&mut told[0]);
        together.take_told(&mut told[1]);
        assert_eq!(told[0].events, told[1].events);
        // Each goes on with what the other saved.
        let saved = alone.save();
        assert!(saved == together.save(), "the same bytes");
        let mut other = apart(3, way, &options);
        let mut row = begin(&mut other, 9);
        other.load(&saved).unwrap();
        alone.load(&together.save()).unwrap();
        row.clone_from(&left);
        let rest = rows(alone.as_mut(), &mut left, &mut rng[0], 8);
        assert_same(&rest, &rows(&mut other, &mut row, &mut rng[1], 8));
        let mut damaged = saved.clone();
        damaged[saved.len() / 2] ^= 1;
        assert!(other.load(&damaged).is_err() && other.load(&saved[..40]).is_err());
    }
}

#[test]
fn what_augments_nothing_and_what_is_fixed_are_named() {
    let options = Options::new(1);
    let built = find("growth").unwrap().build(&params(&[("task", 2.0), ("augment", 1.0)]), &options);
    assert!(built.err().unwrap().to_string().contains("motifs has no images"));
    let mut envs = apart(1, &[], &options);
    let message = envs.set_param("learning_rate", 0.5).unwrap_err().to_string();
    assert!(message.contains("build the envs anew"), "{message}");
    envs.set_param("gamma", 0.9).unwrap();
    assert!(envs.params().iter().any(|param| param.name == "gamma" && param.value == 0.9));
}

/// What a script does next: every operation, and every blueprint in turn.
struct Script {
    germinated: Vec<usize>,
    done: [usize; 6],
}

impl Script {
    /// The choice of an env by its state: envs 0 and 1 try blueprints, the others follow seeds to their end.
    fn choose<B: Bodies>(&mut self, envs: &mut GrowthVec<B>, place: usize, step: usize) -> Choice {
        let episode = envs.cohort_mut().episode(place).unwrap();
        let open = |op: Op| episode.allowed(op).iter().position(|allowed| *allowed);
        let order: &[Op] = match (place, step % 4) {
            (0 | 1, 0) => &[Op::Advance, Op::Prune, Op::Germinate],
            (0 | 1, _) => &[Op::Prune, Op::Germinate],
            (_, 1) => &[Op::SetAlpha, Op::Fossilise, Op::Advance, Op::Germinate],
            _ => &[Op::Fossilise, Op::Advance, Op::Germinate],
        };
        let found = order.iter().find_map(|op| Some((*op, open(*op)?)));
        let Some((op, slot)) = found else { return Choice::default() };
        self.done[op as usize] += 1;
        let mut blueprint = 0;
        if op == Op::Germinate {
            let fits: Vec<usize> =
                episode.blueprints(slot).enumerate().filter(|(_, fits)| *fits).map(|(i, _)| i).collect();
            let rarest = fits.iter().min_by_key(|&&i| self.germinated.iter().filter(|&&other| other == i).count());
            blueprint = *rarest.unwrap();
            self.germinated.push(blueprint);
        }
        let style = self.germinated.len() % 4;
        Choice { op: op as usize, slot, blueprint, style, tempo: step % 3, target: 2, speed: step % 4, curve: step % 5 }
    }
}

fn numbers(choices: &[Choice]) -> Vec<i32> {
    let heads = |c: &Choice| [c.op, c.slot, c.blueprint, c.style, c.tempo, c.target, c.speed, c.curve];
    choices.iter().flat_map(heads).map(|x| x as i32).collect()
}

/// Envs of both bodies are alike: stages and α the same, losses near, accuracies but for a sample or two.
#[track_caller]
fn assert_near(left: &mut GrowthVec<Apart>, right: &mut GrowthVec<Together>, step: usize) {
    for place in 0..left.num_envs() {
        let (left, right) = (left.cohort_mut().episode(place).unwrap(), right.cohort_mut().episode(place).unwrap());
        let at = format!("step {step}, env {place}: {:?}", left.state.planted);
        let (a, b) = (&left.state, &right.state);
        assert_eq!((a.seed, a.epoch, a.births, a.last), (b.seed, b.epoch, b.births, b.last), "{at}");
        assert_eq!((&a.happened, a.rollbacks), (&b.happened, b.rollbacks), "{at}");
        for (a, b) in a.slots.iter().zip(&b.slots) {
            assert_eq!((a.stage, a.alpha, a.age), (b.stage, b.alpha, b.age), "{at}");
            let (x, y) = (a.measured.gradient_ratio, b.measured.gradient_ratio);
            assert_eq!(x.is_some(), y.is_some(), "{at}: {x:?} and {y:?}");
            let (x, y) = (x.unwrap_or(1.0).max(1e-3), y.unwrap_or(1.0).max(1e-3));
            assert!((x / y).ln().abs() < 0.4, "{at}: gradient ratios {x} and {y}");
        }
        let (x, y) = (left.loss(), right.loss());
        assert!((x - y).abs() < 0.02 * (1.0 + x), "{at}: losses {x} and {y}");
        assert!((left.accuracy() - right.accuracy()).abs() < 5.1, "{at}");
        assert!((a.train_loss - b.train_loss).abs() < 0.02 * (1.0 + a.train_loss), "{at}");
    }
}

#[test]
#[ignore = "needs a GPU"]
fn hosts_on_a_gpu_live_the_lives_of_those_on_the_cpu() {
    for way in WAYS {
        let mut left = apart(4, way, &Options::new(4));
        let mut right = on_gpu(4, way);
        let mut row = [begin(&mut left, 5), begin(&mut right, 5)];
        let mut script = Script { germinated: Vec::new(), done: [0; 6] };
        let mut told = Vec::new();
        for step in 0..60 {
            if step == 7 {
                // One that is out of step with the others from here on.
                let which = [0, 0, 1, 0];
                left.reset(Seeds::Keep, Some(&which), row[0].row());
                right.reset(Seeds::Keep, Some(&which), row[1].row());
            }
            if step == 33 {
                left.cohort_mut().poison(3).unwrap();
                right.cohort_mut().poison(3).unwrap();
            }
            let choices: Vec<Choice> = (0..4).map(|place| script.choose(&mut left, place, step)).collect();
            let actions = numbers(&choices);
            left.step(Actions::I32(&actions), row[0].row());
            right.step(Actions::I32(&actions), row[1].row());
            assert_eq!((left.failure(), right.failure()), (None, None));
            assert_near(&mut left, &mut right, step);
            assert_eq!((&row[0].terminated, &row[0].legal), (&row[1].terminated, &row[1].legal), "step {step}");
            for (a, b) in row[0].reward.iter().zip(&row[1].reward) {
                assert!((a - b).abs() < 10.2, "step {step}: rewards {a} and {b}");
            }
            for place in 0..4 {
                told.extend(right.cohort_mut().episode(place).unwrap().state.happened.clone());
            }
            // So that small differences do not grow without end, both go on with the same numbers.
            if step % 6 == 5 {
                right.load(&left.save()).unwrap();
            }
        }
        assert!(script.done[1..].iter().all(|done| *done > 0), "{:?}", script.done);
        assert_eq!(script.germinated.iter().collect::<std::collections::HashSet<_>>().len(), Blueprint::ALL.len() - 1);
        assert!(told.iter().any(|happened| matches!(happened, Happened::Rollback(_))));
        assert!(told.iter().any(|h| matches!(h, Happened::Stage { to: Stage::Fossilised, .. })));
    }
}

#[test]
#[ignore = "needs a GPU"]
fn a_gpu_goes_on_exactly_and_neighbours_do_not_matter() {
    // TF32 and bf16, as runs have them.
    for (way, precision) in WAYS.into_iter().flat_map(|way| [(way, 2.0), (way, 3.0)]) {
        let way = [way, &[("precision", precision)]].concat();
        let mut envs = on_gpu(4, &way);
        let mut row = begin(&mut envs, 3);
        let mut rng = HostRng::new(1, 0, 0, 0);
        rows(&mut envs, &mut row, &mut rng, 17);
        let (saved, at, drawn) = (envs.save(), row.clone(), rng);
        let rest = rows(&mut envs, &mut row, &mut rng, 14);
        let mut other = on_gpu(4, &way);
        row = begin(&mut other, 8);
        rows(&mut other, &mut row, &mut HostRng::new(2, 0, 0, 0), 9);
        other.load(&saved).unwrap();
        assert!(other.save() == saved, "the same bytes again");
        (row, rng) = (at.clone(), drawn);
        assert_same(&rest, &rows(&mut other, &mut row, &mut rng, 14));
        // The CPU goes on with them too.
        let mut cpu = apart(4, &way, &Options::new(4));
        begin(&mut cpu, 1);
        cpu.load(&saved).unwrap();
        (row, rng) = (at, drawn);
        let near = rows(&mut cpu, &mut row, &mut rng, 2);
        assert_eq!(near[0].legal.len(), rest[0].legal.len());
        // Env 2 alone is env 2 of four: its neighbours choose otherwise.
        let env = env(&way);
        let device = Device::Cuda(Gpu::open(0).unwrap());
        let options = Options { device, first_env: 2, ..Options::new(1) };
        let mut alone = GrowthVec::new(env.clone(), env.together(&options).unwrap(), &options).unwrap();
        let mut single = begin(&mut alone, 3);
        let mut four = on_gpu(4, &way);
        let mut row = begin(&mut four, 3);
        let mut script = Script { germinated: Vec::new(), done: [0; 6] };
        for step in 0..20 {
            let choices: Vec<Choice> = (0..4).map(|place| script.choose(&mut four, place, step)).collect();
            four.step(Actions::I32(&numbers(&choices)), row.row());
            alone.step(Actions::I32(&numbers(&choices[2..3])), single.row());
            let width = single.obs.len();
            assert_eq!(row.obs[2 * width..3 * width], single.obs[..], "step {step}");
            assert_eq!(row.reward[2], single.reward[0], "step {step}");
        }
    }
}
