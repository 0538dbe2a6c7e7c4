"""What an env brings that can't be learned from is named: env, step, which number, its value and what was wanted."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import operant
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from operant.observations import Fault, Observations

NAN, INF = float("nan"), float("inf")
SPACES: dict[str, spaces.Space[Any]] = {
    "box": spaces.Box(-1, 1, (2, 3)),
    "wide": spaces.Box(-np.inf, np.inf, (2,), np.float64),
    "bytes": spaces.Box(0, 255, (4, 4, 3), np.uint8),
    "discrete": spaces.Discrete(5),
    "started": spaces.Discrete(5, start=3),
    "multi": spaces.MultiDiscrete([5, 4, 3]),
    "table": spaces.MultiDiscrete([[5, 4], [3, 2]], start=[[1, 0], [0, 0]]),
    "binary": spaces.MultiBinary(3),
    "nested": spaces.Dict({"cue": spaces.Box(0, 1, (2,)), "more": spaces.Tuple([spaces.Discrete(3), spaces.Box(0, 1)])}),
}


def good(kind: str) -> Any:
    return SPACES[kind].sample()


class Faulty(gymnasium.Env[Any, Any]):
    """Number `where` of several, which goes wrong at its step `at`. Episodes end after 4 steps."""

    made = 0

    def __init__(self, kind: str, fault: Callable[[list[Any]], Any], at: int = 6, where: int = 2, count: int = 3) -> None:
        self.observation_space, self.action_space = SPACES[kind], spaces.Discrete(2)
        self.fault, self.at, self.steps, self.age, self.kind = fault, at, 0, 0, kind
        self.broken = Faulty.made % count == where
        Faulty.made += 1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.age = 0
        if self.at == 0 and self.broken:
            return self.fault([good(self.kind), {}])
        return good(self.kind), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        self.age += 1
        result = [good(self.kind), 1.0, self.age == 4, False, {}]
        return self.fault(result) if self.broken and self.steps == self.at else tuple(result)


def put(place: int, value: Any) -> Callable[[list[Any]], Any]:
    return lambda result: (*result[:place], value, *result[place + 1 :])


def told(run: Callable[[], Any]) -> str:
    with pytest.raises(ValueError) as caught:
        run()
    assert "learning rate" not in str(caught.value)
    return str(caught.value)


OBSERVATIONS: list[tuple[str, Any, str]] = [
    ("box", np.full((2, 3), [0, NAN, 0]), r"observation\[0, 1\] is nan; wanted a finite number of at most 1e18 in size"),
    ("box", np.full((2, 3), [0, 0, -INF], np.float32), r"observation\[0, 2\] is -inf"),
    ("box", np.full((2, 3), 3e18), r"observation\[0, 0\] is 3e\+18"),
    ("wide", np.array([0.0, 1e300]), r"observation\[1\] is 1e\+300"),
    ("box", np.full((2, 3), [0, 1e300, 0]), r"observation\[0, 1\] is 1e\+300"),
    ("box", np.zeros((3, 2), np.float32), r"observation has shape \(3, 2\); wanted \(2, 3\)"),
    ("box", np.zeros(6, np.float32), r"observation has shape \(6,\); wanted \(2, 3\)"),
    ("box", None, r"the observation is None; wanted one of the observation space"),
    ("bytes", np.full((4, 4, 3), 0.5), r"observation has dtype float64; wanted uint8.*; scale them"),
    ("bytes", np.full((4, 4, 3), 300), r"observation\[0, 0, 0\] is 300; wanted a whole number of dtype uint8"),
    ("discrete", -1, r"observation is -1; wanted a whole number from 0 to 4"),
    ("discrete", 5, r"observation is 5; wanted a whole number from 0 to 4"),
    ("discrete", 2.5, r"observation is 2.5; wanted a whole number"),
    ("started", 2, r"observation is 2; wanted a whole number from 3 to 7"),
    ("started", 8, r"observation is 8; wanted a whole number from 3 to 7"),
    ("multi", np.array([6, 0, 0]), r"observation\[0\] is 6; wanted a whole number from 0 to 4"),
    ("multi", np.array([0, 0, -1]), r"observation\[2\] is -1; wanted a whole number from 0 to 2"),
    ("table", np.array([[0, 0], [0, 0]]), r"observation\[0, 0\] is 0; wanted a whole number from 1 to 5"),
    ("binary", np.array([0, 2, 1]), r"observation\[1\] is 2; wanted 0 or 1"),
    ("nested", {"cue": np.zeros(2, np.float32), "more": (3, np.zeros(1, np.float32))},
     r"observation\['more'\]\[0\] is 3; wanted a whole number from 0 to 2"),
    ("nested", {"cue": np.array([0, NAN], np.float32), "more": (0, np.zeros(1, np.float32))},
     r"observation\['cue'\]\[1\] is nan"),
    ("nested", {"cue": np.zeros(2, np.float32)}, r"observation has the keys \['cue'\]; wanted .*'more' is missing"),
]  # fmt: skip
RESULTS: list[tuple[Callable[[list[Any]], Any], str]] = [
    (put(1, NAN), r"the reward is nan; wanted a finite number of at most 1e18 in size"),
    (put(1, INF), r"the reward is inf"),
    (put(1, -1e19), r"the reward is -1e\+19"),
    (put(1, 1e300), r"the reward is 1e\+300"),
    (put(1, None), r"the reward is None; wanted a number"),
    (put(1, "1"), r"the reward is '1'; wanted a number"),
    (put(2, None), r"terminated is None; wanted True or False"),
    (put(3, {}), r"truncated is \{\}; wanted True or False"),
    (put(4, None), r"info is None; wanted a dict"),
    (lambda result: tuple(result[:4]), r"step returned 4 values; wanted five: observation, reward, terminated, truncated"),
    (lambda result: result[0], r"step returned a ndarray; wanted five"),
]


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
@pytest.mark.parametrize(("kind", "value", "wanted"), OBSERVATIONS)
def test_observations_are_refused_by_name(kind: str, value: Any, wanted: str) -> None:
    """By envs that the trainer puts side by side, in steps and in resets; by predict, alone and in a batch."""
    Faulty.made = 0
    model = operant.PPO(lambda: Faulty(kind, put(0, value)), num_envs=3, num_steps=32, seed=0)
    text = told(lambda: model.learn(1000))
    assert re.match(r"gymnasium/Faulty, env 2, at step 6 \(step 2 of its episode\): " + wanted, text), text
    assert "operant.check_env(env)" in text
    Faulty.made = 0
    text = told(lambda: operant.PPO(lambda: Faulty(kind, put(0, value), at=0), num_envs=3, num_steps=32).learn(1000))
    assert re.match(r"gymnasium/Faulty, env 2, at reset: " + wanted, text), text
    if value is not None:
        with pytest.raises(Fault, match=wanted):
            model.predict(value)
    assert model.predict(good(kind))[0] in (0, 1)


@pytest.mark.parametrize(("fault", "wanted"), RESULTS)
def test_results_are_refused_by_name(fault: Callable[[list[Any]], Any], wanted: str) -> None:
    for model in (operant.PPO, operant.DQN):
        Faulty.made = 0
        text = told(lambda: model(lambda: Faulty("box", fault), num_envs=3).learn(1000))
        assert re.match(r"gymnasium/Faulty, env 2, at step 6 \(step 2 of its episode\): " + wanted, text), text


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize(
    ("fault", "wanted"),
    [
        (put(0, None), "the observation is None; wanted one of the observation space"),
        (put(0, np.full((2, 3), 1e300)), r"observation\[0, 0\] is 1e\+300; wanted a finite number"),
        (put(1, "x"), "the reward is 'x'; wanted a number"),
        (put(1, {}), "the reward is of type dict; wanted a number"),
        (put(1, np.ones(2)), "the reward is an array or a list; wanted a number"),
        (put(1, 10**400), "the reward is too large"),
        (put(4, None), "info is of type NoneType; wanted a dict"),
        (put(4, "x"), "info is of type str; wanted a dict"),
        (lambda result: tuple(result[:4]), "step returned 4 values; wanted five"),
    ],
)
def test_gymnasiums_vector_envs_name_the_env(mode: AutoresetMode, fault: Callable[[list[Any]], Any], wanted: str) -> None:
    """They fail over what an env gave before anyone else sees it, or make another number of it."""
    Faulty.made = 0
    envs = SyncVectorEnv([lambda: Faulty("box", fault, where=1)] * 3, autoreset_mode=mode)
    text = told(lambda: operant.PPO(envs).learn(1000))
    assert re.match(r"gymnasium/Faulty, env 1, at step 6 \(step 2 of its episode\): " + wanted, text), text


class Relapsing(Faulty):
    """Number 2 of three, which goes wrong at the reset that begins its second episode."""

    def __init__(self, value: Any) -> None:
        super().__init__("box", tuple)
        self.value, self.resets = value, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        observation, info = super().reset(seed=seed)
        self.resets += 1
        return (self.value if self.broken and self.resets == 2 else observation), info


@pytest.mark.parametrize("mode", [None, *AutoresetMode])
@pytest.mark.parametrize("value", [np.full((2, 3), NAN), None])
def test_a_later_reset_is_named_as_one(mode: AutoresetMode | None, value: Any) -> None:
    Faulty.made = 0
    envs: Any = lambda: Relapsing(value)  # noqa: E731
    if mode is not None:
        envs = SyncVectorEnv([envs] * 3, autoreset_mode=mode)
    text = told(lambda: operant.PPO(envs, **({"num_envs": 3} if mode is None else {})).learn(1000))
    wanted = "the observation is None" if value is None else r"observation\[0, 0\] is nan"
    assert re.match(rf"gymnasium/Relapsing, env 2, at reset, after step 4: {wanted}", text), text


def test_a_reset_in_the_step_after_is_named_as_one() -> None:
    class Resetting(Bespoke):
        """Ends an episode of env 3 at step 3 and resets it in the next step, wrongly."""

        def step(self, actions: Any) -> Any:
            observations, *rest = super().step(actions)
            if self.steps == 4:
                observations[3] = NAN
            return observations, *rest

    text = told(lambda: operant.PPO(Resetting("box", tuple), num_steps=16).learn(1000))
    assert re.match(r"gymnasium/Resetting, env 3, at reset, after step 4: observation\[0, 0\] is nan", text), text


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_every_autoreset_mode_names_the_step(mode: AutoresetMode) -> None:
    # In NEXT_STEP Gymnasium's envs are reset by mask, so that each call steps every env.
    for fault, wanted in ((put(1, NAN), "the reward is nan"), (put(0, np.full((2, 3), NAN)), r"observation\[0, 0\] is nan")):
        Faulty.made = 0
        envs = SyncVectorEnv([lambda fault=fault: Faulty("box", fault)] * 3, autoreset_mode=mode)
        text = told(lambda: operant.PPO(envs).learn(1000))
        assert re.match(r"gymnasium/Faulty, env 2, at step 6 \(step 2 of its episode\): " + wanted, text), text
    Faulty.made = 0
    envs = SyncVectorEnv([lambda: Faulty("box", put(0, np.full((2, 3), NAN)), at=4)] * 3, autoreset_mode=mode)
    text = told(lambda: operant.PPO(envs).learn(1000))
    last = "last " if mode is AutoresetMode.SAME_STEP else ""
    assert re.search(rf"env 2, at step 4.*: (the )?{last}observation\[0, 0\] is nan", text), text


def test_a_choice_in_an_array_of_its_own_is_refused() -> None:
    """Gymnasium can't put such observations side by side."""
    nested = {"cue": np.zeros(2, np.float32), "more": (np.array([1]), np.zeros(1, np.float32))}
    for kind, value, place in (("discrete", np.array([1]), "observation"), ("nested", nested, r"observation\['more'\]\[0\]")):
        Faulty.made = 0
        text = told(lambda: operant.PPO(lambda: Faulty(kind, put(0, value)), num_envs=3, num_steps=32).learn(1000))
        assert re.match(rf"gymnasium/Faulty, env 2, at step 6.*: {place} has shape \(1,\); wanted \(\), that of Discrete", text), text


def test_observations_that_fit_nowhere_are_refused() -> None:
    class Huge(Faulty):
        def __init__(self) -> None:
            super().__init__("discrete", tuple)
            self.observation_space = spaces.Discrete(10**12)

    with pytest.raises(ValueError, match="observations of 1 envs, 1000000000000 numbers each.*lower num_envs, or wrap the env"):
        operant.PPO(Huge)


def unpacks_wrongly(_: list[Any]) -> Any:
    first, second = (1, 2, 3)
    return first, second


def test_an_envs_own_mistake_stays_its_own() -> None:
    """An env that fails over a pair of its own did not return too few values."""

    def make() -> Faulty:
        return Faulty("box", unpacks_wrongly, where=0, count=1)

    for envs in (make, SyncVectorEnv([make])):
        with pytest.raises(ValueError, match="too many values to unpack") as error:
            operant.PPO(envs, num_steps=32).learn(1000)
        assert "returned" not in str(error.value)


def test_gymnasiums_own_failures_are_explained() -> None:
    """Vector envs of Gymnasium unpack and put side by side before anyone looks."""
    four = RESULTS[-2]
    envs: VectorEnv[Any, Any, Any] = SyncVectorEnv([lambda: Faulty("box", four[0], where=0)])
    assert re.search(four[1], told(lambda: operant.PPO(envs).learn(100)))
    envs = SyncVectorEnv([lambda: Faulty("box", put(0, np.zeros(5)), where=0, count=1)])
    assert "env 0, at step 6" in told(lambda: operant.PPO(envs).learn(100))
    envs = AsyncVectorEnv([lambda: Faulty("discrete", put(0, 7), where=0, count=1)])
    try:
        text = told(lambda: operant.PPO(envs).learn(100))
    finally:
        envs.close()
    assert re.search(r"env 0, at step 6.*observation is 7; wanted a whole number from 0 to 4", text), text


class Bespoke(VectorEnv[Any, Any, Any]):
    """A vector env of its own, whose batches go wrong at step 6."""

    def __init__(self, kind: str, fault: Callable[[list[Any]], Any]) -> None:
        self.num_envs, self.fault, self.steps = 4, fault, 0
        self.single_observation_space, self.single_action_space = SPACES[kind], spaces.Discrete(2)
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def _batch(self) -> Any:
        rows = [self.single_observation_space.sample() for _ in range(4)]
        return np.stack(rows)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return self._batch(), {}

    def step(self, actions: Any) -> Any:
        self.steps += 1
        ends = np.arange(4) == self.steps % 4
        result = [self._batch(), np.ones(4), ends, np.zeros(4, np.bool_), {}]
        return self.fault(result) if self.steps == 6 else tuple(result)


@pytest.mark.parametrize(
    ("kind", "fault", "wanted"),
    [
        ("box", put(0, np.zeros((4, 3, 2))), r"an env, at step 6: observation has shape \(3, 2\); wanted \(2, 3\)"),
        ("box", put(0, np.zeros((2, 4, 3))), r"an env, at step 6: observation has shape \(2, 4, 3\); wanted \(4, 2, 3\)"),
        ("discrete", put(0, np.array([0, 4, -1, 0])), r"env 2, at step 6.*: observation is -1; wanted a whole number"),
        ("box", put(1, [0.0, 0.0, None, 1.0]), r"env 2, at step 6.*: the reward is None; wanted a number"),
        ("box", put(1, np.array([0, 1, 2, INF])), r"env 3, at step 6.*: the reward is inf"),
        ("box", put(1, np.zeros(3)), r"an env, at step 6: the reward has shape \(3,\); wanted \(4,\)"),
        ("box", put(2, np.full(4, NAN)), r"env 0, at step 6.*: terminated is .*nan.*; wanted True or False"),
        ("box", lambda result: tuple(result[:4]), r"an env, at step 6: step returned 4 values; wanted five"),
    ],
)  # fmt: skip
def test_vector_envs_of_ones_own_are_looked_at(kind: str, fault: Callable[[list[Any]], Any], wanted: str) -> None:
    text = told(lambda: operant.PPO(Bespoke(kind, fault), num_steps=16).learn(1000))
    assert re.match(rf"gymnasium/Bespoke, {wanted}", text), text


class Ending(Bespoke):
    """Ends an episode at every step and gives the last observations itself; that of step 7 is wrong."""

    def __init__(self, objects: bool) -> None:
        super().__init__("box", tuple)
        self.metadata, self.objects = {"autoreset_mode": AutoresetMode.SAME_STEP}, objects

    def step(self, actions: Any) -> Any:
        observations, rewards, ends, cuts, _ = super().step(actions)
        last: Any = np.full((4, 2, 3), NAN)
        last[ends] = 0.5
        if self.steps == 7:
            last[ends, 1, 2] = INF
        if self.objects:
            rows = np.empty(4, dtype=object)
            for env in np.flatnonzero(ends):
                rows[env] = last[env]
            last = rows
        return observations, rewards, ends, cuts, {"final_obs": last}


@pytest.mark.parametrize("objects", [False, True])
def test_last_observations_are_looked_at_where_episodes_ended(objects: bool) -> None:
    """They lie side by side or one by one; where no episode ended there may be anything."""
    text = told(lambda: operant.PPO(Ending(objects), num_steps=16).learn(1000))
    wanted = r"gymnasium/Ending, env 3, at step 7 \(step 4 of its episode\): the last observation\[1, 2\] is inf"
    assert re.match(wanted, text), text


class Passing(Faulty):
    """Shows the action it was given."""

    def __init__(self) -> None:
        super().__init__("box", tuple)
        self.action_space = spaces.Box(-1, 1, (1,))

    def step(self, action: Any) -> Any:
        _, *rest = super().step(action)
        return (np.full((2, 3), action[0], np.float32), *rest)


def test_a_policy_that_broke_is_not_blamed_on_the_env() -> None:
    envs = operant.foreign.open_envs(Passing, 2, {})[0]
    envs.reset(0)
    envs.step(np.zeros((2, 1), np.float32))
    with pytest.raises(ValueError, match=r"env 1, at step 2: the policy's action is \[nan\]; training diverged before"):
        envs.step(np.array([[0.0], [NAN]], np.float32))


def test_evaluation_looks_too() -> None:
    Faulty.made = 0
    model = operant.PPO(lambda: Faulty("box", put(1, NAN), at=70), num_envs=3, num_steps=16).learn(48)
    Faulty.made = 0
    assert "the reward is nan" in told(lambda: model.evaluate(100))


def test_predict_on_what_is_no_observation() -> None:
    model = operant.PPO("cartpole", num_envs=8)
    for value in (NAN, INF, -INF, 1e19):
        rows = np.zeros((3, 4), np.float32)
        rows[1, 2] = value
        with pytest.raises(ValueError, match=r"observation\[2\] is .*; wanted a finite number.*\(row 1 of the batch\)"):
            model.predict(rows)
        with pytest.raises(ValueError, match=r"observation\[2\] is [^(]*in size$"):
            model.predict(rows[1])
    with pytest.raises(ValueError, match=r"observation\[0\] is None; wanted a number"):
        model.predict([None, 0.0, 0.0, 0.0])
    with pytest.raises(ValueError, match=r"observation has shape \(3,\); wanted \(4,\), or \('N', 4\) for several"):
        model.predict([0.0, 0.0, 0.0])
    assert model.predict([0, 0, 0, 0])[0] in (0, 1)


def test_a_users_exception_stays_what_it_was() -> None:
    def fail(_: Any) -> Any:
        raise ValueError("mine")

    for where in (0, 2):
        Faulty.made = 0
        with pytest.raises(ValueError, match="^mine$"):
            operant.PPO(lambda where=where: Faulty("box", fail, where=where), num_envs=3).learn(1000)
        Faulty.made = 0
        with pytest.raises(ValueError, match="^mine$"):
            operant.PPO(lambda where=where: Faulty("box", fail, at=0, where=where), num_envs=3).learn(1000)


def test_what_fits_is_taken() -> None:
    """Other dtypes with the same numbers, and batches whose unread rows hold anything."""
    forms = {kind: Observations(space) for kind, space in SPACES.items()}
    assert forms["discrete"].batch(np.array([[0.0], [4.0]]), 2)[1, 4] == 1
    assert forms["discrete"].batch(np.array([4], np.uint8), 1)[0, 4] == 1
    assert forms["started"].batch(np.array([3], np.uint8), 1)[0, 0] == 1
    assert forms["box"].batch(np.zeros((2, 2, 3), np.int64), 2).dtype == np.float32
    assert forms["bytes"].batch(np.full((1, 4, 4, 3), 255, np.int64), 1).max() == 255
    assert forms["binary"].batch(np.array([[True, False, True]]), 1).tolist() == [[1, 0, 1]]
    with pytest.raises(Fault, match="a whole number from 3 to 7"):
        forms["started"].batch(np.array([2], np.uint8), 1)


def test_rewards_in_arrays_of_one_number_are_taken() -> None:
    model = operant.PPO(
        lambda: Faulty("box", put(1, np.array([1.0])), at=3), num_envs=3, num_steps=8, num_minibatches=1, threads=1
    )
    assert model.learn(48).metrics["return"] == 4


@pytest.mark.parametrize(
    ("kind", "fault", "wanted"),
    [
        ("discrete", put(0, 2.0), "env 2, at step 3: observation is of dtype float64; wanted int64, that of its space"),
        ("multi", put(0, np.ones(3)), "env 2, at step 3: observation is of dtype float64; wanted int64, that of its space"),
        ("box", put(1, 10**400), "the reward is too large; wanted a finite number"),
    ],
)
def test_what_gymnasium_cannot_put_together_is_named(kind: str, fault: Any, wanted: str) -> None:
    Faulty.made = 0
    model = operant.PPO(lambda: Faulty(kind, fault, at=3), num_envs=3, num_steps=8, num_minibatches=1, threads=1)
    text = told(lambda: model.learn(48))
    assert wanted in text and "at step 3" in text, text
