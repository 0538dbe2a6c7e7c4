"""Observations of Gymnasium's spaces as flat numbers, and what is wrong with those that a network can't read.

A fault says what it found where, in words such as ``observation["wheels"][3] is nan``. Who knows the env and its step puts
them in front.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.spaces.utils import flatdim

from operant import _operant

FloatArray = npt.NDArray[np.float32]

_BEARABLE = "a finite number of at most 1e18 in size"


class Fault(ValueError):
    """Something in an observation or a reward that can't be learned from.

    Attributes:
        row: number of the env, or of the observation in a batch; None if it is not known.
        problem: what was found where, and what was wanted.
        at_reset: whether a reset gave it, also one that a step made.
    """

    def __init__(self, row: int | None, problem: str, at_reset: bool = False) -> None:
        self.row, self.problem, self.at_reset = row, problem, at_reset
        super().__init__(problem if row is None else f"{problem} (row {row} of the batch)")


class Observations:
    """Observations of a space as flat numbers, in the order of ``gymnasium.spaces.utils.flatten``."""

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.space = space
        _check_space(space)
        self.size = int(flatdim(space))
        if self.size == 0:
            raise ValueError(f"observation space {space} has no numbers; wanted at least 1")
        self.image = _image(space)

    def batch(self, observations: Any, count: int) -> FloatArray:
        """``[N, size]`` of N observations side by side."""
        return np.ascontiguousarray(_flatten(self.space, observations, count, "observation"), dtype=np.float32)

    def one(self, observation: Any) -> FloatArray:
        """``[size]`` of one observation."""
        try:
            _check_scalars(self.space, observation, "observation")
            flat: FloatArray = self.batch(batch_of_one(self.space, observation, "observation"), 1)[0]
        except Fault as fault:
            raise Fault(None, fault.problem) from None
        return flat

    def rows(self, observations: Any) -> tuple[FloatArray, bool]:
        """``[N, size]`` of one observation or of several, and whether there are several."""
        space, leaf, path = self.space, observations, "observation"
        while isinstance(space, (spaces.Dict, spaces.Tuple)):
            parts = _parts(space, leaf, path)
            path, space, leaf = parts[0]
        try:
            shape = np.shape(leaf)
        except ValueError:
            raise Fault(None, f"{path} is {_shown(leaf)}; wanted an array of shape {space.shape}") from None
        wanted = tuple(space.shape or ())
        if shape == wanted:
            return self.one(observations)[np.newaxis], False
        if len(shape) == len(wanted) + 1 and shape[1:] == wanted:
            return self.batch(observations, shape[0]), True
        both = f"{wanted}, or {('N', *wanted)} for several"
        raise Fault(None, f"{path} has shape {shape}; wanted {both}")


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


def _check_space(space: spaces.Space[Any]) -> None:
    if isinstance(space, spaces.Dict):
        for part in space.spaces.values():
            _check_space(part)
    elif isinstance(space, spaces.Tuple):
        for part in space.spaces:
            _check_space(part)
    elif not isinstance(space, (spaces.Box, spaces.Discrete, spaces.MultiBinary, spaces.MultiDiscrete)):
        kinds = "Box, Discrete, MultiDiscrete, MultiBinary, or Dict and Tuple of them"
        raise ValueError(f"observation space {space}: wanted {kinds}; wrap the env so that it gives one")


def _parts(space: spaces.Dict | spaces.Tuple, values: Any, path: str) -> list[tuple[str, spaces.Space[Any], Any]]:
    """The parts of a value: what each is called, its space, and what it holds."""
    if isinstance(space, spaces.Dict):
        keys = list(space.spaces)
        if not isinstance(values, Mapping):
            raise Fault(None, f"{path} is a {type(values).__name__}; wanted a dict with the keys {keys}")
        missing = [key for key in keys if key not in values]
        if missing:
            raise Fault(None, f"{path} has the keys {list(values)}; wanted {keys}, so {missing[0]!r} is missing")
        return [(f"{path}[{key!r}]", part, values[key]) for key, part in space.spaces.items()]
    if not isinstance(values, (tuple, list)) or len(values) != len(space.spaces):
        got = f"{len(values)} parts" if isinstance(values, (tuple, list)) else f"a {type(values).__name__}"
        raise Fault(None, f"{path} is {got}; wanted a tuple of {len(space.spaces)} parts")
    return [(f"{path}[{i}]", part, value) for i, (part, value) in enumerate(zip(space.spaces, values, strict=True))]


def _check_scalars(space: spaces.Space[Any], value: Any, path: str) -> None:
    """Refuses a Discrete value in an array of its own, which Gymnasium cannot put beside others."""
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        for name, part, inner in _parts(space, value, path):
            _check_scalars(part, inner, name)
    elif isinstance(space, spaces.Discrete) and np.ndim(value):
        raise Fault(None, f"{path} has shape {np.shape(value)}; wanted (), that of {space}")


def leaves(space: spaces.Space[Any], path: str = "observation") -> Iterator[tuple[str, spaces.Space[Any]]]:
    """Spaces without parts inside a space, with what each is called."""
    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            yield from leaves(part, f"{path}[{key!r}]")
    elif isinstance(space, spaces.Tuple):
        for i, part in enumerate(space.spaces):
            yield from leaves(part, f"{path}[{i}]")
    else:
        yield path, space


def leaves_of(
    space: spaces.Space[Any], value: Any, path: str = "observation"
) -> Iterator[tuple[str, spaces.Space[Any], Any]]:
    """The same, with what a value holds there."""
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        for name, part, one in _parts(space, value, path):
            yield from leaves_of(part, one, name)
    else:
        yield path, space, value


def _flatten(space: spaces.Space[Any], values: Any, count: int, path: str) -> npt.NDArray[Any]:
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        parts = [_flatten(part, value, count, name) for name, part, value in _parts(space, values, path)]
        return np.concatenate(parts, axis=1)
    array = _array(space, values, count, path)
    if isinstance(space, spaces.Discrete):
        return _one_hot(array.reshape(count, 1), np.array([space.start]), np.array([space.n]), path, ())
    if isinstance(space, spaces.MultiDiscrete):
        start = np.broadcast_to(getattr(space, "start", 0), space.nvec.shape).reshape(-1)
        return _one_hot(array.reshape(count, -1), start, space.nvec.reshape(-1), path, space.nvec.shape)
    if isinstance(space, spaces.MultiBinary):
        if array.dtype != np.bool_:
            _refuse(~((array == 0) | (array == 1)), array, path, "0 or 1")
        return array.reshape(count, -1).astype(np.float32)
    if np.issubdtype(np.dtype(space.dtype), np.integer):
        return _whole(array, np.dtype(space.dtype), path).reshape(count, -1)
    return numbers(array, path).reshape(count, -1)


def _array(space: spaces.Space[Any], values: Any, count: int, path: str) -> npt.NDArray[Any]:
    """The N values of a space without parts as an array of numbers of the right shape."""
    wanted: tuple[int, ...] = (count, *(space.shape or ()))
    try:
        array = np.asarray(values)
    except (TypeError, ValueError):
        raise Fault(None, f"{path} is {_shown(values)}; wanted numbers of shape {wanted[1:]}") from None
    if array.shape != wanted and not (isinstance(space, spaces.Discrete) and array.shape == (count, 1)):
        if array.shape[:1] == (count,):
            raise Fault(None, f"{path} has shape {array.shape[1:]}; wanted {wanted[1:]}, that of {space}")
        raise Fault(None, f"{path} has shape {array.shape}; wanted {wanted}: {count} of {space}")
    if array.dtype.kind not in "biuf":
        plain = array.reshape(-1)
        if array.dtype.kind == "O":
            odd = next((i for i, one in enumerate(plain.tolist()) if not isinstance(one, (int, float))), None)
            if odd is None:
                return array.astype(np.float64)
            _refuse_at(array, odd, path, "a number")
        raise Fault(None, f"{path} has dtype {array.dtype}; wanted {space.dtype}, that of {space}")
    return array


def _one_hot(
    values: npt.NDArray[Any],
    start: npt.NDArray[Any],
    sizes: npt.NDArray[Any],
    path: str,
    shape: tuple[int, ...],
) -> FloatArray:
    choices = values.astype(np.int64) if values.dtype.kind in "biu" else values
    choices = np.ascontiguousarray(choices - start)
    if choices.dtype != np.int64:
        _refuse((choices % 1) != 0, values, path, "a whole number", shape)
        inside = (choices >= 0) & (choices < sizes)
    else:
        # A choice below 0 is a large one without its sign.
        inside = choices.view(np.uint64) < sizes.astype(np.uint64)
    if not inside.all():
        at = int(np.flatnonzero(~inside)[0]) % len(sizes)
        least, most = int(start[at]), int(start[at] + sizes[at] - 1)
        _refuse(~inside, values, path, f"a whole number from {least} to {most}", shape)
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    flat = np.zeros((len(choices), int(sizes.sum())), dtype=np.float32)
    np.put_along_axis(flat, (choices + first).astype(np.int64), 1.0, axis=1)
    return flat


def _whole(array: npt.NDArray[Any], dtype: np.dtype[Any], path: str) -> npt.NDArray[Any]:
    """Numbers of a Box of integers."""
    if array.dtype == dtype:
        return array if dtype.itemsize < 8 else numbers(array, path)
    if array.dtype.kind == "f":
        numbers(array, path)
        next_step = "scale them, or give the space the dtype float32"
        raise Fault(None, f"{path} has dtype {array.dtype}; wanted {dtype}, that of its space; {next_step}")
    limits = np.iinfo(dtype)
    _refuse((array < limits.min) | (array > limits.max), array, path, f"a whole number of dtype {dtype}")
    return array


def numbers(array: npt.NDArray[Any], path: str) -> FloatArray:
    """Numbers in 32 bits, each of which can be learned from."""
    # Before they are rounded, since a large number then becomes infinite.
    wide = array.dtype.kind == "f" and array.dtype.itemsize > 4
    known = np.ascontiguousarray(array, dtype=np.float64 if wide else np.float32)
    at = _operant.first_unfit(known)
    if at is not None:
        _refuse_at(array, at, path, _BEARABLE)
    return np.ascontiguousarray(known, dtype=np.float32)


def _refuse(
    bad: npt.NDArray[np.bool_], array: npt.NDArray[Any], path: str, wanted: str, shape: tuple[int, ...] | None = None
) -> None:
    if bad.any():
        _refuse_at(array, int(np.flatnonzero(bad)[0]), path, wanted, shape)


def _refuse_at(
    array: npt.NDArray[Any], at: int, path: str, wanted: str, shape: tuple[int, ...] | None = None
) -> None:
    """Names number ``at`` of an array of N rows."""
    value = array.reshape(-1)[at]
    shape = array.shape[1:] if shape is None else shape
    row, place = divmod(at, max(1, int(np.prod(shape))))
    index = [int(i) for i in np.unravel_index(place, shape)] if shape else []
    raise Fault(row, f"{path}{index or ''} is {_shown(value)}; wanted {wanted}")


def _shown(value: Any) -> str:
    text = str(value) if isinstance(value, np.generic) else repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def batch_of_one(space: spaces.Space[Any], value: Any, path: str) -> Any:
    """One value as a batch of them."""
    if isinstance(space, spaces.Dict):
        return {key: batch_of_one(space.spaces[key], one, name)
                for key, (name, _, one) in zip(space.spaces, _parts(space, value, path), strict=True)}  # fmt: skip
    if isinstance(space, spaces.Tuple):
        return tuple(batch_of_one(part, one, name) for name, part, one in _parts(space, value, path))
    try:
        return np.asarray(value)[np.newaxis]
    except (TypeError, ValueError):
        raise Fault(None, f"{path} is {_shown(value)}; wanted numbers of shape {space.shape}") from None
