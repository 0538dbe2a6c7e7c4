//! All that comes with the engine. One line here brings a crate's envs or algorithms to the command line, Python, the tests and the docs.

use operant_rl::{Catalogue, Shipped};

/// Envs, algorithms, and the settings that come with them: `configs/<algo>/<env>.toml`.
pub static CATALOGUE: Catalogue = Catalogue {
    envs: &[operant_envs::ENVS, operant_games::ENVS, operant_growth::ENVS, operant_cubes::ENVS, operant_envs::PROBES],
    algorithms: &[operant_rl::algo::ALGORITHMS, operant_cubes::ALGORITHMS, operant_games::ALGORITHMS],
    shipped: SHIPPED,
};

macro_rules! shipped {
    ($($algo:literal: $($env:literal)+;)+) => {
        const SHIPPED: &[Shipped] = &[$($(Shipped {
            algo: $algo,
            env: $env,
            text: include_str!(concat!("../../../configs/", $algo, "/", $env, ".toml")),
        },)+)+];
    };
}

shipped! {
    "dqn":
        "cartpole" "mountaincar" "gridworld" "cube2" "cube3" "probe_identity" "probe_delayed" "probe_truncation" "probe_masked";
    "ppo":
        "cartpole" "mountaincar" "mountaincar_continuous" "pendulum" "acrobot" "gridworld" "growth" "cube2" "cube3" "connect4"
        "2048" "backgammon"
        "probe_identity" "probe_delayed" "probe_truncation" "probe_masked" "probe_memory";
    "alphazero":
        "connect4" "2048" "backgammon";
    "davi":
        "cube2" "cube3";
    "td":
        "backgammon";
    "ppo/cuda":
        "cartpole" "mountaincar" "mountaincar_continuous" "pendulum" "acrobot";
}
