"""State in and out, saving, pictures, and that threads and lanes change nothing."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
import operant
import pytest


def rollout(env: operant.OperantVectorEnv, steps: int, seed: int = 0) -> list[np.ndarray]:
    env.action_space.seed(seed)
    kept = []
    for _ in range(steps):
        *arrays, infos = env.step(env.action_space.sample())
        kept += [array.copy() for array in arrays]
        if "episode" in infos:
            kept += [infos["episode"]["r"].copy(), infos["episode"]["l"].copy()]
    return kept


def assert_same(ours: list[np.ndarray], theirs: list[np.ndarray]) -> None:
    assert len(ours) == len(theirs)
    for array, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(array, other)


# A step of growth trains a network; crates/operant/tests/growth.rs looks at its state.
QUICK = [name for name in operant.list_envs() if "Growth" not in name]


@pytest.mark.parametrize("env_id", QUICK)
@pytest.mark.parametrize("mode", ["same_step", "next_step"])
def test_saved_envs_go_on_exactly(env_id: str, mode: str) -> None:
    options: dict[str, Any] = {"autoreset_mode": mode, "max_episode_steps": 15}
    env = operant.make_vec(env_id, 33, seed=5, **options)
    env.reset()
    rollout(env, 20)
    saved = env.save()
    observations = env.observe().copy()
    expected = rollout(env, 30, seed=1)
    other = operant.make_vec(env_id, 33, seed=6, **options)
    other.load(saved)
    np.testing.assert_array_equal(other.observe(), observations)
    assert_same(rollout(other, 30, seed=1), expected)


def test_damaged_bytes_are_refused() -> None:
    env = operant.make_vec("CartPole-v1", 4, seed=0)
    env.reset()
    saved = env.save()
    flipped = saved[:40] + bytes([saved[40] ^ 1]) + saved[41:]
    for wrong in (b"", saved[:-1], flipped, saved_bytes("CartPole-v1", 5), saved_bytes("acrobot", 4)):
        with pytest.raises(ValueError, match="saved"):
            env.load(wrong)
    assert env.save() == saved


def saved_bytes(env_id: str, num_envs: int) -> bytes:
    env = operant.make_vec(env_id, num_envs, seed=0)
    env.reset()
    return env.save()


@pytest.mark.parametrize("env_id", QUICK)
def test_state_round_trip(env_id: str) -> None:
    env = operant.make_vec(env_id, 7, seed=0)
    env.reset()
    rollout(env, 3)
    state = env.get_state()
    assert list(state)[-1] == "elapsed"
    assert {column.dtype for column in state.values()} <= {np.dtype(np.float32), np.dtype(np.int32)}
    observations = env.observe().copy()
    env.reset()
    env.set_state(state)
    np.testing.assert_array_equal(env.observe(), observations)
    for name, column in env.get_state().items():
        np.testing.assert_array_equal(column, state[name])


def test_some_columns() -> None:
    env = operant.make_vec("CartPole-v1", 3, seed=0)
    before = env.reset()[0].copy()
    env.set_state({"theta": [0.1, 0, -0.1], "elapsed": [0, 499, 0]})
    observations = env.observe()
    np.testing.assert_array_equal(observations[:, 2], np.float32([0.1, 0, -0.1]))
    np.testing.assert_array_equal(observations[:, [0, 1, 3]], before[:, [0, 1, 3]])
    assert env.step([0, 0, 0])[3].tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("state", "error", "text"),
    [
        ({"thetta": [0, 0]}, ValueError, 'unknown state column "thetta"; did you mean "theta"?'),
        ({"theta": [0, 0, 0]}, ValueError, "state column theta has shape (3,), wanted (2,)"),
        ({"theta": 0.0}, ValueError, "has shape (), wanted (2,)"),
        ({"theta": ["a", "b"]}, TypeError, "wanted real numbers"),
        ({"elapsed": [0.5, 0]}, TypeError, "state column elapsed has dtype float64, wanted whole numbers"),
        ({"elapsed": [2**40, 0]}, ValueError, "is not an i32"),
        ({"x": [1.0, 1.0], "elapsed": [-1, 0]}, ValueError, "elapsed"),
    ],
)
def test_wrong_states_change_nothing(state: dict[str, Any], error: type[Exception], text: str) -> None:
    env = operant.make_vec("CartPole-v1", 2, seed=0)
    env.reset()
    before = env.save()
    with pytest.raises(error) as caught:
        env.set_state(state)
    assert text in str(caught.value)
    assert env.save() == before


def test_builds_for_avx2_have_no_single_lane() -> None:
    if platform.machine() != "x86_64":
        pytest.skip("other processors have one lane")
    with pytest.raises(ValueError, match="build with --features portable for one lane"):
        operant.make_vec("cartpole", 2, lanes=1)


@pytest.mark.parametrize("env_id", QUICK)
def test_threads_and_lanes_change_nothing(env_id: str) -> None:
    runs = []
    for lanes, threads in ((8, 1), (16, 1), ("auto", 2), ("auto", 3)):
        env = operant.make_vec(env_id, 1000, seed=0, lanes=lanes, threads=threads)
        env.reset()
        runs.append(rollout(env, 30))
    for run in runs[1:]:
        assert_same(run, runs[0])


def test_fast_math_is_near() -> None:
    strict, fast = (operant.make_vec("Pendulum-v1", 16, seed=0, math=math) for math in ("strict", "fast"))
    strict.reset()
    fast.reset()
    actions = np.ones((16, 1), dtype=np.float32)
    np.testing.assert_allclose(strict.step(actions)[0], fast.step(actions)[0], atol=1e-5)


@pytest.mark.parametrize("env_id", [e for e in operant.list_envs() if operant.env_info(e)["render_fps"]])
def test_pictures(env_id: str) -> None:
    env = operant.make_vec(env_id, 2, seed=0, render_mode="rgb_array")
    env.reset()
    pictures = env.render()
    assert isinstance(pictures, tuple)
    assert len(pictures) == 2
    for picture in pictures:
        assert (picture.dtype, picture.ndim, picture.shape[2]) == (np.uint8, 3, 3)
        assert picture.std() > 0
    np.testing.assert_array_equal(env.draw(1), pictures[1])
    with pytest.raises(IndexError, match=r"env 2: wanted 0..=1"):
        env.draw(2)


def test_no_pictures() -> None:
    env = operant.make_vec("probe_memory", 2)
    env.reset()
    with pytest.raises(ValueError, match="draws no picture"):
        env.draw(0)


@pytest.mark.parametrize(
    "other",
    [{"gravity": 3.0}, {"max_episode_steps": 9}, {"autoreset_mode": "next_step"}, {"first_env": 1}, {"num_envs": 3}],
)
def test_a_save_of_another_configuration_is_refused(other: dict[str, Any]) -> None:
    env = operant.make_vec("CartPole-v1", **{"num_envs": 2, **other})
    env.reset(seed=0)
    saved = env.save()
    target = operant.make_vec("CartPole-v1", num_envs=2, threads=1, lanes=8)
    target.reset(seed=1)
    with pytest.raises(ValueError, match="saved state is of .*; wanted 2 envs of CartPole-v1"):
        target.load(saved)
