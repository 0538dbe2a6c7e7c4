"""Deep Q-learning from Python: learning, exactness, envs that the user brings, messages."""

from __future__ import annotations

from pathlib import Path

import gymnasium
import numpy as np
import operant
import pytest

QUICK = {"num_envs": 4, "learning_starts": 200, "buffer_size": 4000}
SOME = np.random.default_rng(0).normal(size=(11, 4)).astype(np.float32)


def test_a_probe_is_learned() -> None:
    model = operant.DQN("operant/ProbeIdentity-v0", seed=1)
    assert model.learn(10_000) is model
    assert model.evaluate(episodes=50)["mean_return"] > 0.95
    assert {"loss/td", "epsilon", "replay"} <= model.metrics.keys()


@pytest.mark.parametrize("parts", [{}, {"noisy": True, "quantiles": 8, "prioritized_replay": True}])
def test_what_is_saved_predicts_and_goes_on_the_same(tmp_path: Path, parts: dict[str, object]) -> None:
    model = operant.DQN("CartPole-v1", seed=2, **QUICK, **parts).learn(2_000)
    actions, state = model.predict(SOME)
    assert state is None and actions.shape == (11,)
    assert np.array_equal(actions, model.predict(SOME, deterministic=True)[0]), "the best action, always"
    model.save(tmp_path / "policy.safetensors")
    model.save(tmp_path / "folder")
    for path in ["policy.safetensors", "folder"]:
        assert np.array_equal(operant.DQN.load(tmp_path / path).predict(SOME)[0], actions)
    again = operant.DQN.load(tmp_path / "folder")
    assert again.num_timesteps == model.num_timesteps
    for one in (model, again):
        one.learn(1_000)
    assert model.metrics["loss/td"] == again.metrics["loss/td"]
    assert model.metrics["updates"] == again.metrics["updates"] > 0


def test_envs_that_are_brought() -> None:
    envs = gymnasium.make_vec("CartPole-v1", num_envs=3, vectorization_mode="sync")
    model = operant.DQN(envs, learning_starts=200, buffer_size=3000, seed=1).learn(1_500)
    assert model.metrics["updates"] > 0 and model.metrics["episodes"] > 0
    assert model.settings["network"]["activation"] == "relu"
    assert model.predict(SOME)[0].shape == (11,)


def test_a_curriculum_is_a_dictionary() -> None:
    stages = {"param": "gravity", "from": 5, "to": 9.8, "step": 1.0, "success_return": 300}
    model = operant.DQN("CartPole-v1", curriculum=stages, **QUICK).learn(500)
    assert model.settings["dqn"]["curriculum"]["param"] == "gravity"
    assert model.metrics["curriculum/stage"] == 5


def test_mistakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="DQN got an unknown keyword 'bufer_size'; did you mean 'buffer_size'"):
        operant.DQN("CartPole-v1", bufer_size=1)
    with pytest.raises(TypeError, match="no keyword 'train_freq'; see replay_ratio: samples learned per env step"):
        operant.DQN("CartPole-v1", train_freq=4)
    with pytest.raises(TypeError, match="see target_network_frequency: counted in updates of the network"):
        operant.DQN("CartPole-v1", target_update_interval=4)
    own = operant.DQN("CartPole-v1", n_steps=2, replay_capacity=5000, double_dqn=False).settings["dqn"]
    assert (own["n_step"], own["buffer_size"], own["double_q"]) == (2, 5000, False)
    with pytest.raises(ValueError, match="wanted ppo"):
        operant.DQN("Pendulum-v1")
    operant.PPO("CartPole-v1").save(tmp_path / "ppo.safetensors")
    with pytest.raises(ValueError, match=r"wanted operant\.PPO\.load"):
        operant.DQN.load(tmp_path / "ppo.safetensors")


def test_a_network_that_sees_entries_comes_back(tmp_path: Path) -> None:
    model = operant.DQN("cube2", num_envs=16, hidden=[32, 32], buffer_size=2000, batch_size=64, precision="f32")
    model.save(tmp_path / "cube.safetensors")
    again = operant.DQN.load(tmp_path / "cube.safetensors")
    seen, _ = operant.make_vec("cube2", num_envs=8, view="pairs", symmetry=True).reset(seed=1)
    assert (model.predict(seen)[0] == again.predict(seen)[0]).all()


@pytest.mark.parametrize(
    ("keyword", "message"),
    [
        ("clip_range", "dqn has no policy whose steps are clipped; leave it out, or train ppo; max_grad_norm limits an update"),
        ("n_epochs", "see replay_ratio: samples learned per env step"),
        ("ent_coef", "see end_e: the share of random actions that stays"),
        ("gae_lambda", "see n_step: the rewards that are summed"),
        ("vf_coef", "dqn has no policy beside its values; leave it out, or train ppo"),
    ],
)
def test_keywords_of_ppo_say_what_to_type(keyword: str, message: str) -> None:
    with pytest.raises(TypeError, match=f"DQN has no keyword '{keyword}'; {message}"):
        operant.DQN("cartpole", **{keyword: 0.2})
