"""Neural operators on fields: rolled out by the engine, and collections of them on disk as `operant collect field` writes them.

>>> data = operant.FieldDataset("fields")
>>> features = data.split("train")["features"]        # [operators, statistic, feature]
>>> data[3]["metrics"]                                # [realisation, time, metric], of one operator

Records are read one at a time from their shards, or from where they wait for their shard, with NumPy alone, and their checksums are
looked at; ``zarr.open_group`` reads the same folder.
"""

from __future__ import annotations

import dataclasses
import json
import struct
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from operant import _operant
from operant._blosc import unpacked
from operant._crc import crc32c

_MISSING = 2**64 - 1
_PENDING_MAGIC = b"OPRECORD"
# Version of stores whose chunks are compressed.
_NEWEST = 2


_PRECISIONS = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}


@dataclasses.dataclass(frozen=True)
class Operator:
    """A stochastic operator on a periodic domain; `operant field list` says what its numbers do. Weights and noise are functions of the
    seed. ``architecture``: cnn, or uafno, for which levels, blocks and modes count too."""

    channels: int = 3
    grid: int = 64
    layers: int = 3
    base_channels: int = 32
    kernel: int = 3
    activation: str = "gelu"
    dropout: float = 0.1
    noise: str = "gaussian"
    noise_scale: float = 0.1
    schedule: str = "constant"
    correlation: float = 0.0
    norm: str = "instance"
    seed: int = 0
    architecture: str = "cnn"
    levels: int = 2
    blocks: int = 2
    modes: float = 0.5


@dataclasses.dataclass(frozen=True)
class OperatorRollout:
    """Applies operators to fields again and again.

    >>> rollout = operant.OperatorRollout(policy_type="convex", num_timesteps=50, num_realisations=2)
    >>> rollout([operant.Operator(grid=32)], np.zeros((1, 3, 32, 32))).shape
    (1, 2, 51, 3, 32, 32)

    ``policy_type``: autoregressive O(x), residual x + dt O(x), or convex alpha x + (1 - alpha) O(x). ``device``: cpu, cuda or cuda:i
    (Hopper GPUs). What cannot be served as asked is said in a warning: which precision or device, and which one takes its place.
    """

    policy_type: str = "convex"
    num_timesteps: int = 500
    precision: str = "float32"
    device: str = "cpu"
    alpha: float = 0.5
    dt: float = 0.01
    num_realisations: int = 1
    every: int = 1
    normalise: bool = False
    clamp: float = 0.0
    threads: int = 1

    def __call__(self, operators: Operator | Sequence[Operator], fields: np.ndarray) -> np.ndarray:
        """Fields ``[G, C, H, W]``, one per operator, become ``[G, realisation, time, C, H, W]``; one operator and ``[C, H, W]`` lack the G."""
        if isinstance(operators, Operator):
            return self(([operators]), np.asarray(fields)[None])[0]
        fields = np.asarray(fields, np.float32)
        if fields.ndim != 4 or len(fields) != len(operators):
            raise ValueError(f"fields of shape {fields.shape} for {len(operators)} operators: wanted [operators, C, H, W]")
        if len({(operator.channels, operator.grid) for operator in operators}) > 1:
            raise ValueError("operators of several grids or channels: wanted one of each per call")
        return np.stack([self._one(operator, field) for operator, field in zip(operators, fields)])

    def _one(self, operator: Operator, field: np.ndarray) -> np.ndarray:
        if field.shape != (operator.channels, operator.grid, operator.grid):
            wanted = (operator.channels, operator.grid, operator.grid)
            raise ValueError(f"a field of shape {field.shape}: wanted {wanted}")
        flat, note = _operant.roll_out_field(
            np.ascontiguousarray(field.transpose(1, 2, 0)).ravel(),
            **dataclasses.asdict(operator),
            policy=self.policy_type,
            alpha=self.alpha,
            dt=self.dt,
            realisations=self.num_realisations,
            steps=self.num_timesteps,
            every=self.every,
            precision=_PRECISIONS.get(self.precision, self.precision),
            device=self.device,
            normalise=self.normalise,
            clamp=self.clamp,
            threads=self.threads,
        )
        if note is not None:
            warnings.warn(note, RuntimeWarning, stacklevel=3)
        shape = (-1, self.num_realisations, operator.grid, operator.grid, operator.channels)
        return flat.reshape(shape).transpose(1, 0, 4, 2, 3)


class FieldDataset(Sequence):
    """A store of operators, or some of them. ``data[i]`` is the i-th operator as a mapping from names to arrays, ``data["features"]`` an
    array of all operators; those that are not there read as NaN, or 0 where numbers are whole."""

    def __init__(self, folder: str | Path, operators: Sequence[int] | None = None) -> None:
        self.folder = Path(folder)
        try:
            manifest = json.loads((self.folder / "manifest.json").read_text())
        except FileNotFoundError:
            message = f"{self.folder} holds no store (no manifest.json); make one with operant collect field"
            raise FileNotFoundError(message) from None
        if manifest["version"] > _NEWEST:
            wanted = f"wanted at most {_NEWEST}; take a newer operant"
            raise ValueError(f"{self.folder} holds a store of version {manifest['version']}: {wanted}")
        self.layout: dict[str, Any] = manifest["layout"]
        self._files = set(manifest["files"])
        self.attributes: dict[str, Any] = json.loads((self.folder / "zarr.json").read_text())["attributes"]
        self._arrays = {array["name"]: array for array in self.layout["arrays"]}
        count = self.layout["count"]
        self.operators = list(range(count)) if operators is None else [int(k) for k in operators]
        if any(not 0 <= k < count for k in self.operators):
            raise IndexError(f"operators beyond the {count} of {self.folder}")

    @property
    def names(self) -> list[str]:
        """Names of arrays."""
        return list(self._arrays)

    @property
    def feature_names(self) -> list[str]:
        """Names along the feature axis of ``features`` and ``trajectory_features``."""
        return list(self.attributes["features"])

    @property
    def parameter_names(self) -> list[str]:
        """Names along the parameter axis of ``parameters`` and ``unit``."""
        return [parameter["name"] for parameter in self.attributes["parameters"]]

    @property
    def stats(self) -> dict[str, Any]:
        """Mean, standard deviation, least and most of every feature over the operators of ``train``; written when a store is complete."""
        return json.loads((self.folder / "stats.json").read_text())["features"]

    def split(self, name: str) -> FieldDataset:
        """The operators of ``train``, ``valid`` or ``test``."""
        splits = json.loads((self.folder / "splits.json").read_text())
        if name not in splits:
            raise ValueError(f"unknown split {name!r}; known: {', '.join(splits)}")
        chosen = set(self.operators)
        return FieldDataset(self.folder, [k for k in splits[name] if k in chosen])

    def __len__(self) -> int:
        return len(self.operators)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return np.stack([self.read(key, k) for k in self.operators]) if self.operators else self._empty(key, 0)
        if isinstance(key, slice):
            return FieldDataset(self.folder, self.operators[key])
        return _Operator(self, self.operators[key])

    def __iter__(self) -> Iterator[Mapping[str, np.ndarray]]:
        return (self[i] for i in range(len(self)))

    def torch(self, name: str) -> Any:
        """An array of all operators as a tensor that shares its memory; PyTorch must be installed."""
        import torch

        return torch.from_numpy(self[name])

    def to_the_well(self, path: str | Path, *, name: str = "operant_fields", grid: int | None = None) -> int:
        """Writes stored fields to one HDF5 file in the layout of The Well, which its ``WellDataset`` reads, with their operators'
        parameters as scalars; returns the number of trajectories. ``grid`` chooses where a store has several. h5py must be installed.

        >>> data.split("train").to_the_well("well/data/train/fields.hdf5")
        """
        from operant import _the_well

        return _the_well.write(self, path, name, grid)

    @property
    def every(self) -> int:
        """Steps between stored fields."""
        for line in (self.folder / "collect.toml").read_text().splitlines():
            key, _, value = line.partition("=")
            if key.strip() == "trajectory_every":
                return int(value)
        return 1

    def shape(self, name: str) -> tuple[int, ...]:
        """Of one operator's array."""
        return tuple(self._array(name)["shape"])

    def has(self, name: str, operator: int) -> bool:
        """Whether the store has this array of this operator."""
        array = self._array(name)
        return self._path(array, operator).exists() if array["alone"] else self._chunk(array, operator) is not None

    def _path(self, array: dict[str, Any], operator: int) -> Path:
        place = operator if array["alone"] else operator // self.layout["per_shard"]
        return self.folder.joinpath(array["name"], "c", str(place), *["0"] * len(array["shape"]))

    def _array(self, name: str) -> dict[str, Any]:
        if name not in self._arrays:
            raise KeyError(f"unknown array {name!r}; known: {', '.join(self._arrays)}")
        return self._arrays[name]

    def _empty(self, name: str, *lead: int) -> np.ndarray:
        array = self._array(name)
        dtype = np.dtype(array["dtype"]).newbyteorder("<")
        return np.full((*lead, *array["shape"]), np.nan if dtype.kind == "f" else 0, dtype)

    def read(self, name: str, operator: int) -> np.ndarray:
        """One array of one operator, by its number in the store."""
        array = self._array(name)
        chunk = self._chunk(array, operator)
        if chunk is None:
            return self._empty(name)
        if self.layout.get("codec", "none") == "blosc":
            chunk = unpacked(chunk, int(np.prod(array["shape"])) * np.dtype(array["dtype"]).itemsize)
            if chunk is None:
                raise _damaged(self.folder / name)
        dtype = np.dtype(array["dtype"]).newbyteorder("<")
        return np.frombuffer(chunk, dtype).reshape(array["shape"]).copy()

    def _chunk(self, array: dict[str, Any], operator: int) -> bytes | None:
        per_shard, count = self.layout["per_shard"], self.layout["count"]
        if not 0 <= operator < count:
            raise IndexError(f"operator {operator} of {self.folder}: wanted 0 to {count - 1}")
        path = self._path(array, operator)
        pending = self.folder / "pending" / f"{operator:08}.record"
        if not array["alone"] and pending.exists():
            return self._pending(pending, self.names.index(array["name"]))
        if not path.exists():
            if path.relative_to(self.folder).as_posix() in self._files:
                raise FileNotFoundError(f"{path} is gone, which manifest.json lists: put it back from a copy, or collect again")
            return None
        with path.open("rb") as file:
            if array["alone"]:
                return _opened(file.read(), path)
            # The index ends the file: where each record begins and how long it is, and a checksum.
            size, index_size = file.seek(0, 2), 16 * per_shard + 4
            file.seek(max(0, size - index_size))
            index = _opened(file.read(), path)
            offset, length = struct.unpack_from("<QQ", index, 16 * (operator % per_shard))
            if offset == _MISSING:
                return None
            if offset + length > size - index_size:
                raise _damaged(path)
            file.seek(offset)
            return _opened(file.read(length), path)

    def _pending(self, path: Path, place: int) -> bytes | None:
        """A part of a record whose shard is not whole: numbers of bytes and the bytes, or none, of each array."""
        data = _opened(path.read_bytes(), path)
        at = len(_PENDING_MAGIC) + 8
        if not data.startswith(_PENDING_MAGIC) or struct.unpack_from("<Q", data, at - 8)[0] != len(self._arrays):
            raise _damaged(path)
        for number in range(place + 1):
            (length,) = struct.unpack_from("<Q", data, at)
            at += 8
            if number == place:
                return None if length == _MISSING else data[at : at + length]
            at += 0 if length == _MISSING else length
        return None


def _damaged(path: Path) -> ValueError:
    return ValueError(f"{path} is damaged: its checksum does not fit; operant field validate names all such files")


def _opened(data: bytes, path: Path) -> bytes:
    """Bytes without the checksum at their end, which is looked at."""
    if len(data) < 4 or crc32c(data[:-4]) != struct.unpack("<I", data[-4:])[0]:
        raise _damaged(path)
    return data[:-4]


class _Operator(Mapping):
    """The arrays of one operator, read when they are asked for."""

    def __init__(self, data: FieldDataset, operator: int) -> None:
        self._data = data
        self.operator = operator

    def __getitem__(self, name: str) -> np.ndarray:
        return self._data.read(name, self.operator)

    def __iter__(self) -> Iterator[str]:
        return iter(self._data.names)

    def __len__(self) -> int:
        return len(self._data.names)
