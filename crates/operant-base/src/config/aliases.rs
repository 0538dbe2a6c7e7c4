//! Names that other libraries have for settings: Stable-Baselines3, CleanRL, RLlib, Tianshou, TorchRL, Spinning Up.
//!
//! Invariant: no name here is a key of the algorithms that it is for, and every key that is named exists
//! (`run/keys.rs` tests both).

use super::{Error, below};

/// What another library's name for a setting comes to here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// This key, which takes the same value. A path that begins with a dot is in the algorithm's own table.
    Same(&'static str),
    /// This key, whose value follows from the other as the words say.
    Near(&'static str, &'static str),
    /// No setting; the words say what to do.
    Other(&'static str),
}

use Meaning::{Near, Other, Same};

/// Algorithms, the names that their users may type, and what those mean.
type Row = (&'static [&'static str], &'static [&'static str], Meaning);

const ALL: &[&str] = &["ppo", "dqn", "davi", "td", "alphazero"];
const PPO: &[&str] = &["ppo"];
const DQN: &[&str] = &["dqn"];
const POLICIES: &[&str] = &["ppo", "dqn"];
const ALPHAZERO: &[&str] = &["alphazero"];

const LAYERS: &str = "the sizes of hidden layers; network.activation, network.memory and network.encoder say the rest";
const REPLAY_RATIO: &str = "samples learned per env step, which is batch_size * gradient_steps / train_freq";
const BUFFER: &str = "the engine has a buffer of its own; leave it out";
const NO_SDE: &str = "there is no state-dependent exploration here; leave it out";
const TREE: &str = "the table of the tree search; its keys are simulations, c_puct, noise, noise_alpha and more";

const ROWS: &[Row] = &[
    (ALL, &["lr", "step_size", "stepsize"], Same(".learning_rate")),
    (ALL, &["pi_lr", "vf_lr", "actor_lr", "critic_lr"], Near(".learning_rate", "one for the whole network")),
    (
        ALL,
        &["lr_schedule", "learning_rate_schedule", "lr_decay"],
        Near(".anneal_lr", "true lowers the rate in a straight line to 0"),
    ),
    (ALL, &["anneal_learning_rate", "use_linear_lr_decay", "linear_lr_decay"], Same(".anneal_lr")),
    (
        ALL,
        &["grad_clip", "max_gradient_norm", "clip_grad_norm", "grad_norm_clip", "gradient_clip"],
        Same(".max_grad_norm"),
    ),
    (ALL, &["n_envs", "num_environments", "n_env"], Same("num_envs")),
    (
        ALL,
        &["num_workers", "num_env_runners", "num_envs_per_worker", "num_envs_per_env_runner"],
        Near("num_envs", "all that are stepped together"),
    ),
    (
        ALL,
        &["total_timesteps", "total_steps", "timesteps", "num_timesteps", "total_frames", "total_env_steps"],
        Same("steps"),
    ),
    (ALL, &["random_seed"], Same("seed")),
    (ALL, &["num_threads", "n_threads", "n_jobs"], Same("threads")),
    (ALL, &["max_episode_steps", "max_ep_len", "horizon"], Near("env.time_limit", "the most steps of an episode")),
    (ALL, &["cuda", "use_cuda", "use_gpu"], Near("device", "cpu, cuda, cuda:i or auto")),
    (ALL, &["net_arch", "fcnet_hiddens", "hidden_sizes", "hidden_layers"], Same("network.hidden")),
    (ALL, &["hidden_size", "hidden_dim"], Near("network.hidden", "a list with the size of every hidden layer")),
    (ALL, &["fcnet_activation"], Same("network.activation")),
    (ALL, &["activation_fn"], Near("network.activation", "a word: relu, tanh, sigmoid, gelu or silu")),
    (ALL, &["lstm_hidden_size", "lstm_cell_size", "rnn_hidden_size"], Same("network.memory_size")),
    (ALL, &["use_lstm", "recurrent", "use_rnn"], Near("network.memory", "none, lstm or mingru")),
    (ALL, &["policy", "policy_kwargs"], Near("network.hidden", LAYERS)),
    (
        ALL,
        &["verbose"],
        Other("learn(progress_bar=True) shows progress, and so does operant train unless --quiet is given"),
    ),
    (
        ALL,
        &["tensorboard_log"],
        Other("a run's folder holds a TensorBoard file: run_dir=\"runs/mine\", or --run-dir runs/mine"),
    ),
    (ALL, &["stats_window_size"], Other("returns are means over the last 100 episodes; leave it out")),
    (ALL, &["torch_deterministic"], Other("the same settings and seed give the same bits; leave it out")),
    (ALL, &["_init_setup_model"], Other("a model is always set up; leave it out")),
    (POLICIES, &["discount", "discount_factor"], Same(".gamma")),
    (POLICIES, &["adam_epsilon", "optimizer_eps"], Same(".adam_eps")),
    (POLICIES, &["norm_obs", "normalize_observations", "obs_norm"], Same(".normalize_obs")),
    (PPO, &["norm_reward", "normalize_rewards", "reward_normalization"], Same(".normalize_reward")),
    (PPO, &["n_steps", "rollout_length", "unroll_length", "rollout_fragment_length"], Same(".num_steps")),
    (
        PPO,
        &["steps_per_epoch", "step_per_collect", "train_batch_size", "frames_per_batch"],
        Near(".num_steps", "steps of each env between updates: num_envs * num_steps samples in all"),
    ),
    (PPO, &["batch_size", "mini_batch_size", "sgd_minibatch_size"], Same(".minibatch_size")),
    (
        PPO,
        &["num_minibatches", "n_minibatches", "nminibatches", "num_mini_batch"],
        Near(".minibatch_size", "num_envs * num_steps / num_minibatches samples"),
    ),
    (
        PPO,
        &["n_epochs", "num_epochs", "num_sgd_iter", "ppo_epochs", "ppo_epoch", "noptepochs", "repeat_per_collect"],
        Same(".update_epochs"),
    ),
    (
        PPO,
        &["clip_range", "clip_param", "clip_epsilon", "clip_eps", "eps_clip", "clip_ratio", "cliprange"],
        Same(".clip_coef"),
    ),
    (
        PPO,
        &["clip_range_vf", "vf_clip_param"],
        Near(".clip_vloss", "true clips values by ppo.clip_coef, false does not"),
    ),
    (PPO, &["clip_value_loss", "value_clip"], Same(".clip_vloss")),
    (PPO, &["normalize_advantage", "normalize_advantages", "advantage_normalization"], Same(".norm_adv")),
    (PPO, &["entropy_coef", "entropy_coeff", "entropy_cost", "entropy_weight", "ent_weight"], Same(".ent_coef")),
    (
        PPO,
        &["value_coef", "value_loss_coef", "vf_loss_coeff", "vf_coeff", "critic_coef", "critic_coeff"],
        Same(".vf_coef"),
    ),
    (PPO, &["lam", "lmbda", "lambda", "lambda_", "gae_lam"], Same(".gae_lambda")),
    (
        PPO,
        &["kl_target", "max_kl", "desired_kl"],
        Near(".target_kl", "no further epoch once the policy has moved this far; 0 for no limit"),
    ),
    (PPO, &["kl_coeff", "use_kl_loss"], Other("the loss has no penalty of KL here; ppo.target_kl ends epochs early")),
    (PPO, &["use_gae", "use_critic"], Near(".gae_lambda", "advantages are always estimated so; 1 sums whole returns")),
    (PPO, &["use_sde", "sde_sample_freq"], Other(NO_SDE)),
    (PPO, &["rollout_buffer_class", "rollout_buffer_kwargs"], Other(BUFFER)),
    (
        PPO,
        &[
            "buffer_size",
            "learning_starts",
            "train_freq",
            "gradient_steps",
            "replay_ratio",
            "tau",
            "target_update_interval",
            "target_network_frequency",
            "replay_buffer_class",
            "replay_buffer_kwargs",
            "optimize_memory_usage",
        ],
        Other(
            "ppo learns from the newest ppo.num_steps steps of each env and keeps no replay; leave it out, or train dqn",
        ),
    ),
    (
        PPO,
        &["exploration_fraction", "exploration_initial_eps", "exploration_final_eps", "start_e", "end_e", "epsilon"],
        Near(".ent_coef", "the weight of entropy keeps actions random; none are drawn evenly"),
    ),
    (
        DQN,
        &["train_freq", "train_frequency", "gradient_steps", "training_intensity", "update_per_step", "utd_ratio"],
        Near(".replay_ratio", REPLAY_RATIO),
    ),
    (
        DQN,
        &["target_update_interval", "target_update_freq", "target_network_update_freq", "target_update_period"],
        Near(".target_network_frequency", "counted in updates of the network, not in env steps"),
    ),
    (DQN, &["polyak"], Near(".tau", "the share that the target network takes over: 1 - polyak")),
    (DQN, &["exploration_initial_eps", "initial_epsilon", "epsilon_start", "eps_start"], Same(".start_e")),
    (DQN, &["exploration_final_eps", "final_epsilon", "epsilon_end", "eps_end"], Same(".end_e")),
    (
        DQN,
        &["epsilon_timesteps", "epsilon_decay", "eps_decay", "annealing_num_steps"],
        Near(".exploration_fraction", "a share of the run's steps, 0 to 1"),
    ),
    (
        DQN,
        &["replay_size", "replay_capacity", "replay_buffer_size", "buffer_capacity", "capacity"],
        Same(".buffer_size"),
    ),
    (DQN, &["replay_buffer_class", "replay_buffer_kwargs", "optimize_memory_usage"], Other(BUFFER)),
    (DQN, &["min_replay_size", "warmup_steps", "num_steps_sampled_before_learning_starts"], Same(".learning_starts")),
    (DQN, &["minibatch_size", "mini_batch_size", "train_batch_size"], Same(".batch_size")),
    (DQN, &["n_steps", "multi_step", "estimation_step", "n_step_return"], Same(".n_step")),
    (DQN, &["double_dqn", "is_double", "use_double"], Same(".double_q")),
    (DQN, &["dueling_dqn", "use_dueling"], Same(".dueling")),
    (DQN, &["noisy_net", "noisy_nets", "noisy_networks"], Same(".noisy")),
    (DQN, &["n_quantiles", "num_quantiles"], Same(".quantiles")),
    (DQN, &["num_atoms", "n_atoms"], Near(".quantiles", "quantiles of the return; 0 for its mean alone")),
    (DQN, &["prioritized", "prioritized_experience_replay", "per"], Same(".prioritized_replay")),
    (DQN, &["per_alpha"], Same(".prioritized_replay_alpha")),
    (DQN, &["per_beta"], Same(".prioritized_replay_beta")),
    (
        DQN,
        &[
            "clip_range",
            "clip_coef",
            "clip_param",
            "clip_epsilon",
            "clip_eps",
            "eps_clip",
            "clip_ratio",
            "cliprange",
            "clip_range_vf",
            "vf_clip_param",
            "clip_vloss",
            "anneal_clip",
        ],
        Other(
            "dqn has no policy whose steps are clipped; leave it out, or train ppo; dqn.max_grad_norm limits an update",
        ),
    ),
    (
        DQN,
        &["n_epochs", "num_epochs", "update_epochs", "num_minibatches", "n_minibatches"],
        Near(".replay_ratio", "samples learned per env step, since a replay has no epochs"),
    ),
    (
        DQN,
        &["ent_coef", "entropy_coef", "entropy_coeff", "anneal_ent"],
        Near(".end_e", "the share of random actions that stays; entropy has no weight here"),
    ),
    (
        DQN,
        &["gae_lambda", "gae_lam", "lam", "lmbda"],
        Near(".n_step", "the rewards that are summed before the network is asked"),
    ),
    (
        DQN,
        &["vf_coef", "value_coef", "target_kl", "norm_adv", "normalize_advantage", "use_sde", "sde_sample_freq"],
        Other("dqn has no policy beside its values; leave it out, or train ppo"),
    ),
    (
        ALPHAZERO,
        &[
            "num_simulations",
            "n_simulations",
            "simulations",
            "cpuct",
            "c_puct",
            "dirichlet_alpha",
            "root_dirichlet_alpha",
            "dirichlet_noise",
        ],
        Near(".search", TREE),
    ),
    (ALPHAZERO, &["minibatch_size", "mini_batch_size", "train_batch_size"], Same(".batch_size")),
];

/// The names that users of an algorithm may type, with what each means.
pub fn aliases(algo: &str) -> impl Iterator<Item = (&'static str, Meaning)> {
    let rows = ROWS.iter().filter(move |(algos, ..)| algos.contains(&algo));
    rows.flat_map(|(_, names, meaning)| names.iter().map(|name| (*name, *meaning)))
}

impl Meaning {
    /// What a name means to an algorithm.
    pub fn of(algo: &str, name: &str) -> Option<Self> {
        aliases(algo).find(|(alias, _)| *alias == name).map(|(_, meaning)| meaning)
    }

    /// The path of the key for an algorithm, and how its value follows if it is not the same; nothing if there is no key.
    pub fn key(self, algo: &str) -> Option<(String, Option<&'static str>)> {
        let full = |path: &str| path.strip_prefix('.').map_or_else(|| path.to_owned(), |key| below(algo, key));
        match self {
            Same(path) => Some((full(path), None)),
            Near(path, how) => Some((full(path), Some(how))),
            Other(_) => None,
        }
    }

    /// The error for who typed `path`.
    pub fn error(self, algo: &str, path: &str) -> Error {
        let next = match (self, self.key(algo)) {
            (_, Some((key, None))) => format!("here it is \"{key}\""),
            (_, Some((key, Some(how)))) => format!("see \"{key}\": {how}"),
            (Same(words) | Near(words, _) | Other(words), None) => words.to_owned(),
        };
        Error::Unknown(format!("unknown key \"{path}\"; {next}"))
    }
}
