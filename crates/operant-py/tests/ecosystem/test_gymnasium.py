"""Gymnasium's own tools over all registered environments."""

from __future__ import annotations

import copy
import warnings

import gymnasium
import numpy as np
import operant  # noqa: F401
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from gymnasium.wrappers.vector import RecordEpisodeStatistics

pytestmark = pytest.mark.library("gymnasium")
IDS = sorted(name for name in gymnasium.registry if name.startswith("operant/"))
# One epoch of the default host takes seconds.
SMALL = {"operant/Growth-v0": {"epochs": 6, "train_samples": 64, "val_samples": 64}}


def make(env_id: str) -> gymnasium.Env:
    return gymnasium.make(env_id, **SMALL.get(env_id, {}))


@pytest.mark.parametrize("env_id", IDS)
def test_checker(env_id: str) -> None:
    """`check_env` without warnings over every registered env."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # It warns of spaces without bounds, which are those of Gymnasium's own classic control.
        warnings.filterwarnings("ignore", message=".*(infinity|symmetric and normalized).*")
        check_env(make(env_id).unwrapped)


@pytest.mark.parametrize("env_id", IDS)
def test_copies_are_equivalent(env_id: str) -> None:
    """`data_equivalence` of all that an env and its deep copy give, from mid-episode on."""
    env = make(env_id)
    env.reset(seed=1)
    env.action_space.seed(1)
    env.step(env.action_space.sample())
    other = copy.deepcopy(env)
    for _ in range(2 if env_id in SMALL else 50):
        action = env.action_space.sample()
        one, two = env.step(action), other.step(action)
        assert data_equivalence(one, two, exact=True)
        if one[2] or one[3]:
            assert data_equivalence(env.reset(), other.reset(), exact=True)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_arrays_stay(mode: AutoresetMode) -> None:
    """`make_vec` gives arrays that no later step changes, in every autoreset mode, as `SyncVectorEnv` does."""
    env = gymnasium.make_vec("operant/CartPole-v1", num_envs=3, autoreset_mode=mode, max_episode_steps=9)
    observations, _ = env.reset(seed=0)
    kept = [(observations, observations.copy())]
    env.action_space.seed(0)
    for _ in range(30):
        *arrays, infos = env.step(env.action_space.sample())
        arrays += [array for array in infos.values() if isinstance(array, np.ndarray)]
        kept += [(array, array.copy()) for array in arrays]
        ended = arrays[2] | arrays[3]
        if mode is AutoresetMode.DISABLED and ended.any():
            env.reset(options={"reset_mask": ended})
    assert all(np.array_equal(array, then) for array, then in kept)


def test_statistics() -> None:
    """`RecordEpisodeStatistics` over `make_vec`."""
    env = RecordEpisodeStatistics(gymnasium.make_vec("operant/CartPole-v1", num_envs=4, max_episode_steps=10))
    env.reset(seed=1)
    infos = [env.step(np.array([0, 1, 0, 1]))[4] for _ in range(30)]
    lengths = np.concatenate([info["episode"]["l"][info["_episode"]] for info in infos if "episode" in info])
    assert len(lengths) > 4
    assert ((lengths > 0) & (lengths <= 10)).all()


def test_async() -> None:
    """`AsyncVectorEnv` of spawned processes plays what one process plays."""
    # The id names the module to import, which processes that begin anew need.
    envs = AsyncVectorEnv([lambda: gymnasium.make("operant:operant/Acrobot-v1")] * 2, context="spawn")
    try:
        first, _ = envs.reset(seed=[4, 5])
        env = gymnasium.make("operant/Acrobot-v1")
        np.testing.assert_array_equal(first[0], env.reset(seed=4)[0])
        for action in (0, 1, 2, 2):
            np.testing.assert_array_equal(envs.step([action] * 2)[0][0], env.step(action)[0])
    finally:
        envs.close(terminate=True)
