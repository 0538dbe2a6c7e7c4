"""Stable-Baselines3 checks envs and learns on them."""

from __future__ import annotations

import warnings

import gymnasium
import numpy as np
import operant
import pytest
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

pytestmark = pytest.mark.library("stable_baselines3")


@pytest.mark.parametrize("env_id", ["CartPole-v1", "MountainCarContinuous-v0", "Acrobot-v1", "Pendulum-v1"])
def test_checker(env_id: str) -> None:
    """`check_env` of registered envs."""
    with warnings.catch_warnings():
        # Its advice on spaces, which are those of Gymnasium's classic control.
        warnings.simplefilter("ignore", UserWarning)
        check_env(gymnasium.make(f"operant/{env_id}"))


def test_ppo_learns() -> None:
    """PPO learns CartPole on `operant.sb3.Sb3VecEnv`: a mean return above 100."""
    env = operant.sb3.Sb3VecEnv("CartPole-v1", 16, seed=0)
    model = PPO("MlpPolicy", env, n_steps=128, batch_size=256, n_epochs=8, seed=0, device="cpu")
    model.learn(40_000)
    assert np.mean([episode["r"] for episode in model.ep_info_buffer]) > 100


def test_dqn_runs_and_is_saved(tmp_path) -> None:
    """DQN on a registered env in `DummyVecEnv`, saved and loaded."""
    env = DummyVecEnv([lambda: gymnasium.make("operant/CartPole-v1")])
    model = DQN("MlpPolicy", env, learning_starts=50, seed=0, device="cpu").learn(200)
    model.save(tmp_path / "model.zip")
    again = DQN.load(tmp_path / "model.zip", env=env, device="cpu")
    seen = env.reset()
    assert again.predict(seen, deterministic=True)[0] == model.predict(seen, deterministic=True)[0]


def test_processes() -> None:
    """`SubprocVecEnv` with spawned processes steps registered envs."""
    # The id names the module to import, which processes that begin anew need.
    env = SubprocVecEnv([lambda: gymnasium.make("operant:operant/CartPole-v1")] * 2, start_method="spawn")
    try:
        env.seed(0)
        assert env.reset().shape == (2, 4)
        assert env.step(np.array([0, 1]))[1].tolist() == [1.0, 1.0]
    finally:
        env.close()
