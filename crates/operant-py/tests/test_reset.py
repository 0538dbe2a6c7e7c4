"""Seeds, reset options and masks."""

from __future__ import annotations

import re
from typing import Any

import gymnasium
import numpy as np
import operant
import pytest


def make(num_envs: int = 8, **options: Any) -> operant.OperantVectorEnv:
    return operant.make_vec("CartPole-v1", num_envs, copy=True, **options)


def test_seeds_repeat() -> None:
    env = make()
    first, _ = env.reset(seed=3)
    next_episode, _ = env.reset()
    assert (first != next_episode).all()
    np.testing.assert_array_equal(env.reset(seed=3)[0], first)
    np.testing.assert_array_equal(env.reset()[0], next_episode)
    assert len(np.unique(first[:, 0])) == 8
    assert (env.reset(seed=4)[0] != first).all()
    np.testing.assert_array_equal(env.reset(seed=np.int64(3))[0], first)


def test_the_constructors_seed_is_that_of_the_first_reset() -> None:
    expected, _ = make().reset(seed=11)
    np.testing.assert_array_equal(make(seed=11).reset()[0], expected)
    assert (make().reset()[0] != make().reset()[0]).all()
    env = make()
    observations, _ = env.reset()
    np.testing.assert_array_equal(make(seed=env.np_random_seed).reset()[0], observations)
    env.reset(seed=5)
    assert env.np_random_seed == 5


def test_a_seed_per_env() -> None:
    env = make()
    seeds = [5, 6, 7, 8, 5, 6, 7, 8]
    observations, _ = env.reset(seed=seeds)
    np.testing.assert_array_equal(env.reset(seed=np.array(seeds))[0], observations)
    np.testing.assert_array_equal(env.reset(seed=5)[0][[0, 4]], observations[[0, 4]])
    going_on, _ = make(seed=1).reset(seed=[None, 6, *[None] * 6])
    np.testing.assert_array_equal(going_on[1], observations[1])
    np.testing.assert_array_equal(going_on[2:], make(seed=1).reset()[0][2:])
    other = make(seed=1)
    other.reset()
    second, _ = other.reset(seed=[None] * 8)
    again = make(seed=1)
    again.reset()
    np.testing.assert_array_equal(second, again.reset()[0])


@pytest.mark.parametrize(
    ("seed", "error"), [(-1, ValueError), (2**64, ValueError), ("3", TypeError), ([1, 2], ValueError), (1.5, TypeError)]
)
def test_wrong_seeds(seed: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="seed"):
        make().reset(seed=seed)


def test_a_vector_can_be_shared_out() -> None:
    whole = make(8, seed=2).reset()[0]
    parts = [make(4, seed=2, first_env=first).reset()[0] for first in (0, 4)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_bounds_hold_for_one_reset() -> None:
    env = make(256, seed=0)
    observations, _ = env.reset(options={"low": 0.1, "high": 0.2})
    assert observations.min() >= 0.1
    assert observations.max() <= 0.2
    assert env.params["low"] == -0.05
    assert abs(env.reset()[0]).max() <= 0.05
    assert make(64, low=0.1, high=0.2).reset()[0].min() >= 0.1
    pendulum = operant.make_vec("Pendulum-v1", 64)
    assert pendulum.reset(options={"x_init": 0.0, "y_init": 0.0})[0].tolist() == [[1.0, 0.0, 0.0]] * 64


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"lo": 1.0}, "unknown reset option 'lo'; it takes low, high, reset_mask"),
        ({"low": 0.2, "high": 0.1}, "wanted low <= high"),
        ({"low": 0.2}, "wanted low <= high"),
        ({"low": "a"}, "reset option low = 'a': wanted a number"),
        ({"low": -1e9}, "parameter low = -1000000000: wanted"),
        ({"x_init": 1.0}, "unknown reset option 'x_init'"),
    ],
)
def test_wrong_options(options: dict[str, Any], text: str) -> None:
    env = make()
    env.reset(seed=0)
    before = env.save()
    with pytest.raises(ValueError, match=re.escape(text)):
        env.reset(options=options)
    assert env.save() == before
    assert env.params["low"] == -0.05


@pytest.mark.parametrize("mode", ["same_step", "next_step", "disabled"])
def test_reset_mask(mode: str) -> None:
    env = make(seed=0, autoreset_mode=mode)
    env.reset()
    before = env.step(np.zeros(8, int))[0]
    mask = np.arange(8) % 2 == 0
    options = {"reset_mask": mask}
    observations, _ = env.reset(options=options)
    assert "reset_mask" in options
    assert (observations[mask] != before[mask]).all()
    np.testing.assert_array_equal(observations[~mask], before[~mask])
    assert env.get_state()["elapsed"].tolist() == [0, 1] * 4


@pytest.mark.parametrize(
    ("mask", "error"),
    [
        ([True] * 4, TypeError),
        (np.ones(3, bool), ValueError),
        (np.ones(4, int), TypeError),
        (np.zeros(4, bool), ValueError),
    ],
    ids=["list", "shape", "dtype", "none"],
)
def test_wrong_masks_are_refused_as_by_gymnasium(mask: Any, error: type[Exception]) -> None:
    sync = gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 4)
    for env in (make(4, seed=0), sync):
        env.reset()
        # Gymnasium before 1.4 asserts.
        with pytest.raises((error, AssertionError) if env is sync else error, match="reset_mask"):
            env.reset(options={"reset_mask": mask})


def test_disabled_autoreset_waits_for_the_caller() -> None:
    env = operant.make_vec("CartPole-v1", 8, seed=0, autoreset_mode="disabled")
    with pytest.raises(gymnasium.error.ResetNeeded, match="first reset"):
        env.reset(options={"reset_mask": np.arange(8) < 2})
    env.reset()
    ended = np.zeros(8, dtype=bool)
    while not ended.any():
        _, _, terminated, truncated, infos = env.step(np.zeros(8, int))
        ended = terminated | truncated
    assert "final_obs" not in infos
    np.testing.assert_array_equal(infos["_episode"], ended)
    with pytest.raises(gymnasium.error.ResetNeeded, match="has ended and autoreset is disabled"):
        env.step(np.zeros(8, int))
    env.reset(options={"reset_mask": ended})
    env.step(np.zeros(8, int))
