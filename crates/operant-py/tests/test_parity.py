"""One step of ours against one step of Gymnasium's, from the same state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import operant
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

N = 64
Draw = Callable[[np.random.Generator], dict[str, np.ndarray]]


def uniform(**bounds: float) -> Draw:
    return lambda rng: {name: rng.uniform(-b, b, N).astype(np.float32) for name, b in bounds.items()}


STATES: dict[str, Draw] = {
    "CartPole-v1": uniform(x=2.5, x_dot=2.0, theta=0.22, theta_dot=2.0),
    "MountainCar-v0": lambda rng: {
        "position": rng.uniform(-1.2, 0.6, N).astype(np.float32),
        "velocity": rng.uniform(-0.07, 0.07, N).astype(np.float32),
    },
    "MountainCarContinuous-v0": lambda rng: {
        "position": rng.uniform(-1.2, 0.6, N).astype(np.float32),
        "velocity": rng.uniform(-0.07, 0.07, N).astype(np.float32),
    },
    "Pendulum-v1": uniform(theta=9.0, theta_dot=8.0),
    "Acrobot-v1": uniform(theta1=3.0, theta2=3.0, theta1_dot=6.0, theta2_dot=12.0),
}


@pytest.mark.parametrize("env_id", STATES)
def test_one_step_equals_gymnasiums(env_id: str) -> None:
    rng = np.random.default_rng(0)
    ours = operant.make_vec(env_id, N, autoreset_mode="disabled", max_episode_steps=-1)
    ours.action_space.seed(0)
    theirs: Any = gymnasium.make(env_id).unwrapped
    for _ in range(4):
        ours.reset(seed=1)
        state = STATES[env_id](rng)
        ours.set_state(state)
        actions = ours.action_space.sample()
        observations, rewards, terminated, _, _ = ours.step(actions)
        for i in range(N):
            theirs.reset()
            theirs.state = np.array([column[i] for column in state.values()], dtype=np.float64)
            observation, reward, ended, _, _ = theirs.step(actions[i])
            np.testing.assert_allclose(observations[i], observation, rtol=2e-5, atol=2e-5)
            np.testing.assert_allclose(rewards[i], reward, rtol=1e-5, atol=1e-5)
            assert terminated[i] == ended


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_autoreset_equals_sync_vector_envs(mode: AutoresetMode) -> None:
    ours = operant.make_vec("CartPole-v1", N, seed=0, autoreset_mode=mode, max_episode_steps=20)
    theirs = SyncVectorEnv([lambda: gymnasium.make("CartPole-v1", max_episode_steps=20)] * N, autoreset_mode=mode)
    ours.reset()
    theirs.reset(seed=0)
    ended = np.zeros(N, dtype=bool)
    seen = np.zeros(2, dtype=int)
    rng = np.random.default_rng(0)
    for _ in range(60):
        for i, column in enumerate(zip(*list(ours.get_state().values())[:4], strict=True)):
            theirs.envs[i].unwrapped.state = np.array(column, dtype=np.float64)
        actions = rng.integers(0, 2, N)
        observations, rewards, terminated, truncated, infos = ours.step(actions)
        expected = theirs.step(actions)
        np.testing.assert_array_equal(rewards, expected[1])
        np.testing.assert_array_equal(terminated, expected[2])
        np.testing.assert_array_equal(truncated, expected[3])
        now = terminated | truncated
        same = ~(now if mode is AutoresetMode.SAME_STEP else ended)
        np.testing.assert_allclose(observations[same], expected[0][same], rtol=1e-5, atol=1e-6)
        assert ("final_obs" in infos) == ("final_obs" in expected[4])
        if "final_obs" in infos:
            np.testing.assert_array_equal(infos["_final_obs"], expected[4]["_final_obs"])
            np.testing.assert_allclose(infos["final_obs"][now], np.stack(expected[4]["final_obs"][now]), atol=1e-5)
            assert not infos["final_obs"][~now].any()
        ended = now
        seen += [terminated.sum(), truncated.sum()]
    assert seen.min() > 0
