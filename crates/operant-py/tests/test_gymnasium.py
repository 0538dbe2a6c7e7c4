"""The environments in Gymnasium's registry, through its own functions, checker and wrappers."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings

import gymnasium
import numpy as np
import operant
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers.vector import RecordEpisodeStatistics

IDS = [env_id if env_id.startswith("operant/") else f"operant/{env_id}" for env_id in operant.list_envs()]


@pytest.mark.parametrize("env_id", IDS)
def test_gymnasiums_checker(env_id: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # It warns of spaces without bounds, which are those of Gymnasium's own classic control.
        warnings.filterwarnings("ignore", message=".*(infinity|symmetric and normalized).*")
        check_env(gymnasium.make(env_id).unwrapped)


@pytest.mark.parametrize("env_id", IDS)
def test_specs_come_from_the_registry(env_id: str) -> None:
    info = operant.env_info(env_id)
    spec = gymnasium.spec(env_id)
    assert spec.max_episode_steps == info["time_limit"]
    assert spec.reward_threshold == info["solved_at"]


def test_an_episode() -> None:
    env = gymnasium.make("operant/CartPole-v1", max_episode_steps=5, gravity=1.0)
    observation, info = env.reset(seed=1)
    assert info == {}
    again, _ = env.reset(seed=1)
    np.testing.assert_array_equal(observation, again)
    steps = [env.step(i % 2) for i in range(5)]
    assert [step[3] for step in steps] == [False] * 4 + [True]
    assert all(isinstance(step[1], float) and isinstance(step[2], bool) for step in steps)
    observation, _ = env.reset(options={"low": 0.2, "high": 0.2})
    np.testing.assert_array_equal(observation, np.float32([0.2] * 4))
    with pytest.raises(ValueError, match="unknown reset option 'reset_mask'"):
        env.unwrapped.reset(options={"reset_mask": np.ones(1, bool)})


def test_wrong_actions() -> None:
    env = operant.OperantEnv("CartPole-v1")
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(0)
    env.reset()
    for action, error in ((0.5, TypeError), (2, ValueError), ([0, 1], TypeError)):
        with pytest.raises(error):
            env.step(action)
    assert env.step(np.int64(1))[1] == 1.0
    pendulum = operant.OperantEnv("Pendulum-v1")
    pendulum.reset()
    with pytest.raises(ValueError, match="shape"):
        pendulum.step(np.zeros(2))
    pendulum.step([0.5])


def test_masks_of_a_single_env() -> None:
    env = gymnasium.make("operant/GridWorld-v0")
    _, info = env.reset(seed=0)
    assert env.action_space.sample(mask=info["action_mask"]) in env.action_space


def test_one_env_is_env_0_of_a_vector() -> None:
    env = gymnasium.make("operant/Acrobot-v1")
    vector = operant.make_vec("Acrobot-v1", 3)
    np.testing.assert_array_equal(env.reset(seed=4)[0], vector.reset(seed=4)[0][0])
    for action in (0, 1, 2, 2, 1):
        np.testing.assert_array_equal(env.step(action)[0], vector.step([action] * 3)[0][0])


def test_make_vec_through_gymnasium() -> None:
    env = gymnasium.make_vec("operant/CartPole-v1", num_envs=4, seed=0, threads=1, max_episode_steps=10)
    assert isinstance(env, operant.OperantVectorEnv)
    assert env.spec is not None
    assert env.spec.id == "operant/CartPole-v1"
    assert env.metadata["autoreset_mode"] is gymnasium.vector.AutoresetMode.NEXT_STEP
    env = RecordEpisodeStatistics(env)
    env.reset(seed=1)
    infos = [env.step(np.array([0, 1, 0, 1]))[4] for _ in range(10)]
    ended = [info["episode"]["l"][info["_episode"]] for info in infos if "episode" in info]
    assert ended
    assert (np.concatenate(ended) > 0).all()
    assert repr(operant.make_vec("cartpole", 2)) == "OperantVectorEnv(operant/CartPole-v1, num_envs=2)"
    sync = gymnasium.make_vec("operant/CartPole-v1", num_envs=2, vectorization_mode="sync")
    assert sync.reset(seed=0)[0].shape == (2, 4)


def test_unknown_keywords_are_type_errors() -> None:
    # TorchRL tries keywords and looks for these words.
    for make in (gymnasium.make, gymnasium.make_vec, operant.make_vec):
        with pytest.raises(TypeError, match="unexpected keyword argument 'frameskip'"):
            make("operant/CartPole-v1", frameskip=1)


@pytest.mark.parametrize("mode", list(gymnasium.vector.AutoresetMode))
def test_the_mode_is_an_attribute_too(mode: gymnasium.vector.AutoresetMode) -> None:
    for make in (gymnasium.make_vec, operant.make_vec):
        env = make("operant/CartPole-v1", 2, autoreset_mode=mode)
        assert env.autoreset_mode is env.metadata["autoreset_mode"] is mode


def test_a_module_in_the_id_needs_no_import() -> None:
    code = 'import gymnasium; print(gymnasium.make("operant:operant/CartPole-v1").reset(seed=0)[0].shape)'
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "(4,)\n"


def test_importing_again_overrides_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        operant.registration.register_envs()


def test_rgb_and_human_rendering(monkeypatch: pytest.MonkeyPatch) -> None:
    env = gymnasium.make("operant/CartPole-v1", render_mode="rgb_array")
    env.reset(seed=0)
    picture = env.render()
    assert isinstance(picture, np.ndarray)
    assert (picture.dtype, picture.shape[2]) == (np.uint8, 3)
    pytest.importorskip("pygame")
    monkeypatch.setitem(os.environ, "SDL_VIDEODRIVER", "dummy")
    with pytest.warns(UserWarning, match="HumanRendering"):
        human = gymnasium.make("operant/Pendulum-v1", render_mode="human")
    human.reset(seed=0)
    human.step(human.action_space.sample())
    human.close()
