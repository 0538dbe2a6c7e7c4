"""RLlib trains on a registered env."""

from __future__ import annotations

import os

import operant
import pytest

# Before ray is imported: no tokens in the user's folder, no reports.
os.environ.setdefault("RAY_AUTH_MODE", "disabled")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

pytestmark = pytest.mark.library("ray")


def test_one_iteration() -> None:
    """One iteration of RLlib's PPO with four envs of `operant/CartPole-v1`."""
    import ray
    from ray.rllib.algorithms.ppo import PPOConfig

    assert "cartpole" in operant.env_info("CartPole-v1")["name"]
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        config = (
            PPOConfig()
            .environment("operant/CartPole-v1")
            .env_runners(num_env_runners=0, num_envs_per_env_runner=4)
            .learners(num_learners=0, num_gpus_per_learner=0)
            .training(train_batch_size_per_learner=256, minibatch_size=64, num_epochs=1)
            .debugging(seed=0)
        )
        algorithm = config.build_algo()
        try:
            runners = algorithm.train()["env_runners"]
        finally:
            algorithm.stop()
    finally:
        ray.shutdown()
    assert runners["num_env_steps_sampled"] >= 256
    assert runners["episode_return_mean"] > 5
