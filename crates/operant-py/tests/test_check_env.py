"""`operant.check_env`: sound envs pass, and each mistake is named."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import operant
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv


class Sound(gymnasium.Env[Any, Any]):
    """A walk on a line, which ends at its edges or after 30 steps."""

    observation_space: spaces.Space[Any] = spaces.Box(-5, 5, (2,), np.float32)
    action_space: spaces.Space[Any] = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.place, self.age = float(self.np_random.uniform(-1, 1)), 0
        return self.seen(), {}

    def seen(self) -> Any:
        return np.array([self.place, self.age / 30], dtype=np.float32)

    def step(self, action: Any) -> Any:
        self.age += 1
        self.place += 0.5 if action else -0.5
        return self.seen(), -abs(self.place), bool(abs(self.place) > 4), self.age >= 30, {}


def check(env: Any, **options: Any) -> operant.EnvReport:
    return operant.check_env(env, **{"train": False, "verbose": False, "raises": False, "steps": 200, **options})


def test_a_sound_env_passes_and_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    report = operant.check_env(Sound, steps=200)
    printed = capsys.readouterr().out
    assert report.ok and not report.errors and printed == f"{report}\n"
    first, *lines = printed.splitlines()
    assert re.fullmatch(rf"Sound: 0 errors, {len(report.warnings)} warnings, {len(report.passed)} checks passed", first)
    names = [line[11:].split("  ")[0] for line in lines]
    assert names == [
        "made", "spaces", "space details", "reset", "actions", "steps", "observations in the space", "observations kept",
        "observation sizes", "rewards", "episodes", "seeds", "speed",
    ]  # fmt: skip
    assert 0 < report.env_share < 1 and report.steps_per_second > 100
    assert re.search(r"[\d,]+ steps/s; with PPO's settings for such envs it takes \d+% of training time", printed)
    assert check(Sound()).warnings == []


def test_names_and_vector_envs_pass() -> None:
    for env, options in (
        ("cartpole", {}),
        ("operant/Pendulum-v1", {}),
        ("CartPole-v1", {}),
        (operant.make_vec("probe_identity", 4, autoreset_mode="next_step"), {}),
        (operant.make_vec("probe_identity", 4, autoreset_mode="disabled"), {}),
        *((SyncVectorEnv([Sound] * 3, autoreset_mode=mode), {}) for mode in AutoresetMode),
        (lambda: SyncVectorEnv([Sound] * 2), {"train": True}),
    ):
        report = check(env, **options)
        assert report.ok, str(report)
        assert any(line.startswith("seeds: the same seed and actions") for line in report.passed), str(report)


@pytest.mark.parametrize("name", operant.list_envs())
def test_every_env_of_the_engine_passes(name: str) -> None:
    if name.startswith("operant/Growth"):
        pytest.skip("a step of it trains a network")
    assert check(name, steps=64).ok, str(check(name, steps=64))


def with_(**changes: Any) -> type[Sound]:
    return type("Broken", (Sound,), changes)


def stepping(change: Callable[[Sound, tuple[Any, ...]], Any]) -> type[Sound]:
    return with_(step=lambda self, action: change(self, Sound.step(self, action)))


def put(place: int, value: Any) -> type[Sound]:
    """An env whose 5th step of an episode has another value at a place of its result."""
    return stepping(lambda env, result: (*result[:place], value, *result[place + 1 :]) if env.age == 5 else result)


class Old:
    """No Gymnasium env."""


class Shared(Sound):
    """Gives the same array at every step."""

    def __init__(self) -> None:
        self.memory = np.zeros(2, np.float32)

    def seen(self) -> Any:
        self.memory[:] = super().seen()
        return self.memory


class Wild(Sound):
    """Draws without its seed."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        result = super().reset(seed=seed)
        self.place = float(np.random.default_rng().uniform(-1, 1))
        return self.seen(), result[1]


class Fixed(Sound):
    """Begins every episode that has no seed alike."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return super().reset(seed=7 if seed is None else seed)


def no_keywords(self: Sound) -> Any:
    return Sound.reset(self)


ERRORS: list[tuple[Any, str]] = [
    (Old, r"made: TypeError: a .*Old; wanted a gymnasium.Env: derive the class from gymnasium.Env"),
    (3, r"made: TypeError: env is of type int; wanted a Gymnasium env"),
    (with_(observation_space=spaces.Text(3)), r"spaces: observation space Text.*wrap the env"),
    (with_(action_space=spaces.Dict({"a": spaces.Discrete(2)})), r"spaces: action space Dict.*wanted Discrete"),
    (with_(action_space=None), r"spaces: TypeError: action_space is None; wanted a space of gymnasium.spaces"),
    (with_(reset=no_keywords), r"reset: .*unexpected keyword.*; wanted reset\(self, \*, seed=None, options=None\)"),
    (with_(reset=lambda self, **options: Sound.reset(self, **options)[0]), r"reset: reset returned a ndarray; wanted two"),
    (with_(seen=lambda self: np.zeros(3)), r"reset: observation has shape \(3,\); wanted \(2,\)"),
    (stepping(lambda env, result: result[:4]), r"actions: step returned 4 values; wanted five"),
    (put(0, np.array([0, np.nan])), r"steps: at step 5: observation\[1\] is nan; wanted a finite number"),
    (put(0, np.zeros((1, 2))), r"steps: at step 5: observation has shape \(1, 2\); wanted \(2,\)"),
    (put(1, float("nan")), r"steps: at step 5: the reward is nan"),
    (put(1, None), r"steps: at step 5: the reward is None; wanted a number"),
    (put(1, 1e25), r"steps: at step 5: the reward is 1e\+25"),
    (put(2, {}), r"steps: at step 5: terminated is \{\}; wanted True or False"),
    (put(4, None), r"steps: at step 5: info is None; wanted a dict"),
    (with_(observation_space=spaces.Discrete(3), seen=lambda self: self.age), r"steps: .*is 3; wanted .* from 0 to 2"),
    (with_(step=lambda self, action: Sound.step(self, action) if action == 0 else [][action]),
     r"actions: step\(.*1.*\) raised IndexError: .*; wanted every action of Discrete\(2\)"),
    (Wild, r"seeds: with the same seed and actions, the observation of step 1 differs; draw all chance"),
]  # fmt: skip


@pytest.mark.parametrize(("env", "wanted"), ERRORS)
def test_errors_are_named(env: Any, wanted: str) -> None:
    report = check(env)
    assert len(report.errors) == 1 and re.match(wanted, report.errors[0]), str(report)
    with pytest.raises(operant.CheckedEnvError) as caught:
        check(env, raises=True)
    assert caught.value.report.errors == report.errors and report.errors[0] in str(caught.value)


WARNINGS: list[tuple[Any, str]] = [
    (with_(action_space=spaces.Box(-3, 3, (1,))), r"space details: actions go from -3 to 3.*RescaleAction"),
    (with_(action_space=spaces.Box(-np.inf, 1, (1,))), r"space details: the action space has no bounds"),
    (with_(observation_space=spaces.Box(-1, 1, (2,))), r"observations in the space: observation\[0\] is .*space says -1 to 1"),
    (with_(seen=lambda self: Sound.seen(self).astype(np.float64)), r"observations in the space: observation has dtype float64"),
    (with_(seen=lambda self: [0.0, float(self.np_random.random())]), r"observations in the space: observation is a list"),
    (Shared, r"observations kept: the observation of step 0 changed when step 1 was made; return a copy"),
    (put(0, np.array([500, 0])), r"observation sizes: observations are as large as 500; scale them"),
    (put(1, 1e4), r"rewards: from .* to 10000; scale them"),
    (stepping(lambda env, result: (result[0], 0.0, *result[2:])), r"rewards: all 200 rewards were 0"),
    (stepping(lambda env, result: (*result[:2], False, False, {})), r"episodes: no episode ended within 200 steps"),
    (Fixed, r"seeds: every reset without a seed begins alike"),
]  # fmt: skip


@pytest.mark.parametrize(("env", "wanted"), WARNINGS)
def test_warnings_are_named(env: Any, wanted: str) -> None:
    report = check(env, raises=True)
    assert any(re.match(wanted, one) for one in report.warnings), str(report)


class Slow(Sound):
    def step(self, action: Any) -> Any:
        for _ in range(200_000):
            pass
        return super().step(action)


def test_a_slow_env_gets_advice() -> None:
    report = check(Slow, train=True, steps=20)
    assert report.env_share > 0.5
    assert any("training waits for the env; make step faster, or use AsyncVectorEnv" in one for one in report.warnings)


class Vector(VectorEnv[Any, Any, Any]):
    """Sound envs as a vector env whose results may be changed."""

    def __init__(self, mode: AutoresetMode, change: Callable[[Any], Any] = lambda result: result, says: Any = None) -> None:
        self.inner = SyncVectorEnv([Sound] * 3, autoreset_mode=mode)
        self.num_envs, self.change = 3, change
        self.single_observation_space = self.inner.single_observation_space
        self.single_action_space = self.inner.single_action_space
        self.observation_space, self.action_space = self.inner.observation_space, self.inner.action_space
        self.metadata = {"autoreset_mode": says or mode}

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return self.inner.reset(seed=seed, options=options)

    def step(self, actions: Any) -> Any:
        return self.change(self.inner.step(actions))


def test_mistakes_of_vector_envs_are_named() -> None:
    same, after = AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP
    assert check(Vector(same)).ok and check(Vector(after)).ok
    cases: list[tuple[VectorEnv[Any, Any, Any], str]] = [
        (Vector(same, lambda result: (*result[:4], {})), r'autoreset: an episode ended at step \d+ and infos has no "final_obs"'),
        (Vector(same, says=after), r'autoreset: infos has "final_obs" at step \d+, as in SAME_STEP, and metadata says'),
        (Vector(same, lambda result: (*result[:4], {}), after), r"autoreset: env \d ended at step \d+ and step \d+ gave reward"),
        (Vector(same, lambda result: result[:4]), r"autoreset: step returned 4 values; wanted five"),
        (Vector(same, lambda result: (result[0] * np.nan, *result[1:])), r"steps: .*env 0, at step 1: observation\[0\] is nan"),
    ]
    for envs, wanted in cases:
        report = check(envs)
        assert report.errors and re.match(wanted, report.errors[0]), str(report)
    silent = Vector(after)
    silent.metadata = {}
    assert any('no "autoreset_mode"' in one for one in check(silent).warnings)


def test_counts_are_checked() -> None:
    for name in ("num_envs", "steps"):
        for number in (0, -5):
            with pytest.raises(ValueError, match=f"{name}={number}: wanted at least 1"):
                operant.check_env("cartpole", **{name: number})


def test_the_same_env_twice() -> None:
    env = Sound()
    assert "the function gave the same env twice" in check(lambda: env).errors[0]
