//! An env as C: the recorder run over its reset, step, observe and legal.
//!
//! The printed functions take the state as 32-bit words (`s`), so that the same text serves any storage:
//! `<name>_reset(seed, env, episode, s)`, `<name>_step(seed, env, episode, t, s, a, reward) -> terminated`,
//! `<name>_observe(s, obs)` and `<name>_legal(s, legal)`. Actions come as 32-bit words too.

use super::cuda_vec::ARGS_BYTES;
use super::{Action, ActionSpace, AutoReset, Env, Spec};
use operant_lanes::{Block, CUDA_PRELUDE, Columns, Float, Lanes, Mask, PRELUDE, Recording, Rng, Sym};
use std::fmt::Write as _;

type I = <Sym as Lanes>::I;
type F = <Sym as Lanes>::F;
type M = <Sym as Lanes>::M;

/// Prelude, elementary functions and the env's four functions.
pub fn c_source<E: Env>(env: &E) -> String {
    format!("{PRELUDE}\n{}\n{}", Recording::functions(), c_functions(env))
}

/// Threads of a block from which on `step` lists what ended in it.
const LISTING_BLOCK: u32 = 128;

/// Whether an observation is the state, word by word, of 2 or 4 words: `SHOWN` of `adapter.cu`.
pub(super) fn shows_state<E: Env>(env: &E) -> bool {
    let state = <E::State<Sym> as Columns<Sym>>::COLUMNS.len();
    let (name, functions) = (env.spec().name, c_functions(env));
    let body = functions.split(&format!("FN void {name}_observe(")).nth(1).unwrap_or_default();
    let body = body.split("\n}").next().unwrap_or_default();
    let same = |k: usize| {
        let named = body.split(&format!("obs[{k}] = ")).nth(1).and_then(|rest| rest.split(';').next());
        named.is_some_and(|named| body.contains(&format!("const float {named} = from_bits(s[{k}]);")))
    };
    matches!(state, 2 | 4) && state == <E::Obs<Sym> as Block<F>>::LEN && (0..state).all(same)
}

/// What of a vector env its kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Time limit in steps.
    pub time_limit: Option<u32>,
    /// What happens after an episode's last step.
    pub autoreset: AutoReset,
    /// Threads per block, a multiple of 32.
    pub block: u32,
}

/// The printed body of an env's step.
fn step_body<'a>(functions: &'a str, name: &str) -> &'a str {
    let step = functions.split(&format!("FN int {name}_step(")).nth(1).unwrap_or_default();
    let step = step.split(&format!("FN void {name}_observe(")).next().unwrap_or_default();
    step.split_once("(void)a;").map_or("", |(_, body)| body)
}

/// The kernels of a vector env of this env: `reset`, `step` and `rollout` of `adapter.cu`.
pub fn cuda_source<E: Env>(env: &E, shape: &Shape) -> String {
    let (spec, functions) = (env.spec(), c_functions(env));
    let name = spec.name;
    let body = step_body(&functions, name);
    let reward = constant_reward(body);
    let autoreset = match shape.autoreset {
        AutoReset::SameStep => 0,
        AutoReset::NextStep => 1,
        AutoReset::Disabled => 2,
    };
    let numbers = [
        ("STATE", <E::State<Sym> as Columns<Sym>>::COLUMNS.len()),
        ("OBS", <E::Obs<Sym> as Block<F>>::LEN),
        ("ACTIONS", E::ACTION_DIMS),
        ("CHOICES", spec.legal_width()),
        ("LIMIT", shape.time_limit.map_or(0, |limit| limit.min(i32::MAX as u32) as usize)),
        ("AUTORESET", autoreset),
        ("DRAWS", usize::from(body.contains("seed["))),
        ("BLOCK", shape.block as usize),
        ("LISTS", usize::from(shape.block >= LISTING_BLOCK)),
        ("SHOWN", usize::from(shows_state(env))),
    ];
    let mut text = format!("{CUDA_PRELUDE}\n{}\n{functions}\n", Recording::functions());
    for (key, value) in numbers.into_iter().chain(ARGS_BYTES) {
        let _ = writeln!(text, "#define {key} {value}");
    }
    let _ = writeln!(text, "#define REWARD {reward}");
    for part in ["STEP", "RESET", "OBSERVE", "LEGAL"] {
        let _ = writeln!(text, "#define ENV_{part} {name}_{}", part.to_lowercase());
    }
    text.push_str(&random_action(&spec.action));
    text.push_str(include_str!("adapter.cu"));
    text
}

/// What other kernels go on from where the host steps envs of this kind: `adapter.cu` without an env's own functions or kernels.
pub fn hosted_source(spec: &Spec) -> String {
    let numbers = [
        ("STATE", 1),
        ("OBS", spec.observation.len()),
        ("ACTIONS", spec.action.dims()),
        ("CHOICES", spec.legal_width()),
        ("LIMIT", spec.time_limit.map_or(0, |limit| limit.min(i32::MAX as u32) as usize)),
        ("AUTORESET", 0),
        ("DRAWS", 0),
        ("REWARD", 0),
        ("BLOCK", 64),
        ("LISTS", 0),
        ("SHOWN", 0),
    ];
    let mut text = CUDA_PRELUDE.to_owned();
    for (key, value) in numbers.into_iter().chain(ARGS_BYTES) {
        let _ = writeln!(text, "#define {key} {value}");
    }
    text.push_str("#define ENV_STEP(seed, env, episode, t, s, a, reward) (*(reward) = 0.0f, 0)\n");
    text.push_str("#define ENV_RESET(seed, env, episode, s) ((s)[0] = 0)\n#define ENV_OBSERVE(s, obs)\n#define ENV_LEGAL(s, legal)\n");
    text.push_str(&random_action(&spec.action));
    text.push_str(include_str!("adapter.cu"));
    text
}

/// What every step gives, if the step's printed body shows it to be one small whole number; else 0.
fn constant_reward(body: &str) -> i32 {
    let printed = body.split("*reward = ").nth(1).and_then(|rest| rest.split(';').next()).unwrap_or_default();
    let value: f32 = printed.trim_end_matches('f').parse().unwrap_or(0.0);
    // Sums of so few steps are exact.
    if value.fract() == 0.0 && value.abs() <= 255.0 { value as i32 } else { 0 }
}

/// Whether kernels of this shape keep the progress of episodes in fewer bytes: `NARROW` of `adapter.cu`. Gives the reward of a step.
pub(super) fn narrow_reward<E: Env>(env: &E, shape: &Shape) -> Option<i32> {
    let short = shape.time_limit.is_some_and(|limit| (1..65_536).contains(&limit));
    let reward = constant_reward(step_body(&c_functions(env), env.spec().name));
    (short && shape.autoreset == AutoReset::SameStep && reward != 0).then_some(reward)
}

/// A uniformly random action from a random word, as `ActionsBuf::random` draws them; the remainder of 2³² by the number of
/// choices is not taken away, which a test of 2³² draws would show.
fn random_action(space: &ActionSpace) -> String {
    let mut text = "FN int32_t random_action(int dim, uint32_t word) {\n    switch (dim) {\n".to_owned();
    for dim in 0..space.dims() {
        let choice = |n: usize| format!("(int32_t)__umulhi(word, {n}u)");
        let value = match space {
            ActionSpace::Discrete(n) => choice(*n),
            ActionSpace::MultiDiscrete(n) => choice(n[dim]),
            ActionSpace::Box(channels) => {
                let (low, span) = (channels[dim].low, channels[dim].high - channels[dim].low);
                format!("bits({low:?}f + {span:?}f * ((float)(word >> 8) * 5.9604645e-8f))")
            }
        };
        let _ = writeln!(text, "    case {dim}: return {value};");
    }
    text.push_str("    default: return 0;\n    }\n}\n");
    text
}

/// The env's functions alone.
#[inline(never)]
pub fn c_functions<E: Env>(env: &E) -> String {
    let spec = env.spec();
    let name = spec.name;
    let state = <E::State<Sym> as Columns<Sym>>::COLUMNS.len();
    let obs = <E::Obs<Sym> as Block<F>>::LEN;
    let words = || (0..state).map(|i| I::input(format!("s[{i}]"))).collect::<Vec<I>>();
    let rng = |t: &str| {
        Rng::<Sym>::new([I::input("seed[0]"), I::input("seed[1]")], I::input("env"), I::input("episode"), I::input(t))
    };
    let places =
        |words: Vec<I>| words.into_iter().enumerate().map(|(i, w)| (format!("s[{i}]"), w.into())).collect::<Vec<_>>();
    let mut text = String::new();
    let _ =
        writeln!(text, "enum {{ {name}_state = {state}, {name}_obs = {obs}, {name}_actions = {} }};", E::ACTION_DIMS);

    let (recording, after) = Recording::record(|| {
        let mut after = vec![I::from(0); state];
        env.reset::<Sym>(&mut rng("0")).write(&mut after);
        after
    });
    let body = recording.print(&places(after));
    let _ = writeln!(
        text,
        "FN void {name}_reset(const int32_t seed[2], int32_t env, int32_t episode, int32_t *s) {{\n    (void)seed, (void)env, (void)episode;\n{body}}}"
    );

    let (recording, (after, reward, terminated)): (_, (Vec<I>, F, M)) = Recording::record(|| {
        let indices: Vec<I> = (0..E::ACTION_DIMS).map(|i| I::input(format!("a[{i}]"))).collect();
        let values: Vec<F> = indices.iter().map(|&bits| F::from_bits(bits)).collect();
        let step = env.step::<Sym>(
            <E::State<Sym> as Columns<Sym>>::read(&words()),
            Action { indices: &indices, values: &values },
            &mut rng("t"),
        );
        let mut after = vec![I::from(0); state];
        step.state.write(&mut after);
        (after, step.reward, step.terminated)
    });
    // The inputs s[i] are read while s[i] is written: every output goes through a temporary first.
    let mut outputs: Vec<_> =
        after.iter().enumerate().map(|(i, &w)| (format!("const int32_t n{i}"), w.into())).collect();
    outputs.push(("*reward".into(), reward.into()));
    outputs.push(("const int terminated".into(), terminated.into()));
    let mut body = recording.print(&outputs);
    for i in 0..state {
        let _ = writeln!(body, "    s[{i}] = n{i};");
    }
    let _ = writeln!(
        text,
        "FN int {name}_step(const int32_t seed[2], int32_t env, int32_t episode, int32_t t, int32_t *s, const int32_t *a, float *reward) {{\n    (void)seed, (void)env, (void)episode, (void)t, (void)a;\n{body}    return terminated;\n}}"
    );

    let (recording, values): (_, Vec<F>) =
        Recording::record(|| env.observe::<Sym>(&<E::State<Sym> as Columns<Sym>>::read(&words())).as_ref().to_vec());
    let outputs: Vec<_> = values.into_iter().enumerate().map(|(i, v)| (format!("obs[{i}]"), v.into())).collect();
    let _ = writeln!(
        text,
        "FN void {name}_observe(const int32_t *s, float *obs) {{\n    (void)s;\n{}}}",
        recording.print(&outputs)
    );

    if spec.masked {
        let (recording, legal) = Recording::record(|| {
            let mut legal = vec![M::splat(false); spec.action.choices()];
            env.legal::<Sym>(&<E::State<Sym> as Columns<Sym>>::read(&words()), &mut legal);
            legal
        });
        let outputs: Vec<_> = legal.into_iter().enumerate().map(|(i, m)| (format!("legal[{i}]"), m.into())).collect();
        let _ = writeln!(
            text,
            "FN void {name}_legal(const int32_t *s, uint8_t *legal) {{\n    (void)s;\n{}}}",
            recording.print(&outputs)
        );
    }
    text
}
