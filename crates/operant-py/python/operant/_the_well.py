"""Fields of a store in the HDF5 layout of The Well (Ohana et al., 2024; the package `the_well` reads it)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from operant.field import FieldDataset

_PREFIX = "trajectories_"


def write(data: FieldDataset, path: str | Path, name: str, grid: int | None) -> int:
    """One file of all operators of a grid; the number of trajectories in it."""
    try:
        import h5py
    except ImportError:
        raise ImportError("to_the_well writes HDF5 by h5py, which is not installed; pip install h5py") from None
    array = _fields_of(data, grid)
    # Fields are on disk a moment before the rest of their operator.
    chosen = [k for k in data.operators if data.has(array, k) and data.has("parameters", k)]
    if not chosen:
        raise ValueError(f"none of {len(data)} operators of {data.folder} has fields in {array!r}")
    realisations, times, channels, side, _ = data.shape(array)
    count, path = realisations * len(chosen), Path(path)
    beside = path.with_name(path.name + ".part")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with h5py.File(beside, "w") as file:
            file.attrs.update({
                "dataset_name": name, "grid_type": "cartesian", "n_spatial_dims": 2, "n_trajectories": count,
                "simulation_parameters": data.parameter_names,
            })
            _dimensions(file, data.every * np.arange(times, dtype=np.float32), side)
            _scalars(file, data, chosen, realisations)
            group = file.create_group("t0_fields")
            names = [f"channel_{c}" for c in range(channels)]
            group.attrs["field_names"] = names
            for field in names:
                shape = (count, times, side, side)
                made = group.create_dataset(field, shape, np.float32, chunks=(1, 1, side, side), compression="gzip", shuffle=True)
                made.attrs.update({"dim_varying": [True, True], "sample_varying": True, "time_varying": True})
            for place, k in enumerate(chosen):
                fields = data.read(array, k).astype(np.float32)
                for c, field in enumerate(names):
                    group[field][place * realisations : (place + 1) * realisations] = fields[:, :, c]
            for order in (1, 2):
                file.create_group(f"t{order}_fields").attrs["field_names"] = np.array([], dtype=h5py.string_dtype())
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    beside.replace(path)
    return count


def _fields_of(data: FieldDataset, grid: int | None) -> str:
    """The array of fields, of which a store has one per grid."""
    grids = [int(array.removeprefix(_PREFIX)) for array in data.names if array.startswith(_PREFIX)]
    if not grids:
        raise ValueError(f"{data.folder} keeps no fields; collect with trajectories = \"f32\" or \"f16\"")
    if grid is None and len(grids) > 1:
        raise ValueError(f"{data.folder} has fields of several grids: wanted grid=, one of {grids}")
    if grid is not None and grid not in grids:
        raise ValueError(f"grid {grid}: {data.folder} has {grids}")
    return f"{_PREFIX}{grids[0] if grid is None else grid}"


def _dimensions(file: Any, times: np.ndarray, side: int) -> None:
    """A square of side 1 whose edges meet."""
    group = file.create_group("dimensions")
    group.attrs["spatial_dims"] = ["y", "x"]
    pixels = np.arange(side, dtype=np.float32) / side
    edges = np.zeros(side, bool)
    edges[[0, -1]] = True
    for axis, values in (("time", times), ("y", pixels), ("x", pixels)):
        group.create_dataset(axis, data=values).attrs["sample_varying"] = False
    for axis in ("y", "x"):
        bound = file.create_group(f"boundary_conditions/{axis}_periodic")
        bound.attrs.update({
            "associated_dims": [axis], "associated_fields": np.array([], float), "bc_type": "PERIODIC",
            "sample_varying": False, "time_varying": False,
        })
        bound.create_dataset("mask", data=edges)


def _scalars(file: Any, data: FieldDataset, chosen: list[int], realisations: int) -> None:
    """Parameters of every trajectory (a word is its place among those that were sampled), its operator and its realisation."""
    parameters = np.stack([data.read("parameters", k) for k in chosen])
    columns = dict(zip(data.parameter_names, np.repeat(parameters, realisations, axis=0).T.astype(np.float32)))
    columns["operator"] = np.repeat(np.array(chosen, np.float32), realisations)
    columns["realisation"] = np.tile(np.arange(realisations, dtype=np.float32), len(chosen))
    group = file.create_group("scalars")
    group.attrs["field_names"] = list(columns)
    for scalar, values in columns.items():
        group.create_dataset(scalar, data=values).attrs.update({"sample_varying": True, "time_varying": False})
