"""Collections of operators, read with NumPy: against the numbers that the command line shows of the same store (tests/golden/fields)."""

import csv
from pathlib import Path

import numpy as np
import pytest

from operant import FieldDataset, Operator, OperatorRollout

STORE = Path(__file__).parent / "golden" / "fields"


def test_arrays_have_their_numbers():
    data = FieldDataset(STORE)
    assert len(data) == 5 and data.parameter_names[0] == "layers"
    with (STORE / "features.csv").open() as file:
        header, *rows = list(csv.reader(file))
    assert header[1:] == data.feature_names
    wanted = np.array([[np.float32(x) for x in row[1:]] for row in rows])
    assert data["features"].shape == (5, 3, len(data.feature_names))
    np.testing.assert_array_equal(data["features"][:, 0], wanted)
    np.testing.assert_array_equal(data[4]["features"][0], wanted[4])
    fields = data[2]["trajectories_16"]
    assert fields.shape == (2, 3, 2, 16, 16) and fields.dtype == np.float16
    # The energy of a stored field is the metric of its step.
    energy = (fields.astype(np.float64) ** 2).mean(axis=(2, 3, 4))
    np.testing.assert_allclose(energy, data[2]["metrics"][:, ::4, 0], rtol=5e-3)
    assert dict(data[0]).keys() == set(data.names)


def test_parts_and_splits():
    data = FieldDataset(STORE)
    parts = [data.split(name).operators for name in ("train", "valid", "test")]
    assert sorted(sum(parts, [])) == list(range(5))
    assert data[1:3].operators == [1, 2] and data[-1].operator == 4
    assert FieldDataset(STORE, [3])["key"][0] == data["key"][3]
    with pytest.raises(ValueError, match="unknown split"):
        data.split("rest")
    with pytest.raises(KeyError, match="unknown array"):
        data["feature"]
    with pytest.raises(FileNotFoundError, match="no store"):
        FieldDataset(STORE / "nowhere")


def test_rollouts():
    rng = np.random.default_rng(0)
    fields = rng.standard_normal((2, 3, 16, 16)).astype(np.float32)
    operators = [Operator(grid=16, base_channels=16, layers=2, seed=seed) for seed in (1, 2)]
    rollout = OperatorRollout(policy_type="residual", dt=0.1, num_timesteps=6, num_realisations=3, every=2)
    got = rollout(operators, fields)
    assert got.shape == (2, 3, 4, 3, 16, 16) and np.isfinite(got).all()
    np.testing.assert_array_equal(got[:, :, 0], np.repeat(fields[:, None], 3, axis=1))
    assert (got[0, 0, 1] != got[0, 1, 1]).any()
    # One alone has the bits that it has in company.
    np.testing.assert_array_equal(rollout(operators[1], fields[1]), got[1])
    # A residual step without time leaves the field.
    still = OperatorRollout(policy_type="residual", dt=0.0, num_timesteps=1)(operators[0], fields[0])
    np.testing.assert_array_equal(still[0, 1], fields[0])
    with pytest.raises(ValueError, match="policy_type"):
        OperatorRollout(policy_type="convx")(operators[0], fields[0])
    with pytest.raises(ValueError, match="CPU"):
        OperatorRollout(device="cuda")(operators[0], fields[0])
    with pytest.raises(ValueError, match="wanted"):
        rollout(operators[0], fields[0, :2])
