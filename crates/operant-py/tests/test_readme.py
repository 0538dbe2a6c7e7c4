"""The README's Python, as written."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).parents[3] / "README.md"


def test_python_of_the_readme_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, str(README), "exec"), {})
