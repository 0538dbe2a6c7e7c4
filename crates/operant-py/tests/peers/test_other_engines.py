"""Other people's ports of the same environments agree with ours: a step from the same state, or the same statistics."""

from __future__ import annotations

from typing import Any

import numpy as np
import operant
import pytest

N = 256


def step_ours(env_id: str, state: dict[str, np.ndarray], actions: np.ndarray) -> tuple[Any, ...]:
    envs = operant.make_vec(env_id, N, autoreset_mode="disabled", max_episode_steps=-1)
    envs.reset(seed=0)
    envs.set_state(state)
    return envs.step(actions)


@pytest.mark.parametrize(
    ("env_id", "bounds", "kind"),
    [
        ("CartPole-v1", {"x": 2.0, "x_dot": 2.0, "theta": 0.2, "theta_dot": 2.0}, "discrete"),
        ("MountainCar-v0", {"position": 0.5, "velocity": 0.07}, "discrete"),
        ("Pendulum-v1", {"theta": 3.0, "theta_dot": 7.0}, "box"),
    ],
)
def test_gymnax_takes_the_same_step(env_id: str, bounds: dict[str, float], kind: str) -> None:
    gymnax = pytest.importorskip("gymnax")
    jax = pytest.importorskip("jax")
    env, params = gymnax.make(env_id)
    rng = np.random.default_rng(0)
    state = {name: rng.uniform(-bound, bound, N).astype(np.float32) for name, bound in bounds.items()}
    key = jax.random.PRNGKey(0)
    _, template = env.reset_env(key, params)
    if kind == "discrete":
        actions = rng.integers(0, env.num_actions, N)
    else:
        actions = rng.uniform(-2, 2, (N, 1)).astype(np.float32)
    observations, rewards, *_ = step_ours(env_id, state, actions)
    for i in range(N):
        theirs = template.replace(**{name: column[i] for name, column in state.items()})
        observation, _, reward, *_ = env.step_env(key, theirs, actions[i], params)
        np.testing.assert_allclose(observations[i], np.asarray(observation), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(rewards[i], np.asarray(reward).squeeze(), rtol=1e-4, atol=1e-5)


def test_envpool_has_the_same_episodes() -> None:
    """EnvPool takes no states, so lengths of random episodes are compared: their means within four standard errors."""
    envpool = pytest.importorskip("envpool")
    theirs = envpool.make("CartPole-v1", env_type="gymnasium", num_envs=N, seed=0)
    theirs.reset()
    ours = operant.make_vec("CartPole-v1", N, seed=0)
    ours.reset()
    rng = np.random.default_rng(0)
    lengths: tuple[list[int], list[int]] = ([], [])
    count = np.zeros(N, dtype=int)
    for _ in range(600):
        actions = rng.integers(0, 2, N)
        infos = ours.step(actions)[4]
        if "episode" in infos:
            lengths[0].extend(infos["episode"]["l"][infos["_episode"]].tolist())
        _, _, terminated, truncated, info = theirs.step(actions.astype(np.int32))
        count = np.asarray(info["elapsed_step"])
        ended = np.asarray(terminated) | np.asarray(truncated)
        lengths[1].extend(count[ended].tolist())
    means = [np.mean(x) for x in lengths]
    error = np.hypot(*(np.std(x) / np.sqrt(len(x)) for x in lengths))
    assert abs(means[0] - means[1]) < 4 * error, (means, error)
