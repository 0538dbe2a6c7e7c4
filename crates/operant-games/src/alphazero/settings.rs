//! The `[alphazero]` table.

use crate::search::mcts;
use operant_base::config::{self, Table, Value};
use operant_base::{Error, Result};
use serde::{Deserialize, Serialize};

/// What decides which weights play.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateName {
    /// Nothing.
    Off,
    /// The loss on positions that are held back.
    Loss,
}

/// The `[alphazero]` table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// How decisions are searched.
    pub search: mcts::Settings,
    /// Who teaches the network before it plays by search: a file of networks that `operant train td backgammon` made; nobody if empty. On the
    /// command line the folder of such a run too.
    pub teacher: String,
    /// Batches that it learns from its teacher, each position once: the teacher's values of games that it plays one roll ahead, and a policy
    /// that falls with what a play gives away. Decisions of these games count as steps.
    pub pretrain: u64,
    /// Points behind the best action at which one's share of the teacher's policy has fallen to 1/e of that one's.
    pub pretrain_temperature: f32,
    /// Step size of the optimiser meanwhile; falls along half a cosine to a twentieth.
    pub pretrain_learning_rate: f64,
    /// Decisions of each game in an iteration; weights change between iterations.
    pub moves: usize,
    /// Games begin with up to so many random actions, as many as are drawn: play learns what to do in positions that it would avoid.
    pub random_moves: u32,
    /// Decisions after those that are drawn by visits, at temperature 1.
    pub drawn_moves: u32,
    /// Temperature after those; 0 for the most visited.
    pub temperature: f32,
    /// Decisions after which a game is cut; the search's value stands for its outcome.
    pub most_moves: usize,
    /// Positions that are kept to learn from.
    pub window: usize,
    /// Positions before learning begins.
    pub learning_starts: usize,
    /// Times that a position is learned from, on average.
    pub reuse: f64,
    /// Share of a batch that is drawn in proportion to how far searches moved the values of positions; the rest is drawn evenly.
    pub priority: f32,
    /// Positions of a batch.
    pub batch_size: usize,
    /// Value targets: 1 for a game's outcome, less for a mix with later searches' values, each weighed by this to the power of its distance.
    pub td_lambda: f32,
    /// Weight of the value's loss beside the policy's.
    pub value_weight: f32,
    /// Step size of the optimiser.
    pub learning_rate: f64,
    /// Lower the learning rate along half a cosine to a twentieth at the end of the run.
    pub anneal_lr: bool,
    /// Weights shrink by this times the learning rate in every update.
    pub weight_decay: f64,
    /// Gradients longer than this are shortened to it; 0 for no limit.
    pub max_grad_norm: f64,
    /// Which weights play: off for those that learned last; loss for those only if their loss on positions that are held back is no worse than
    /// that of the weights in use.
    pub gate: GateName,
    /// Positions that are held back for that: the first ones of every sixteenth game, with what the teacher or those games made of them.
    pub held_back: usize,
    /// Share by which that loss may be worse.
    pub gate_margin: f64,
    /// Updates after which workers get new weights while they play; 0 for the end of each iteration, which alone repeats bit for bit.
    pub publish_every: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            search: mcts::Settings::default(),
            teacher: String::new(),
            pretrain: 3_000,
            pretrain_temperature: 0.03,
            pretrain_learning_rate: 1e-3,
            moves: 16,
            random_moves: 0,
            drawn_moves: 12,
            temperature: 0.0,
            most_moves: 512,
            window: 100_000,
            learning_starts: 2_000,
            reuse: 4.0,
            priority: 0.0,
            batch_size: 512,
            td_lambda: 1.0,
            value_weight: 1.0,
            learning_rate: 1e-3,
            anneal_lr: true,
            weight_decay: 1e-4,
            max_grad_norm: 5.0,
            gate: GateName::Off,
            held_back: 2_048,
            gate_margin: 0.0,
            publish_every: 0,
        }
    }
}

/// Settings of a table, in which `search` is a table of its own.
pub fn read(table: &Table) -> Result<Settings> {
    let mut table = table.clone();
    let search = match table.remove("search") {
        None => Table::new(),
        Some(Value::Table(search)) => search,
        Some(other) => {
            return Err(Error::Invalid(format!(
                "alphazero.search = {other}: wanted a table, as in [alphazero.search]"
            )));
        }
    };
    let settings = config::read(&table, "alphazero")?;
    Ok(Settings { search: config::read(&search, "alphazero.search")?, ..settings })
}

impl Settings {
    /// Whether a run can be made of these.
    pub fn check(&self) -> Result<()> {
        let rule = |holds: bool, key: &str, got: &dyn std::fmt::Display, wanted: &str| {
            if holds { Ok(()) } else { Err(Error::Invalid(format!("alphazero.{key} = {got}: wanted {wanted}"))) }
        };
        let positive = |x: f64| x > 0.0 && x <= 1e30;
        let not_negative = |x: f64| (0.0..=1e30).contains(&x);
        self.search.check("alphazero.search")?;
        let temperature = f64::from(self.pretrain_temperature);
        rule(positive(temperature), "pretrain_temperature", &temperature, "more than 0")?;
        let rate = self.pretrain_learning_rate;
        rule(positive(rate), "pretrain_learning_rate", &rate, "more than 0")?;
        rule((1..=4096).contains(&self.moves), "moves", &self.moves, "1..=4096")?;
        rule((0.0..=10.0).contains(&self.temperature), "temperature", &self.temperature, "0 to 10")?;
        rule((1..=1 << 16).contains(&self.most_moves), "most_moves", &self.most_moves, "1..=65536")?;
        rule((1..=1 << 24).contains(&self.window), "window", &self.window, "1..=16777216")?;
        let starts = self.learning_starts <= self.window;
        rule(starts, "learning_starts", &self.learning_starts, "no more than the window")?;
        rule(self.reuse >= 0.0 && self.reuse <= 1e4, "reuse", &self.reuse, "0 to 10000")?;
        rule((0.0..=1.0).contains(&self.priority), "priority", &self.priority, "0 to 1")?;
        rule((1..=1 << 16).contains(&self.batch_size), "batch_size", &self.batch_size, "1..=65536")?;
        rule((0.0..=1.0).contains(&self.td_lambda), "td_lambda", &self.td_lambda, "0 to 1")?;
        rule(not_negative(f64::from(self.value_weight)), "value_weight", &self.value_weight, "0 or more")?;
        rule(positive(self.learning_rate), "learning_rate", &self.learning_rate, "more than 0")?;
        rule(not_negative(self.weight_decay), "weight_decay", &self.weight_decay, "0 or more")?;
        rule((1..=1 << 24).contains(&self.held_back), "held_back", &self.held_back, "1..=16777216")?;
        rule(not_negative(self.gate_margin), "gate_margin", &self.gate_margin, "0 or more")?;
        let together = self.gate == GateName::Off || self.publish_every == 0;
        rule(together, "publish_every", &self.publish_every, "0 with a gate, which weighs weights once an iteration")?;
        rule(not_negative(self.max_grad_norm), "max_grad_norm", &self.max_grad_norm, "0 (no limit) or more")
    }
}
