"""Operators on a Hopper GPU: the steps of the CPU within the precision's rounding, and the same bits again."""

import dataclasses

import numpy as np
import pytest

from operant import Operator, OperatorRollout, doctor

if not doctor()["usable"]:
    pytest.skip("needs a GPU", allow_module_level=True)

FIELDS = np.random.default_rng(0).standard_normal((2, 3, 64, 64)).astype(np.float32)
OPERATORS = [Operator(grid=64, base_channels=32, seed=1), Operator(grid=64, base_channels=32, seed=2, noise="laplace", norm="group")]


@pytest.mark.parametrize(("precision", "error"), [("float32", 2e-5), ("float16", 4e-3), ("bfloat16", 3e-2)])
def test_one_step_is_that_of_the_cpu(precision, error):
    step = {"policy_type": "autoregressive", "num_timesteps": 1, "num_realisations": 2}
    got = OperatorRollout(device="cuda", precision=precision, **step)(OPERATORS, FIELDS)
    wanted = OperatorRollout(**step)(OPERATORS, FIELDS)
    np.testing.assert_array_equal(got[:, :, 0], wanted[:, :, 0])
    apart = np.linalg.norm(got[:, :, 1] - wanted[:, :, 1]) / np.linalg.norm(wanted[:, :, 1])
    assert apart < error, apart


def test_times_and_bits():
    rollout = OperatorRollout(policy_type="residual", dt=0.01, num_timesteps=23, num_realisations=3, device="cuda", precision="bfloat16")
    got = rollout(OPERATORS, FIELDS)
    assert got.shape == (2, 3, 24, 3, 64, 64) and np.isfinite(got).all()
    np.testing.assert_array_equal(rollout(OPERATORS, FIELDS), got)
    few = dataclasses.replace(rollout, every=7)(OPERATORS, FIELDS)
    np.testing.assert_array_equal(few, got[:, :, ::7])


def test_what_a_gpu_has_no_kernels_for():
    with pytest.raises(RuntimeError, match="uafno"):
        OperatorRollout(device="cuda")(Operator(architecture="uafno"), FIELDS[0])
    with pytest.warns(RuntimeWarning, match="cuda was asked for.*computing on the CPU"):
        got = OperatorRollout(device="cuda", num_timesteps=1)(Operator(grid=8, base_channels=16), FIELDS[0, :, :8, :8])
    assert np.isfinite(got).all()
