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

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.spaces.utils import flatdim
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from operant import _operant

FloatArray = npt.NDArray[np.float32]
Played = tuple[list[float], list[int]]


class Observations:
    """Observations of a space as flat numbers, in the order of ``gymnasium.spaces.utils.flatten``."""

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.space = space
        _check_observation(space)
        self.size = int(flatdim(space))
        if self.size == 0:
            raise ValueError(f"observation space {space} has no numbers; wanted at least 1")
        self.image = _image(space)

    def batch(self, observations: Any, count: int) -> FloatArray:
        """``[N, size]`` of N observations side by side."""
        return np.ascontiguousarray(_flatten(self.space, observations, count), dtype=np.float32)

    def one(self, observation: Any) -> FloatArray:
        """``[size]`` of one observation."""
        flat = np.asarray(spaces.utils.flatten(self.space, observation), dtype=np.float32)
        return flat.reshape(self.size)

    def rows(self, observations: Any) -> tuple[FloatArray, bool]:
        """``[N, size]`` of one observation or of several, and whether there are several."""
        space, leaf = self.space, observations
        while isinstance(space, (spaces.Dict, spaces.Tuple)):
            key: Any = next(iter(space.spaces)) if isinstance(space, spaces.Dict) else 0
            space, leaf = space.spaces[key], leaf[key]
        shape, wanted = np.shape(leaf), tuple(space.shape or ())
        if shape == wanted:
            return _flatten(self.space, _batch_of_one(self.space, observations), 1), False
        if len(shape) == len(wanted) + 1 and shape[1:] == wanted:
            return _flatten(self.space, observations, shape[0]), True
        raise ValueError(f"observations of shape {shape}, wanted {wanted} or {('N', *wanted)}")


def _image(space: spaces.Space[Any]) -> tuple[int, int, int, bool, bool] | None:
    """Height, width, channels, whether channels come first and whether numbers are bytes, for a Box of rank 3.

    The shorter of the first and the last axis is that of channels; of two as long it is the last.
    """
    if not isinstance(space, spaces.Box) or len(space.shape) != 3:
        return None
    first, middle, last = (int(size) for size in space.shape)
    is_bytes = np.dtype(space.dtype) == np.uint8
    if first < last:
        return middle, last, first, True, is_bytes
    return first, middle, last, False, is_bytes


def _check_observation(space: spaces.Space[Any]) -> None:
    if isinstance(space, spaces.Dict):
        for part in space.spaces.values():
            _check_observation(part)
    elif isinstance(space, spaces.Tuple):
        for part in space.spaces:
            _check_observation(part)
    elif not isinstance(space, (spaces.Box, spaces.Discrete, spaces.MultiBinary, spaces.MultiDiscrete)):
        kinds = "Box, Discrete, MultiDiscrete, MultiBinary, or Dict and Tuple of them"
        raise ValueError(f"observation space {space}: wanted {kinds}; wrap the env so that it gives one")


def _flatten(space: spaces.Space[Any], values: Any, count: int) -> FloatArray:
    if isinstance(space, spaces.Dict):
        return np.concatenate([_flatten(part, values[key], count) for key, part in space.spaces.items()], axis=1)
    if isinstance(space, spaces.Tuple):
        parts = zip(space.spaces, values, strict=True)
        return np.concatenate([_flatten(part, value, count) for part, value in parts], axis=1)
    if isinstance(space, spaces.Discrete):
        return _one_hot(np.asarray(values).reshape(count, 1) - space.start, np.array([space.n]))
    if isinstance(space, spaces.MultiDiscrete):
        start = np.asarray(getattr(space, "start", 0))
        return _one_hot((np.asarray(values) - start).reshape(count, -1), space.nvec.reshape(-1))
    return np.ascontiguousarray(values, dtype=np.float32).reshape(count, -1)


def _one_hot(choices: npt.NDArray[Any], sizes: npt.NDArray[Any]) -> FloatArray:
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    flat = np.zeros((len(choices), int(sizes.sum())), dtype=np.float32)
    np.put_along_axis(flat, (choices + first).astype(np.int64), 1.0, axis=1)
    return flat


def _batch_of_one(space: spaces.Space[Any], value: Any) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _batch_of_one(part, value[key]) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_batch_of_one(part, one) for part, one in zip(space.spaces, value, strict=True))
    return np.asarray(value)[np.newaxis]


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
    """A vector env of Gymnasium as the engine steps it."""

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
        self._seen = np.zeros((self.num_envs, self.obs_size), dtype=np.float32)

    def reset(self, seed: int | None) -> FloatArray:
        """Begins an episode in every env."""
        observations, _ = self.envs.reset(seed=seed)
        self._resets[:] = False
        self._seen = self.observations.batch(observations, self.num_envs).copy()
        return self._seen

    def step(self, rows: npt.NDArray[Any]) -> tuple[Any, ...]:
        """Observations, rewards, terminated, truncated, last observations of ended episodes, where it only reset."""
        count = self.num_envs
        observations, rewards, ends, cuts, infos = self.envs.step(self.actions.native(rows))
        seen = self.observations.batch(observations, count)
        rewards = np.ascontiguousarray(rewards, dtype=np.float32).reshape(count)
        terminated = np.ascontiguousarray(ends, dtype=np.bool_).reshape(count)
        truncated = np.ascontiguousarray(cuts, dtype=np.bool_).reshape(count)
        ended = terminated | truncated
        if self._mode is AutoresetMode.SAME_STEP:
            last = self._final(infos, ended) if ended.any() else None
            return seen, rewards, terminated, truncated, last, None
        if self._resets_by_mask:
            if not ended.any():
                return seen, rewards, terminated, truncated, None, None
            last = seen.copy()
            observations, _ = self.envs.reset(options={"reset_mask": ended})
            seen = self.observations.batch(observations, count)
            return seen, rewards, terminated, truncated, last, None
        resets, before = self._resets, self._seen
        self._resets, self._seen = ended & ~resets, seen.copy()
        last = np.where(resets[:, np.newaxis], before, seen)
        rewards = np.where(resets, np.float32(0), rewards)
        return seen, rewards, terminated & ~resets, truncated | resets, last, resets

    def _final(self, infos: Mapping[str, Any], ended: npt.NDArray[np.bool_]) -> FloatArray:
        key = next((key for key in ("final_obs", "final_observation") if key in infos), None)
        if key is None:
            raise ValueError('an episode ended and infos has no "final_obs", which SAME_STEP autoreset promises')
        final = infos[key]
        if isinstance(final, np.ndarray) and final.dtype == object:
            last = np.zeros((self.num_envs, self.obs_size), dtype=np.float32)
            for env in np.flatnonzero(ended):
                last[env] = self.observations.one(final[env])
            return last
        return self.observations.batch(final, self.num_envs)


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


def _together(makers: list[Callable[[], gymnasium.Env[Any, Any]]]) -> SyncVectorEnv:
    return SyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP)


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
