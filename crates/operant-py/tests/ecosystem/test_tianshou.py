"""Tianshou collects from registered envs."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import operant
import pytest
from tianshou.algorithm.algorithm_base import Policy
from tianshou.data import Batch, Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv, SubprocVectorEnv

pytestmark = pytest.mark.library("tianshou")


class RandomPolicy(Policy):
    """Takes any action."""

    def forward(self, batch: Any, state: Any = None, **kwargs: Any) -> Batch:
        return Batch(act=np.array([self.action_space.sample() for _ in range(len(batch.obs))]))


@pytest.mark.parametrize("kind", [DummyVectorEnv, SubprocVectorEnv])
def test_collector(kind: type) -> None:
    """`Collector` over vector envs of `operant/CartPole-v1`, in one process and in several: every transition right."""
    # The id names the module to import, which processes that begin anew need.
    envs = kind([lambda: gymnasium.make("operant:operant/CartPole-v1") for _ in range(4)])
    try:
        envs.seed([1, 2, 3, 4])
        space = gymnasium.make("operant/CartPole-v1").action_space
        space.seed(0)
        buffer = VectorReplayBuffer(2000, 4)
        collector = Collector(RandomPolicy(action_space=space), envs, buffer)
        collector.reset()
        stats = collector.collect(n_step=400)
    finally:
        envs.close()
    assert stats.n_collected_steps == 400
    assert stats.n_collected_episodes > 8
    kept = buffer[:]
    env = operant.make_vec("CartPole-v1", len(kept.obs), autoreset_mode="disabled", copy=True, seed=0)
    env.reset()
    env.set_state({name: kept.obs[:, i] for i, name in enumerate(("x", "x_dot", "theta", "theta_dot"))})
    after, _, terminated, _, _ = env.step(kept.act)
    np.testing.assert_array_equal(kept.obs_next, after)
    np.testing.assert_array_equal(kept.terminated, terminated)
