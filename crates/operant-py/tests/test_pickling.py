"""Pickle, cloudpickle and deepcopy: copies go on with the same bits, also in processes that begin anew."""

from __future__ import annotations

import copy
import gc
import multiprocessing
import pickle
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
import operant
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode

IDS = [env_id if env_id.startswith("operant/") else f"operant/{env_id}" for env_id in operant.list_envs()]
COPIES: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda it: pickle.loads(pickle.dumps(it)),
    "cloudpickle": lambda it: cloudpickle.loads(cloudpickle.dumps(it)),
    "deepcopy": copy.deepcopy,
}
ways = pytest.mark.parametrize("way", COPIES)
MODES = list(AutoresetMode)


GROWTH = {"epochs": 6, "train_samples": 64, "val_samples": 64}
SMALL = {"operant/Growth-v0": GROWTH}

def play(env: gymnasium.Env, steps: int) -> list[Any]:
    """What an env shows in so many steps of its own random actions, through the ends of episodes."""
    seen = []
    for _ in range(steps):
        action = env.action_space.sample()
        observation, reward, terminated, truncated, _ = env.step(action)
        seen.append((np.asarray(action).tolist(), observation.tobytes(), reward, terminated, truncated))
        if terminated or truncated:
            seen.append(env.reset()[0].tobytes())
    return seen


@ways
@pytest.mark.parametrize("env_id", IDS)
def test_single_envs_go_on_in_mid_episode(env_id: str, way: str) -> None:
    env = gymnasium.make(env_id, **SMALL.get(env_id, {}))
    env.reset(seed=3)
    env.action_space.seed(1)
    before, after = (2, 3) if env_id in SMALL else (7, 40)
    play(env, before)
    other = COPIES[way](env)
    assert play(other, after) == play(env, after)


def step_all(env: operant.OperantVectorEnv, steps: int) -> list[bytes]:
    """What a vector env shows in so many steps, with its own random actions."""
    seen, disabled = [], env.autoreset_mode is AutoresetMode.DISABLED
    for _ in range(steps):
        observations, rewards, terminated, truncated, infos = env.step(env.action_space.sample())
        seen += [array.tobytes() for array in (observations, rewards, terminated, truncated)]
        seen += [infos[key].tobytes() for key in ("final_obs", "action_mask") if key in infos]
        seen += [infos["episode"][key].tobytes() for key in ("r", "l") if "episode" in infos]
        ended = terminated | truncated
        if disabled and ended.any():
            seen.append(env.reset(options={"reset_mask": ended})[0].tobytes())
    return seen


@ways
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "gridworld"])
def test_vector_envs_go_on_in_every_mode(env_id: str, mode: AutoresetMode, way: str) -> None:
    env = operant.make_vec(env_id, 70, seed=5, autoreset_mode=mode, max_episode_steps=12, threads=2, copy=True)
    env.action_space.seed(2)
    env.reset()
    # Envs have just ended, and wait where they begin again in the next step.
    step_all(env, 12)
    other = COPIES[way](env)
    assert other.autoreset_mode is mode
    assert step_all(other, 30) == step_all(env, 30)


def test_pending_resets_are_copied() -> None:
    env = operant.make_vec("CartPole-v1", 2, seed=1, autoreset_mode="disabled", max_episode_steps=3)
    env.reset()
    for _ in range(3):
        env.step([0, 1])
    with pytest.raises(gymnasium.error.ResetNeeded, match="env 0 of"):
        copy.deepcopy(env).step([0, 1])


@ways
def test_an_env_before_its_first_reset(way: str) -> None:
    env = operant.make_vec("CartPole-v1", 3, seed=9, gravity=5.0, copy=True)
    other = COPIES[way](env)
    assert other.params["gravity"] == 5.0
    with pytest.raises(gymnasium.error.ResetNeeded):
        other.step([0, 0, 0])
    np.testing.assert_array_equal(env.reset()[0], other.reset()[0])


def test_copies_do_not_share_an_engine() -> None:
    env = operant.make_vec("CartPole-v1", 2, seed=0)
    env.reset()
    before = env.observe().copy()
    other = copy.deepcopy(env)
    other.step([0, 0])
    np.testing.assert_array_equal(env.observe(), before)
    env.close()
    other.step([0, 0])
    with pytest.raises(gymnasium.error.ClosedEnvironmentError):
        pickle.dumps(env)


def weights(model: Any, part: str = "policy.safetensors") -> bytes:
    return bytes(model._trainer.part(part))


def go_on(model: Any, steps: int) -> bytes:
    """The weights after more training. Tasks of other processes are functions of this module."""
    model.learn(steps)
    return weights(model, "network.safetensors" if isinstance(model, operant.AlphaZero) else "policy.safetensors")


def models() -> dict[str, Callable[[], Any]]:
    small = {"seed": 1, "threads": 1}
    search = {"simulations": 16, "leaves": 2}
    return {
        "ppo": lambda: operant.PPO("CartPole-v1", num_envs=4, num_steps=16, minibatch_size=32, **small).learn(128),
        "lstm": lambda: operant.PPO(
            "probe_memory", num_envs=4, num_steps=16, minibatch_size=32, memory="lstm", **small
        ).learn(128),
        "dqn": lambda: operant.DQN("CartPole-v1", num_envs=4, learning_starts=64, buffer_size=512, **small).learn(256),
        "alphazero": lambda: operant.AlphaZero("connect4", num_envs=2, hidden=[16], search=search, **small).learn(32),
    }


@ways
@pytest.mark.parametrize("kind", models())
def test_models_go_on(kind: str, way: str) -> None:
    model = models()[kind]()
    other = COPIES[way](model)
    assert other.run_dir != model.run_dir
    np.testing.assert_equal([other.num_timesteps, other.metrics], [model.num_timesteps, model.metrics])
    assert go_on(other, 128) == go_on(model, 128)


@ways
def test_sampled_actions_go_on(way: str) -> None:
    model = models()["ppo"]()
    seen = np.zeros((9, 4), dtype=np.float32)
    model.predict(seen)
    other = COPIES[way](model)
    for _ in range(5):
        np.testing.assert_array_equal(other.predict(seen)[0], model.predict(seen)[0])


@ways
def test_models_of_brought_envs_predict_and_train_on(way: str) -> None:
    model = operant.PPO(lambda: gymnasium.make("CartPole-v1"), n_steps=32, seed=1).learn(64)
    other = COPIES[way](model)
    seen = np.eye(4, dtype=np.float32)
    np.testing.assert_array_equal(other.predict(seen)[0], model.predict(seen)[0])
    with pytest.raises(ValueError, match="load it with env="):
        other.learn(64)
    again = operant.PPO.load(other.run_dir, env=lambda: gymnasium.make("CartPole-v1")).learn(64)
    assert again.num_timesteps >= 64
    twice = COPIES[way](other)
    np.testing.assert_array_equal(twice.predict(seen)[0], other.predict(seen)[0])
    # A copy of a copy does not need the folder of the first.
    del other
    gc.collect()
    assert operant.PPO.load(twice.run_dir, env=lambda: gymnasium.make("CartPole-v1")).learn(64).num_timesteps >= 64


def test_loaded_policies(tmp_path: Path) -> None:
    model = models()["ppo"]()
    model.save(tmp_path / "policy.safetensors")
    other = pickle.loads(pickle.dumps(operant.PPO.load(tmp_path / "policy.safetensors")))
    seen = np.eye(4, dtype=np.float32)
    np.testing.assert_array_equal(
        other.predict(seen, deterministic=True)[0], model.predict(seen, deterministic=True)[0]
    )


@ways
def test_networks(way: str) -> None:
    for net in (
        operant.nn.actor_critic(inputs=4, actions=2, hidden=[8], seed=3, threads=1),
        operant.nn.dueling(inputs=4, actions=3, hidden=[8], stream=4, seed=3),
        operant.nn.residual(inputs=4, policy=3, width=8, blocks=1, seed=3),
    ):
        other = COPIES[way](net)
        assert other.architecture == net.architecture
        rows = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
        for name, output in net(rows).items():
            np.testing.assert_array_equal(other(rows)[name], output)
        name = next(iter(other.state_dict()))
        other.load_state_dict({**other.state_dict(), name: np.zeros_like(other.state_dict()[name])})
        assert net.state_dict()[name].any()
    policy = operant.nn.Policy(operant.nn.actor_critic(inputs=4, actions=2))
    np.testing.assert_array_equal(COPIES[way](policy)(np.eye(4)), policy(np.eye(4)))


def even(observations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros(len(observations)), np.zeros((len(observations), 7))


@ways
def test_searches_and_rules(way: str) -> None:
    for search in (
        operant.Mcts("connect4", even, simulations=64),
        operant.Mcts(operant.games.Rules("connect4"), simulations=64, noise=0.25),
        models()["alphazero"]().mcts(simulations=64),
    ):
        other = COPIES[way](search)
        one, two = search.search("4435", seed=4), other.search("4435", seed=4)
        assert one["best"] == two["best"]
        np.testing.assert_array_equal(one["visits"], two["visits"])
        np.testing.assert_array_equal(one["values"], two["values"])
    for name in ("backgammon", "connect4", "2048"):
        rules = operant.games.Rules(name)
        assert COPIES[way](rules).start() == rules.start()
        assert repr(COPIES[way](rules)) == repr(rules)


@ways
def test_positions_of_backgammon(way: str) -> None:
    position = operant.games.Backgammon()
    rng = np.random.default_rng(0)
    for _ in range(30):
        assert COPIES[way](position) == position
        plays = position.plays((int(rng.integers(1, 7)), int(rng.integers(1, 7))))
        position = plays[rng.integers(len(plays))][1]


@ways
def test_matches_of_backgammon_in_every_phase(way: str) -> None:
    rng, phases = np.random.default_rng(1), set[str]()
    for length in (0, 3, 0, 5):
        match = operant.games.BackgammonMatch(length, jacoby=length == 0)
        while match is not None:
            other = COPIES[way](match)
            for what in ("phase", "who", "player", "position", "dice", "scores", "cube", "owner", "crawford", "result"):
                assert getattr(other, what) == getattr(match, what), what
            assert (other.decisions(), other.match_id) == (match.decisions(), match.match_id)
            phases.add(match.phase)
            if match.phase == "over":
                match = match.next_game() if length else None
            elif match.phase == "roll":
                dice = rng.permutation(6)[:2] + 1
                match = match.roll((int(max(dice)), int(min(dice))))
            else:
                match = match.apply(str(rng.choice(match.decisions())))
    assert phases == {"cube", "offered", "roll", "play", "over"}


@ways
def test_growth_goes_on(way: str) -> None:
    growth = operant.Growth(**GROWTH)
    growth.reset(seed=2)
    for _ in range(2):
        growth.step()
    other = COPIES[way](growth)
    for _ in range(3):
        (over, row), (other_over, other_row) = growth.step(), other.step()
        assert over == other_over
        assert str(row) == str(other_row)


@ways
def test_operators_of_fields(way: str) -> None:
    operator, rollout = operant.Operator(grid=16), operant.OperatorRollout(num_timesteps=2)
    first = np.ones((3, 16, 16))
    np.testing.assert_array_equal(rollout(operator, first), COPIES[way](rollout)(COPIES[way](operator), first))


def test_in_processes_that_begin_anew() -> None:
    env = gymnasium.make("operant/Acrobot-v1")
    env.reset(seed=3)
    vector = operant.make_vec("CartPole-v1", 5, seed=2, copy=True)
    vector.reset()
    env.action_space.seed(0)
    vector.action_space.seed(0)
    step_all(vector, 9)
    model, search = models()["ppo"](), operant.Mcts("connect4", even, simulations=64)
    net = operant.nn.actor_critic(inputs=4, actions=2)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        there = [
            pool.submit(play, env, 9),
            pool.submit(step_all, vector, 20),
            pool.submit(go_on, model, 64),
            pool.submit(search.search, "44", 1),
            pool.submit(net, np.eye(4, dtype=np.float32)),
        ]
        assert there[0].result() == play(env, 9)
        assert there[1].result() == step_all(vector, 20)
        assert there[2].result() == go_on(model, 64)
        np.testing.assert_array_equal(there[3].result()["visits"], search.search("44", 1)["visits"])
        np.testing.assert_array_equal(there[4].result()["logits"], net(np.eye(4, dtype=np.float32))["logits"])


def test_envs_of_an_async_vector_env() -> None:
    begun = gymnasium.make("operant/CartPole-v1")
    begun.reset(seed=4)
    begun.step(1)
    # Its functions travel by cloudpickle, with the env that this one holds.
    envs = AsyncVectorEnv([lambda: copy.deepcopy(begun)] * 2, context="spawn")
    try:
        for action in (0, 1, 1):
            here, there = begun.step(action), envs.step([action] * 2)
            np.testing.assert_array_equal(there[0], np.stack([here[0]] * 2))
            assert there[1].tolist() == [here[1]] * 2
    finally:
        envs.close(terminate=True)
