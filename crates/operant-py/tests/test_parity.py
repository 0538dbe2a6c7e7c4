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


def compare(ours: operant.OperantVectorEnv, theirs: Any, state: dict[str, np.ndarray]) -> None:
    """Takes one step from `state` in both, with the same random actions."""
    ours.reset(seed=1)
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


@pytest.mark.parametrize("env_id", STATES)
def test_one_step_equals_gymnasiums(env_id: str) -> None:
    rng = np.random.default_rng(0)
    ours = operant.make_vec(env_id, N, autoreset_mode="disabled", max_episode_steps=-1)
    ours.action_space.seed(0)
    theirs: Any = gymnasium.make(env_id).unwrapped
    for _ in range(4):
        compare(ours, theirs, STATES[env_id](rng))


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


@pytest.mark.parametrize("env_id", STATES)
def test_limits_and_first_states_are_gymnasiums(env_id: str) -> None:
    theirs = gymnasium.spec(env_id)
    info = operant.env_info(env_id)
    assert info["time_limit"] == theirs.max_episode_steps
    # Gymnasium calls no return of Pendulum solved.
    assert info["solved_at"] == (-200.0 if env_id == "Pendulum-v1" else theirs.reward_threshold)
    ours = operant.make_vec(env_id, 8192, seed=0)
    ours.reset()
    single: Any = gymnasium.make(env_id).unwrapped
    draws = []
    for seed in range(4096):
        single.reset(seed=seed)
        draws.append(np.asarray(single.state, dtype=np.float64))
    for mine, other in zip(list(ours.get_state().values())[:-1], np.array(draws).T, strict=True):
        width = max(np.ptp(other), 1e-9)
        for statistic in (np.min, np.max, np.mean, np.std):
            assert abs(statistic(mine) - statistic(other)) < 0.02 * width, (env_id, statistic.__name__)


OTHER_PARAMETERS: dict[str, dict[str, float]] = {
    "CartPole-v1": {
        "gravity": 3.7, "masscart": 2.0, "masspole": 0.3, "length": 1.0, "force_mag": 5.0, "tau": 0.05,
        "theta_threshold_radians": 0.15, "x_threshold": 1.5, "sutton_barto_reward": True,
    },
    "MountainCar-v0": {"goal_velocity": 0.02, "force": 0.002, "gravity": 0.003, "max_speed": 0.05, "goal_position": 0.3},
    "MountainCarContinuous-v0": {"goal_velocity": 0.01, "power": 0.003, "max_speed": 0.05, "goal_position": 0.3},
    "Pendulum-v1": {"g": 3.0, "m": 2.0, "l": 0.5, "dt": 0.02, "max_speed": 5.0, "max_torque": 1.0},
    "Acrobot-v1": {
        "dt": 0.1, "link_length_1": 1.5, "link_mass_1": 2.0, "link_mass_2": 0.5, "link_com_pos_1": 0.7,
        "link_com_pos_2": 0.4, "link_moi": 1.3, "max_vel_1": 5.0, "max_vel_2": 8.0,
    },
}  # fmt: skip


@pytest.mark.parametrize("env_id", OTHER_PARAMETERS)
def test_parameters_act_as_gymnasiums_attributes_do(env_id: str) -> None:
    params = OTHER_PARAMETERS[env_id]
    ours = operant.make_vec(env_id, N, autoreset_mode="disabled", max_episode_steps=-1, **params)
    theirs: Any = gymnasium.make(env_id).unwrapped
    for name, value in params.items():
        attribute = {"sutton_barto_reward": "_sutton_barto_reward"}.get(name, name)
        attribute = attribute if hasattr(theirs, attribute) else attribute.upper()
        assert hasattr(theirs, attribute), name
        setattr(theirs, attribute, value)
    if env_id == "CartPole-v1":
        theirs.total_mass = theirs.masspole + theirs.masscart
        theirs.polemass_length = theirs.masspole * theirs.length
    ours.action_space.seed(1)
    compare(ours, theirs, STATES[env_id](np.random.default_rng(1)))
