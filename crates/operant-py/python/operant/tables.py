"""A run's tables for analysis: NumPy arrays, and pandas or Arrow where those packages are there.

>>> tables = operant.RunTables("runs/mine")     # doctest: +SKIP
>>> tables["metrics"]["return"]                 # doctest: +SKIP
>>> tables.pandas("events")                     # doctest: +SKIP
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["RunTables"]

Table = dict[str, npt.NDArray[Any]]


class RunTables(Mapping[str, Table]):
    """The tables of a run's folder, one per ``.jsonl`` file (``metrics``, ``events`` …), each a dictionary of columns.

    Numbers are ``float64``, NaN where nothing is known, but steps are ``int64``; the rest are Python objects. Files are read
    when a table is asked for, so that a run that goes on shows what it has written so far.
    """

    def __init__(self, run: str | os.PathLike[str]) -> None:
        self.path = Path(run)
        if not self:
            raise FileNotFoundError(f"{self.path} holds no tables of a run: wanted metrics.jsonl")

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(file.stem for file in self.path.glob("*.jsonl")))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __getitem__(self, name: str) -> Table:
        if name not in list(self):
            raise KeyError(f"unknown table {name!r}; there are {', '.join(self)}")
        rows: list[dict[str, Any]] = []
        with (self.path / f"{name}.jsonl").open(encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    row = json.loads(line)
                except ValueError:
                    # The last line of a process that was killed.
                    continue
                if not isinstance(row, dict):
                    continue
                if name == "metrics":
                    # A run that went on from a checkpoint replaces what came after it.
                    while rows and rows[-1].get("step", -1) >= row.get("step", 0):
                        rows.pop()
                rows.append(row)
        names = list(dict.fromkeys(key for row in rows for key in row))
        return {column: _column([row.get(column) for row in rows]) for column in names}

    def pandas(self, name: str = "metrics") -> Any:
        """A table as a ``pandas.DataFrame``; needs pandas."""
        import pandas

        return pandas.DataFrame(self[name])

    def arrow(self, name: str = "metrics") -> Any:
        """A table as a ``pyarrow.Table``; needs pyarrow."""
        import pyarrow

        return pyarrow.table({column: pyarrow.array(values) for column, values in self[name].items()})


def _column(values: list[Any]) -> npt.NDArray[Any]:
    if all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        return np.array(values, dtype=np.int64)
    if all(value is None or isinstance(value, (int, float)) for value in values):
        return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column
