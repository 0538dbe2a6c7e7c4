"""Stable-Baselines3 learns on our envs. Asked for by name: pytest crates/operant-py/tests/peers."""

from __future__ import annotations

import numpy as np
import operant
import pytest

sb3 = pytest.importorskip("stable_baselines3")


def test_infos_are_those_that_sb3_expects() -> None:
    env = operant.sb3.Sb3VecEnv("CartPole-v1", 8, seed=0, max_episode_steps=30)
    env.seed(3)
    first = env.reset()
    rng = np.random.default_rng(0)
    ended = truncated = 0
    last = first
    for _ in range(80):
        kept = last.copy()
        observations, rewards, dones, infos = env.step(rng.integers(0, 2, 8))
        np.testing.assert_array_equal(last, kept)
        assert (rewards.dtype, dones.dtype) == (np.float32, np.bool_)
        for done, info in zip(dones, infos, strict=True):
            assert ("terminal_observation" in info) == ("episode" in info) == done
            if done:
                ended += 1
                truncated += info["TimeLimit.truncated"]
                assert info["episode"]["r"] == info["episode"]["l"] <= 30
                assert info["TimeLimit.truncated"] <= (info["episode"]["l"] == 30)
        last = observations
    assert ended > truncated > 0
    env.seed(3)
    np.testing.assert_array_equal(env.reset(), first)
    env.set_options({"low": 0.0, "high": 0.0})
    assert not env.reset().any()
    assert env.reset().any()


def test_vec_env_methods() -> None:
    env = operant.sb3.Sb3VecEnv("gridworld", 2, render_mode="rgb_array")
    env.reset()
    assert env.reset_infos[0]["action_mask"].shape == (4,)
    assert env.get_attr("num_envs") == [2, 2]
    env.set_attr("label", 7)
    assert env.get_attr("label", [0]) == [7]
    with pytest.raises(ValueError, match="wanted indices=None"):
        env.set_attr("label", 8, [0])
    assert set(env.env_method("get_state")[0]) >= {"elapsed"}
    assert env.env_is_wrapped(object) == [False, False]
    assert [picture.shape[2] for picture in env.get_images()] == [3, 3]
    with pytest.raises(ValueError, match="SAME_STEP"):
        operant.sb3.Sb3VecEnv("cartpole", autoreset_mode="next_step")
    env.close()


def test_ppo_learns_cartpole() -> None:
    env = operant.sb3.Sb3VecEnv("CartPole-v1", 16, seed=0)
    model = sb3.PPO("MlpPolicy", env, n_steps=128, batch_size=256, n_epochs=8, seed=0, device="cpu")
    model.learn(50_000)
    returns = [episode["r"] for episode in model.ep_info_buffer]
    assert np.mean(returns) > 100
