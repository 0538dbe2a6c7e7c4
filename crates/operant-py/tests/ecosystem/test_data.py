"""What Operant writes, read by the libraries that its formats belong to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import operant
import pytest

STORES = [Path(__file__).parent.parent / "golden" / name for name in ("fields", "fields_compressed")]


@pytest.mark.library("zarr")
@pytest.mark.parametrize("folder", STORES, ids=lambda folder: folder.name)
def test_zarr(folder: Path) -> None:
    """`zarr.open_group` reads every array of stores of fields, as they are and compressed."""
    import zarr

    data, group = operant.FieldDataset(folder), zarr.open_group(folder, mode="r")
    assert set(group.array_keys()) == set(data.names)
    for name in data.names:
        np.testing.assert_array_equal(group[name][:], data[name])


@pytest.mark.library("the_well")
def test_the_well(tmp_path: Path) -> None:
    """`WellDataset` reads the fields that `FieldDataset.to_the_well` wrote."""
    from the_well.data import WellDataset

    data = operant.FieldDataset(STORES[1])
    assert data.to_the_well(tmp_path / "fields.hdf5") == 4
    well = WellDataset(path=str(tmp_path), use_normalization=False, n_steps_input=1, n_steps_output=1)
    fields = data["trajectories_16"].reshape(4, -1, *data.shape("trajectories_16")[2:])
    times = fields.shape[1]
    assert len(well) == 4 * (times - 1)
    for trajectory in range(4):
        for time in range(times - 1):
            sample = well[trajectory * (times - 1) + time]
            for key, at in (("input_fields", time), ("output_fields", time + 1)):
                np.testing.assert_array_equal(sample[key][0].numpy(), fields[trajectory, at].transpose(1, 2, 0))


@pytest.mark.library("duckdb")
def test_duckdb(tmp_path: Path) -> None:
    """Queries over `metrics.jsonl` of a run and over its table in Arrow and in a Parquet file agree with `RunTables`."""
    import duckdb
    import pyarrow.parquet

    run = tmp_path / "run"
    operant.PPO("CartPole-v1", run_dir=run, num_envs=4, num_steps=32, minibatch_size=64, threads=1, seed=0).learn(2048)
    tables = operant.RunTables(run)
    metrics, arrow = tables["metrics"], tables.arrow("metrics")
    pyarrow.parquet.write_table(arrow, tmp_path / "metrics.parquet")
    step = "step" if "step" in metrics else "steps"
    assert len(metrics[step]) > 2
    with duckdb.connect() as base:
        base.register("metrics", arrow)
        for source in (f"read_json_auto('{run}/metrics.jsonl')", f"'{tmp_path}/metrics.parquet'", "metrics"):
            rows = base.execute(f'select count(*), max({step}), avg("loss/policy") from {source}').fetchone()
            wanted = (len(metrics[step]), metrics[step].max(), metrics["loss/policy"].mean())
            assert rows == pytest.approx(wanted, rel=1e-9)


@pytest.mark.library("onnxruntime")
def test_onnxruntime() -> None:
    """A network of `operant.nn` rebuilt in ONNX from its `state_dict` gives the same logits (there is no export to ONNX yet)."""
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    net = operant.nn.actor_critic(inputs=4, actions=2, hidden=[16, 16], seed=1)
    weights = {name: array for name, array in net.state_dict().items() if name.startswith("actor.")}
    layers = sorted({int(name.split(".")[1]) for name in weights})
    nodes, x = [], "obs"
    for place, layer in enumerate(layers):
        y = f"layer{layer}"
        nodes.append(helper.make_node("Gemm", [x, f"actor.{layer}.weight", f"actor.{layer}.bias"], [y], transB=1))
        x = y
        if place + 1 < len(layers):
            nodes.append(helper.make_node("Tanh", [y], [f"{y}.tanh"]))
            x = f"{y}.tanh"
    graph = helper.make_graph(
        nodes,
        "actor",
        [helper.make_tensor_value_info("obs", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, ["n", 2])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    rows = np.random.default_rng(0).standard_normal((33, 4)).astype(np.float32)
    np.testing.assert_allclose(session.run(None, {"obs": rows})[0], net(rows)["logits"], rtol=1e-4, atol=1e-6)
