"""Devices: whether a GPU can be used here."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from operant import _operant


def add_library_folders() -> None:
    """Has NVIDIA's packages of PyPI be found where this Python imports packages from."""
    _operant.add_library_folders(_folders())


def _folders() -> list[str]:
    return [folder for folder in sys.path if Path(folder, "nvidia").is_dir()]


def doctor() -> dict[str, Any]:
    """What of CUDA was found, what is missing and how to get it: ``operant doctor --json`` as a dictionary.

    NVIDIA's packages of PyPI are found where this Python imports packages from.
    """
    report: dict[str, Any] = json.loads(_operant.doctor(_folders()))
    return report
