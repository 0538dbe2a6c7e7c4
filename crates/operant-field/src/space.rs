//! The parameters that are sampled for an operator, in one table: name, how a number in [0, 1) becomes a value, when it acts.
//!
//! A value is an f64 whatever its kind: a number, or the place of a word in its list. Settings narrow the table; nothing
//! else knows a range.

use super::operator::{Norm, Operator, Schedule, Update};
use super::uafno::{self, Afno};
use operant_base::config::{Table, Value};
use operant_base::{Error, Result};
use operant_nn::Act;
use operant_nn::ops::NoiseLaw;
use serde::{Deserialize, Serialize};

/// Kinds of operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Architecture {
    /// Convolutions one after the other.
    #[default]
    Cnn,
    /// A U-Net around Fourier blocks.
    Uafno,
}

/// How a number in [0, 1) becomes a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Map {
    /// Whole numbers, each as likely.
    Integer {
        /// Least.
        low: i64,
        /// Most.
        high: i64,
    },
    /// Even between two numbers.
    Linear {
        /// Least.
        low: f64,
        /// Most.
        high: f64,
    },
    /// Even between two logarithms.
    Log {
        /// Least.
        low: f64,
        /// Most.
        high: f64,
    },
    /// 0 with a chance, else even between two numbers.
    ZeroOr {
        /// Of 0.
        chance: f64,
        /// Least otherwise.
        low: f64,
        /// Most.
        high: f64,
    },
    /// A word with its weight.
    Choice(Vec<(String, f64)>),
}

/// One sampled parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Key in settings and in stores.
    pub name: &'static str,
    /// How it is sampled.
    pub map: Map,
    /// What it is, and when it acts if that is not always.
    pub meaning: &'static str,
}

/// Names in the order of dimensions.
pub const NAMES: [&str; 14] = [
    "layers",
    "base_channels",
    "kernel",
    "activation",
    "dropout",
    "noise",
    "noise_scale",
    "schedule",
    "correlation",
    "norm",
    "grid",
    "policy",
    "alpha",
    "dt",
];

/// Names that a U-AFNO has beyond [`NAMES`].
pub const UAFNO_NAMES: [&str; 3] = ["levels", "blocks", "modes"];

/// Activations that are sampled.
const ACTIVATIONS: [(&str, Act); 5] =
    [("relu", Act::Relu), ("gelu", Act::Gelu), ("silu", Act::Silu), ("tanh", Act::Tanh), ("sigmoid", Act::Sigmoid)];

fn even<'a>(words: impl IntoIterator<Item = &'a str>) -> Map {
    Map::Choice(words.into_iter().map(|word| (word.to_owned(), 1.0)).collect())
}

/// All parameters with their ranges.
#[derive(Clone, Debug, PartialEq)]
pub struct Space {
    /// In the order of [`NAMES`], then of [`UAFNO_NAMES`] if operators are such.
    pub parameters: Vec<Parameter>,
}

impl Default for Space {
    fn default() -> Self {
        let policies = [("autoregressive", 0.2), ("residual", 0.4), ("convex", 0.4)];
        let policies = Map::Choice(policies.map(|(word, weight)| (word.to_owned(), weight)).to_vec());
        let rows: [(Map, &'static str); 14] = [
            (Map::Integer { low: 2, high: 5 }, "hidden layers; more than 3 are residual blocks of two convolutions"),
            (Map::Integer { low: 16, high: 64 }, "channels of layer 0; layer i has 2^min(i, 2) times as many"),
            (even(["3", "5", "7"]), "pixels of a kernel's side"),
            (even(ACTIVATIONS.map(|(word, _)| word)), "after every norm"),
            (Map::Linear { low: 0.0, high: 0.3 }, "chance of 0 after every layer, at every step"),
            (even(NoiseLaw::ALL.map(NoiseLaw::name)), "what the stochastic block does"),
            (Map::Log { low: 1e-5, high: 1.0 }, "s of the noise; for dropout the chance, at most 0.9"),
            (even(Schedule::ALL.map(Schedule::name)), "s over time: s, s(1 - t/T), s(1 + sin(2 pi t/100)/2)"),
            (
                Map::ZeroOr { chance: 0.25, low: 0.0, high: 0.3 },
                "correlation length of the noise over the grid's side; white (dropout: whole channels) at 0",
            ),
            (even(Norm::ALL.map(Norm::name)), "after every convolution; batch: statistics frozen at the initial field"),
            (even(["64", "128", "256"]), "pixels of the field's side, a power of two"),
            (policies, "O(x), x + dt O(x), or alpha x + (1 - alpha) O(x)"),
            (Map::Linear { low: 0.0, high: 0.95 }, "share of the old field; acts with the convex policy"),
            (Map::Log { low: 1e-3, high: 0.3 }, "time step; acts with the residual policy"),
        ];
        let parameters =
            NAMES.into_iter().zip(rows).map(|(name, (map, meaning))| Parameter { name, map, meaning }).collect();
        Self { parameters }
    }
}

impl Map {
    /// The value of a number in [0, 1): whole numbers and words by their share of the interval.
    pub fn value(&self, unit: f64) -> f64 {
        match self {
            Self::Integer { low, high } => {
                let count = (high - low + 1) as f64;
                (*low as f64 + (unit * count).floor()).min(*high as f64)
            }
            Self::Linear { low, high } => low + unit * (high - low),
            Self::Log { low, high } => (low.ln() + unit * (high.ln() - low.ln())).exp().clamp(*low, *high),
            Self::ZeroOr { chance, low, high } => {
                if unit < *chance {
                    0.0
                } else {
                    low + (unit - chance) / (1.0 - chance) * (high - low)
                }
            }
            Self::Choice(words) => {
                let total: f64 = words.iter().map(|(_, weight)| weight).sum();
                let mut sum = 0.0;
                let place = words.iter().position(|(_, weight)| {
                    sum += weight / total;
                    unit < sum
                });
                place.unwrap_or(words.len() - 1) as f64
            }
        }
    }

    /// A value in words.
    pub fn show(&self, value: f64) -> String {
        match self {
            Self::Integer { .. } => format!("{value:.0}"),
            Self::Choice(words) => words.get(value as usize).map_or("?", |(word, _)| word).to_owned(),
            _ => format!("{value:.5}"),
        }
    }

    /// A range in words.
    pub fn range(&self) -> String {
        match self {
            Self::Integer { low, high } => format!("{low} to {high}"),
            Self::Linear { low, high } => format!("{low} to {high}"),
            Self::Log { low, high } => format!("{low} to {high}, by logarithm"),
            Self::ZeroOr { chance, low, high } => format!("0 ({chance}), or {low} to {high}"),
            Self::Choice(words) => {
                let words: Vec<String> = words.iter().map(|(word, weight)| format!("{word} ({weight})")).collect();
                words.join(", ")
            }
        }
    }

    /// The same map narrowed: a number or a word fixes it, two numbers are a range, words are a choice, a table gives weights.
    fn narrowed(&self, path: &str, value: &Value, known: &[&str]) -> Result<Self> {
        let number = |value: &Value| value.as_float().or_else(|| value.as_integer().map(|x| x as f64));
        let wrong = |wanted: &str| Error::Invalid(format!("{path} = {value}: wanted {wanted}"));
        if let Self::Choice(_) = self {
            let word = |value: &Value| match value {
                Value::String(word) => Ok(word.clone()),
                Value::Integer(number) => Ok(number.to_string()),
                _ => Err(wrong("words, or a table of words and weights")),
            };
            let words: Vec<(String, f64)> = match value {
                Value::Array(words) => words.iter().map(|value| Ok((word(value)?, 1.0))).collect::<Result<_>>()?,
                Value::Table(weights) => weights
                    .iter()
                    .map(|(word, weight)| Ok((word.clone(), number(weight).ok_or_else(|| wrong("weights"))?)))
                    .collect::<Result<_>>()?,
                value => vec![(word(value)?, 1.0)],
            };
            for (word, weight) in &words {
                if !known.is_empty() && !known.contains(&word.as_str()) {
                    return Err(Error::unknown(path, word, known.iter().copied(), &known.join(", ")));
                }
                if !(weight.is_finite() && *weight > 0.0) {
                    return Err(wrong("weights above 0"));
                }
            }
            return if words.is_empty() { Err(wrong("at least one word")) } else { Ok(Self::Choice(words)) };
        }
        let (low, high) = match value {
            Value::Array(pair) if pair.len() == 2 => (number(&pair[0]), number(&pair[1])),
            value => (number(value), number(value)),
        };
        let (Some(low), Some(high)) = (low, high) else { return Err(wrong("a number, or [least, most]")) };
        let (least, most) = match self {
            Self::Integer { low, high } => (*low as f64, *high as f64),
            Self::Linear { low, high } | Self::Log { low, high } | Self::ZeroOr { low, high, .. } => (*low, *high),
            Self::Choice(_) => unreachable!("words are above"),
        };
        if !(least <= low && low <= high && high <= most) {
            return Err(wrong(&format!("numbers in order within {least}..={most}")));
        }
        Ok(match self {
            Self::Integer { .. } if low.fract() != 0.0 || high.fract() != 0.0 => return Err(wrong("whole numbers")),
            Self::Integer { .. } => Self::Integer { low: low as i64, high: high as i64 },
            Self::Log { .. } => Self::Log { low, high },
            _ => Self::Linear { low, high },
        })
    }
}

impl Space {
    /// The table of operators of this kind.
    pub fn of(architecture: Architecture) -> Self {
        let mut space = Self::default();
        if architecture == Architecture::Cnn {
            return space;
        }
        let rows: [(Map, &'static str); 3] = [
            (Map::Integer { low: 1, high: 3 }, "times that the encoder halves the grid"),
            (Map::Integer { low: 1, high: 4 }, "Fourier blocks on the innermost grid"),
            (
                Map::Linear { low: 0.125, high: 1.0 },
                "share of the innermost grid's frequencies that blocks mix, of at most 16 of a sign and axis; the others go past",
            ),
        ];
        let more = UAFNO_NAMES.into_iter().zip(rows).map(|(name, (map, meaning))| Parameter { name, map, meaning });
        space.parameters.extend(more);
        let layers = space.parameters.iter_mut().find(|parameter| parameter.name == "layers");
        if let Some(layers) = layers {
            layers.map = Map::Integer { low: 1, high: 3 };
            layers.meaning = "layers of every stage of the encoder and of the decoder";
        }
        space
    }

    /// The table narrowed by settings, one key per parameter.
    pub fn narrowed(&self, settings: &Table, prefix: &str) -> Result<Self> {
        let mut space = self.clone();
        let names: Vec<&str> = self.parameters.iter().map(|parameter| parameter.name).collect();
        for (key, value) in settings {
            let path = format!("{prefix}.{key}");
            let Some(parameter) = space.parameters.iter_mut().find(|parameter| parameter.name == key) else {
                return Err(operant_base::config::unknown_key(&path, key, names.iter().copied(), prefix));
            };
            let known: Vec<&str> = match &parameter.map {
                Map::Choice(words) if parameter.name != "grid" => words.iter().map(|(word, _)| word.as_str()).collect(),
                _ => Vec::new(),
            };
            parameter.map = parameter.map.narrowed(&path, value, &known)?;
        }
        let at = |name: &str| space.parameters.iter().find(|parameter| parameter.name == name);
        if let Some(Map::Choice(grids)) = at("grid").map(|grid| &grid.map) {
            for (word, _) in grids {
                let fits = word.parse::<usize>().is_ok_and(|n| n.is_power_of_two() && (16..=1024).contains(&n));
                if !fits {
                    return Err(Error::Invalid(format!("{prefix}.grid {word}: wanted a power of two, 16 to 1024")));
                }
            }
        }
        if let Some(Map::Integer { high, .. }) = at("levels").map(|levels| &levels.map) {
            let numbers = |name: &str| match at(name).map(|parameter| &parameter.map) {
                Some(Map::Choice(words)) => words.iter().filter_map(|(word, _)| word.parse().ok()).collect(),
                _ => Vec::<usize>::new(),
            };
            let (least, widest) = (numbers("grid").into_iter().min(), numbers("kernel").into_iter().max());
            uafno::check_together(least.unwrap_or(0), *high as usize, widest.unwrap_or(0))?;
        }
        Ok(space)
    }

    /// Values of a point of the unit cube.
    pub fn values(&self, unit: &[f64]) -> Vec<f64> {
        self.parameters.iter().zip(unit).map(|(parameter, &unit)| parameter.map.value(unit)).collect()
    }

    fn place(&self, name: &str) -> Option<usize> {
        self.parameters.iter().position(|parameter| parameter.name == name)
    }

    fn word(&self, values: &[f64], name: &str) -> &str {
        let place = self.place(name).expect("a name of the table");
        match &self.parameters[place].map {
            Map::Choice(words) => &words[(values[place] as usize).min(words.len() - 1)].0,
            _ => unreachable!("asked only for words"),
        }
    }

    fn number(&self, values: &[f64], name: &str) -> f64 {
        values[self.place(name).expect("a name of the table")]
    }

    /// The operator of these values, on fields of so many channels, and how it is rolled out.
    pub fn operator(&self, values: &[f64], channels: usize) -> (Operator, Update) {
        let number = |name| self.number(values, name);
        let word = |name| self.word(values, name);
        let named = |name: &str| ACTIVATIONS.iter().find(|(word, _)| *word == name).map_or(Act::Gelu, |(_, act)| *act);
        let operator = Operator {
            channels,
            grid: word("grid").parse().expect("grids were checked"),
            layers: number("layers") as usize,
            base_channels: number("base_channels") as usize,
            kernel: word("kernel").parse().expect("kernels are numbers"),
            flat: false,
            activation: named(word("activation")),
            dropout: number("dropout") as f32,
            noise: NoiseLaw::ALL.into_iter().find(|law| law.name() == word("noise")).expect("words were checked"),
            noise_scale: number("noise_scale") as f32,
            schedule: Schedule::ALL.into_iter().find(|s| s.name() == word("schedule")).expect("words were checked"),
            correlation: number("correlation") as f32,
            norm: Norm::ALL.into_iter().find(|norm| norm.name() == word("norm")).expect("words were checked"),
            afno: self.place("levels").map(|_| Afno {
                levels: number("levels") as usize,
                blocks: number("blocks") as usize,
                modes: number("modes") as f32,
            }),
        };
        let update = match word("policy") {
            "residual" => Update::Residual { dt: number("dt") as f32 },
            "convex" => Update::Convex { alpha: number("alpha") as f32 },
            _ => Update::Autoregressive,
        };
        (operator, update)
    }
}
