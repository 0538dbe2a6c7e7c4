"""Checks of environments that the user brings, before anything is trained on them.

>>> import operant
>>> report = operant.check_env(lambda: MyEnv())  # prints what passed, what to look at, and what is wrong
>>> report.ok
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from operant.foreign import Actions, Fault, HostEnvs, check_reset, check_step, five
from operant.observations import FloatArray, Observations, leaves, leaves_of, numbers

__all__ = ["CheckedEnvError", "EnvReport", "check_env"]

_LIKELY_SIZE = 100.0
"""Observations larger than this train better once they are normalised."""
_LIKELY_REWARD = 100.0
_REPEATED_STEPS = 50
_TRAINED_STEPS = 256
_MOST_ACTIONS = 64


@dataclass(frozen=True)
class Finding:
    """What one check came to."""

    level: Literal["passed", "warning", "error"]
    check: str
    text: str


@dataclass
class EnvReport:
    """What :func:`check_env` found. Its text is a list for people."""

    name: str
    """What the env is called."""
    findings: list[Finding] = field(default_factory=list)
    """Every check that was made, in order."""
    steps_per_second: float = float("nan")
    """Env steps each second, of all envs together; the resets of episodes are counted."""
    env_share: float = float("nan")
    """The share of training time that the env takes; NaN if no training was tried."""

    def _of(self, level: str) -> list[str]:
        return [f"{one.check}: {one.text}" for one in self.findings if one.level == level]

    @property
    def passed(self) -> list[str]:
        """Checks that found nothing."""
        return self._of("passed")

    @property
    def warnings(self) -> list[str]:
        """What works, and is likely not what was meant or costs something."""
        return self._of("warning")

    @property
    def errors(self) -> list[str]:
        """What keeps the env from being trained on, or its runs from being repeated."""
        return self._of("error")

    @property
    def ok(self) -> bool:
        """Whether there are no errors; there may be warnings."""
        return not self.errors

    def __str__(self) -> str:
        width = max((len(one.check) for one in self.findings), default=0)
        lines = [f"  {one.level:<8} {one.check:<{width}}  {one.text}" for one in self.findings]
        counts = f"{len(self.errors)} errors, {len(self.warnings)} warnings, {len(self.passed)} checks passed"
        return "\n".join([f"{self.name}: {counts}", *lines])


class CheckedEnvError(ValueError):
    """An env has errors; ``report`` has all that was found."""

    def __init__(self, report: EnvReport) -> None:
        self.report = report
        super().__init__(f"{report.name} has {len(report.errors)} errors; the first: {report.errors[0]}")


class _Warn(Exception):
    """Ends a check with a warning."""


def check_env(
    env: Any,
    *,
    num_envs: int | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    seed: int = 0,
    steps: int = 1000,
    train: bool = True,
    verbose: bool = True,
    raises: bool = True,
) -> EnvReport:
    """Checks an env as training will use it: spaces, observations, rewards, seeds, autoreset, episodes, speed.

    It plays random actions and prints a list of what passed, of warnings and of errors. An env that is given as an object
    is stepped and is in the middle of an episode afterwards.

    Args:
        env: what :class:`operant.PPO` takes: a Gymnasium env or vector env, a function that makes one, or a name.
        num_envs: how many envs of a registered name are stepped together; 8 if not given.
        env_kwargs: parameters of the env, if it is a name or a function.
        seed: of the episodes and the random actions.
        steps: how many random actions each env is given.
        train: whether to train a few hundred steps with PPO too, for the share of time that the env takes.
        verbose: whether to print the list.
        raises: whether errors raise :class:`CheckedEnvError` after the list is printed. Else look at the report.
    """
    for name, number in (("num_envs", num_envs), ("steps", steps)):
        if number is not None and number < 1:
            raise ValueError(f"{name}={number}: wanted at least 1")
    report = _Checks(env, num_envs, dict(env_kwargs or {}), seed, steps).run(train)
    if verbose:
        print(report)
    if raises and not report.ok:
        raise CheckedEnvError(report)
    return report


class _Checks:
    """The checks of one env, in order."""

    def __init__(
        self, given: Any, num_envs: int | None, env_kwargs: dict[str, Any], seed: int, steps: int
    ) -> None:
        self.given, self.num_envs, self.env_kwargs = given, num_envs, env_kwargs
        self.seed, self.steps = seed, steps
        name = given if isinstance(given, str) else getattr(given, "__name__", type(given).__name__)
        self.report = EnvReport(name)

    def run(self, train: bool) -> EnvReport:
        """Makes every check whose ground has passed."""
        made: list[Any] = []
        if not self._check("made", lambda: self._make(made)):
            return self.report
        env = made[0]
        own = env is not self.given
        try:
            whole = self._vector(env) if isinstance(env, VectorEnv) else self._single(env)
            if whole and train:
                self._check("speed", lambda: self._speed(env))
        finally:
            if own:
                env.close()
        return self.report

    def _check(self, name: str, check: Callable[[], str]) -> bool:
        """Notes what a check came to, and whether it found no error."""
        level: Literal["passed", "warning", "error"] = "passed"
        try:
            text = check()
        except _Warn as warning:
            level, text = "warning", str(warning)
        except Fault as fault:
            level, text = "error", fault.problem
        except Exception as error:
            told = str(error) or "no message"
            level, text = "error", told if type(error) is ValueError else f"{type(error).__name__}: {told}"
        self.report.findings.append(Finding(level, name, text))
        return level != "error"

    # Making

    def _make(self, made: list[Any]) -> str:
        given = self.given
        if isinstance(given, str):
            env = _make_by_name(given, self.num_envs, self.env_kwargs)
        elif isinstance(given, (gymnasium.Env, VectorEnv)):
            env = given
        elif callable(given):
            env = given(**self.env_kwargs)
        else:
            wanted = "a Gymnasium env or vector env, a function that makes one, or a name"
            raise TypeError(f"env is of type {type(given).__name__}; wanted {wanted}")
        if not isinstance(env, (gymnasium.Env, VectorEnv)):
            base = "derive the class from gymnasium.Env"
            raise TypeError(f"a {type(env).__module__}.{type(env).__name__}; wanted a gymnasium.Env: {base}")
        made.append(env)
        self.report.name = _called(env)
        if env is not given and not isinstance(given, str) and isinstance(env, gymnasium.Env):
            another = given(**self.env_kwargs)
            if another is env:
                raise ValueError("the function gave the same env twice; wanted a new one at every call")
            another.close()
        return f"a {'vector env' if isinstance(env, VectorEnv) else 'single env'} of class {type(env.unwrapped).__name__}"

    # One env

    def _single(self, env: gymnasium.Env[Any, Any]) -> bool:
        if not self._check("spaces", lambda: _check_spaces(env.observation_space, env.action_space)):
            return False
        self._check("space details", lambda: _advise_spaces(env.observation_space, env.action_space))
        form, actions = Observations(env.observation_space), Actions(env.action_space)
        trace = _Trace()
        whole = self._check("reset", lambda: _check_reset(env, form, self.seed))
        whole = whole and self._check("actions", lambda: _check_actions(env, actions, form, self.seed))
        whole = whole and self._check("steps", lambda: _play(env, form, actions, self.seed, self.steps, trace))
        if trace.seen:
            self._check("observations in the space", lambda: _check_contained(trace))
            self._check("observations kept", lambda: _check_kept(trace))
            self._check("observation sizes", lambda: _check_sizes(env.observation_space, trace))
            self._check("rewards", lambda: _check_rewards(trace))
            self._check("episodes", lambda: _check_episodes(trace, "TimeLimit"))
        if whole:
            self._check("seeds", lambda: _check_seeds(env, form, actions, self.seed, self.steps))
            self.report.steps_per_second = trace.steps_per_second
        return whole

    # Many envs

    def _vector(self, envs: VectorEnv[Any, Any, Any]) -> bool:
        single = envs.single_observation_space, envs.single_action_space
        if not self._check("spaces", lambda: _check_spaces(*single)):
            return False
        self._check("space details", lambda: _advise_spaces(*single))
        self._check("batched spaces", lambda: _check_batched(envs))
        self._check("autoreset mode", lambda: _check_mode(envs))
        host, trace = HostEnvs(envs), _Trace()
        whole = self._check("reset", lambda: _check_reset_of_all(host, self.seed))
        whole = whole and self._check("autoreset", lambda: _check_autoreset(host, self.seed, self.steps))
        whole = whole and self._check("steps", lambda: _play_all(host, self.seed, self.steps, trace))
        if whole:
            self._check("observation sizes", lambda: _check_sizes(single[0], trace))
            self._check("rewards", lambda: _check_rewards(trace))
            self._check("episodes", lambda: _check_episodes(trace, "time limit"))
            self._check("seeds", lambda: _check_seeds_of_all(host, self.seed, self.steps))
            self.report.steps_per_second = trace.steps_per_second
        return whole

    # Training

    def _speed(self, env: Any) -> str:
        """Trains a little with a clock around the env."""
        from operant.ppo import PPO

        watch = _Watch()
        timed = _TimedVector(env, watch) if isinstance(env, VectorEnv) else _Timed(env, watch)
        count = env.num_envs if isinstance(env, VectorEnv) else 1
        length = max(1, _TRAINED_STEPS // count)
        begun = time.perf_counter()
        PPO(timed, seed=self.seed, num_steps=length).learn(length * count)
        passed = time.perf_counter() - begun
        self.report.env_share = share = watch.seconds / passed
        rate = self.report.steps_per_second
        text = f"{rate:,.0f} steps/s; with PPO's settings for such envs it takes {share:.0%} of training time"
        if share > 0.5:
            several = "a vector env that steps them together" if count > 1 else "AsyncVectorEnv, one process for each env"
            raise _Warn(f"{text}: training waits for the env; make step faster, or use {several}")
        return f"{text}: a faster env would gain little"


def _make_by_name(name: str, num_envs: int | None, env_kwargs: dict[str, Any]) -> Any:
    from operant.model import _is_registered
    from operant.vector import make_vec

    if _is_registered(name):
        return make_vec(name, 8 if num_envs is None else num_envs, **env_kwargs)
    return gymnasium.make(name, **env_kwargs)


def _called(env: Any) -> str:
    spec = getattr(env, "spec", None)
    return spec.id if spec is not None else type(env.unwrapped).__name__


# Spaces


def _check_spaces(observation: Any, action: Any) -> str:
    for name, space in (("observation_space", observation), ("action_space", action)):
        if not isinstance(space, spaces.Space):
            raise TypeError(f"{name} is {space!r}; wanted a space of gymnasium.spaces, set in the env's __init__")
    size, form = Observations(observation).size, Actions(action)
    chosen = f"choices of {form.choices}" if form.choices else f"{len(form.bounds)} real numbers"
    return f"observations {observation}: {size} numbers; actions {action}: {chosen}"


def _advise_spaces(observation: spaces.Space[Any], action: spaces.Space[Any]) -> str:
    if isinstance(action, spaces.Box):
        low, high = np.asarray(action.low, np.float64), np.asarray(action.high, np.float64)
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            raise _Warn("the action space has no bounds; wanted finite ones, best -1 and 1, that the env scales itself")
        if (low != -1).any() or (high != 1).any():
            raise _Warn(
                f"actions go from {low.min():g} to {high.max():g}; a new policy draws about -1 to 1: "
                "scale them in the env, or by gymnasium.wrappers.RescaleAction(env, -1, 1)"
            )
    for path, part in leaves(observation):
        shape = part.shape or ()
        if isinstance(part, spaces.Box) and len(shape) == 3 and part.dtype != np.uint8 and (part.high > 2).any():
            raise _Warn(f"{path} looks like an image of {part.dtype} up to {part.high.max():g}; wanted uint8 of 0 to 255")
        if isinstance(part, spaces.Box) and len(shape) == 3 and part is not observation:
            raise _Warn(f"{path} looks like an image inside a {type(observation).__name__}: it is read as a flat list")
        if isinstance(part, spaces.Box) and (len(shape) == 2 or len(shape) > 3):
            raise _Warn(f"{path} has shape {shape}: it is read as a flat list of {int(np.prod(shape))} numbers")
    return "bounds and shapes are as learning likes them"


# One env


@dataclass
class _Trace:
    """What was seen of an env."""

    seen: list[FloatArray] = field(default_factory=list)
    """The first observations, as many as are compared."""
    most: float = 0.0
    """The largest size of an observation's number."""
    rewards: list[Any] = field(default_factory=list)
    ends: list[Any] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    outside: str | None = None
    overwritten: str | None = None
    seconds: float = 0.0
    played: int = 0

    def see(self, flat: FloatArray) -> None:
        """Notes what was seen after a step."""
        self.most = max(self.most, float(np.abs(flat).max()))
        if len(self.seen) < _REPEATED_STEPS:
            self.seen.append(flat)

    @property
    def steps_per_second(self) -> float:
        return self.played / max(self.seconds, 1e-9)


def _at(step: int, fault: Fault) -> Fault:
    return Fault(None, f"at step {step}: {fault.problem}")


def _check_reset(env: gymnasium.Env[Any, Any], form: Observations, seed: int) -> str:
    try:
        result = env.reset(seed=seed)
        env.reset(options={})
    except TypeError as error:
        if "unexpected keyword" not in str(error):
            raise
        raise Fault(None, f"{error}; wanted reset(self, *, seed=None, options=None)") from error
    form.one(check_reset(result))
    return "gives an observation and a dict, with seed= and options="


def _check_actions(env: gymnasium.Env[Any, Any], actions: Actions, form: Observations, seed: int) -> str:
    """Steps the env once with each choice, or with each edge of what it may be given."""
    rows = _edge_rows(actions)
    for row in rows:
        env.reset(seed=seed)
        action = actions.native(row[np.newaxis])[0]
        try:
            result = env.step(action)
        except Exception as error:
            told = f"{type(error).__name__}: {error}"
            raise Fault(None, f"step({action!r}) raised {told}; wanted every action of {actions.space}") from error
        form.one(check_step(result)[0])
    return f"{len(rows)} actions at the edges of the space are taken"


def _edge_rows(actions: Actions) -> list[npt.NDArray[Any]]:
    if actions.choices is None:
        edges = [[float(np.clip(bound[side], -1e6, 1e6)) for bound in actions.bounds] for side in (0, 1)]
        return [np.array(edge, dtype=np.float32) for edge in edges]
    dims, most = len(actions.choices), max(actions.choices)
    each = range(most) if most <= _MOST_ACTIONS else (0, most // 2, most - 1)
    return [np.array([min(i, n - 1) for n in actions.choices], dtype=np.int64).reshape(dims) for i in each]


def _play(
    env: gymnasium.Env[Any, Any],
    form: Observations,
    actions: Actions,
    seed: int,
    steps: int,
    trace: _Trace,
) -> str:
    """Plays random actions and looks at everything that comes back."""
    rng = np.random.default_rng(seed)
    result = env.reset(seed=seed)
    before, length = check_reset(result), 0
    kept = form.one(before).copy()
    for step in range(1, steps + 1):
        action = actions.native(_random_rows(actions, 1, rng))[0]
        begun = time.perf_counter()
        result = env.step(action)
        trace.seconds += time.perf_counter() - begun
        try:
            observation, reward, terminated, truncated, _ = check_step(result)
            flat = form.one(observation).copy()
            paid = float(numbers(np.asarray(reward).reshape(-1), "the reward")[0])
        except Fault as fault:
            raise _at(step, fault) from None
        if trace.overwritten is None and not np.array_equal(form.one(before), kept):
            trace.overwritten = f"the observation of step {step - 1} changed when step {step} was made"
        trace.outside = trace.outside or _outside(form.space, observation, step)
        trace.see(flat)
        trace.rewards.append(paid)
        trace.ends.append((bool(terminated), bool(truncated)))
        length, trace.played = length + 1, step
        if terminated or truncated:
            trace.lengths.append(length)
            begun = time.perf_counter()
            result = env.reset()
            trace.seconds += time.perf_counter() - begun
            observation, length = check_reset(result), 0
            flat = form.one(observation).copy()
        before, kept = observation, flat
    return f"{steps} random actions: observations of the right shape, finite rewards, flags that are booleans"


def _random_rows(actions: Actions, count: int, rng: np.random.Generator) -> npt.NDArray[Any]:
    if actions.choices is not None:
        return rng.integers(actions.choices, size=(count, len(actions.choices)))
    low, high = (np.clip([bound[side] for bound in actions.bounds], -10, 10) for side in (0, 1))
    return rng.uniform(low, high, size=(count, len(actions.bounds))).astype(np.float32)


def _outside(space: spaces.Space[Any], observation: Any, step: int) -> str | None:
    """Where an observation that can be read is not one of its space."""
    for path, part, value in leaves_of(space, observation):
        if not isinstance(value, (np.ndarray, np.generic)) and not isinstance(part, spaces.Discrete):
            return f"{path} is a {type(value).__name__} at step {step}; wanted a NumPy array of dtype {part.dtype}"
        if part.contains(value):
            continue
        array = np.asarray(value)
        if isinstance(part, spaces.Box):
            bad = (array < part.low) | (array > part.high)
            if bad.any():
                place = np.unravel_index(int(np.flatnonzero(bad)[0]), bad.shape)
                index = [int(i) for i in place] or ""
                limits = f"{part.low[place]:g} to {part.high[place]:g}"
                return f"{path}{index} is {array[place]:g} at step {step}; its space says {limits}"
        if array.dtype != part.dtype:
            return f"{path} has dtype {array.dtype} at step {step}; its space says {part.dtype}"
        return f"{path} is not one of {part} at step {step}"
    return None if space.contains(observation) else f"observation is not one of {space} at step {step}"


def _check_contained(trace: _Trace) -> str:
    if trace.outside:
        raise _Warn(f"{trace.outside}; correct the space, or the observation")
    return "each observation is one of observation_space"


def _check_kept(trace: _Trace) -> str:
    if trace.overwritten:
        raise _Warn(f"{trace.overwritten}; return a copy, since who keeps observations reads wrong ones")
    return "no step changes the observation of the one before"


def _check_sizes(space: spaces.Space[Any], trace: _Trace) -> str:
    most = trace.most
    if most > _LIKELY_SIZE and not (isinstance(space, spaces.Box) and space.dtype == np.uint8):
        raise _Warn(f"observations are as large as {most:g}; scale them, or train with normalize_obs=True")
    return f"at most {most:g}"


def _check_rewards(trace: _Trace) -> str:
    rewards = np.asarray(trace.rewards)
    text = f"from {rewards.min():g} to {rewards.max():g}"
    if not rewards.any():
        raise _Warn(f"all {rewards.size} rewards were 0; random actions may never meet one, and then nothing is learned")
    if np.abs(rewards).max() > _LIKELY_REWARD:
        raise _Warn(f"{text}; scale them, or train with normalize_reward=True")
    return text


def _check_episodes(trace: _Trace, limit: str) -> str:
    if not trace.lengths:
        how = "gymnasium.wrappers.TimeLimit(env, max_episode_steps=…)" if limit == "TimeLimit" else "a time limit"
        raise _Warn(
            f"no episode ended within {len(trace.rewards)} steps; returns are known only when one does: give the env {how}"
        )
    mean, many = np.mean(trace.lengths), len(trace.lengths)
    return f"{many} ended, after {mean:.1f} steps on average"


def _check_seeds(
    env: gymnasium.Env[Any, Any], form: Observations, actions: Actions, seed: int, steps: int
) -> str:
    length = min(steps, _REPEATED_STEPS)
    first, second, other = _Trace(), _Trace(), _Trace()
    _play(env, form, actions, seed, length, first)
    _play(env, form, actions, seed, length, second)
    _compare(first, second)
    begin = [form.one(check_reset(env.reset(seed=seed + i))).copy() for i in range(4)]
    varied = any(not np.array_equal(begin[0], one) for one in begin[1:])
    _play(env, form, actions, seed, length, other)
    again = [form.one(check_reset(env.reset())).copy() for _ in range(4)]
    if varied and all(np.array_equal(again[0], one) for one in again[1:]):
        raise _Warn("every reset without a seed begins alike; call super().reset(seed=seed) and draw from self.np_random")
    return f"the same seed and actions give the same {length} steps"


def _compare(first: _Trace, second: _Trace) -> None:
    advice = "draw all chance from self.np_random after super().reset(seed=seed)"
    for step in range(min(len(first.seen), len(second.seen))):
        for name, one, two in (
            ("observation", first.seen[step], second.seen[step]),
            ("reward", first.rewards[step], second.rewards[step]),
            ("end of the episode", first.ends[step], second.ends[step]),
        ):
            if not np.array_equal(one, two):
                raise ValueError(f"with the same seed and actions, the {name} of step {step + 1} differs; {advice}")


# Vector envs


def _check_batched(envs: VectorEnv[Any, Any, Any]) -> str:
    count = envs.num_envs
    for name, single, whole in (
        ("observation_space", envs.single_observation_space, envs.observation_space),
        ("action_space", envs.single_action_space, envs.action_space),
    ):
        wanted = batch_space(single, count)
        if whole != wanted:
            raise _Warn(f"{name} is {whole}; wanted {wanted}: {count} of single_{name}")
    return f"are those of {count} single envs"


def _check_mode(envs: VectorEnv[Any, Any, Any]) -> str:
    mode = (envs.metadata or {}).get("autoreset_mode")
    if mode is None:
        raise _Warn('metadata has no "autoreset_mode"; NEXT_STEP is taken: say which of AutoresetMode it is')
    return f"{AutoresetMode(mode).name}, as metadata says"


def _check_reset_of_all(host: HostEnvs, seed: int) -> str:
    first = host.reset(seed).copy()
    if host.num_envs > 1 and all(np.array_equal(first[0], row) for row in first[1:]):
        others = (host.reset(seed + 1 + i) for i in range(3))
        if any(not np.array_equal(first, other) for other in others):
            raise _Warn("all envs begin alike under one seed; give env i the seed plus i, or all play the same episodes")
    return f"begins {host.num_envs} episodes"


def _check_autoreset(host: HostEnvs, seed: int, steps: int) -> str:
    """Looks at what follows the first episodes that end, as the envs themselves give it."""
    envs, rng = host.envs, np.random.default_rng(seed)
    mode = AutoresetMode((envs.metadata or {}).get("autoreset_mode", AutoresetMode.NEXT_STEP))
    envs.reset(seed=seed)
    before = np.zeros(host.num_envs, dtype=np.bool_)
    seen = 0
    for step in range(1, steps + 1):
        rows = _random_rows(host.actions, host.num_envs, rng)
        _, rewards, ends, cuts, infos = five(envs.step(host.actions.native(rows)))
        ended = np.asarray(ends, dtype=np.bool_) | np.asarray(cuts, dtype=np.bool_)
        final = "final_obs" in infos or "final_observation" in infos
        if mode is AutoresetMode.NEXT_STEP and before.any():
            bad = before & (ended | (np.asarray(rewards) != 0))
            if bad.any():
                env = int(np.flatnonzero(bad)[0])
                raise ValueError(
                    f"env {env} ended at step {step - 1} and step {step} gave reward {rewards[env]:g}; in NEXT_STEP that step "
                    'only resets, with reward 0: say AutoresetMode.SAME_STEP in metadata["autoreset_mode"] if that is it'
                )
        if ended.any():
            seen += 1
            if mode is AutoresetMode.SAME_STEP and not final:
                raise ValueError(
                    f'an episode ended at step {step} and infos has no "final_obs"; wanted the last observations there, '
                    "which SAME_STEP promises"
                )
            if mode is AutoresetMode.NEXT_STEP and final:
                raise ValueError(
                    f'infos has "final_obs" at step {step}, as in SAME_STEP, and metadata says NEXT_STEP; correct one of them'
                )
            if mode is AutoresetMode.DISABLED:
                envs.reset(options={"reset_mask": ended})
        if seen > 3:
            break
        before = ended & ~before if mode is AutoresetMode.NEXT_STEP else ended
    if not seen:
        raise _Warn(f"no episode ended within {steps} steps, so {mode.name} was not tried")
    return f"episodes go on as {mode.name} says"


def _play_all(host: HostEnvs, seed: int, steps: int, trace: _Trace) -> str:
    rng = np.random.default_rng(seed)
    host.reset(seed)
    lengths = np.zeros(host.num_envs, dtype=np.int64)
    for _ in range(steps):
        rows = _random_rows(host.actions, host.num_envs, rng)
        begun = time.perf_counter()
        seen, rewards, terminated, truncated, _, resets = host.step(rows)
        trace.seconds += time.perf_counter() - begun
        trace.see(seen.copy())
        trace.rewards.append(rewards.copy())
        trace.ends.append((terminated.tolist(), truncated.tolist()))
        trace.played += host.num_envs
        lengths += 1 if resets is None else ~resets
        for env in np.flatnonzero(terminated | truncated):
            if lengths[env]:
                trace.lengths.append(int(lengths[env]))
            lengths[env] = 0
    return f"{steps} steps of {host.num_envs} envs: observations of the right shape, finite rewards, flags that are booleans"


def _check_seeds_of_all(host: HostEnvs, seed: int, steps: int) -> str:
    first, second = _Trace(), _Trace()
    length = min(steps, _REPEATED_STEPS)
    for trace in (first, second):
        _play_all(host, seed, length, trace)
    _compare(first, second)
    return f"the same seed and actions give the same {length} steps"


# The clock


class _Watch:
    seconds = 0.0


class _Timed(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An env with a clock around it."""

    def __init__(self, env: gymnasium.Env[Any, Any], watch: _Watch) -> None:
        super().__init__(env)
        self._watch = watch

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode."""
        begun = time.perf_counter()
        result = self.env.reset(seed=seed, options=options)
        self._watch.seconds += time.perf_counter() - begun
        return result

    def step(self, action: Any) -> Any:
        """One step."""
        begun = time.perf_counter()
        result = self.env.step(action)
        self._watch.seconds += time.perf_counter() - begun
        return result


# Older releases of Gymnasium have no generic class here.
_VectorWrapper: Any = gymnasium.vector.VectorWrapper


class _TimedVector(_VectorWrapper):  # type: ignore[misc]
    """A vector env with a clock around it."""

    def __init__(self, envs: VectorEnv[Any, Any, Any], watch: _Watch) -> None:
        super().__init__(envs)
        self._watch = watch

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins episodes."""
        begun = time.perf_counter()
        result = self.env.reset(seed=seed, options=options)
        self._watch.seconds += time.perf_counter() - begun
        return result

    def step(self, actions: Any) -> Any:
        """One step of all envs."""
        begun = time.perf_counter()
        result = self.env.step(actions)
        self._watch.seconds += time.perf_counter() - begun
        return result
