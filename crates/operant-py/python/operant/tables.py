"""A run's tables for analysis: NumPy arrays, and pandas or Arrow where those packages are there.

>>> tables = operant.RunTables("runs/mine")     # doctest: +SKIP
>>> tables["metrics"]["return"]                 # doctest: +SKIP
>>> tables.pandas("events")                     # doctest: +SKIP
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from operant import _operant

__all__ = ["RunTables"]

Table = dict[str, npt.NDArray[Any]]
Row = dict[str, Any]

_CHANGE = re.compile(r"env (\d+): epoch (\d+), slot (\d+): (\S+) to (\S+)(?: (\S+))?$")
_OUTCOME = re.compile(r"env (\d+): accuracy (\S+) %, (\d+) fossils, (\d+) parameters of seeds$")


class RunTables(Mapping[str, Table]):
    """The tables of a run's folder, each a dictionary of columns: the tables and columns of ``operant query``.

    ==========  =====================================================================
    metrics     step, seconds, and a column for each metric
    events      step, time, kind, severity, topic, text
    episodes    step, env, return, length: the last 2,000
    settings    key, value
    changes     step, env, epoch, slot, before, after, blueprint: of growth only
    outcomes    step, env, accuracy, fossils, parameters: of growth only
    others      one for each other ``.jsonl`` file of the folder
    ==========  =====================================================================

    Of a batch of seeds the tables hold the rows of all its runs, with a column ``seed`` before the others (``run_seed``
    where a file has a seed of its own).

    Numbers are ``float64``, NaN where nothing is known, but steps and other whole numbers are ``int64``; the rest are
    Python objects. Files are read when a table is asked for, so that a run that goes on shows what it has written so far.
    """

    _own: ClassVar[dict[str, list[str]]] = {
        "metrics": [],
        "events": ["step", "time", "kind", "severity", "topic", "text"],
        "episodes": ["step", "env", "return", "length"],
        "settings": ["key", "value"],
        "changes": ["step", "env", "epoch", "slot", "before", "after", "blueprint"],
        "outcomes": ["step", "env", "accuracy", "fossils", "parameters"],
    }

    def __init__(self, run: str | os.PathLike[str]) -> None:
        self.path = Path(run)
        batch = self.path / "batch.toml"
        self._runs: list[tuple[int | None, Path]] = [(None, self.path)]
        if batch.is_file() and not (self.path / "run.toml").is_file():
            folders = [folder for folder in self.path.glob("seed-*") if folder.name[5:].isdigit()]
            self._runs = [(int(folder.name[5:]), folder) for folder in sorted(folders, key=lambda one: int(one.name[5:]))]
        if not any(any(folder.glob("*.jsonl")) for _, folder in self._runs):
            raise FileNotFoundError(f"{self.path} holds no tables of a run: wanted metrics.jsonl")

    def __iter__(self) -> Iterator[str]:
        found = {file.stem for _, folder in self._runs for file in folder.glob("*.jsonl")}
        found |= {"metrics", "events", "episodes", "settings"}
        if any(("env.name", "growth") in _settings(folder) for _, folder in self._runs):
            found |= {"changes", "outcomes"}
        return iter(sorted(found))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __getitem__(self, name: str) -> Table:
        if name not in list(self):
            raise KeyError(f"unknown table {name!r}; there are {', '.join(self)}")
        read = _READERS.get(name, lambda folder: list(_lines(folder / f"{name}.jsonl")))
        rows: list[Row] = []
        for seed, folder in self._runs:
            for row in read(folder):
                rows.append(row if seed is None else {"run_seed" if "seed" in row else "seed": seed, **row})
        first = self._own.get(name, [])
        seeds = ["seed"] if name in self._own and self._runs[0][0] is not None else []
        names = list(dict.fromkeys([*seeds, *first, *(key for row in rows for key in row)]))
        return {column: _column([row.get(column) for row in rows]) for column in names}

    def pandas(self, name: str = "metrics") -> Any:
        """A table as a ``pandas.DataFrame``; needs pandas."""
        import pandas

        return pandas.DataFrame(self[name])

    def arrow(self, name: str = "metrics") -> Any:
        """A table as a ``pyarrow.Table``; needs pyarrow."""
        import pyarrow

        return pyarrow.table({column: pyarrow.array(values) for column, values in self[name].items()})


def _lines(path: Path) -> Iterator[Row]:
    if not path.is_file():
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                row = json.loads(line)
            except ValueError:
                # The last line of a process that was killed.
                continue
            if isinstance(row, dict):
                yield row


def _metrics(folder: Path) -> list[Row]:
    rows: list[Row] = []
    for row in _lines(folder / "metrics.jsonl"):
        row.pop("missed", None)
        # A run that went on from a checkpoint replaces what came after it.
        while rows and rows[-1].get("step", -1) >= row.get("step", 0):
            rows.pop()
        rows.append(row)
    return rows


def _events(folder: Path) -> list[Row]:
    rows: list[Row] = []
    for row in _lines(folder / "events.jsonl"):
        kind, severity, topic = _operant.event_kind(str(row.get("kind", "")))
        step, time, text = row.get("step"), row.get("time"), row.get("text", "")
        rows.append({"step": step, "time": time, "kind": kind, "severity": severity, "topic": topic, "text": text})
    return rows


def _episodes(folder: Path) -> list[Row]:
    names = RunTables._own["episodes"]
    return [dict(zip(names, episode, strict=True)) for episode in _operant.run_episodes(os.fspath(folder))]


def _settings(folder: Path) -> list[tuple[str, str]]:
    path = folder / "run.toml"
    return _operant.run_keys(path.read_text(encoding="utf-8"), os.fspath(path)) if path.is_file() else []


def _changes(folder: Path) -> list[Row]:
    rows: list[Row] = []
    for event in _events(folder):
        if event["kind"] == "lifecycle" and (found := _CHANGE.match(event["text"])):
            env, epoch, slot, before, after, blueprint = found.groups()
            numbers = {"step": event["step"], "env": int(env), "epoch": int(epoch), "slot": int(slot)}
            rows.append({**numbers, "before": before, "after": after, "blueprint": blueprint})
    return rows


def _outcomes(folder: Path) -> list[Row]:
    rows: list[Row] = []
    for event in _events(folder):
        if event["kind"] == "outcome" and (found := _OUTCOME.match(event["text"])):
            env, accuracy, fossils, parameters = found.groups()
            numbers = {"step": event["step"], "env": int(env), "accuracy": float(accuracy)}
            rows.append({**numbers, "fossils": int(fossils), "parameters": int(parameters)})
    return rows


_READERS: dict[str, Callable[[Path], list[Row]]] = {
    "metrics": _metrics,
    "events": _events,
    "episodes": _episodes,
    "settings": lambda folder: [{"key": key, "value": value} for key, value in _settings(folder)],
    "changes": _changes,
    "outcomes": _outcomes,
}


def _column(values: list[Any]) -> npt.NDArray[Any]:
    if all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        return np.array(values, dtype=np.int64)
    if all(value is None or isinstance(value, (int, float)) for value in values):
        return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column
