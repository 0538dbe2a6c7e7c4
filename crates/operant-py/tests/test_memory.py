"""Where arrays lie, how long they are valid, and that they outlive the env."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import operant
import pytest


def test_arrays_are_views_of_two_blocks_in_turn() -> None:
    env = operant.make_vec("CartPole-v1", 32, seed=0)
    env.reset()
    actions = np.zeros(32, dtype=np.int64)
    steps = [env.step(actions) for _ in range(4)]
    for array in steps[0][:4]:
        assert array.base is not None
        assert type(array.base).__name__ == "Memory"
        assert array.flags.c_contiguous
        assert array.flags.writeable
        assert array.ctypes.data % 64 == 0
    assert steps[0][0] is steps[2][0]
    assert steps[1][0] is steps[3][0]
    assert steps[0][0] is not steps[1][0]


def test_a_step_leaves_the_last_arrays_alone() -> None:
    env = operant.make_vec("CartPole-v1", 32, seed=0)
    last, _ = env.reset()
    for _ in range(40):
        before = last.copy()
        step = env.step(np.zeros(32, dtype=np.int64))
        np.testing.assert_array_equal(last, before)
        last = step[0]
    before = last.copy()
    env.reset()
    np.testing.assert_array_equal(last, before)


def test_copies_stay() -> None:
    view, fresh = (operant.make_vec("gridworld", 8, seed=0, copy=copy, max_episode_steps=3) for copy in (False, True))
    view.reset()
    kept = [fresh.reset()]
    expected = []
    for i in range(8):
        actions = np.full(8, i % 4)
        step = view.step(actions)
        expected.append([array.copy() for array in step[:4]] + [step[4]["action_mask"].copy()])
        kept.append(fresh.step(actions))
    for step, wanted in zip(kept[1:], expected, strict=True):
        for array, copy in zip([*step[:4], step[4]["action_mask"]], wanted, strict=True):
            assert array.base is None
            np.testing.assert_array_equal(array, copy)
    assert kept[3][4]["episode"]["l"].tolist() == [3] * 8
    assert kept[3][4]["final_obs"].base is None


def test_views_outlive_the_env() -> None:
    env = operant.make_vec("CartPole-v1", 4096, seed=0)
    env.reset()
    step = env.step(np.zeros(4096, dtype=np.int64))
    kept = [array.copy() for array in step[:4]]
    env.close()
    del env
    gc.collect()
    noise = [np.ones(4096 * 20, dtype=np.float32) for _ in range(8)]
    for array, copy in zip(step[:4], kept, strict=True):
        np.testing.assert_array_equal(array, copy)
        array[:] = 1
    assert len(noise) == 8


@pytest.mark.parametrize("num_envs", [16, 2048])
def test_the_engine_does_not_rely_on_what_python_writes(num_envs: int) -> None:
    clean, scribbled = (operant.make_vec("CartPole-v1", num_envs, seed=0) for _ in range(2))
    clean.reset()
    scribbled.reset()
    rng = np.random.default_rng(0)
    for _ in range(60):
        actions = rng.integers(0, 2, num_envs)
        ours, theirs = clean.step(actions), scribbled.step(actions)
        for array, other in zip(ours[:4], theirs[:4], strict=True):
            np.testing.assert_array_equal(array, other)
        assert ours[4].keys() == theirs[4].keys()
        if "episode" in ours[4]:
            for key in ("final_obs", "_final_obs"):
                np.testing.assert_array_equal(ours[4][key], theirs[4][key])
            for key in ("r", "l"):
                np.testing.assert_array_equal(ours[4]["episode"][key], theirs[4]["episode"][key])
            theirs[4]["_episode"][:] = False
        for array in theirs[:4]:
            array[:] = 1


def test_actions_may_lie_in_the_engines_own_memory() -> None:
    env, other = (operant.make_vec("Pendulum-v1", 16, seed=0) for _ in range(2))
    env.reset()
    other.reset()
    zeros = np.zeros((16, 1), dtype=np.float32)
    old = env.step(zeros)[1].reshape(16, 1)
    other.step(zeros)
    env.step(zeros)
    other.step(zeros)
    actions = old.copy()
    np.testing.assert_array_equal(env.step(old)[0], other.step(actions)[0])


def test_infos_are_fresh_dictionaries() -> None:
    env = operant.make_vec("probe_identity", 4, seed=0)
    env.reset()
    first, second = env.step([0] * 4)[4], env.step([0] * 4)[4]
    assert first is not second
    assert first["episode"] is not second["episode"]


def told(env: operant.OperantVectorEnv, keep: Callable[[Any], Any], steps: int = 12) -> list[str]:
    """Warnings in a loop that keeps something of every step."""
    actions, kept = np.zeros(env.num_envs, dtype=np.int64), []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kept.append(keep((env.reset()[0],)))
        kept.extend(keep(env.step(actions)) for _ in range(steps))
    assert all(one.category is RuntimeWarning and one.filename == __file__ for one in caught)
    return [str(one.message) for one in caught]


@pytest.mark.parametrize(
    "keep",
    [
        lambda step: step[0],
        lambda step: step[-1],
        lambda step: step[0][1:, 2],
        lambda step: memoryview(step[0]),
        lambda step: step[1] if len(step) > 1 else None,
        lambda step: step[4].get("final_obs") if len(step) > 1 else None,
    ],
    ids=["rows", "infos", "parts", "buffers", "rewards", "last observations"],
)
def test_arrays_that_are_kept_are_told_once(keep: Callable[[Any], Any]) -> None:
    env = operant.make_vec("CartPole-v1", 4, seed=0, max_episode_steps=3)
    messages = told(env, keep)
    assert len(messages) == 1
    assert "keep it with .copy(), or make the env with copy=True" in messages[0]
    assert not told(operant.make_vec("CartPole-v1", 4, seed=0, max_episode_steps=3, copy=True), keep)
    assert not told(gymnasium.make_vec("operant/CartPole-v1", 4, max_episode_steps=3), keep)


def test_ordinary_loops_are_told_nothing() -> None:
    env = operant.make_vec("gridworld", 4, seed=0, max_episode_steps=3)
    assert not told(env, lambda step: step[0].copy())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        last, infos = env.reset()
        for _ in range(20):
            observations, rewards, terminated, truncated, infos = env.step(infos["action_mask"].argmax(1))
            assert (last.shape, rewards.shape) == (observations.shape, (terminated | truncated).shape)
            last = observations
        env.reset()


def test_registered_envs_give_views_when_asked() -> None:
    view, fresh = (gymnasium.make_vec("operant/CartPole-v1", 2, **options) for options in ({"copy": False}, {}))
    assert view.reset()[0].base is not None
    assert fresh.reset()[0].base is None
