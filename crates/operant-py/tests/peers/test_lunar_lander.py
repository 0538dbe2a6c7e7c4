"""An env of Gymnasium with dynamics of its own: LunarLander, which needs Box2D."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import operant
import pytest

pytest.importorskip("Box2D")


@pytest.mark.parametrize("continuous", [False, True])
def test_lunar_lander_trains(continuous: bool) -> None:
    envs = gymnasium.make_vec("LunarLander-v3", num_envs=8, vectorization_mode="sync", continuous=continuous)
    model = operant.PPO(envs, seed=1, num_steps=128, normalize_obs=True, learning_rate=1e-3)
    before = model.evaluate(20)["mean_return"]
    model.learn(40_000)
    assert model.metrics["episodes"] > 100 and np.isfinite(model.metrics["loss/value"])
    after = model.evaluate(20)
    assert after["mean_return"] > before
    envs.close()


def test_the_readme_solves_it() -> None:
    readme = Path(__file__).parents[4] / "README.md"
    blocks = re.findall(r"```python\n(.*?)```", readme.read_text(encoding="utf-8"), flags=re.DOTALL)
    [block] = [block for block in blocks if "LunarLander" in block]
    names: dict[str, Any] = {}
    exec(compile(block, str(readme), "exec"), names)
    assert names["model"].metrics["return"] >= 200
