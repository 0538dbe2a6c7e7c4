"""Statistics, final observations and action masks in infos."""

from __future__ import annotations

import gymnasium
import numpy as np
import operant
import pytest
from gymnasium.wrappers.vector import DictInfoToList, RecordEpisodeStatistics

N = 64
OLD = tuple(map(int, gymnasium.__version__.split(".")[:2])) < (1, 4)


@pytest.mark.parametrize("mode", ["same_step", "next_step"])
@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "gridworld"])
def test_statistics_are_those_of_gymnasiums_wrapper(env_id: str, mode: str) -> None:
    if OLD and mode == "same_step":
        pytest.skip("before Gymnasium 1.4 the wrapper counts every episode as if it were reset in the next step")
    options = {"seed": 0, "autoreset_mode": mode, "max_episode_steps": 25}
    ours = operant.make_vec(env_id, N, **options)
    theirs = RecordEpisodeStatistics(operant.make_vec(env_id, N, episode_stats=False, **options))
    ours.action_space.seed(0)
    ours.reset()
    theirs.reset()
    episodes = 0
    for _ in range(80):
        actions = ours.action_space.sample()
        infos, expected = ours.step(actions)[4], theirs.step(actions)[4]
        assert ("episode" in infos) == ("episode" in expected)
        if "episode" in infos:
            stats = infos["episode"]
            assert (stats["r"].dtype, stats["l"].dtype, stats["t"].dtype) == (np.float32, np.int32, np.float32)
            np.testing.assert_array_equal(infos["_episode"], expected["_episode"])
            np.testing.assert_allclose(stats["r"], expected["episode"]["r"], rtol=1e-5, atol=1e-5)
            np.testing.assert_array_equal(stats["l"], expected["episode"]["l"])
            np.testing.assert_allclose(stats["t"], expected["episode"]["t"], atol=0.1)
            assert ((stats["t"] > 0) == infos["_episode"]).all()
            episodes += infos["_episode"].sum()
    assert episodes > N


def test_same_step_infos() -> None:
    env = operant.make_vec("CartPole-v1", N, seed=0)
    observations, infos = env.reset()
    assert infos == {}
    for _ in range(40):
        last = observations
        observations, _, terminated, truncated, infos = env.step(np.zeros(N, int))
        ended = terminated | truncated
        if not ended.any():
            assert infos == {}
            continue
        masks = ("_final_obs", "_final_info", "_episode")
        assert set(infos) == {"final_obs", "final_info", "episode", *masks}
        for mask in (*(infos[name] for name in masks), infos["final_info"]["_episode"]):
            np.testing.assert_array_equal(mask, ended)
        assert infos["final_obs"].shape == (N, 4)
        assert infos["final_obs"].dtype == np.float32
        assert not infos["final_obs"][~ended].any()
        assert (abs(infos["final_obs"][ended, 2]) > 0.2).all()
        assert (abs(observations[ended]) <= 0.05).all()
        assert (last[ended] != observations[ended]).any()
        np.testing.assert_array_equal(infos["final_info"]["episode"]["l"], infos["episode"]["l"])


def test_without_statistics() -> None:
    env = operant.make_vec("probe_identity", 4, seed=0, episode_stats=False)
    env.reset()
    infos = env.step([0] * 4)[4]
    assert set(infos) == {"final_obs", "_final_obs", "final_info", "_final_info"}
    assert infos["final_info"] == {}


@pytest.mark.parametrize("env_id", ["gridworld", "probe_masked"])
@pytest.mark.parametrize("mode", ["same_step", "next_step"])
def test_action_masks(env_id: str, mode: str) -> None:
    env = operant.make_vec(env_id, N, seed=0, autoreset_mode=mode)
    env.single_action_space.seed(0)
    _, infos = env.reset()
    for _ in range(12):
        mask = infos["action_mask"]
        assert (mask.dtype, mask.shape) == (np.int8, (N, 4))
        assert mask.any(axis=1).all()
        assert infos["_action_mask"].all()
        actions = np.array([env.single_action_space.sample(mask=row) for row in mask])
        _, rewards, _, _, infos = env.step(actions)
        if env_id == "probe_masked":
            assert (rewards >= 0).all()


@pytest.mark.skipif(OLD, reason="the wrapper wants a mask for every nested key")
def test_gymnasiums_list_wrapper_reads_the_infos() -> None:
    env = DictInfoToList(operant.make_vec("gridworld", 3, seed=0, max_episode_steps=2))
    env.reset()
    env.step([0, 1, 2])
    infos = env.step([0, 1, 2])[4]
    assert [info["episode"]["l"] for info in infos] == [2, 2, 2]
    assert infos[0]["final_obs"].shape == (256,)
    assert infos[0]["action_mask"].shape == (4,)


@pytest.mark.parametrize("mode", list(gymnasium.vector.AutoresetMode))
def test_time_limits(mode: gymnasium.vector.AutoresetMode) -> None:
    env = operant.make_vec("probe_truncation", 2, autoreset_mode=mode, max_episode_steps=3)
    env.reset()
    flags = [env.step([0, 0])[3].all() for _ in range(3)]
    assert flags == [False, False, True]
    unlimited = operant.make_vec("probe_truncation", 2, max_episode_steps=-1)
    unlimited.reset()
    assert not any(unlimited.step([0, 0])[3].any() for _ in range(30))
