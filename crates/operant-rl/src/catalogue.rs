//! What a program has to run: envs, algorithms, and tuned settings of both.

use crate::algo;
use operant_base::{Error, Result};
use operant_env::{BROUGHT, Entry};

/// Tuned settings of an algorithm in an env.
#[derive(Clone, Copy, Debug)]
pub struct Shipped {
    /// The algorithm's name; on a GPU with `/cuda` behind it.
    pub algo: &'static str,
    /// The env's short name.
    pub env: &'static str,
    /// The settings as TOML.
    pub text: &'static str,
}

/// Lists of envs and algorithms, and of the settings that come with them.
pub struct Catalogue {
    /// Envs, in the order in which they are listed.
    pub envs: &'static [&'static [Entry]],
    /// Algorithms.
    pub algorithms: &'static [&'static [algo::Entry]],
    /// Tuned settings.
    pub shipped: &'static [Shipped],
}

impl std::fmt::Debug for Catalogue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Catalogue").finish_non_exhaustive()
    }
}

impl PartialEq for Catalogue {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Catalogue {
    /// Every env.
    pub fn envs(&self) -> impl Iterator<Item = &'static Entry> + Clone + use<> {
        self.envs.iter().copied().flatten()
    }

    /// Every algorithm.
    pub fn algorithms(&self) -> impl Iterator<Item = &'static algo::Entry> + Clone + use<> {
        self.algorithms.iter().copied().flatten()
    }

    /// The env of this short name or id.
    pub fn env(&self, name: &str) -> Result<&'static Entry> {
        if name.starts_with(BROUGHT) {
            let next = "give it to operant.PPO or operant.DQN in Python";
            return Err(Error::Unknown(format!(
                "{name} is an env that was brought from Python, none of the engine's: {next}"
            )));
        }
        self.envs().find(|entry| entry.answers_to(name)).ok_or_else(|| {
            let names: Vec<&str> = self.envs().flat_map(|entry| [entry.spec().name, entry.spec().id]).collect();
            Error::unknown("env", name, names, "operant list")
        })
    }

    /// The algorithm of this name.
    pub fn algorithm(&self, name: &str) -> Result<&'static algo::Entry> {
        self.algorithms()
            .find(|entry| entry.name.eq_ignore_ascii_case(name))
            .ok_or_else(|| Error::unknown("algorithm", name, self.algorithms().map(|entry| entry.name), "operant list"))
    }

    /// The settings that come with an algorithm in an env.
    pub fn shipped(&self, algo: &str, env: &str) -> Option<&'static str> {
        self.shipped.iter().find(|shipped| shipped.algo == algo && shipped.env == env).map(|shipped| shipped.text)
    }
}

/// What unit tests run: envs of the crate beside, the algorithms here.
#[cfg(test)]
pub(crate) static TESTED: Catalogue = Catalogue {
    envs: &[operant_envs::ENVS],
    algorithms: &[algo::ALGORITHMS],
    shipped: &[Shipped { algo: "ppo", env: "cartpole", text: include_str!("../../../configs/ppo/cartpole.toml") }],
};
