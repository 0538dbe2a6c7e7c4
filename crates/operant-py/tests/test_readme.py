"""The README's Python, as written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[3] / "README.md"


def test_python_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # It saves a file where it runs.
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert blocks
    # Box2D is not among the packages of these tests; those beside peers run that one.
    for block in (block for block in blocks if "LunarLander" not in block):
        exec(compile(block, str(README), "exec"), {})
