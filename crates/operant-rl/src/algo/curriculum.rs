//! Stages over one parameter of an env, such as how deep a cube is scrambled: from easy to hard as episodes succeed.
//!
//! Invariant: the stage only moves up. An episode counts for the stage in which it began, and a stage ends when enough of
//! the last episodes that began in it succeeded. Setting the env's parameter is the only thing here that allocates.

use operant_base::telemetry::Metric;
use operant_base::{Error, Result};
use operant_env::VecEnv;
use operant_lanes::rng::HostRng;
use serde::{Deserialize, Serialize};

/// Sets draws of stages apart from other streams of the same seed.
const STAGES: u64 = 0x7374_6167_6573_0000;
/// More stages than this are a mistake.
const MOST_STAGES: f64 = 10_000.0;

/// What is reported.
pub(super) const STAGE: Metric = Metric::new("curriculum/stage", "value of the parameter that grows", "");

/// The `[curriculum]` table of an algorithm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The parameter of the env that changes; empty, or none beside other keys, for no curriculum.
    pub param: String,
    /// Its value in the first stage.
    pub from: f64,
    /// Its value in the last: that of the env as it is set, which evaluation plays.
    pub to: f64,
    /// How much it changes from stage to stage, more than 0; the sign is that of the way.
    pub step: f64,
    /// Return from which an episode is a success; must be given.
    pub success_return: f64,
    /// Share of successes in the window that ends a stage.
    pub success_rate: f64,
    /// Episodes of the window.
    pub window: usize,
    /// Share of iterations that begin episodes of an earlier stage, so that it is not forgotten.
    pub mix: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            param: String::new(),
            from: 1.0,
            to: 1.0,
            step: 1.0,
            success_return: f64::NEG_INFINITY,
            success_rate: 0.9,
            window: 100,
            mix: 0.0,
        }
    }
}

impl Settings {
    fn check(&self) -> Result<()> {
        let rule = |holds: bool, key: &str, got: &dyn std::fmt::Display, wanted: &str| {
            if holds { Ok(()) } else { Err(Error::Invalid(format!("dqn.curriculum.{key} = {got}: wanted {wanted}"))) }
        };
        if self.success_return == f64::NEG_INFINITY {
            return Err(Error::Invalid(
                "dqn.curriculum.success_return is needed: a return that counts as success".into(),
            ));
        }
        for (key, x) in [("from", self.from), ("to", self.to), ("success_return", self.success_return)] {
            rule(x.is_finite(), key, &x, "a number")?;
        }
        let stages = (self.to - self.from).abs() / self.step;
        rule(self.step > 0.0 && stages < MOST_STAGES, "step", &self.step, "more than 0, for 10000 stages at most")?;
        rule((0.0..=1.0).contains(&self.success_rate), "success_rate", &self.success_rate, "0 to 1")?;
        rule((0.0..1.0).contains(&self.mix), "mix", &self.mix, "0 or more, less than 1")?;
        rule((1..=1 << 20).contains(&self.window), "window", &self.window, "1..=1048576")
    }

    /// The parameter's value in a stage.
    fn value(&self, stage: u32) -> f64 {
        let way = f64::from(stage) * self.step;
        if self.to >= self.from { (self.from + way).min(self.to) } else { (self.from - way).max(self.to) }
    }

    fn last_stage(&self) -> u32 {
        ((self.to - self.from).abs() / self.step).ceil() as u32
    }
}

/// Where a curriculum is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Curriculum {
    #[serde(skip)]
    settings: Settings,
    stage: u32,
    /// The stage whose value the env has now: the newest, or one that is repeated.
    set: u32,
    /// `[N]` the stage in which each env's episode began.
    begun: Vec<u32>,
    /// The last episodes of the stage: whether each succeeded.
    window: Vec<bool>,
    /// Episodes of the stage.
    episodes: u64,
}

impl Curriculum {
    /// A curriculum in its first stage, if the settings name a parameter. The env is reset by the caller afterwards.
    pub(super) fn new(settings: &Settings, env: &mut dyn VecEnv) -> Result<Option<Self>> {
        if settings.param == "none" {
            return Ok(None);
        }
        if settings.param.is_empty() {
            return match *settings == Settings::default() {
                true => Ok(None),
                false => Err(Error::Invalid(
                    "dqn.curriculum has no param; wanted the name of one of the env's, or none".into(),
                )),
            };
        }
        let (name, params) = (&settings.param, env.params());
        let own = params.iter().find(|param| param.name == name).map(|param| param.value);
        if own.is_some() {
            settings.check()?;
        }
        // Every value is tried, so that a run does not fail on its way.
        for stage in (0..=settings.last_stage()).rev() {
            env.set_param(name, settings.value(stage))?;
        }
        if let Some(own) = own.filter(|own| *own as f32 != settings.to as f32) {
            let to = settings.to;
            return Err(Error::Invalid(format!(
                "dqn.curriculum.to = {to}, but env.{name} = {own}, which evaluation plays: wanted the same; set env.{name}={to}, \
                 dqn.curriculum.to={own}, or dqn.curriculum.param=none"
            )));
        }
        Ok(Some(Self {
            settings: settings.clone(),
            stage: 0,
            set: 0,
            begun: vec![0; env.num_envs()],
            window: vec![false; settings.window],
            episodes: 0,
        }))
    }

    /// The newest stage in words.
    pub(super) fn describe(&self) -> String {
        let (param, value) = (&self.settings.param, self.value());
        format!("curriculum: stage {} of {}, {param} = {value}", self.stage + 1, self.settings.last_stage() + 1)
    }

    /// All envs were reset in the middle of episodes: new ones began.
    pub(super) fn restarted(&mut self) {
        self.begun.fill(self.set);
    }

    /// The parameter's value in the newest stage.
    pub(super) fn value(&self) -> f64 {
        self.settings.value(self.stage)
    }

    /// An episode of an env ended with this return, and the next began.
    pub(super) fn ended(&mut self, env: usize, total: f32) {
        if self.begun[env] == self.stage {
            let place = self.episodes % self.window.len() as u64;
            self.window[place as usize] = f64::from(total) >= self.settings.success_return;
            self.episodes += 1;
        }
        self.begun[env] = self.set;
    }

    /// Whether the env is not yet as hard as it will be.
    pub(super) fn is_preparing(&self) -> bool {
        self.stage < self.settings.last_stage()
    }

    /// Moves up if the stage is mastered, and chooses the stage whose episodes begin next; says whether it moved up.
    pub(super) fn advance(&mut self, env: &mut dyn VecEnv, seed: u64, iteration: u32) -> bool {
        let successes = self.window.iter().filter(|success| **success).count();
        let mastered = self.episodes >= self.window.len() as u64
            && successes as f64 >= self.settings.success_rate * self.window.len() as f64;
        let moves = mastered && self.is_preparing();
        if moves {
            self.stage += 1;
            self.episodes = 0;
            self.window.fill(false);
        }
        let mut rng = HostRng::new(seed ^ STAGES, 0, iteration, 0);
        let again = self.stage > 0 && f64::from(rng.unit()) < self.settings.mix;
        let wanted = if again { rng.below(self.stage) } else { self.stage };
        if wanted != self.set {
            self.set = wanted;
            self.set_param(env).expect("every value was accepted before");
        }
        moves
    }

    fn set_param(&self, env: &mut dyn VecEnv) -> Result<()> {
        env.set_param(&self.settings.param, self.settings.value(self.set))
    }

    /// Goes on from a saved one; gives the env its parameter, so that its state can be loaded next.
    pub(super) fn load(&mut self, saved: Self, env: &mut dyn VecEnv) -> Result<()> {
        let fits = saved.begun.len() == self.begun.len()
            && saved.window.len() == self.window.len()
            && saved.stage.max(saved.set) <= self.settings.last_stage();
        if !fits {
            return Err(Error::Saved("checkpoint's curriculum does not fit this run; take another".into()));
        }
        *self = Self { settings: std::mem::take(&mut self.settings), ..saved };
        self.set_param(env)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use operant_env as env;

    fn settings() -> Settings {
        let param = "gravity".to_owned();
        Settings { param, from: 5.0, to: 9.5, step: 2.0, success_return: 10.0, window: 4, ..Settings::default() }
    }

    fn gravity(env: &dyn VecEnv) -> f64 {
        env.params().iter().find(|param| param.name == "gravity").unwrap().value
    }

    #[test]
    fn stages_only_move_up_and_end_at_the_last() {
        let mut env = crate::catalogue::TESTED
            .env("cartpole")
            .unwrap()
            .build(&[("gravity", 9.5)], &env::Options::new(2))
            .unwrap();
        let mut curriculum =
            Curriculum::new(&Settings { success_rate: 0.75, ..settings() }, &mut *env).unwrap().unwrap();
        assert_eq!(gravity(&*env), 5.0);
        let mut values = Vec::new();
        let returns = [20.0, 20.0, 20.0, 0.0, 0.0, 0.0, 20.0, 20.0, 20.0, 20.0, 0.0, 20.0, 20.0, 20.0, 20.0, 0.0, 0.0];
        for (i, total) in returns.into_iter().enumerate() {
            curriculum.ended(0, total);
            curriculum.advance(&mut *env, 1, i as u32);
            assert_eq!(gravity(&*env), curriculum.value());
            values.push(curriculum.value());
        }
        // Three of four, four at least; the first episode after a stage's end began in the stage before.
        let wanted = [5.0, 5.0, 5.0, 7.0, 7.0, 7.0, 7.0, 7.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.5, 9.5, 9.5, 9.5];
        assert_eq!(values, wanted);
    }

    #[test]
    fn earlier_stages_are_mixed_in_and_do_not_count() {
        let mut env = crate::catalogue::TESTED
            .env("cartpole")
            .unwrap()
            .build(&[("gravity", 9.5)], &env::Options::new(1))
            .unwrap();
        let mut curriculum = Curriculum::new(&Settings { mix: 0.5, ..settings() }, &mut *env).unwrap().unwrap();
        (0..4).for_each(|_| curriculum.ended(0, 20.0));
        let mut set = Vec::new();
        for iteration in 0..400 {
            curriculum.advance(&mut *env, 1, iteration);
            set.push(gravity(&*env));
            if curriculum.set == 0 {
                let before = curriculum.episodes;
                curriculum.begun[0] = 0;
                curriculum.ended(0, 20.0);
                assert_eq!(curriculum.episodes, before);
            }
        }
        let share = set.iter().filter(|value| **value == 5.0).count() as f64 / 400.0;
        assert!((share - 0.5).abs() < 0.1 && curriculum.value() == 7.0, "{share}");
    }

    #[test]
    fn episodes_after_a_restart_count_for_the_stage_in_which_they_begin() {
        let mut env = crate::catalogue::TESTED
            .env("cartpole")
            .unwrap()
            .build(&[("gravity", 9.5)], &env::Options::new(4))
            .unwrap();
        let mut curriculum = Curriculum::new(&settings(), &mut *env).unwrap().unwrap();
        assert_eq!(curriculum.describe(), "curriculum: stage 1 of 4, gravity = 5");
        (0..4).for_each(|_| curriculum.ended(0, 20.0));
        assert!(curriculum.advance(&mut *env, 1, 0));
        assert_eq!(curriculum.describe(), "curriculum: stage 2 of 4, gravity = 7");
        curriculum.restarted();
        (0..4).for_each(|env| curriculum.ended(env, 20.0));
        assert!(curriculum.advance(&mut *env, 1, 1), "four episodes that all began in this stage");
    }

    #[test]
    fn mistakes_are_named() {
        let mut env = crate::catalogue::TESTED
            .env("cartpole")
            .unwrap()
            .build(&[("gravity", 9.5)], &env::Options::new(1))
            .unwrap();
        assert!(Curriculum::new(&Settings { param: "none".into(), ..settings() }, &mut *env).unwrap().is_none());
        let mut message = |settings: Settings| Curriculum::new(&settings, &mut *env).unwrap_err().to_string();
        assert!(message(Settings { param: "gravty".into(), ..settings() }).contains("did you mean \"gravity\"?"));
        assert!(message(Settings { to: 1e9, step: 1e9, ..settings() }).contains("gravity = 1000000000: wanted"));
        assert!(message(Settings { step: 0.0, ..settings() }).starts_with("dqn.curriculum.step = 0: wanted"));
        assert!(message(Settings { to: 9.8, ..settings() }).contains("set env.gravity=9.8"));
        assert!(
            message(Settings { success_return: Settings::default().success_return, ..settings() })
                .contains("success_return")
        );
        assert!(message(Settings { param: String::new(), ..settings() }).contains("has no param"));
        assert!(message(Settings { mix: 1.0, ..settings() }).starts_with("dqn.curriculum.mix = 1: wanted"));
    }
}
