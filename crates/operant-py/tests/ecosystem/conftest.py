"""Every test here uses one other library as its users do. Its marker names the library's package, its docstring says what is
tried, and together they are the table of ``docs/ecosystem.md``, which ``cargo xtask test --ecosystem`` writes.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections import Counter
from pathlib import Path
from typing import Any

import operant
import pytest

BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
ROWS = pytest.StashKey[dict[str, tuple[str, str, Counter[str]]]]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "library(package): the library that a test uses")
    config.stash[ROWS] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    # A failure or a skip of the fixtures counts too.
    if report.when == "call" or report.outcome != "passed":
        package = next(item.iter_markers("library")).args[0]
        tried = " ".join((item.function.__doc__ or item.name).split()).rstrip(".")  # type: ignore[attr-defined]
        name = item.nodeid.partition("[")[0]
        row = item.config.stash[ROWS].setdefault(name, (package, tried, Counter()))
        row[2][report.outcome] += 1
    return report


def _table(rows: dict[str, tuple[str, str, Counter[str]]]) -> str:
    lines = ["| library | version | what is tried | result |", "|---|---|---|---|"]
    for package, tried, outcomes in sorted(rows.values(), key=lambda row: row[0].lower()):
        count = sum(outcomes.values())
        result = ", ".join(outcome if count == 1 else f"{n} {outcome}" for outcome, n in outcomes.items())
        lines.append(f"| {package} | {importlib.metadata.version(package)} | {tried} | {result} |")
    return "\n".join(lines)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    rows = config.stash[ROWS]
    if not rows:
        return
    table = _table(rows)
    terminalreporter.write_line(f"\n{table}")
    page = os.environ.get("OPERANT_ECOSYSTEM_TABLE")
    if page:
        path = Path(page)
        text = path.read_text(encoding="utf-8")
        (before, rest), after = text.split(BEGIN), text.partition(END)[2]
        assert END in rest, f"{path} has no {END}"
        where = f"Python {platform.python_version()}, operant {operant.__version__}."
        path.write_text(f"{before}{BEGIN}\n{where}\n\n{table}\n{END}{after}", encoding="utf-8")
