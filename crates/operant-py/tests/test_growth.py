"""Growth from Python: episodes as tables, against the command line's formulas, and controllers that learn."""

import importlib.util
import json
import sys
import types

import numpy as np
import pytest

import operant

SMALL = {"host": "minimal", "epochs": 12, "train_samples": 48, "val_samples": 32, "side": 8, "min_epochs": 1, "batch": 16}


def test_episodes_are_tables_that_repeat():
    growth = operant.Growth(**SMALL)
    assert growth.settings["host"] == "minimal" and growth.settings["epochs"] == 12
    table, again = growth.episode("heuristic", seed=3), operant.Growth(**SMALL).episode(seed=3)
    assert table.keys() == again.keys()
    for name, column in table.items():
        np.testing.assert_array_equal(column, again[name], err_msg=name)
    assert table["epoch"].tolist() == list(range(1, 13))
    assert table["alpha"].shape == table["stage"].shape == table["shapley"].shape == (12, 3)
    parts = sum(column for name, column in table.items() if name.startswith("reward/"))
    np.testing.assert_allclose(parts, table["reward"], atol=1e-5)
    alone = growth.episode("host", seed=3)
    assert (alone["seed_parameters"] == 0).all() and (alone["stage"] == 1).all() and (alone["blueprint"] == -1).all()
    # The shipped reward is the gain of accuracy.
    np.testing.assert_allclose(np.diff(alone["accuracy"]), alone["reward"][1:], atol=1e-4)


def test_steps_by_hand():
    growth = operant.Growth(**SMALL)
    with pytest.raises(RuntimeError, match="call reset"):
        growth.step()
    with pytest.raises(RuntimeError, match="call reset"):
        growth.render()
    obs, legal = growth.reset(seed=1)
    before = growth.render()
    sizes = [len(growth.choices()[name]) for name in ("op", "blueprint", "style", "tempo", "target", "speed")]
    assert sizes == [6, 13, 4, 3, 3, 4] and legal.size == sum(sizes) + 3 + 5 and obs.dtype == np.float32
    blueprint = growth.choices()["blueprint"].index("conv_small")
    over, row = growth.step({"op": 1, "slot": 1, "blueprint": blueprint})
    assert not over and row["stage"][1] == 3 and row["blueprint"] == [-1, blueprint, -1] and row["done"]
    assert row["seed_parameters"] > 0
    after = growth.render()
    assert after.dtype == np.uint8 and after.shape == before.shape and after.shape[2] == 3
    # The second slot's chip has the colour of training.
    assert after[200, 60].tolist() == [244, 186, 84] and before[200, 60].tolist() == [222, 226, 234]
    for _ in range(11):
        over, row = growth.step([0] * 8)
    assert over and row["epoch"] == 12
    with pytest.raises(ValueError, match="below"):
        growth.step([9] + [0] * 7)
    with pytest.raises(ValueError, match="8 numbers"):
        growth.step([0])
    with pytest.raises(ValueError, match="wanted some of"):
        growth.step({"operation": 1})
    with pytest.raises(ValueError, match='wanted "heuristic"'):
        growth.episode("plan")
    with pytest.raises(ValueError, match="minimal"):
        operant.Growth(host="minimla")


def test_vector_envs_take_choices_by_name():
    envs = operant.make_vec("growth", num_envs=2, host="deep", **{k: v for k, v in SMALL.items() if k != "host"})
    assert envs.single_action_space.nvec.tolist()[1] == 5
    envs.close()
    with pytest.raises(ValueError, match="wanted one of baseline, scale, deep"):
        operant.make_vec("growth", num_envs=1, host="depe")


def test_text_is_grown_on(tmp_path, monkeypatch):
    text = tmp_path / "text.txt"
    text.write_text("the host reads the letter. the seed keeps the window. " * 80)
    small = {"task": "bytes", "host": "transformer", "context": 16, "epochs": 6, "train_samples": 64, "val_samples": 32}
    small |= {"batch": 16, "max_parameters": 500_000}
    monkeypatch.setenv("OPERANT_TASK_DATA", str(tmp_path / "missing.txt"))
    with pytest.raises(OSError, match="can't read text"):
        operant.Growth(**small)
    monkeypatch.setenv("OPERANT_TASK_DATA", str(text))
    growth = operant.Growth(**small)
    table = growth.episode("host", seed=1)
    assert table["loss"][0] < np.log(256) and table["loss"][-1] < table["loss"][0]
    _, legal = growth.reset(seed=1)
    names = growth.choices()["blueprint"]
    fits = [name for name, open_ in zip(names, legal[9:22], strict=True) if open_]
    assert fits == ["se_attention", "norm", "lora_8", "lora_32", "mlp_small", "mlp", "flex_attention"]
    with pytest.raises(ValueError, match="task bytes is of text"):
        operant.Growth(**{**small, "host": "minimal"})


def test_functions_control():
    seen = []

    def wait(obs, legal):
        seen.append((obs.size, int(legal[0])))
        return [0] * 8

    table = operant.Growth(**SMALL).episode(wait, seed=2)
    np.testing.assert_array_equal(table["accuracy"], operant.Growth(**SMALL).episode("host", seed=2)["accuracy"])
    assert len(seen) == 12 and set(seen) == {(seen[0][0], 1)}


def test_a_controller_learns_and_its_run_is_a_table(tmp_path):
    growth = operant.Growth(**SMALL)
    model = growth.learn(
        96, num_envs=4, num_steps=12, minibatch_size=24, threads=1, seed=1, run_dir=tmp_path / "run"
    )
    assert model is growth.model and model.num_timesteps == 96
    table = growth.episode(seed=5)
    assert len(table["epoch"]) == 12
    tables = operant.RunTables(tmp_path / "run")
    assert {"metrics", "events"} <= set(tables)
    metrics, events = tables["metrics"], tables["events"]
    assert metrics["step"].dtype == np.int64 and metrics["step"][-1] == 96
    assert (metrics["entropy/op"] <= np.log(6) + 1e-6).all() and np.isfinite(metrics["reward/gain"]).all()
    assert (events["kind"] == "outcome").sum() == 8
    with pytest.raises(KeyError, match="unknown table"):
        tables["metric"]


def test_numbers_out_of_range_are_named():
    with pytest.raises(ValueError, match="seed = -1: wanted 0 <= seed"):
        operant.Growth().reset(seed=-1)
    with pytest.raises(ValueError, match="number = -1: wanted 0 <= number"):
        operant.Growth().reset(number=-1)


def test_tables_of_runs_that_went_on(tmp_path):
    lines = [{"step": 1, "seconds": 0.1, "a": 1}, {"step": 2, "seconds": 0.2, "a": 2}, {"step": 2, "seconds": 0.3, "b": 0.5}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"step": 3')
    metrics = operant.RunTables(tmp_path)["metrics"]
    assert metrics["step"].tolist() == [1, 2] and metrics["seconds"].tolist() == [0.1, 0.3]
    np.testing.assert_array_equal(metrics["a"], [1, np.nan])
    with pytest.raises(FileNotFoundError, match="metrics.jsonl"):
        operant.RunTables(tmp_path / "nothing")


def test_numbers_of_tables_are_exact(tmp_path):
    bits = np.random.default_rng(0).integers(0, 2**64, size=2000, dtype=np.uint64)
    numbers = bits.view(np.float64)
    numbers = np.append(numbers[np.isfinite(numbers)], [5e-324, 2.2e-308, np.finfo(np.float64).max, 0.1, 1e22])
    lines = (json.dumps({"step": step, "return": x}) + "\n" for step, x in enumerate(numbers.tolist()))
    (tmp_path / "metrics.jsonl").write_text("".join(lines))
    tables = operant.RunTables(tmp_path)
    found = [tables["metrics"]["return"]]
    for package in ("pandas", "pyarrow"):
        if importlib.util.find_spec(package):
            frame = tables.pandas() if package == "pandas" else tables.arrow()
            found.append(np.asarray(frame["return"], dtype=np.float64))
    for values in found:
        assert values.tobytes() == numbers.tobytes()


def test_frames_where_packages_are_there(tmp_path, monkeypatch):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "a": 0.5}\n{"step": 2}\n')
    tables = operant.RunTables(tmp_path)
    made = types.SimpleNamespace(DataFrame=dict, table=dict, array=list)
    for name, call in (("pandas", tables.pandas), ("pyarrow", tables.arrow)):
        try:
            module = __import__(name)
        except ImportError:
            with pytest.raises(ImportError, match=name):
                call()
            monkeypatch.setitem(sys.modules, name, made)
            assert list(call()) == ["step", "a"]
        else:
            frame = call()
            assert module is not None and list(getattr(frame, "columns" if name == "pandas" else "column_names")) == ["step", "a"]
