"""Spaces, metadata and what the package says of itself."""

from __future__ import annotations

import importlib.metadata
import pathlib

import gymnasium
import numpy as np
import operant
import pytest
from gymnasium.vector import AutoresetMode, VectorEnv

CLASSIC = ["CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1", "Acrobot-v1"]


@pytest.mark.parametrize("env_id", CLASSIC)
def test_spaces_equal_gymnasiums(env_id: str) -> None:
    ours = operant.make_vec(env_id, 3)
    theirs = gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make(env_id)] * 3)
    assert isinstance(ours, VectorEnv)
    assert ours.observation_space == theirs.observation_space
    assert ours.single_observation_space == theirs.single_observation_space
    assert ours.action_space == theirs.action_space
    assert ours.single_action_space == theirs.single_action_space
    assert ours.num_envs == 3


@pytest.mark.parametrize("env_id", operant.list_envs())
def test_observations_and_samples_lie_in_the_spaces(env_id: str) -> None:
    env = operant.make_vec(env_id, 5, seed=0)
    env.action_space.seed(0)
    observations, _ = env.reset()
    for _ in range(20):
        assert observations in env.observation_space
        observations, rewards, terminated, truncated, _ = env.step(env.action_space.sample())
        assert (rewards.dtype, terminated.dtype, truncated.dtype) == (np.float32, np.bool_, np.bool_)
        assert rewards.shape == terminated.shape == truncated.shape == (5,)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("same_step", AutoresetMode.SAME_STEP),
        ("next_step", AutoresetMode.NEXT_STEP),
        ("disabled", AutoresetMode.DISABLED),
        ("NextStep", AutoresetMode.NEXT_STEP),
        *((mode, mode) for mode in AutoresetMode),
    ],
)
def test_autoreset_mode_is_declared(given: str | AutoresetMode, meant: AutoresetMode) -> None:
    assert operant.make_vec("cartpole", autoreset_mode=given).metadata["autoreset_mode"] is meant


def test_names_and_info() -> None:
    assert operant.list_envs()[:2] == ["CartPole-v1", "MountainCar-v0"]
    for name in ("cartpole", "CartPole-v1", "operant/CartPole-v1", "CARTPOLE"):
        assert operant.env_info(name)["id"] == "CartPole-v1"
    info = operant.env_info("gridworld")
    assert (info["id"], info["masked"], info["door"]) == ("operant/GridWorld-v0", True, "host")
    assert {"name", "doc", "unit", "value", "low", "high", "names", "whole"} == set(info["params"][0])


def test_params() -> None:
    env = operant.make_vec("cartpole", 2, gravity=1.5, sutton_barto_reward=True)
    assert env.params["gravity"] == 1.5
    assert env.params["sutton_barto_reward"] == 1
    env.reset(seed=0)
    assert (env.step([0, 1])[1] == 0).all()
    wide = operant.make_vec("cartpole", 2, x_threshold=5.0)
    assert wide.single_observation_space.high[0] == 10.0
    assert operant.make_vec("gridworld", 2, size=5).single_observation_space.shape == (4 * 25,)


def test_the_package() -> None:
    assert operant.__version__ == importlib.metadata.version("operant")
    folder = pathlib.Path(operant.__file__).parent
    assert (folder / "py.typed").exists()
    assert (folder / "_operant.pyi").exists()
    assert importlib.metadata.metadata("operant")["License-Expression"] == "MIT OR Apache-2.0"


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"num_envs": 0}, ValueError, "num_envs = 0: wanted 1..="),
        ({"num_envs": -3}, ValueError, "num_envs = -3"),
        ({"num_envs": 2**40}, ValueError, "wanted 1..="),
        ({"num_envs": 2.5}, TypeError, "num_envs = 2.5: wanted an integer"),
        ({"threads": 0}, ValueError, "threads = 0: wanted 1"),
        ({"lanes": 4}, ValueError, "lanes = 4: wanted 'auto', 1, 8 or 16"),
        ({"math": "quick"}, ValueError, "math = 'quick'"),
        ({"autoreset_mode": "never"}, ValueError, "autoreset_mode = 'never'"),
        ({"max_episode_steps": 0}, ValueError, "max_episode_steps = 0"),
        ({"seed": -1}, ValueError, "seed = -1: wanted 0 <= seed"),
        ({"seed": 1.5}, TypeError, "seed = 1.5: wanted an integer"),
        ({"first_env": -1}, ValueError, "first_env = -1"),
        ({"render_mode": "human"}, ValueError, "render_mode = 'human'"),
        ({"low": 1, "high": -1}, ValueError, "parameters low = 1, high = -1: wanted low <= high"),
        ({"kinematics_integrator": "euler"}, ValueError, 'unknown parameter "kinematics_integrator"'),
        ({"frameskip": 1}, TypeError, "got an unexpected keyword argument 'frameskip': unknown parameter"),
        ({"gravty": 1}, ValueError, 'unknown parameter "gravty"; did you mean "gravity"?'),
        ({"gravity": -1}, ValueError, "parameter gravity = -1: wanted"),
        ({"gravity": float("nan")}, ValueError, "parameter gravity = NaN"),
        ({"gravity": "9"}, TypeError, "parameter gravity = '9': wanted a number"),
    ],
)
def test_wrong_arguments(options: dict, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        operant.make_vec("cartpole", **{"num_envs": 2, **options})
    assert text in str(caught.value)


def test_choices_have_names() -> None:
    assert operant.make_vec("cube2", num_envs=2, view="cubies").single_observation_space.shape == (147,)
    assert operant.make_vec("cube2", num_envs=2, view=2).single_observation_space.shape == (21,)
    with pytest.raises(ValueError, match="parameter view = 'corners': wanted one of stickers, cubies, pairs"):
        operant.make_vec("cube2", num_envs=2, view="corners")


def test_pictures_as_text() -> None:
    env = operant.make_vec("cube3", num_envs=2, render_mode="ansi", scramble_depth=1)
    env.reset(seed=1)
    first, _ = env.render()
    assert isinstance(first, str) and first.count("▀") == 64 * len(first.split("\n"))
    # Six colours of faces, and what lies behind the net.
    assert len({cell.split("m")[0] for cell in first.split("\x1b[38;2;")[1:]}) >= 6


def test_unknown_env() -> None:
    for error in (ValueError, gymnasium.error.NameNotFound):
        with pytest.raises(error, match='unknown env "cartpol"; did you mean "cartpole"'):
            operant.make_vec("cartpol")
    with pytest.raises(operant.UnknownEnvError):
        operant.env_info("nothing of the kind")
    with pytest.raises(ValueError, match="draws no picture"):
        operant.make_vec("probe_identity", render_mode="rgb_array")
