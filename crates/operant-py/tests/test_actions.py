"""Which actions are taken, and what is said of those that are not."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import operant
import pytest


def observations_after(env_id: str, actions: Any) -> np.ndarray:
    env = operant.make_vec(env_id, 6, seed=0, copy=True)
    env.reset()
    return env.step(actions)[0]


CHOICES = np.array([0, 1, 1, 0, 1, 0])


@pytest.mark.parametrize(
    "actions",
    [
        *(CHOICES.astype(dtype) for dtype in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "?", ">i8", ">i4")),
        np.repeat(CHOICES, 3)[::3],
        CHOICES[::-1].copy()[::-1],
        CHOICES.tolist(),
        tuple(CHOICES.tolist()),
        list(CHOICES),
    ],
    ids=lambda actions: f"{type(actions).__name__} {getattr(actions, 'dtype', '')}",
)
def test_integers_of_any_kind(actions: Any) -> None:
    np.testing.assert_array_equal(
        observations_after("CartPole-v1", actions), observations_after("CartPole-v1", CHOICES)
    )


def test_unaligned_integers() -> None:
    unaligned = np.frombuffer(b"\0" + CHOICES.astype(np.int64).tobytes(), dtype=np.int64, offset=1)
    assert not unaligned.flags.aligned
    np.testing.assert_array_equal(
        observations_after("CartPole-v1", unaligned), observations_after("CartPole-v1", CHOICES)
    )


FORCES = np.array([[-2.0], [-1.0], [0.0], [1.0], [2.0], [0.0]], dtype=np.float32)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i4", "i8", ">f4"])
def test_numbers_of_any_kind(dtype: str) -> None:
    expected = observations_after("Pendulum-v1", FORCES)
    np.testing.assert_array_equal(observations_after("Pendulum-v1", FORCES.astype(dtype)), expected)
    np.testing.assert_array_equal(observations_after("Pendulum-v1", FORCES.tolist()), expected)
    np.testing.assert_array_equal(observations_after("Pendulum-v1", np.repeat(FORCES, 2, 1)[:, ::2]), expected)


@pytest.mark.parametrize(
    ("env_id", "actions", "error", "text"),
    [
        ("CartPole-v1", [0, 1], ValueError, "actions of CartPole-v1 have shape (2,), wanted (6,)"),
        ("CartPole-v1", np.zeros((6, 1), int), ValueError, "have shape (6, 1), wanted (6,)"),
        ("CartPole-v1", 1, ValueError, "have shape (), wanted (6,)"),
        ("CartPole-v1", [], ValueError, "have shape (0,), wanted (6,)"),
        ("CartPole-v1", np.zeros(6), TypeError, "have dtype float64, wanted integer choices"),
        ("CartPole-v1", ["a"] * 6, TypeError, "wanted integer choices"),
        ("CartPole-v1", [None] * 6, TypeError, "have dtype object"),
        ("CartPole-v1", [0, 1, 2, 0, 0, 0], ValueError, "action 2 of env 2 is out of range: cartpole takes 0..=1"),
        ("CartPole-v1", [0, 0, 0, 0, 0, -1], ValueError, "action -1 of env 5"),
        ("CartPole-v1", [2**40] * 6, ValueError, "out of range"),
        ("CartPole-v1", np.full(6, 2**64 - 1, dtype=np.uint64), ValueError, "out of range"),
        ("Pendulum-v1", np.zeros(6, np.float32), ValueError, "have shape (6,), wanted (6, 1)"),
        ("Pendulum-v1", np.full((6, 1), np.nan, np.float32), ValueError, "is not a finite f32"),
        ("Pendulum-v1", np.full((6, 1), np.inf), ValueError, "is not a finite f32"),
        ("Pendulum-v1", np.full((6, 1), 1e300), ValueError, "is not a finite f32"),
        ("Pendulum-v1", np.zeros((6, 1), complex), TypeError, "have dtype complex128, wanted real numbers"),
    ],
)
def test_wrong_actions_change_nothing(env_id: str, actions: Any, error: type[Exception], text: str) -> None:
    env = operant.make_vec(env_id, 6, seed=0)
    observations, _ = env.reset()
    before = (env.save(), observations.copy())
    with pytest.raises(error) as caught:
        env.step(actions)
    assert text in str(caught.value)
    assert env.save() == before[0]
    np.testing.assert_array_equal(observations, before[1])


def test_calls_at_the_wrong_moment() -> None:
    env = operant.make_vec("CartPole-v1", 2)
    for call in (lambda: env.step([0, 0]), env.observe, env.get_state, env.save, lambda: env.draw(0)):
        with pytest.raises(gymnasium.error.ResetNeeded, match=r"CartPole-v1 has no episodes yet; call reset\(\)"):
            call()
    env.reset()
    env.close()
    env.close()
    for call in (lambda: env.step([0, 0]), env.reset, env.save):
        with pytest.raises(gymnasium.error.ClosedEnvironmentError, match="CartPole-v1 is closed"):
            call()
