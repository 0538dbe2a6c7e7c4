//! Tuned settings that come with the program: `configs/<algo>/<env>.toml`.

macro_rules! shipped {
    ($($algo:literal: $($env:literal)+;)+) => {
        /// Algorithm, env, text.
        pub static SHIPPED: &[(&str, &str, &str)] = &[$($(
            ($algo, $env, include_str!(concat!("../../../../configs/", $algo, "/", $env, ".toml"))),
        )+)+];
    };
}

shipped! {
    "dqn":
        "cartpole" "mountaincar" "gridworld" "probe_identity" "probe_delayed" "probe_truncation" "probe_masked";
    "ppo":
        "cartpole" "mountaincar" "mountaincar_continuous" "pendulum" "acrobot" "gridworld" "cube2" "cube3" "backgammon"
        "probe_identity" "probe_delayed" "probe_truncation" "probe_masked" "probe_memory";
    "davi":
        "cube2" "cube3";
    "td":
        "backgammon";
    "ppo/cuda":
        "cartpole" "mountaincar" "mountaincar_continuous" "pendulum" "acrobot";
}

/// The text for an algorithm and env.
pub(super) fn find(algo: &str, env: &str) -> Option<&'static str> {
    SHIPPED.iter().find(|(a, e, _)| *a == algo && *e == env).map(|(_, _, text)| *text)
}
