"""TorchRL reads observations as they were, also the last of every episode."""

from __future__ import annotations

import gymnasium
import numpy as np
import operant
import pytest
import torch
from gymnasium.vector import AutoresetMode
from tensordict import TensorDictBase
from torchrl.collectors import Collector
from torchrl.envs import EnvBase, GymEnv, GymWrapper, check_env_specs

pytestmark = pytest.mark.library("torchrl")
SERVED = [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED]


def vector(mode: AutoresetMode, num_envs: int = 4) -> EnvBase:
    envs = gymnasium.make_vec("operant/CartPole-v1", num_envs=num_envs, autoreset_mode=mode, max_episode_steps=40)
    return GymWrapper(envs)


def check_transitions(data: TensorDictBase) -> int:
    """Steps CartPole from every observation by the action that was taken: what followed must have the same bits, and so must
    the last observation of each of the episodes that ended, whose number this gives."""
    rows = data.reshape(-1)
    seen, after = rows["observation"].numpy(), rows["next", "observation"].numpy()
    actions = rows["action"].argmax(-1).numpy()
    env = operant.make_vec("CartPole-v1", len(seen), autoreset_mode="disabled", copy=True, seed=0)
    env.reset()
    env.set_state({name: seen[:, i] for i, name in enumerate(("x", "x_dot", "theta", "theta_dot"))})
    wanted, _, terminated, _, _ = env.step(actions)
    np.testing.assert_array_equal(after, wanted)
    np.testing.assert_array_equal(rows["next", "terminated"].numpy().reshape(-1), terminated)
    return int(rows["next", "done"].sum())


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "Acrobot-v1"])
def test_specs_of_single_envs(env_id: str) -> None:
    """`check_env_specs(GymEnv("operant/…"))`."""
    check_env_specs(GymEnv(f"operant/{env_id}"))


@pytest.mark.parametrize("mode", SERVED)
def test_specs_of_vector_envs(mode: AutoresetMode) -> None:
    """`check_env_specs` of `make_vec` in the modes that TorchRL takes: SAME_STEP and DISABLED."""
    check_env_specs(vector(mode))


def test_the_mode_that_is_refused() -> None:
    """NEXT_STEP is refused by TorchRL itself, for Gymnasium's vector envs too; ours get the same message."""
    own = gymnasium.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync")
    for make in (lambda: GymWrapper(own), lambda: vector(AutoresetMode.NEXT_STEP)):
        with pytest.raises(RuntimeError, match="must be one of SAME_STEP or DISABLED"):
            make()


def test_rollouts_of_single_envs() -> None:
    """Rollouts of a single env: every next observation right, the last of every episode included."""
    env = GymEnv("operant/CartPole-v1")
    env.set_seed(0)
    assert check_transitions(env.rollout(600, break_when_any_done=False)) >= 15


@pytest.mark.parametrize("mode", SERVED)
def test_rollouts_of_vector_envs(mode: AutoresetMode) -> None:
    """Rollouts of vector envs: every next observation right, the last of 37 episodes and more included."""
    env = vector(mode)
    torch.manual_seed(0)
    env.set_seed(0)
    assert check_transitions(env.rollout(240, break_when_any_done=False)) >= 37


@pytest.mark.parametrize("mode", SERVED)
def test_collectors(mode: AutoresetMode) -> None:
    """`Collector` over vector envs: every observation of every batch right."""
    torch.manual_seed(0)
    collector = Collector(
        lambda: vector(mode), policy=None, frames_per_batch=200, total_frames=800, reset_at_each_iter=False
    )
    try:
        batches = [batch.clone() for batch in collector]
    finally:
        collector.shutdown()
    assert sum(map(check_transitions, batches)) >= 25


def test_unknown_keywords() -> None:
    """Keywords that envs do not take are a TypeError, so that `GymEnv(frame_skip=2)` repeats actions itself."""
    with pytest.raises(TypeError, match="unexpected keyword argument 'frameskip'"):
        gymnasium.make("operant/CartPole-v1", frameskip=2)
    env = GymEnv("operant/CartPole-v1", frame_skip=2)
    check_env_specs(env)
    assert (env.rollout(3)["next", "reward"] == 2).all()
