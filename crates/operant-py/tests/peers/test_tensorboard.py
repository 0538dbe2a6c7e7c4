"""The TensorBoard package reads what a run writes."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
ROOT = Path(__file__).resolve().parents[4]


def test_tensorboard_reads_every_scalar(tmp_path):
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    operant = target / "debug" / ("operant.exe" if os.name == "nt" else "operant")
    run = tmp_path / "run"
    words = ["train", "ppo", "cartpole", "--steps", "8192", "--run-dir", str(run), "--quiet"]
    subprocess.run([operant, *words], check=True, capture_output=True)
    reader = event_accumulator.EventAccumulator(str(run), size_guidance={event_accumulator.SCALARS: 0})
    reader.Reload()
    samples = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert len(samples) > 10
    names = {name for sample in samples for name in sample} - {"step", "seconds"}
    assert set(reader.Tags()["scalars"]) == names
    for name in names:
        known = [(sample["step"], sample[name]) for sample in samples if name in sample]
        read = reader.Scalars(name)
        assert [event.step for event in read] == [step for step, _ in known]
        np.testing.assert_array_equal(
            np.array([event.value for event in read], dtype=np.float32),
            np.array([value for _, value in known], dtype=np.float32),
        )
        times = [event.wall_time for event in read]
        assert times == sorted(times)
