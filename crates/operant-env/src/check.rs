//! Checks that every env must pass: the registry's in the tests, yours by [`all`] in your own test or `main`.
//!
//! Each check says what it found wrong, or nothing.

use super::{ActionSpace, Actions, ActionsBuf, AutoReset, Door, Entry, Options, RowBuf, Seeds, VecEnv};
use operant_device::CpuPool;
use operant_lanes::rng::HostRng;
use operant_lanes::{Backend, HAS_PORTABLE, Math, Width};
use std::sync::Arc;

/// What a check found wrong.
pub type Finding = std::result::Result<(), String>;

/// What a check promises of an env, and the check.
pub type Check = (&'static str, fn(&Entry) -> Finding);

/// The checks by name.
pub const CHECKS: &[Check] = &[
    ("describes itself consistently", spec),
    ("parameters can be set, and only to allowed values", params),
    ("gives the same bits on every lane width", lanes),
    ("stays near strict mode in fast mode", fast_math),
    ("gives the same bits on any number of threads", threads),
    ("gives the same bits when parts take turns", parts),
    ("repeats with its seed and differs without", seeds),
    ("replays any env alone", alone),
    ("keeps observations finite and within bounds", bounds),
    ("leaves a legal choice", legal),
    ("ends episodes alike in every auto-reset mode", autoreset),
    ("truncates at the time limit and not before", time_limit),
    ("sums rewards into returns", statistics),
    ("goes on exactly after save and load", save_load),
    ("goes on exactly after its state was read and written", state),
    ("draws a picture if it says so", draw),
];

/// Runs every check; the error lists all that failed.
pub fn all(entry: &Entry) -> std::result::Result<(), String> {
    let failed: Vec<String> =
        CHECKS.iter().filter_map(|(name, check)| check(entry).err().map(|found| format!("{name}: {found}"))).collect();
    if failed.is_empty() { Ok(()) } else { Err(format!("{}:\n  {}", entry.spec().name, failed.join("\n  "))) }
}

/// A count that leaves a partial group at every lane width, and steps enough for several episodes of most envs.
const ENVS: usize = 37;
const STEPS: usize = 300;
/// Steps enough for whole episodes of any env with a usual time limit.
const LONG: usize = 1200;

fn ensure(holds: bool, message: impl FnOnce() -> String) -> Finding {
    if holds { Ok(()) } else { Err(message()) }
}

fn build(entry: &Entry, options: &Options) -> std::result::Result<Box<dyn VecEnv>, String> {
    entry.build(&[], options).map_err(|error| error.to_string())
}

/// A vector env under random actions: which actions come depends on nothing but the seed and the step.
struct Run {
    envs: Box<dyn VecEnv>,
    row: RowBuf,
    rng: HostRng,
}

impl Run {
    fn new(entry: &Entry, options: &Options, seed: u64) -> std::result::Result<Self, String> {
        let mut envs = build(entry, options)?;
        let mut row = RowBuf::new(envs.spec(), envs.num_envs());
        envs.reset(Seeds::One(seed), None, row.row());
        Ok(Self { envs, row, rng: HostRng::new(seed, u32::MAX, 0, 0) })
    }

    fn step(&mut self) -> &RowBuf {
        let actions = ActionsBuf::random(self.envs.spec(), self.envs.num_envs(), &mut self.rng);
        self.envs.step(actions.actions(), self.row.row());
        &self.row
    }

    fn rows(mut self, steps: usize) -> Vec<RowBuf> {
        let first = self.row.clone();
        std::iter::once(first).chain((0..steps).map(|_| self.step().clone())).collect()
    }
}

/// Same bits: NaN equals itself, 0 differs from −0.
fn same(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(x, y)| x.to_bits() == y.to_bits())
}

/// The first difference between two histories.
fn difference(a: &[RowBuf], b: &[RowBuf]) -> Option<String> {
    a.iter().zip(b).enumerate().find_map(|(t, (x, y))| {
        let columns = [
            ("obs", same(&x.obs, &y.obs)),
            ("reward", same(&x.reward, &y.reward)),
            ("terminated", x.terminated == y.terminated),
            ("truncated", x.truncated == y.truncated),
            ("final_obs", same(&x.final_obs, &y.final_obs)),
            ("episode_return", same(&x.episode_return, &y.episode_return)),
            ("episode_length", x.episode_length == y.episode_length),
            ("legal", x.legal == y.legal),
        ];
        columns.iter().find(|(_, same)| !same).map(|(name, _)| format!("{name} differs at step {t}"))
    })
}

fn spec(entry: &Entry) -> Finding {
    let spec = entry.spec();
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    ensure(!spec.name.is_empty() && spec.name.chars().all(plain), || {
        format!("name \"{}\": wanted a-z, 0-9, _", spec.name)
    })?;
    ensure(!spec.id.is_empty() && !spec.summary.is_empty() && !spec.reference.is_empty(), || {
        "empty id, summary or reference".into()
    })?;
    ensure(!spec.observation.is_empty() && spec.action.dims() > 0, || "empty observation or action".into())?;
    for channel in &spec.observation {
        ensure(channel.low < channel.high, || {
            format!("observation \"{}\": {} .. {}", channel.name, channel.low, channel.high)
        })?;
    }
    if let ActionSpace::Box(channels) = &spec.action {
        for channel in channels {
            let ordered = channel.low < channel.high && channel.low.is_finite() && channel.high.is_finite();
            ensure(ordered, || format!("action \"{}\": {} .. {}", channel.name, channel.low, channel.high))?;
        }
    }
    ensure(entry.answers_to(spec.name) && entry.answers_to(spec.id), || "does not answer to its own name".into())
}

fn params(entry: &Entry) -> Finding {
    let params = entry.params();
    for (i, param) in params.iter().enumerate() {
        ensure(params[..i].iter().all(|other| other.name != param.name), || format!("two parameters {}", param.name))?;
        ensure(!param.doc.is_empty(), || format!("parameter {} has no doc", param.name))?;
        ensure(param.range.contains(&param.value), || format!("default of {} is outside its range", param.name))?;
        let set = |value: f64| entry.build(&[(param.name, value)], &Options::new(1));
        set(param.value).map_err(|error| format!("its own default is refused: {error}"))?;
        for value in [f64::NAN, param.range.end() + param.range.end().abs() + 1.0] {
            ensure(set(value).is_err(), || format!("{} = {value} is accepted", param.name))?;
        }
    }
    ensure(entry.build(&[("no such parameter", 0.0)], &Options::new(1)).is_err(), || {
        "an unknown parameter is accepted".into()
    })
}

fn lanes(entry: &Entry) -> Finding {
    // One lane is the reference where the build has it: the feature `portable` on x86-64.
    let width = if HAS_PORTABLE { Width::One } else { Width::Eight };
    let reference = Options { backend: Backend::new(width, Math::Strict), ..Options::new(ENVS) };
    let reference = Run::new(entry, &reference, 1)?.rows(STEPS);
    for width in [Width::Eight, Width::Sixteen] {
        let portable = HAS_PORTABLE.then(|| Backend::portable(width));
        for backend in portable.into_iter().chain([Backend::new(width, Math::Strict)]) {
            let rows = Run::new(entry, &Options { backend, ..Options::new(ENVS) }, 1)?.rows(STEPS);
            if let Some(difference) = difference(&reference, &rows) {
                return Err(format!("{} lanes ({}): {difference}", backend.width(), backend.name()));
            }
        }
    }
    Ok(())
}

/// One step from equal states: further on, chaos would hide a mistake or pretend one.
fn fast_math(entry: &Entry) -> Finding {
    if entry.door() == Door::Host {
        return Ok(());
    }
    let mut strict = Run::new(entry, &Options::new(ENVS), 2)?;
    let mut edges = 0;
    for width in [Width::Eight, Width::Sixteen] {
        let fast = Options { backend: Backend::new(width, Math::Fast), ..Options::new(ENVS) };
        let mut fast = Run::new(entry, &fast, 2)?;
        for t in 0..STEPS {
            fast.envs.load(&strict.envs.save()).map_err(|error| error.to_string())?;
            fast.rng = strict.rng;
            let (a, b) = (strict.step(), fast.step());
            let width = a.obs.len() / ENVS;
            for i in 0..ENVS {
                // On the very edge the two may differ in whether an episode ends; that must stay rare.
                if ended(a, i) != ended(b, i) {
                    edges += 1;
                    continue;
                }
                let obs = a.obs[i * width..].iter().zip(&b.obs[i * width..]).take(width);
                for (x, y) in obs.chain([(&a.reward[i], &b.reward[i])]) {
                    ensure((x - y).abs() <= 5e-5 * x.abs().max(1.0), || format!("{x} and {y} at step {t}"))?;
                }
            }
        }
    }
    ensure(edges * 1000 <= 2 * STEPS * ENVS, || format!("{edges} of {} episodes end elsewhere", 2 * STEPS * ENVS))
}

fn threads(entry: &Entry) -> Finding {
    let envs = 200;
    let reference = Run::new(entry, &Options::new(envs), 3)?.rows(STEPS);
    for threads in [2, 3, 5] {
        let pool = Arc::new(CpuPool::new(threads));
        let rows = Run::new(entry, &Options { pool, always_split: true, ..Options::new(envs) }, 3)?.rows(STEPS);
        if let Some(difference) = difference(&reference, &rows) {
            return Err(format!("{threads} threads: {difference}"));
        }
    }
    Ok(())
}

fn parts(entry: &Entry) -> Finding {
    let reference = Run::new(entry, &Options::new(ENVS), 7)?.rows(STEPS);
    let Run { mut envs, row, mut rng } = Run::new(entry, &Options::new(ENVS), 7)?;
    let (spec, size) = (envs.spec().clone(), envs.part_size());
    let first = (ENVS / 2).next_multiple_of(size).min(ENVS);
    let (dims, width, choices) = (spec.action.dims(), spec.observation.len(), spec.legal_width());
    let mut rows = vec![row];
    for _ in 0..STEPS {
        let actions = ActionsBuf::random(&spec, ENVS, &mut rng);
        let mut row = rows[rows.len() - 1].clone();
        let mut rest = row.row();
        let front = rest.split_front(first, width, choices);
        // The later part first: neither waits for the other.
        if first < ENVS {
            envs.step_part(first, actions.actions().range(first * dims, ENVS * dims), rest);
        }
        envs.step_part(0, actions.actions().range(0, first * dims), front);
        rows.push(row);
    }
    difference(&reference, &rows).map_or(Ok(()), Err)
}

fn seeds(entry: &Entry) -> Finding {
    let rows = |seed| Ok::<_, String>(Run::new(entry, &Options::new(ENVS), seed)?.rows(STEPS));
    let first = rows(4)?;
    if let Some(difference) = difference(&first, &rows(4)?) {
        return Err(format!("the same seed: {difference}"));
    }
    // An env without randomness shows one history under the same actions.
    let mut random = build(entry, &Options::new(ENVS))?;
    let mut row = RowBuf::new(random.spec(), ENVS);
    random.reset(Seeds::One(4), None, row.row());
    let width = random.spec().observation.len();
    let varies = row.obs.chunks(width).any(|obs| !same(obs, &row.obs[..width]));
    let other = rows(5)?;
    ensure(!varies || !same(&first[0].obs, &other[0].obs), || "another seed begins with the same observations".into())?;
    random.reset(Seeds::Keep, None, row.row());
    ensure(!varies || !same(&first[0].obs, &row.obs), || "the next episode begins with the same observations".into())?;
    random.reset(Seeds::Each(&[4; ENVS]), None, row.row());
    ensure(same(&first[0].obs, &row.obs), || "a seed per env, all alike, is not that seed".into())
}

fn alone(entry: &Entry) -> Finding {
    let all = Run::new(entry, &Options::new(ENVS), 6)?;
    let spec = all.envs.spec().clone();
    let (dims, width) = (spec.action.dims(), spec.observation.len());
    let mut rng = HostRng::new(6, u32::MAX, 0, 0);
    let k = 19;
    let mut one = build(entry, &Options { first_env: k as u32, ..Options::new(1) })?;
    let mut row = RowBuf::new(&spec, 1);
    one.reset(Seeds::One(6), None, row.row());
    for (t, expected) in all.rows(STEPS).iter().enumerate() {
        if t > 0 {
            match ActionsBuf::random(&spec, ENVS, &mut rng) {
                ActionsBuf::Choices(a) => one.step(Actions::I32(&a[k * dims..(k + 1) * dims]), row.row()),
                ActionsBuf::Numbers(a) => one.step(Actions::F32(&a[k * dims..(k + 1) * dims]), row.row()),
            }
        }
        let equal =
            same(&row.obs, &expected.obs[k * width..(k + 1) * width]) && same(&row.reward, &expected.reward[k..=k]);
        ensure(equal, || format!("env {k} alone differs at step {t}"))?;
    }
    Ok(())
}

fn bounds(entry: &Entry) -> Finding {
    let spec = entry.spec();
    let width = spec.observation.len();
    // Where the next step resets, the last observations of episodes, where bounds break first, are looked at too.
    let options = Options { autoreset: AutoReset::NextStep, ..Options::new(ENVS) };
    for (t, row) in Run::new(entry, &options, 7)?.rows(LONG).iter().enumerate() {
        for (i, &x) in row.obs.iter().enumerate() {
            let channel = &spec.observation[i % width];
            ensure(x.is_finite() && (channel.low..=channel.high).contains(&x), || {
                format!("\"{}\" is {x} at step {t}, outside {} ..= {}", channel.name, channel.low, channel.high)
            })?;
        }
        ensure(row.reward.iter().all(|x| x.is_finite()), || format!("reward not finite at step {t}"))?;
    }
    Ok(())
}

fn legal(entry: &Entry) -> Finding {
    let spec = entry.spec();
    if !spec.masked {
        return Ok(());
    }
    for (t, row) in Run::new(entry, &Options::new(ENVS), 8)?.rows(STEPS).iter().enumerate() {
        for legal in row.legal.chunks(spec.action.choices()) {
            ensure(legal.contains(&1) && legal.iter().all(|&x| x <= 1), || format!("{legal:?} at step {t}"))?;
        }
    }
    Ok(())
}

/// Whether env `i` of a row ended its episode.
fn ended(row: &RowBuf, i: usize) -> bool {
    row.terminated[i] | row.truncated[i] != 0
}

fn autoreset(entry: &Entry) -> Finding {
    let with = |autoreset| Run::new(entry, &Options { autoreset, ..Options::new(ENVS) }, 9);
    let width = entry.spec().observation.len();
    let part = |obs: &[f32], i: usize| obs[i * width..(i + 1) * width].to_vec();
    // Disabled with resets by hand must show what SameStep shows.
    let (mut same_step, mut disabled) = (with(AutoReset::SameStep)?, with(AutoReset::Disabled)?);
    for t in 0..STEPS {
        let expected = same_step.step().clone();
        let by_hand = disabled.step().clone();
        ensure(same(&expected.reward, &by_hand.reward) && expected.terminated == by_hand.terminated, || {
            format!("step {t}: flags or rewards")
        })?;
        let which: Vec<u8> = (0..ENVS).map(|i| u8::from(ended(&expected, i))).collect();
        for i in (0..ENVS).filter(|&i| which[i] == 1) {
            ensure(same(&part(&expected.final_obs, i), &part(&by_hand.obs, i)), || {
                format!("step {t}: final_obs of env {i}")
            })?;
        }
        if which.contains(&1) {
            disabled.envs.reset(Seeds::Keep, Some(&which), disabled.row.row());
        }
        ensure(same(&expected.obs, &disabled.row.obs), || format!("step {t}: obs after the reset"))?;
    }
    // NextStep: the step after an end ignores its action, pays nothing and shows a new episode.
    let mut next_step = with(AutoReset::NextStep)?;
    let mut before = next_step.row.clone();
    for t in 0..STEPS {
        let now = next_step.step().clone();
        for i in (0..ENVS).filter(|&i| ended(&before, i)) {
            ensure(now.reward[i] == 0.0 && !ended(&now, i), || {
                format!("next step, step {t}: env {i} went on after its end")
            })?;
        }
        before = now;
    }
    // Its observations are those of SameStep without the extra step.
    let mut one = Run::new(entry, &Options { autoreset: AutoReset::NextStep, ..Options::new(1) }, 10)?;
    let mut other = Run::new(entry, &Options { autoreset: AutoReset::SameStep, ..Options::new(1) }, 10)?;
    for t in 0..STEPS {
        let mut rng = one.rng;
        let last = one.step().clone();
        other.rng = rng;
        let expected = other.step().clone();
        ensure(same(&last.reward, &expected.reward), || format!("next step, step {t}: reward"))?;
        if ended(&last, 0) {
            ensure(same(&last.obs, &expected.final_obs), || format!("next step, step {t}: last observation"))?;
            let fresh = one.step().clone();
            ensure(same(&fresh.obs, &expected.obs), || format!("next step, step {t}: first observation"))?;
        } else {
            ensure(same(&last.obs, &expected.obs), || format!("next step, step {t}: observation"))?;
        }
        rng = one.rng;
        other.rng = rng;
    }
    Ok(())
}

fn time_limit(entry: &Entry) -> Finding {
    let limit = 7;
    let options = Options { time_limit: Some(Some(limit)), ..Options::new(ENVS) };
    let mut lengths = [0; ENVS];
    for (t, row) in Run::new(entry, &options, 11)?.rows(STEPS).iter().enumerate().skip(1) {
        for (i, length) in lengths.iter_mut().enumerate() {
            *length += 1;
            ensure((row.truncated[i] != 0) == (*length == limit), || {
                format!("env {i}, step {t}: length {length}, limit {limit}")
            })?;
            if ended(row, i) {
                *length = 0;
            }
        }
    }
    let unlimited = Options { time_limit: Some(None), ..Options::new(ENVS) };
    let never = Run::new(entry, &unlimited, 12)?.rows(STEPS).iter().all(|row| row.truncated.iter().all(|&x| x == 0));
    ensure(never, || "truncates without a time limit".into())?;
    // Nor when the count of steps reaches the end of its range, where a limit still holds.
    let mut run = Run::new(entry, &unlimited, 12)?;
    let elapsed = run.envs.columns().len() - 1;
    run.envs.write(&[(elapsed, &[i32::MAX - 1; ENVS])]).map_err(|error| error.to_string())?;
    let never = (0..3).all(|_| run.step().truncated.iter().all(|&x| x == 0));
    ensure(never, || "truncates when the count of steps wraps".into())?;
    let mut run = Run::new(entry, &options, 12)?;
    run.envs.write(&[(elapsed, &[i32::MAX - 1; ENVS])]).map_err(|error| error.to_string())?;
    ensure(run.step().truncated.iter().all(|&x| x == 1), || "a time limit that is long past does not truncate".into())
}

fn statistics(entry: &Entry) -> Finding {
    let options = Options { time_limit: Some(Some(50)), ..Options::new(ENVS) };
    let (mut returns, mut lengths, mut seen) = (vec![0.0f32; ENVS], vec![0; ENVS], 0);
    for (t, row) in Run::new(entry, &options, 13)?.rows(STEPS).iter().enumerate().skip(1) {
        for i in 0..ENVS {
            returns[i] += row.reward[i];
            lengths[i] += 1;
            if ended(row, i) {
                let equal =
                    row.episode_return[i].to_bits() == returns[i].to_bits() && row.episode_length[i] == lengths[i];
                ensure(equal, || {
                    format!("env {i}, step {t}: {} in {} steps", row.episode_return[i], row.episode_length[i])
                })?;
                (returns[i], lengths[i]) = (0.0, 0);
                seen += 1;
            }
        }
    }
    ensure(seen > 0, || "no episode ended".into())
}

fn save_load(entry: &Entry) -> Finding {
    for autoreset in [AutoReset::SameStep, AutoReset::NextStep] {
        let options = Options { autoreset, ..Options::new(ENVS) };
        let mut run = Run::new(entry, &options, 14)?;
        (0..STEPS / 2).for_each(|_| drop(run.step().clone()));
        let (saved, row, rng) = (run.envs.save(), run.row.clone(), run.rng);
        let straight = run.rows(STEPS / 2);
        // Another seed and another lane width: everything must come from the saved bytes.
        let width = if HAS_PORTABLE { Width::One } else { Width::Eight };
        let other = Options { backend: Backend::new(width, Math::Strict), ..options };
        let mut resumed = Run::new(entry, &other, 15)?;
        resumed.envs.load(&saved).map_err(|error| error.to_string())?;
        (resumed.row, resumed.rng) = (row, rng);
        if let Some(difference) = difference(&straight, &resumed.rows(STEPS / 2)) {
            return Err(difference);
        }
        let mut envs = build(entry, &Options::new(ENVS))?;
        for cut in [0, 7, saved.len() / 2, saved.len() - 1] {
            ensure(envs.load(&saved[..cut]).is_err(), || format!("{cut} of {} saved bytes are accepted", saved.len()))?;
        }
        let mut damaged = saved.clone();
        damaged[saved.len() / 2] ^= 1;
        ensure(envs.load(&damaged).is_err(), || "damaged bytes are accepted".into())?;
        let other_mode = if autoreset == AutoReset::SameStep { AutoReset::NextStep } else { AutoReset::SameStep };
        for (what, other) in [
            ("number of envs", Options { autoreset, ..Options::new(ENVS - 1) }),
            ("first env", Options { autoreset, first_env: 1, ..Options::new(ENVS) }),
            ("auto-reset mode", Options { autoreset: other_mode, ..Options::new(ENVS) }),
            ("time limit", Options { autoreset, time_limit: Some(Some(9)), ..Options::new(ENVS) }),
        ] {
            ensure(build(entry, &other)?.load(&saved).is_err(), || format!("bytes of another {what} are accepted"))?;
        }
    }
    Ok(())
}

/// Every column of the state.
fn state_words(run: &Run) -> Vec<Vec<i32>> {
    let read = |column| {
        let mut words = vec![0; run.envs.num_envs()];
        run.envs.read(column, &mut words);
        words
    };
    (0..run.envs.columns().len()).map(read).collect()
}

fn state(entry: &Entry) -> Finding {
    let mut run = Run::new(entry, &Options::new(ENVS), 16)?;
    (0..20).for_each(|_| drop(run.step().clone()));
    let words = state_words(&run);
    // Streams as they are here, but another state, replaced by this one.
    let mut other = Run::new(entry, &Options::new(ENVS), 16)?;
    (0..20).for_each(|_| drop(other.step().clone()));
    let foreign = Run::new(entry, &Options::new(ENVS), 17)?;
    let exchange = |to: &mut Run, words: &[Vec<i32>]| {
        let columns: Vec<(usize, &[i32])> = words.iter().enumerate().map(|(i, words)| (i, words.as_slice())).collect();
        to.envs.write(&columns).map_err(|error| error.to_string())
    };
    exchange(&mut other, &state_words(&foreign))?;
    exchange(&mut other, &words)?;
    ensure(state_words(&other) == words, || "what is read is not what was written".into())?;
    other.envs.observe(other.row.row());
    ensure(same(&run.row.obs, &other.row.obs), || "the written state looks different".into())?;
    other.rng = run.rng;
    for t in 0..20 {
        let (a, b) = (run.step().clone(), other.step().clone());
        let equal = same(&a.obs, &b.obs) && same(&a.reward, &b.reward) && a.terminated == b.terminated;
        ensure(equal && a.truncated == b.truncated, || format!("step {t} after the write differs"))?;
    }
    let n = run.envs.num_envs();
    for (column, count) in [(words.len(), n), (0, n - 1)] {
        ensure(run.envs.write(&[(column, &vec![0; count])]).is_err(), || {
            format!("column {column} of {count} values is accepted")
        })?;
    }
    Ok(())
}

fn draw(entry: &Entry) -> Finding {
    let run = Run::new(entry, &Options::new(2), 18)?;
    match (entry.spec().render_fps > 0, run.envs.draw(1)) {
        (true, None) => Err("render_fps is set but it draws nothing".into()),
        (false, Some(_)) => Err("it draws but render_fps is 0".into()),
        (_, Some(canvas)) => {
            let plain = canvas.pixels().chunks(3).all(|pixel| pixel == &canvas.pixels()[..3]);
            ensure(!plain, || "the picture is empty".into())
        }
        (false, None) => Ok(()),
    }
}
