"""Collections of operators, read with NumPy: against the numbers that the command line shows of the same store (tests/golden/fields)."""

import csv
import shutil
import struct
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest

from operant import FieldDataset, Operator, OperatorRollout, doctor, field
from operant._blosc import unpacked
from operant._crc import crc32c

STORE = Path(__file__).parent / "golden" / "fields"
COMPRESSED = Path(__file__).parent / "golden" / "fields_compressed"


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


def test_checksums():
    # RFC 3720, B.4, and a length of many lanes against one lane at a time.
    assert crc32c(b"123456789") == 0xE3069283 and crc32c(bytes(32)) == 0x8A9136AA and crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(b"") == 0 and crc32c(b"a") == 0xC1D04330
    data = np.random.default_rng(0).integers(0, 256, 5003, dtype=np.uint8).tobytes()
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    assert crc32c(data) == crc ^ 0xFFFFFFFF


def test_what_is_damaged_is_told(tmp_path):
    store = tmp_path / "store"
    shutil.copytree(STORE, store)
    data = FieldDataset(store)
    whole = data.read("features", 1)
    path = next(path for path in sorted((store / "features" / "c").rglob("*")) if path.is_file())
    content = bytearray(path.read_bytes())
    for at in (5, len(content) - 6):
        path.write_bytes(bytes(content[:at]) + bytes([content[at] ^ 1]) + bytes(content[at + 1 :]))
        with pytest.raises(ValueError, match="damaged"):
            FieldDataset(store)["features"]
    path.write_bytes(bytes(content[:40]))
    with pytest.raises(ValueError, match="damaged"):
        data.read("features", 1)
    with pytest.raises(IndexError, match="wanted 0 to 4"):
        data.read("features", 5)
    # A record that waits for its shard is read from where it waits.
    path.unlink()
    with pytest.raises(FileNotFoundError, match="is gone, which manifest.json lists"):
        data.read("features", 1)
    parts = [whole.tobytes() if name == "features" else None for name in data.names]
    packed = [struct.pack("<Q", 2**64 - 1 if part is None else len(part)) + (part or b"") for part in parts]
    record = field._PENDING_MAGIC + struct.pack("<Q", len(parts)) + b"".join(packed)
    (store / "pending").mkdir(exist_ok=True)
    (store / "pending" / "00000001.record").write_bytes(record + struct.pack("<I", crc32c(record)))
    np.testing.assert_array_equal(data.read("features", 1), whole)


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
    with pytest.raises(ValueError, match="unknown device"):
        OperatorRollout(device="gpu")(operators[0], fields[0])
    if not doctor()["usable"]:
        with pytest.raises(RuntimeError, match="driver"):
            OperatorRollout(device="cuda")(operators[0], fields[0])
    with pytest.raises(ValueError, match="wanted"):
        rollout(operators[0], fields[0, :2])


def test_what_is_not_served_as_asked_is_said():
    field = np.random.default_rng(0).standard_normal((3, 16, 16)).astype(np.float32)
    operator = Operator(grid=16, base_channels=16, layers=2)
    # Both are named: what was asked for and what takes its place.
    with pytest.warns(RuntimeWarning, match="f16 .*f32"):
        got = OperatorRollout(precision="float16", num_timesteps=2)(operator, field)
    assert np.isfinite(got).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        OperatorRollout(num_timesteps=1)(operator, field)


def test_u_afno():
    field = np.random.default_rng(0).standard_normal((3, 16, 16)).astype(np.float32)
    rollout = OperatorRollout(policy_type="residual", dt=0.1, num_timesteps=2)
    make = lambda **more: Operator(grid=16, base_channels=16, layers=1, architecture="uafno", levels=1, **more)
    got = [rollout(make(**more), field) for more in ({}, {"blocks": 1}, {"modes": 1.0})]
    assert all(np.isfinite(one).all() for one in got)
    assert (got[0] != got[1]).any() and (got[0] != got[2]).any()
    with pytest.raises(RuntimeError, match="uafno"):
        OperatorRollout(device="cuda")(make(), field)
    with pytest.raises(ValueError, match="did you mean"):
        rollout(Operator(grid=16, architecture="uafn"), field)


def test_compressed_stores():
    data = FieldDataset(COMPRESSED)
    assert data.layout["codec"] == "blosc"
    fields, metrics = data[1]["trajectories_16"], data[1]["metrics"]
    assert fields.dtype == np.float32 and metrics.dtype == np.float16
    energy = (fields.astype(np.float64) ** 2).mean(axis=(2, 3, 4))
    np.testing.assert_allclose(energy, metrics[:, ::4, 0], rtol=2e-3)
    assert data["features"].shape == (2, 3, len(data.feature_names)) and np.isfinite(data["features"]).all()
    train = data.split("train")
    assert data.stats["spatial.rms"]["mean"] == pytest.approx(train["features"][:, 0, data.feature_names.index("spatial.rms")].mean(), rel=1e-6)
    assert (data["architecture"][:, data.attributes["architecture"].index("convolutions")] == 4).all()
    assert sum(name.startswith("causality.") for name in data.feature_names) == 15


def test_chunks_of_many_blocks():
    rng = np.random.default_rng(1)
    for size, count in ((1, 70_000), (4, 40_000), (8, 17)):
        raw = np.concatenate([rng.integers(0, 256, count * size // 2, np.uint8), np.zeros(count * size - count * size // 2, np.uint8)])
        block, blocks = 4096, []
        for first in range(0, len(raw), block):
            turned = raw[first : first + block].reshape(-1, size).T.tobytes()
            packed = zlib.compress(turned)
            blocks.append(packed if len(packed) < len(turned) else turned)
        ends = np.cumsum([16 + 4 * len(blocks), *(4 + len(one) for one in blocks)])
        header = struct.pack("<BBBBIII", 2, 1, 0x71, size, len(raw), block, ends[-1])
        chunk = header + struct.pack(f"<{len(blocks)}I", *ends[:-1]) + b"".join(struct.pack("<I", len(one)) + one for one in blocks)
        assert unpacked(chunk, len(raw)) == raw.tobytes()
        assert unpacked(chunk[:-1], len(raw)) is None and unpacked(chunk, len(raw) + 4) is None
        assert unpacked(b"\1" + chunk[1:], len(raw)) is None


def test_fields_without_a_file_for_the_well():
    pytest.importorskip("h5py")
    with pytest.raises(ValueError, match="grid 32"):
        FieldDataset(COMPRESSED).to_the_well("nowhere.hdf5", grid=32)
