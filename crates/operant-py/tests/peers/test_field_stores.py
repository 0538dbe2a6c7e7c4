"""Stores of fields as other packages see them: Zarr reads a compressed one, The Well reads what is exported."""

from pathlib import Path

import numpy as np
import pytest

from operant import FieldDataset

STORES = [Path(__file__).parent.parent / "golden" / name for name in ("fields", "fields_compressed")]


@pytest.mark.parametrize("folder", STORES, ids=lambda folder: folder.name)
def test_zarr_reads_every_array(folder):
    zarr = pytest.importorskip("zarr")
    data, group = FieldDataset(folder), zarr.open_group(folder, mode="r")
    assert set(group.array_keys()) == set(data.names)
    for name in data.names:
        np.testing.assert_array_equal(group[name][:], data[name])
    codecs = str(group["features"].metadata.to_dict()["codecs"])
    assert ("blosc" in codecs) == (data.layout.get("codec", "none") == "blosc")


def test_hdf5_has_the_fields(tmp_path):
    h5py = pytest.importorskip("h5py")
    data = FieldDataset(STORES[1])
    assert data.to_the_well(tmp_path / "fields.hdf5") == 4
    with h5py.File(tmp_path / "fields.hdf5") as file:
        assert file.attrs["n_trajectories"] == 4 and list(file["dimensions"].attrs["spatial_dims"]) == ["y", "x"]
        np.testing.assert_array_equal(file["t0_fields/channel_1"][2:], data[1]["trajectories_16"][:, :, 1])
        np.testing.assert_array_equal(file["scalars/operator"][:], [0, 0, 1, 1])
        np.testing.assert_allclose(file["scalars/noise_scale"][::2], data["parameters"][:, 6], rtol=1e-6)
    assert not (tmp_path / "fields.hdf5.part").exists()


def test_the_well_reads_it_back(tmp_path):
    the_well = pytest.importorskip("the_well.data")
    data = FieldDataset(STORES[1])
    data.to_the_well(tmp_path / "fields.hdf5")
    well = the_well.WellDataset(path=str(tmp_path), use_normalization=False, n_steps_input=1, n_steps_output=1)
    fields = data["trajectories_16"].reshape(4, -1, *data.shape("trajectories_16")[2:])
    times = fields.shape[1]
    assert len(well) == 4 * (times - 1) and well.metadata.spatial_resolution == (16, 16)
    for trajectory in range(4):
        for time in range(times - 1):
            sample = well[trajectory * (times - 1) + time]
            for key, at in (("input_fields", time), ("output_fields", time + 1)):
                wanted = fields[trajectory, at].transpose(1, 2, 0)
                np.testing.assert_array_equal(sample[key][0].numpy(), wanted)
            assert (sample["boundary_conditions"].numpy() == 2).all()
    constants = dict(zip(well.metadata.constant_scalar_names, sample["constant_scalars"].numpy()))
    assert constants["operator"] == 1 and constants["realisation"] == 1
