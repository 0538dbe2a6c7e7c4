"""Environments that the user brings: Gymnasium's spaces as flat arrays, its autoreset modes as one.

The engine trains on flat observations and expects an env to begin anew within the step that ends an episode. This is
how the modes of ``metadata["autoreset_mode"]`` come to that:

- ``SAME_STEP``: as it is; the last observation is ``infos["final_obs"]``.
- ``DISABLED``: the envs that ended are reset at once by ``reset(options={"reset_mask": ended})``.
- ``NEXT_STEP``: the same where the vector env is Gymnasium's own, which honours the mask in this mode too, so that no
  step is lost. Other vector envs reset in the next step, whose action they ignore. That step then is an episode of its
  own which counts nowhere: from the last observation, with reward 0, truncated there. Its advantage is −(1 − γ) times
  the value of that observation, so that next to nothing is learned from it.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from operant import _operant
from operant.observations import Fault, FloatArray, Observations, leaves_of, numbers

__all__ = ["Actions", "Fault", "HostEnvs", "Observations", "describe_space", "open_envs", "play", "space_of"]

Played = tuple[list[float], list[int]]


class Actions:
    """Actions of a space as rows of choices or of real numbers."""

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.space = space
        self.choices: list[int] | None = None
        self.bounds: list[tuple[float, float]] = []
        if isinstance(space, spaces.Discrete):
            self.choices = [int(space.n)]
        elif isinstance(space, spaces.MultiDiscrete):
            self.choices = [int(n) for n in space.nvec.reshape(-1)]
        elif isinstance(space, spaces.MultiBinary):
            self.choices = [2] * int(np.prod(space.shape))
        elif isinstance(space, spaces.Box):
            low, high = (np.asarray(edge, dtype=np.float32).reshape(-1) for edge in (space.low, space.high))
            self.bounds = [(float(a), float(b)) for a, b in zip(low, high, strict=True)]
        else:
            raise ValueError(f"action space {space}: wanted Discrete, MultiDiscrete, MultiBinary or Box; wrap the env")

    def native(self, actions: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """N actions as the space has them, from rows; real numbers are clipped to the bounds."""
        space = self.space
        if isinstance(space, spaces.Discrete):
            chosen: npt.NDArray[Any] = actions[:, 0] + space.start
            return chosen
        shaped: npt.NDArray[Any] = actions.reshape(len(actions), *(space.shape or ()))
        if isinstance(space, spaces.MultiDiscrete):
            chosen = shaped + getattr(space, "start", 0)
            return chosen.astype(space.dtype)
        if isinstance(space, spaces.Box):
            clipped: npt.NDArray[Any] = np.clip(shaped, space.low, space.high)
            if np.issubdtype(np.dtype(space.dtype), np.integer):
                clipped = np.rint(clipped)
            return clipped.astype(space.dtype)
        return shaped.astype(space.dtype)


class HostEnvs:
    """A vector env of Gymnasium as the engine steps it. What can't be learned from is refused by env, step and name."""

    def __init__(self, envs: VectorEnv[Any, Any, Any]) -> None:
        self.envs = envs
        self.num_envs = int(envs.num_envs)
        self.observations = Observations(envs.single_observation_space)
        self.actions = Actions(envs.single_action_space)
        self.obs_size = self.observations.size
        self.image = self.observations.image
        self.choices = self.actions.choices
        self.bounds = self.actions.bounds
        self.name = f"gymnasium/{_name(envs)}"
        threshold = getattr(envs.spec, "reward_threshold", None)
        self.solved_at = None if threshold is None else float(threshold)
        mode = (envs.metadata or {}).get("autoreset_mode", AutoresetMode.NEXT_STEP)
        self._mode = AutoresetMode(mode)
        self._resets_by_mask = self._mode is AutoresetMode.DISABLED or _honours_mask(envs.unwrapped)
        # Where the next step only resets, and what was seen before it.
        self._resets = np.zeros(self.num_envs, dtype=np.bool_)
        try:
            self._seen = np.zeros((self.num_envs, self.obs_size), dtype=np.float32)
        except MemoryError:
            sizes = f"observations of {self.num_envs} envs, {self.obs_size} numbers each"
            next_step = "lower num_envs, or wrap the env so that it shows fewer numbers"
            raise ValueError(f"{sizes}, do not fit in memory; {next_step}") from None
        # Steps of each env, and how many there were when its episode began.
        self._steps = 0
        self._begun = np.zeros(self.num_envs, dtype=np.int64)
        # What is asked of the envs now.
        self._call = "reset"

    def reset(self, seed: int | None) -> FloatArray:
        """Begins an episode in every env."""
        self._call = "reset"
        try:
            observations = check_reset(self.envs.reset(seed=seed))
            self._resets[:] = False
            self._begun[:] = self._steps
            self._seen = self.observations.batch(observations, self.num_envs).copy()
        except Exception as error:
            self._explain(error)
            raise
        return self._seen

    def step(self, rows: npt.NDArray[Any]) -> tuple[Any, ...]:
        """Observations, rewards, terminated, truncated, last observations of ended episodes, where it only reset."""
        self._call = "step"
        try:
            return self._step(rows)
        except Exception as error:
            self._explain(error, rows)
            raise

    def _step(self, rows: npt.NDArray[Any]) -> tuple[Any, ...]:
        count = self.num_envs
        self._steps += 1
        observations, paid, ends, cuts, infos = five(self.envs.step(self.actions.native(rows)))
        seen = self._stepped(observations, ends, cuts)
        terminated, truncated = _flags(ends, count, "terminated"), _flags(cuts, count, "truncated")
        ended = terminated | truncated
        if self._mode is not AutoresetMode.SAME_STEP and not self._resets_by_mask:
            resets, before = self._resets, self._seen
            rewards = _rewards(paid, count, resets)
            self._resets, self._seen = ended & ~resets, seen.copy()
            self._begun[resets] = self._steps
            last = np.where(resets[:, np.newaxis], before, seen)
            return seen, rewards, terminated & ~resets, truncated | resets, last, resets
        rewards = _rewards(paid, count)
        if not ended.any():
            return seen, rewards, terminated, truncated, None, None
        if self._mode is AutoresetMode.SAME_STEP:
            last = self._final(infos, ended)
        else:
            last = seen.copy()
            self._call = "reset"
            observations = check_reset(self.envs.reset(options={"reset_mask": ended}))
            seen = self.observations.batch(observations, count)
        self._begun[ended] = self._steps
        return seen, rewards, terminated, truncated, last, None

    def _stepped(self, observations: Any, ends: Any, cuts: Any) -> FloatArray:
        """The observations of a step, of which some may be those of a reset that it made."""
        try:
            return self.observations.batch(observations, self.num_envs)
        except Fault as fault:
            if fault.row is not None:
                same = self._mode is AutoresetMode.SAME_STEP
                over = [np.ravel(flags)[fault.row : fault.row + 1].any() for flags in (ends, cuts)]
                fault.at_reset = any(over) if same else bool(self._resets[fault.row])
            raise

    def _final(self, infos: Mapping[str, Any], ended: npt.NDArray[np.bool_]) -> FloatArray:
        key = next((key for key in ("final_obs", "final_observation") if key in infos), None)
        if key is None:
            raise ValueError('an episode ended and infos has no "final_obs", which SAME_STEP autoreset promises')
        final = infos[key]
        last, which = np.zeros((self.num_envs, self.obs_size), dtype=np.float32), np.flatnonzero(ended)
        at = 0
        try:
            # Where no episode ended there may be anything.
            if isinstance(final, np.ndarray) and final.dtype == object:
                for at, env in enumerate(which):
                    last[env] = self.observations.one(final[env])
            else:
                last[which] = self.observations.batch(_rows(final, which), len(which))
        except Fault as fault:
            row = int(which[at if fault.row is None else fault.row])
            raise Fault(row, f"the last {fault.problem}") from None
        return last

    def _explain(self, error: Exception, rows: npt.NDArray[Any] | None = None) -> None:
        """Raises an error that names env, step and what is wrong, if that can be told."""
        if rows is not None and rows.dtype.kind == "f" and not np.isfinite(rows).all():
            env = int(np.flatnonzero(~np.isfinite(rows).all(axis=1))[0])
            text = f"{self.name}, env {env}, at step {self._steps}: the policy's action is {rows[env].tolist()}"
            raise ValueError(f"{text}; training diverged before: lower the learning rate") from error
        # Gymnasium puts observations side by side before anyone else has seen them.
        alone = self._fault_of_one(error)
        if isinstance(error, Fault):
            # And rounds them to the dtype of their space.
            exact = alone is not None and alone.row == error.row and error.problem.startswith("observation")
            if exact and alone is not None:
                error.problem = alone.problem
            self._refuse(error)
        fault = alone or _fault_of_call(error, self._in_hand(error))
        if fault is not None:
            self._refuse(fault, error)

    def _refuse(self, fault: Fault, cause: Exception | None = None) -> NoReturn:
        env = "an env" if fault.row is None else f"env {fault.row}"
        if self._call == "reset" or fault.at_reset:
            when = "at reset" if self._steps == 0 else f"at reset, after step {self._steps}"
        elif fault.row is None or fault.row >= self.num_envs:
            when = f"at step {self._steps}"
        else:
            begun = int(self._begun[fault.row])
            when = f"at step {self._steps}" + (f" (step {self._steps - begun} of its episode)" if begun else "")
        text = f"{self.name}, {env}, {when}: {fault.problem}; operant.check_env(env) looks at the whole env"
        raise ValueError(text) from cause

    def _fault_of_one(self, error: Exception) -> Fault | None:
        """What is wrong with the observation of an env that Gymnasium stepped alone."""
        envs = self.envs.unwrapped
        if getattr(envs, "single_observation_space", None) != self.observations.space:
            # A wrapper of all of them shows something else.
            return None
        names = (frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__))
        together = any(name.startswith("_concatenate") for name in names)
        for env, observation in enumerate(getattr(envs, "_env_obs", ())):
            problem = self._problem(observation, together)
            if problem is not None:
                flags = [getattr(envs, name, np.zeros(0)) for name in ("_terminations", "_truncations")]
                begun = self._mode is AutoresetMode.SAME_STEP and any(each[env : env + 1].any() for each in flags)
                return Fault(env, problem, at_reset=begun)
        return None

    def _problem(self, observation: Any, together: bool) -> str | None:
        """What is wrong with one observation; `together` says that it could not be put beside others."""
        if observation is None:
            # Before the first reset there is none.
            return _NO_OBSERVATION if together else None
        try:
            self.observations.one(observation)
        except Fault as fault:
            return fault.problem
        for name, space, value in leaves_of(self.observations.space, observation) if together else ():
            dtype = np.asarray(value).dtype
            if not np.can_cast(dtype, space.dtype, "same_kind"):
                return f"{name} is of dtype {dtype}; wanted {space.dtype}, that of its space"
        return None

    def _in_hand(self, error: Exception) -> int | None:
        """The env that Gymnasium had before it when it failed, where it takes one after another."""
        envs = self.envs.unwrapped
        if not isinstance(envs, SyncVectorEnv):
            return None
        frames = (frame.f_locals for frame, _ in traceback.walk_tb(error.__traceback__))
        found = [names["i"] for names in frames if names.get("self") is envs and isinstance(names.get("i"), int)]
        return found[-1] if found else None


def _rows(values: Any, which: npt.NDArray[np.int64]) -> Any:
    """Some rows of observations that lie side by side."""
    if isinstance(values, Mapping):
        return {key: _rows(part, which) for key, part in values.items()}
    return tuple(_rows(part, which) for part in values) if isinstance(values, tuple) else values[which]


def five(result: Any) -> tuple[Any, ...]:
    """What a step gave, in five parts."""
    if isinstance(result, tuple) and len(result) == 5:
        return result
    what = f"{len(result)} values" if isinstance(result, tuple) else f"a {type(result).__name__}"
    raise Fault(None, _FIVE.format(what))


def check_reset(result: Any) -> Any:
    """The observation of a reset."""
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], Mapping):
        what = f"{len(result)} values" if isinstance(result, tuple) else f"a {type(result).__name__}"
        raise Fault(None, _PAIR.format(what), at_reset=True)
    if result[0] is None:
        raise Fault(None, _NO_OBSERVATION, at_reset=True)
    return result[0]


_NO_OBSERVATION = "the observation is None; wanted one of the observation space"
_FIVE = (
    "step returned {}; wanted five: observation, reward, terminated, truncated, info. Gym's old `done` is now "
    "`terminated` (the episode came to its end) or `truncated` (it was cut short, as by a time limit)"
)
_PAIR = "reset returned {}; wanted two: observation, info"


_FAILURES = (
    (r"could not convert string to float: (.*)", "the reward is {}; wanted a number"),
    (r"float\(\) argument must be a string or a real number, not '(.*)'", "the reward is of type {}; wanted a number"),
    (r"setting an array element with a sequence", "the reward is an array or a list; wanted a number"),
    (r"[Tt]he truth value of an array", "terminated or truncated is an array; wanted True or False"),
    (r"'(.*)' object has no attribute 'items'", "info is of type {}; wanted a dict"),
)
"""Words in which Gymnasium's vector envs and NumPy fail over what an env returned, and what they mean."""


def _fault_of_call(error: Exception, env: int | None) -> Fault | None:
    """What an env returned too many or too few of, or of another type, as Gymnasium's vector envs fail over it."""
    text = str(error)
    if "reset() got an unexpected keyword argument" in text:
        return Fault(env, f"{text}; wanted reset(self, *, seed=None, options=None)", at_reset=True)
    if not _is_raised_in_a_library(error):
        return None
    if text.startswith("Cannot cast array data from dtype("):
        got, space = text.split("'")[1::2][:2]
        return Fault(None, f"an observation is of dtype {got}; wanted {space}, that of its space")
    # A whole number in an observation fails in other words.
    if isinstance(error, OverflowError) and "convert to float" in text:
        return Fault(env, "the reward is too large; wanted a finite number of at most 1e18 in size")
    for wanted, message in (("5", _FIVE), ("2", _PAIR)):
        if f"values to unpack (expected {wanted}" in text:
            got = text.partition("got ")[2].rstrip(")")
            problem = message.format(f"{got} values" if got else f"other than {wanted} values")
            return Fault(env, problem, at_reset=message is _PAIR)
    if env is None or not _is_raised_in_a_library(error, "gymnasium.vector"):
        return None
    matches = ((re.match(words, text), message) for words, message in _FAILURES)
    return next((Fault(env, message.format(*found.groups())) for found, message in matches if found), None)


def _is_raised_in_a_library(error: Exception, *parts: str) -> bool:
    """Whether the line that failed is Gymnasium's or ours, or of these parts of them, or one of NumPy's that they called.

    An env may fail in the same words over something else.
    """
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    modules = [str(frame.f_globals.get("__name__", "")) + "." for frame in frames]
    callers = [module for module in modules if not module.startswith("numpy.")]
    return bool(callers) and callers[-1].startswith(tuple(f"{part}." for part in parts or ("gymnasium", "operant")))


def _rewards(values: Any, count: int, resets: npt.NDArray[np.bool_] | None = None) -> FloatArray:
    """Rewards of N envs: 0 where the step only reset, whatever is there."""
    array = np.asarray(values)
    if array.size != count:
        raise Fault(None, f"the reward has shape {array.shape}; wanted {(count,)}, one for each env")
    if resets is not None:
        array = np.where(resets, 0, array.reshape(count))
    if array.dtype.kind not in "biuf":
        for env, one in enumerate(array.reshape(-1)):
            _check_reward(one, env)
        array = array.astype(np.float64)
    return numbers(array.reshape(count), "the reward")


def _flags(values: Any, count: int, name: str) -> npt.NDArray[np.bool_]:
    array = np.asarray(values)
    if array.size != count:
        raise Fault(None, f"{name} has shape {array.shape}; wanted {(count,)}, one for each env")
    array = array.reshape(count)
    if array.dtype != np.bool_:
        for env, one in enumerate(array):
            _check_flag(one, name, env)
    return np.ascontiguousarray(array, dtype=np.bool_)


_PLAIN_REWARDS = frozenset((float, int, bool, np.float32, np.float64, np.int64))
_PLAIN_FLAGS = frozenset((bool, np.bool_))


def _check_reward(reward: Any, env: int | None = None) -> None:
    number = isinstance(reward, (int, float, np.number, np.bool_))
    if not number and not (isinstance(reward, np.ndarray) and reward.size == 1 and reward.dtype.kind in "biuf"):
        raise Fault(env, f"the reward is {_short(reward)}; wanted a number")


def _check_flag(flag: Any, name: str, env: int | None = None) -> None:
    if isinstance(flag, np.bool_):
        return
    plain = flag.item() if isinstance(flag, (np.generic, np.ndarray)) and np.size(flag) == 1 else flag
    if not isinstance(plain, int) or plain not in (0, 1):
        raise Fault(env, f"{name} is {_short(flag)}; wanted True or False")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


class Checked(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An env whose calls return what Gymnasium's vector envs take for granted."""

    def __init__(self, env: gymnasium.Env[Any, Any], number: int) -> None:
        super().__init__(env)
        self._number = number

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode."""
        result = self.env.reset(seed=seed, options=options)
        try:
            check_reset(result)
        except Fault as fault:
            raise Fault(self._number, fault.problem, at_reset=True) from None
        return result

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step."""
        result = self.env.step(action)
        try:
            return check_step(result)
        except Fault as fault:
            raise Fault(self._number, fault.problem) from None


def check_step(result: Any) -> tuple[Any, Any, Any, Any, Any]:
    """The result of a step of one env, with plain numbers for arrays of one; refuses anything else. Sizes are looked at later."""
    observation, reward, terminated, truncated, info = five(result)
    # Almost every step is one of these, and is through at once.
    if (
        type(reward) in _PLAIN_REWARDS
        and type(terminated) in _PLAIN_FLAGS
        and type(truncated) in _PLAIN_FLAGS
        and type(info) is dict
        and observation is not None
    ):
        return observation, reward, terminated, truncated, info
    if observation is None:
        raise Fault(None, _NO_OBSERVATION)
    _check_reward(reward)
    _check_flag(terminated, "terminated")
    _check_flag(truncated, "truncated")
    if not isinstance(info, Mapping):
        raise Fault(None, f"info is {_short(info)}; wanted a dict")
    reward, terminated, truncated = (
        one.item() if isinstance(one, np.ndarray) else one for one in (reward, terminated, truncated)
    )
    return observation, reward, terminated, truncated, info


def _honours_mask(envs: VectorEnv[Any, Any, Any]) -> bool:
    """Whether a reset by mask also takes back the reset that the next step would make."""
    # Without shared memory, workers of AsyncVectorEnv reset a second time.
    return type(envs) is SyncVectorEnv or (type(envs) is AsyncVectorEnv and bool(envs.shared_memory))


def _name(envs: VectorEnv[Any, Any, Any]) -> str:
    if envs.spec is not None:
        return envs.spec.id
    inner = envs.unwrapped
    first = inner.envs[0].unwrapped if isinstance(inner, SyncVectorEnv) else inner
    return type(first).__name__


def open_envs(
    env: Any, num_envs: int | None, env_kwargs: Mapping[str, Any]
) -> tuple[HostEnvs, Callable[[int], HostEnvs] | None]:
    """The envs behind what a user gave, and how to make others like them where that is known."""
    if isinstance(env, VectorEnv):
        _no_options(env_kwargs)
        if num_envs not in (None, env.num_envs):
            raise ValueError(f"num_envs = {num_envs}: the vector env has {env.num_envs}")
        return HostEnvs(env), None
    if isinstance(env, gymnasium.Env):
        _no_options(env_kwargs)
        if num_envs not in (None, 1):
            raise ValueError(f"num_envs = {num_envs} of one env: wanted a function that makes envs, or a vector env")
        return HostEnvs(_together([lambda: env])), None
    if isinstance(env, str):

        def make() -> gymnasium.Env[Any, Any]:
            return gymnasium.make(env, **env_kwargs)

    elif callable(env):

        def make() -> gymnasium.Env[Any, Any]:
            made: gymnasium.Env[Any, Any] = env(**env_kwargs)
            return made

    else:
        wanted = "a name, a Gymnasium env, a vector env, or a function that makes envs"
        raise TypeError(f"env is of type {type(env).__name__}: wanted {wanted}")
    first = make()
    if isinstance(first, VectorEnv):
        return open_envs(first, num_envs, {})[0], None
    if not isinstance(first, gymnasium.Env):
        raise TypeError(f"the function made a {type(first).__name__}: wanted a gymnasium.Env")
    made = [first] + [make() for _ in range((num_envs or 1) - 1)]
    if len({id(one) for one in made}) < len(made):
        raise ValueError("the function gave the same env twice: wanted a new one at every call")
    envs = HostEnvs(_together([lambda one=one: one for one in made]))  # type: ignore[misc]
    return envs, lambda count: HostEnvs(_together([make] * count))


def apart(envs: HostEnvs, make: Callable[[int], HostEnvs]) -> Callable[[int], HostEnvs | None]:
    """Makes further envs, or None where they would share one with those that there are."""

    def more(count: int) -> HostEnvs | None:
        made = make(count)
        inner = [[id(one.unwrapped) for one in some.envs.unwrapped.envs] for some in (envs, made)]
        return None if set(inner[0]) & set(inner[1]) or len(set(inner[1])) < count else made

    return more


def _together(makers: list[Callable[[], gymnasium.Env[Any, Any]]]) -> SyncVectorEnv:
    def checked(number: int, make: Callable[[], gymnasium.Env[Any, Any]]) -> Callable[[], gymnasium.Env[Any, Any]]:
        return lambda: Checked(make(), number)

    checks = [checked(number, make) for number, make in enumerate(makers)]
    return SyncVectorEnv(checks, autoreset_mode=AutoresetMode.SAME_STEP)


def _no_options(env_kwargs: Mapping[str, Any]) -> None:
    if env_kwargs:
        raise ValueError(f"env_kwargs {sorted(env_kwargs)} for an env that is made already: wanted none")


def play(envs: HostEnvs, actor: _operant.Actor, *, episodes: int, deterministic: bool, seed: int) -> Played:
    """Returns and lengths of whole episodes; every env plays the same number, or one more."""
    count = envs.num_envs
    quota = np.full(count, episodes // count) + (np.arange(count) < episodes % count)
    returned, elapsed = np.zeros(count), np.zeros(count, dtype=np.int64)
    played: list[list[tuple[float, int]]] = [[] for _ in range(count)]
    seen, state = envs.reset(seed), None
    while any(len(done) < wanted for done, wanted in zip(played, quota, strict=True)):
        actions, state = actor.act(seen, deterministic, None, state)
        seen, rewards, terminated, truncated, _, resets = envs.step(actions)
        counts = np.ones(count, dtype=np.bool_) if resets is None else ~resets
        returned += np.where(counts, rewards, 0)
        elapsed += counts
        for env in np.flatnonzero(terminated | truncated):
            if elapsed[env] and len(played[env]) < quota[env]:
                played[env].append((float(returned[env]), int(elapsed[env])))
            returned[env], elapsed[env] = 0.0, 0
            for part in state:
                part[env] = 0.0
    flat = [episode for done in played for episode in done]
    return [one[0] for one in flat], [one[1] for one in flat]


def describe_space(space: spaces.Space[Any]) -> dict[str, Any]:
    """A space in JSON, to be kept beside a policy."""
    if isinstance(space, spaces.Dict):
        return {"kind": "dict", "parts": [[key, describe_space(part)] for key, part in space.spaces.items()]}
    if isinstance(space, spaces.Tuple):
        return {"kind": "tuple", "parts": [describe_space(part) for part in space.spaces]}
    if isinstance(space, spaces.Discrete):
        return {"kind": "discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        start = np.broadcast_to(getattr(space, "start", 0), space.nvec.shape)
        return {"kind": "multi_discrete", "nvec": space.nvec.tolist(), "start": start.tolist()}
    if isinstance(space, spaces.MultiBinary):
        return {"kind": "multi_binary", "shape": list(space.shape)}
    assert isinstance(space, spaces.Box)
    edges = [
        edge.reshape(-1)[0].item() if (edge == edge.reshape(-1)[0]).all() else edge.tolist()
        for edge in (space.low, space.high)
    ]
    return {"kind": "box", "low": edges[0], "high": edges[1], "shape": list(space.shape), "dtype": str(space.dtype)}


def space_of(description: Mapping[str, Any]) -> spaces.Space[Any]:
    """The space that :func:`describe_space` described."""
    kind = description["kind"]
    if kind == "dict":
        return spaces.Dict([(key, space_of(part)) for key, part in description["parts"]])
    if kind == "tuple":
        return spaces.Tuple([space_of(part) for part in description["parts"]])
    if kind == "discrete":
        return spaces.Discrete(description["n"], start=description["start"])
    if kind == "multi_discrete":
        return spaces.MultiDiscrete(description["nvec"], start=description["start"])
    if kind == "multi_binary":
        return spaces.MultiBinary(description["shape"])
    dtype = np.dtype(description["dtype"])
    shape = tuple(description["shape"])
    low, high = (np.broadcast_to(np.asarray(description[edge], dtype=dtype), shape) for edge in ("low", "high"))
    return spaces.Box(low, high, shape=shape, dtype=dtype.type)
