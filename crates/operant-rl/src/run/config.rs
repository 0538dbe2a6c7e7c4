//! What a run is made from: the resolved settings, as `run.toml` holds them.

use super::history::{self, Change};
use super::keys::Keys;
use crate::Catalogue;
use crate::algo::{self, NetworkSettings};
use operant_base::config::{self, Table, Value};
use operant_base::{Error, Result};
use operant_device::Device;
use operant_env as env;
use operant_nn::Precision;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Top-level keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Seed of everything: the same settings and seed give the same weights.
    pub seed: u64,
    /// N, envs stepped together.
    pub num_envs: usize,
    /// Env steps after which the run ends, and over which schedules go.
    pub steps: u64,
    /// What ends a run early: solved (mean return over 100 episodes) or steps (nothing).
    pub until: Until,
    /// Threads; 0 for as many as the machine has.
    pub threads: usize,
    /// What matrix products read: f32, tf32 (GPUs), bf16, f16, or auto for the fastest here.
    pub precision: String,
    /// Where the run lives: cpu, cuda, cuda:i, or auto: a GPU that has kernels for it, else the CPU.
    pub device: String,
    /// Where envs are stepped for PPO on a GPU: cpu, or auto: there too if they have kernels. Envs whose own work a GPU does (growth)
    /// take it by auto, and their learner stays on the CPU.
    pub env_device: String,
    /// Where the files lie that an env learns from (growth with env.task=cifar10 or bytes); else $OPERANT_TASK_DATA, else data.
    pub task_data: String,
}

/// What ends a run before its last step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Until {
    /// The env's mean return over 100 episodes reaches what counts as solved.
    Solved,
    /// Nothing.
    Steps,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            seed: 1,
            num_envs: 64,
            steps: 1_000_000,
            until: Until::Solved,
            threads: 0,
            precision: "f32".into(),
            device: "auto".into(),
            env_device: "auto".into(),
            task_data: String::new(),
        }
    }
}

/// The `[checkpoint]` table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckpointSettings {
    /// Iterations between checkpoints; 0 for none by count.
    pub every: u64,
    /// Seconds between checkpoints; 0 for none by time.
    pub every_s: f64,
    /// Least seconds before another checkpoint because the evaluation is the best so far; 0 for none. A better state that
    /// comes sooner waits in memory (up to 64 MiB, and 5 % of the time to copy); a kill loses what waits. Without
    /// evaluations, the mean return over 100 episodes of training takes their place.
    pub improved_s: f64,
    /// How many stay, beside the best.
    pub keep: usize,
}

impl Default for CheckpointSettings {
    fn default() -> Self {
        Self { every: 0, every_s: 10.0, improved_s: 2.0, keep: 3 }
    }
}

/// When a run is evaluated on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Every {
    /// As often as all evaluations together take 3 % of the env steps of training.
    Auto,
    /// After so many env steps of training; 0 for never.
    Steps(u64),
}

impl std::str::FromStr for Every {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "auto" => Ok(Self::Auto),
            _ => Err(Error::Invalid(format!("\"{text}\": wanted auto, a number of env steps, or 0 for never"))),
        }
    }
}

impl Serialize for Every {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Steps(steps) => serializer.serialize_u64(*steps),
        }
    }
}

impl<'de> Deserialize<'de> for Every {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Words;

        impl serde::de::Visitor<'_> for Words {
            type Value = Every;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("auto, a number of env steps, or 0 for never")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> std::result::Result<Every, E> {
                text.parse().map_err(|_| E::custom("wanted auto, a number of env steps, or 0 for never"))
            }

            fn visit_i64<E: serde::de::Error>(self, steps: i64) -> std::result::Result<Every, E> {
                let steps = u64::try_from(steps);
                steps.map(Every::Steps).map_err(|_| E::custom("wanted auto, a number of env steps, or 0 for never"))
            }

            fn visit_f64<E: serde::de::Error>(self, _: f64) -> std::result::Result<Every, E> {
                Err(E::custom("wanted auto, a number of env steps, or 0 for never"))
            }

            fn visit_u64<E: serde::de::Error>(self, steps: u64) -> std::result::Result<Every, E> {
                Ok(Every::Steps(steps))
            }
        }

        deserializer.deserialize_any(Words)
    }
}

/// The `[eval]` table: episodes of the current weights on the way, which `best` and `solved` follow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvalSettings {
    /// Env steps of training between evaluations; auto for as often as they take 3 % of the env steps, 0 for never.
    pub every: Every,
    /// Episodes of an evaluation on the way. What counts as solved, and the evaluation at the end, take 100.
    pub episodes: usize,
}

impl Default for EvalSettings {
    fn default() -> Self {
        Self { every: Every::Auto, episodes: 10 }
    }
}

/// The `[telemetry]` table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TelemetrySettings {
    /// Iterations between looks at the gradient of each tensor; 0 for none.
    pub gradient_stride: u32,
}

impl Default for TelemetrySettings {
    fn default() -> Self {
        Self { gradient_stride: 10 }
    }
}

/// Most episodes of an evaluation on the way.
const MAX_EPISODES: usize = 10_000;

/// All settings of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The envs and algorithms that there are.
    pub catalogue: &'static Catalogue,
    /// Name of the algorithm.
    pub algo: String,
    /// Name of the env, as the registry has it.
    pub env: String,
    /// Parameters of the env that differ from its own.
    pub env_params: Vec<(String, f64)>,
    /// Top-level keys.
    pub settings: Settings,
    /// `[network]`.
    pub network: NetworkSettings,
    /// `[checkpoint]`.
    pub checkpoint: CheckpointSettings,
    /// `[eval]`.
    pub eval: EvalSettings,
    /// `[telemetry]`.
    pub telemetry: TelemetrySettings,
    /// The algorithm's own table, with every key.
    pub own: Table,
    /// Changes of settings on the way, first to last.
    pub changed: Vec<Change>,
}

impl Config {
    /// The shipped settings for an algorithm and env, or the defaults where none are shipped, with `over` laid on them.
    pub fn resolve(catalogue: &'static Catalogue, algo: &str, env: &str, over: Table) -> Result<Self> {
        let entry = catalogue.algorithm(algo)?;
        let name = catalogue.env(env).map_or_else(|_| env.to_owned(), |entry| entry.spec().name.to_owned());
        let on_gpu = over.get("device").and_then(Value::as_str).is_some_and(|device| device.starts_with("cuda"));
        let folder = if on_gpu { format!("{}/cuda", entry.name) } else { entry.name.to_owned() };
        let mut table = match catalogue.shipped(&folder, &name).or_else(|| catalogue.shipped(entry.name, &name)) {
            Some(text) => config::parse(text, &format!("configs/{folder}/{name}.toml"))?,
            None => Table::new(),
        };
        config::merge(&mut table, over);
        config::insert(&mut table, "algo", Value::String(entry.name.to_owned()))?;
        config::insert(&mut table, "env.name", Value::String(name))?;
        Self::from_table(catalogue, table)
    }

    /// Settings from a file, over the shipped ones of its algorithm and env: a file may hold a few keys or, as a `run.toml` does, all.
    pub fn from_file(catalogue: &'static Catalogue, table: Table) -> Result<Self> {
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        let env = table.get("env").and_then(|env| env.get("name"));
        match (text(table.get("algo")), text(env)) {
            (Some(algo), Some(env)) => Self::resolve(catalogue, &algo, &env, table),
            _ => Self::from_table(catalogue, table),
        }
    }

    /// Settings that stand alone, as a `run.toml` holds them.
    pub fn from_text(catalogue: &'static Catalogue, text: &str, origin: &str) -> Result<Self> {
        Self::from_table(catalogue, config::parse(text, origin)?)
    }

    /// Settings that stand alone.
    pub fn from_table(catalogue: &'static Catalogue, mut table: Table) -> Result<Self> {
        let text = |value: Option<Value>, key: &str| match value {
            Some(Value::String(text)) => Ok(text),
            Some(other) => Err(Error::Invalid(format!("{key} = {other}: wanted a text"))),
            None => Err(Error::Invalid(format!("no {key}: wanted its name, as in {key} = \"…\""))),
        };
        let algo = catalogue.algorithm(&text(table.remove("algo"), "algo")?)?;
        let changed = history::read(table.remove(history::KEY))?;
        let mut env_table = take_table(&mut table, "env")?;
        let env = text(env_table.remove("name"), "env.name")?;
        let known = catalogue.env(&env).map_or_else(|_| Vec::new(), |entry| entry.params());
        let env_params =
            env_table.into_iter().map(|(name, value)| env_param(&known, name, &value)).collect::<Result<_>>()?;
        let keys = Keys::new(algo, known.clone());
        let mut checked = |name: &str| {
            let inner = take_table(&mut table, name)?;
            keys.check(name, &inner).map(|()| inner)
        };
        let [network, checkpoint, eval, telemetry, own] =
            ["network", "checkpoint", "eval", "telemetry", algo.name].map(&mut checked);
        let network = config::read(&network?, "network")?;
        let checkpoint = config::read(&checkpoint?, "checkpoint")?;
        let eval = config::read(&eval?, "eval")?;
        let telemetry = config::read(&telemetry?, "telemetry")?;
        let own = (algo.resolve)(&own?)?;
        keys.check("", &table)?;
        let settings: Settings = config::read(&table, "")?;
        let algo = algo.name.to_owned();
        let config =
            Self { catalogue, algo, env, env_params, settings, network, checkpoint, eval, telemetry, own, changed };
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<()> {
        let Settings { num_envs, steps, threads, device, .. } = &self.settings;
        if *num_envs == 0 || *num_envs > env::MAX_ENVS {
            return Err(Error::Invalid(format!("num_envs = {num_envs}: wanted 1..={}", env::MAX_ENVS)));
        }
        if *steps == 0 {
            return Err(Error::Invalid("steps = 0: wanted at least 1".into()));
        }
        if *threads > 1024 {
            return Err(Error::Invalid(format!("threads = {threads}: wanted 0 (all) to 1024")));
        }
        if device != "auto" {
            Device::gpu_index(device)?;
        }
        let stepped = self.settings.env_device.as_str();
        if !["auto", "cpu"].contains(&stepped) {
            return Err(Error::unknown("env_device", stepped, ["auto", "cpu"], "auto or cpu"));
        }
        let episodes = self.eval.episodes;
        if episodes == 0 || episodes > MAX_EPISODES {
            return Err(Error::Invalid(format!("eval.episodes = {episodes}: wanted 1..={MAX_EPISODES}")));
        }
        for (key, got) in [("every_s", self.checkpoint.every_s), ("improved_s", self.checkpoint.improved_s)] {
            if got.is_nan() || got < 0.0 {
                return Err(Error::Invalid(format!("checkpoint.{key} = {got}: wanted 0 (never) or more seconds")));
            }
        }
        self.precision().map(drop)
    }

    /// A number of the algorithm's own table, if it has it.
    pub fn own_number(&self, name: &str) -> Option<f64> {
        let value = self.own.get(name)?;
        value.as_float().or_else(|| value.as_integer().map(|x| x as f64))
    }

    /// What matrix products read where this runs.
    pub fn precision(&self) -> Result<Precision> {
        Ok(self.served()?.0)
    }

    /// Why [`Config::precision`] is not what the settings ask for, or no faster; nothing if it is.
    pub fn precision_note(&self) -> Result<Option<&'static str>> {
        Ok(self.served()?.1)
    }

    fn served(&self) -> Result<(Precision, Option<&'static str>)> {
        Ok(match self.settings.precision.as_str() {
            name if self.settings.device.starts_with("cuda") && !self.envs_work_on_gpu()? => {
                (Precision::named(name)?, None)
            }
            name => Precision::named(name)?.served(),
        })
    }

    /// Whether Python brought the envs, so that only Python can go on with the run or play in them.
    pub fn is_brought(&self) -> bool {
        self.env.starts_with(env::BROUGHT)
    }

    /// What a user types to go on with the run in a folder: a command, or a line of Python if that brought the envs.
    pub fn way_to_resume(&self, folder: &Path) -> String {
        match self.is_brought() {
            true => format!("operant.{}.resume({:?}, env=env) in Python", self.class(), folder.display().to_string()),
            false => format!("operant train --resume {}", folder.display()),
        }
    }

    /// The env, unless Python brought it.
    pub fn registered(&self) -> Result<&'static env::Entry> {
        self.catalogue.env(&self.env)
    }

    /// The algorithm.
    pub fn algorithm(&self) -> &'static algo::Entry {
        self.catalogue.algorithm(&self.algo).expect("a config is of an algorithm that there is")
    }

    /// Python's class of the algorithm.
    pub fn class(&self) -> &'static str {
        self.algorithm().class
    }

    /// Whether a GPU does the learning.
    pub fn learns_on_gpu(&self) -> Result<bool> {
        let there = self.settings.device.starts_with("cuda") && self.algorithm().check_gpu.is_some();
        Ok(there && !self.envs_work_on_gpu()?)
    }

    /// Whether the CPU steps the envs of a run that learns on a GPU.
    pub fn stages_envs(&self) -> Result<bool> {
        Ok(self.learns_on_gpu()? && (self.settings.env_device == "cpu" || !self.registered()?.has_kernels()))
    }

    /// Whether a GPU does the work of envs that the CPU steps; their learner stays on the CPU.
    pub fn envs_work_on_gpu(&self) -> Result<bool> {
        let there = self.settings.device.starts_with("cuda") && self.settings.env_device != "cpu";
        // A user's own env is not in the list.
        Ok(there && self.registered().is_ok_and(env::Entry::works_on_gpu))
    }

    /// The env's parameters that differ from its own.
    pub fn params(&self) -> Vec<(&str, f64)> {
        self.env_params.iter().map(|(name, value)| (name.as_str(), *value)).collect()
    }

    /// The files that the env learns from, whose place [`Settings::task_data`] names; nothing if it reads none.
    fn data_files(&self) -> Option<&'static env::DataFiles> {
        self.registered().ok()?.data_files(&self.params())
    }

    /// Whether the env learns from files, whose place [`Settings::task_data`] names.
    pub fn reads_task_data(&self) -> bool {
        self.data_files().is_some()
    }

    /// Where the env learns from files, says where they lie now, from the root on: the run finds them again from any folder.
    pub fn settle_task_data(&mut self) {
        if let Some(files) = self.data_files() {
            self.use_task_data();
            let place = (files.place)();
            let place = std::path::absolute(&place).unwrap_or(place);
            self.settings.task_data = place.display().to_string();
        }
    }

    /// Has envs that are built from now on read the files of this run, where it names some.
    pub fn use_task_data(&self) {
        let files = self.data_files().filter(|_| !self.settings.task_data.is_empty());
        if let Some(files) = files {
            (files.set_place)(Path::new(&self.settings.task_data));
        }
    }

    /// Every setting, as `run.toml` holds them.
    pub fn to_text(&self) -> String {
        let mut table = Table::new();
        table.insert("algo".into(), Value::String(self.algo.clone()));
        table.extend(config::to_table(&self.settings));
        let mut env = Table::from_iter([("name".to_owned(), Value::String(self.env.clone()))]);
        let known = self.registered().map_or_else(|_| Vec::new(), |entry| entry.params());
        env.extend(self.env_params.iter().map(|(name, value)| {
            let param = known.iter().find(|param| param.name == name);
            let text = param.and_then(|param| param.names.get(*value as usize)).map(|text| (*text).to_owned());
            (name.clone(), text.map_or(Value::Float(*value), Value::String))
        }));
        table.insert("env".into(), Value::Table(env));
        table.insert("network".into(), Value::Table(config::to_table(&self.network)));
        table.insert(self.algo.clone(), Value::Table(self.own.clone()));
        table.insert("checkpoint".into(), Value::Table(config::to_table(&self.checkpoint)));
        table.insert("eval".into(), Value::Table(config::to_table(&self.eval)));
        table.insert("telemetry".into(), Value::Table(config::to_table(&self.telemetry)));
        let mut comment = String::new();
        if !self.changed.is_empty() {
            let (changes, words) = history::write(&self.changed);
            table.insert(history::KEY.into(), changes);
            comment = words;
        }
        comment + &toml::to_string(&table).expect("settings are TOML")
    }
}

fn take_table(table: &mut Table, key: &str) -> Result<Table> {
    match table.remove(key) {
        None => Ok(Table::new()),
        Some(Value::Table(inner)) => Ok(inner),
        Some(other) => Err(Error::Invalid(format!("{key} = {other}: wanted a table, as in [{key}]"))),
    }
}

fn env_param(known: &[env::Param], name: String, value: &Value) -> Result<(String, f64)> {
    let number = match value {
        Value::String(text) if known.iter().any(|param| param.name == name && !param.names.is_empty()) => {
            known.iter().find(|param| param.name == name).map_or(Ok(0.0), |param| param.named(text))?
        }
        Value::Integer(x) => *x as f64,
        Value::Float(x) => *x,
        Value::Boolean(x) => f64::from(u8::from(*x)),
        other => return Err(Error::Invalid(format!("env.{name} = {other}: wanted a number, true or false"))),
    };
    Ok((name, number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::TESTED;
    use proptest::prelude::*;

    fn over(words: &[&str]) -> Result<Config> {
        let mut table = Table::new();
        words.iter().try_for_each(|word| config::assign(&mut table, word))?;
        Config::resolve(&TESTED, "ppo", "cartpole", table)
    }

    #[test]
    fn the_resolved_text_gives_the_same_settings() {
        let config = over(&["seed=7", "ppo.gamma=0.9", "env.gravity=3", "network.hidden=[8]", "steps=2e6"]).unwrap();
        assert_eq!(Config::from_text(&TESTED, &config.to_text(), "run.toml").unwrap(), config);
        assert_eq!((config.settings.seed, config.settings.steps), (7, 2_000_000));
        assert_eq!(config.env_params, [("gravity".to_owned(), 3.0)]);
    }

    #[test]
    fn a_file_lies_over_the_shipped_settings() {
        let file = |text: &str| Config::from_file(&TESTED, config::parse(text, "mine.toml").unwrap());
        let shipped = over(&[]).unwrap();
        let mine = file("algo = \"ppo\"\nseed = 9\n[env]\nname = \"CartPole-v1\"\n[ppo]\ngamma = 0.5").unwrap();
        let wanted = over(&["seed=9", "ppo.gamma=0.5"]).unwrap();
        assert_eq!(mine, wanted);
        assert_ne!(shipped.own, (TESTED.algorithm("ppo").unwrap().defaults)(), "the shipped file says something");
        assert_eq!(file(&wanted.to_text()).unwrap(), wanted, "a resolved file repeats its run");
        assert_eq!(file("seed = 1").unwrap_err().to_string(), "no algo: wanted its name, as in algo = \"…\"");
    }

    #[test]
    fn mistakes_are_named() {
        let message = |words: &[&str]| over(words).unwrap_err().to_string();
        assert_eq!(message(&["sed=1"]), "unknown key \"sed\"; did you mean \"seed\"?");
        assert_eq!(message(&["pop.gamma=1"]), "unknown key \"pop\"; did you mean \"ppo\"?");
        assert_eq!(message(&["ppo.gama=1"]), "unknown key \"ppo.gama\"; did you mean \"ppo.gamma\"?");
        assert_eq!(message(&["network.hiden=[1]"]), "unknown key \"network.hiden\"; did you mean \"network.hidden\"?");
        let stride = message(&["telemetry.gradient_strid=1"]);
        assert!(stride.contains("did you mean \"telemetry.gradient_stride\"?"), "{stride}");
        assert_eq!(message(&["gravity=3"]), "unknown key \"gravity\"; did you mean \"env.gravity\"?");
        assert_eq!(message(&["time_limit=3"]), "unknown key \"time_limit\"; did you mean \"env.time_limit\"?");
        assert_eq!(message(&["num_envs=0"]), "num_envs = 0: wanted 1..=16777216");
        assert_eq!(
            message(&["precision=f31"]),
            "unknown precision \"f31\"; did you mean \"f32\"? (f32, tf32, bf16, f16, auto)"
        );
        assert_eq!(message(&["env.gravity=heavy"]), "env.gravity = \"heavy\": wanted a number, true or false");
        assert_eq!(message(&["ppo=1"]), "ppo = 1: wanted a table, as in [ppo]");
        assert_eq!(message(&["until=never"]), "until = \"never\": wanted solved or steps");
        assert_eq!(message(&["until=solve"]), "until = \"solve\": wanted solved or steps; did you mean \"solved\"?");
        let key = |key: &str| message(&[&format!("{key}=1")]);
        assert_eq!(key("ppo.hidden"), "unknown key \"ppo.hidden\"; did you mean \"network.hidden\"?");
        assert_eq!(key("network.gamma"), "unknown key \"network.gamma\"; did you mean \"ppo.gamma\"?");
        assert_eq!(key("ppo.gravity"), "unknown key \"ppo.gravity\"; did you mean \"env.gravity\"?");
        assert_eq!(key("ppo.clip_range"), "unknown key \"ppo.clip_range\"; here it is \"ppo.clip_coef\"");
        assert_eq!(key("lr"), "unknown key \"lr\"; here it is \"ppo.learning_rate\"");
        assert_eq!(key("network.net_arch"), "unknown key \"network.net_arch\"; here it is \"network.hidden\"");
        assert_eq!(
            key("ppo.num_minibatches"),
            "unknown key \"ppo.num_minibatches\"; see \"ppo.minibatch_size\": num_envs * num_steps / num_minibatches samples"
        );
        assert!(key("ppo.verbose").contains("operant train unless --quiet"), "{}", key("ppo.verbose"));
        assert_eq!(key("learning_rate"), "unknown key \"learning_rate\"; did you mean \"ppo.learning_rate\"?");
        assert_eq!(key("improved_s"), "unknown key \"improved_s\"; did you mean \"checkpoint.improved_s\"?");
        assert!(Config::resolve(&TESTED, "pop", "cartpole", Table::new()).unwrap_err().to_string().contains("\"ppo\""));
        assert_eq!(message(&["env_device=cp"]), "unknown env_device \"cp\"; did you mean \"cpu\"? (auto or cpu)");
    }

    #[test]
    fn evaluations_are_spaced_by_a_word_or_by_steps() {
        let every = |word: &str| over(&[&format!("eval.every={word}")]).map(|config| config.eval.every);
        assert_eq!(over(&[]).unwrap().eval, EvalSettings { every: Every::Auto, episodes: 10 });
        assert_eq!((every("auto").unwrap(), every("0").unwrap()), (Every::Auto, Every::Steps(0)));
        assert_eq!(every("2e4").unwrap(), Every::Steps(20_000));
        let config = over(&["eval.every=500", "eval.episodes=3"]).unwrap();
        assert_eq!(Config::from_text(&TESTED, &config.to_text(), "run.toml").unwrap(), config);
        // A run.toml of a time without the table.
        let text = over(&[]).unwrap().to_text();
        let without = text.replace("[eval]\nevery = \"auto\"\nepisodes = 10\n", "");
        assert!(without.len() < text.len());
        assert_eq!(Config::from_text(&TESTED, &without, "run.toml").unwrap().eval, EvalSettings::default());
        let message = |word: &str| over(&[word]).unwrap_err().to_string();
        let wanted = "wanted auto, a number of env steps, or 0 for never";
        assert_eq!(message("eval.every=often"), format!("eval.every = \"often\": {wanted}"));
        assert_eq!(message("eval.every=-1"), format!("eval.every = -1: {wanted}"));
        assert_eq!(message("eval.every=1.5"), format!("eval.every = 1.5: {wanted}"));
        assert_eq!(message("device=1.5"), "device = 1.5: wanted a text, such as \"auto\"");
        assert_eq!(message("eval.episodes=0"), "eval.episodes = 0: wanted 1..=10000");
        assert_eq!(message("eval.evry=1"), "unknown key \"eval.evry\"; did you mean \"eval.every\"?");
        // Other words still take no numbers.
        assert_eq!(message("device=3"), "device = 3: wanted a text, such as \"auto\"");
    }

    #[test]
    fn envs_without_kernels_are_stepped_by_the_cpu() {
        let staged = |env: &str, text: &str| {
            Config::resolve(&TESTED, "ppo", env, config::parse(text, "test").unwrap()).unwrap().stages_envs().unwrap()
        };
        assert!(staged("gridworld", "device = \"cuda\"") && !staged("gridworld", "device = \"cpu\""));
        assert!(
            staged("cartpole", "device = \"cuda\"\nenv_device = \"cpu\"") && !staged("cartpole", "device = \"cuda\"")
        );
    }

    #[test]
    fn a_precision_that_cannot_be_served_is_replaced_and_told() {
        let served = |words: &[&str]| {
            let config = over(words).unwrap();
            (config.precision().unwrap(), config.precision_note().unwrap())
        };
        let (precision, note) = served(&["device=cpu", "precision=tf32"]);
        assert_eq!(precision, Precision::F32);
        assert!(note.unwrap().contains("tf32 was asked for") && note.unwrap().contains("computing in f32"));
        assert_eq!(served(&["device=cpu", "precision=bf16"]), Precision::Bf16.served());
        assert_eq!(served(&["device=cuda", "precision=tf32"]), (Precision::Tf32, None));
        assert_eq!(served(&["device=cpu", "precision=f32"]), (Precision::F32, None));
    }

    proptest! {
        #[test]
        fn numbers_survive_the_round_trip(seed in 0..i64::MAX as u64, gamma in 0.0..1.0_f64, steps in 1..1_u64 << 40) {
            let config = over(&[&format!("seed={seed}"), &format!("ppo.gamma={gamma:?}"), &format!("steps={steps}")]).unwrap();
            prop_assert_eq!(Config::from_text(&TESTED, &config.to_text(), "run.toml").unwrap(), config);
        }
    }
}
