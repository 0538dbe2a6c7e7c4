"""The trainer on the engine's environments: learning, exactness, stopping, messages."""

from __future__ import annotations

import _thread
import errno
import json
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import operant
import pytest


def weights(model: operant.PPO, tmp_path: Path) -> dict[str, np.ndarray]:
    from safetensors.numpy import load_file

    path = tmp_path / "weights.safetensors"
    model.save(path)
    return load_file(path)


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return a.keys() == b.keys() and all(a[key].tobytes() == b[key].tobytes() for key in a)


SOME = np.random.default_rng(0).normal(size=(37, 4)).astype(np.float32)


def test_cartpole_is_learned() -> None:
    model = operant.PPO("CartPole-v1", seed=1)
    assert model.learn(100_000) is model
    assert 100_000 <= model.num_timesteps < 100_000 + 16 * 16
    before = operant.PPO("CartPole-v1", seed=1).evaluate(20)
    result = model.evaluate(episodes=50)
    assert result["mean_return"] > 400 > 5 * before["mean_return"]
    assert len(result["returns"]) == len(result["lengths"]) == 50
    assert result["std_return"] == pytest.approx(np.std(result["returns"]))
    assert result == model.evaluate(episodes=50)
    assert model.metrics["return"] > 100 and model.metrics["step"] == model.num_timesteps
    assert {"loss/policy", "loss/value", "entropy", "approx_kl", "sps", "episodes"} <= model.metrics.keys()


def test_predictions_have_the_form_of_the_env() -> None:
    model = operant.PPO("cartpole", seed=1)
    actions, state = model.predict(SOME, deterministic=True)
    assert state is None and actions.shape == (37,) and actions.dtype == np.int64
    one, _ = model.predict(SOME[3], deterministic=True)
    assert np.shape(one) == () and one == actions[3]
    envs = operant.make_vec("cartpole", 37, seed=0)
    envs.reset()
    envs.step(model.predict(SOME)[0])
    drawn = {int(model.predict(SOME[0])[0]) for _ in range(100)}
    assert drawn == {0, 1}
    pendulum = operant.PPO("Pendulum-v1", seed=1)
    observations = np.zeros((500, 3), dtype=np.float32)
    actions, _ = pendulum.predict(observations)
    assert actions.shape == (500, 1) and actions.dtype == np.float32
    assert actions.min() < -0.5 and actions.max() > 0.5 and np.abs(actions).max() <= 2.0
    assert pendulum.predict(observations[0])[0].shape == (1,)
    with pytest.raises(ValueError, match=r"shape \(5,\); wanted \(4,\), or \('N', 4\) for several"):
        model.predict(np.zeros(5))


def test_masks_forbid_actions() -> None:
    model = operant.PPO("probe_masked", seed=1)
    count = model.action_space.n
    observations = np.zeros((200, *model.observation_space.shape), dtype=np.float32)
    for action in range(count):
        masks = np.zeros((200, count), dtype=bool)
        masks[:, action] = True
        assert (model.predict(observations, action_masks=masks)[0] == action).all()
    with pytest.raises(ValueError, match="forbid every action of row 0"):
        model.predict(observations, action_masks=np.zeros((200, count)))


@pytest.mark.parametrize("name", ["model.safetensors", "model"])
def test_saved_models_predict_the_same_bits(name: str, tmp_path: Path) -> None:
    model = operant.PPO("Pendulum-v1", seed=3, num_envs=4, num_steps=64, minibatch_size=64).learn(1000)
    assert model.settings["ppo"]["normalize_obs"]
    model.save(tmp_path / name)
    other = operant.PPO.load(tmp_path / name)
    observations = np.random.default_rng(0).normal(size=(100, 3)).astype(np.float32)
    for rows in (observations, observations[:7], observations[0]):
        assert (
            model.predict(rows, deterministic=True)[0].tobytes() == other.predict(rows, deterministic=True)[0].tobytes()
        )
    assert other.settings["ppo"] == model.settings["ppo"] and other.settings["seed"] == 3
    assert model.evaluate(5) == other.evaluate(5)
    # Written over, as in a loop that saves again and again.
    model.learn(256).save(tmp_path / name)
    again = operant.PPO.load(tmp_path / name)
    assert (
        again.predict(observations, deterministic=True)[0].tobytes()
        != other.predict(observations, deterministic=True)[0].tobytes()
    )


def test_a_model_is_saved_only_where_nothing_else_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = operant.PPO("cartpole", seed=1)
    (tmp_path / "other" / "ckpt").mkdir(parents=True)
    (tmp_path / "other" / "thesis.tex").write_text("all of it")
    (tmp_path / "mine" / "ckpt").mkdir(parents=True)
    (tmp_path / "mine" / "ckpt" / "step-1").write_text("of another program")
    (tmp_path / "file").write_text("text")
    (tmp_path / "folder.safetensors").mkdir()
    before = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*"))
    for path, message in (
        ("", 'wanted a name, such as "model"'),
        (" \t", r"save\(' \\t'\): wanted a name, such as \"model\""),
        (".", "holds file, which is no part of a saved model"),
        ("other", "other holds thesis.tex, which is no part of a saved model: wanted a new or empty folder"),
        ("mine", "mine holds ckpt, which is no part of a saved model"),
        ("file", "file is a file: wanted the name of a folder"),
        ("file/model", "file is a file, wanted a folder"),
        ("folder.safetensors", "is a folder: wanted the name of a file"),
        ("x.zip", "models are not saved as .zip; wanted 'x.safetensors' for the policy in one file, or 'x' for a folder"),
        ("x.PT", "models are not saved as .PT; wanted 'x.safetensors'"),
    ):
        with pytest.raises(ValueError, match=message):
            model.save(path)
    assert sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*")) == before
    (tmp_path / "empty").mkdir()
    for path in ("empty", "new/v1.2"):
        model.save(path)
        assert operant.PPO.load(path).num_timesteps == 0


def test_paths_may_begin_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, here = tmp_path / "home", tmp_path / "here"
    home.mkdir()
    here.mkdir()
    (home / "thesis.tex").write_text("all of it")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(here)
    model = operant.PPO("cartpole", seed=1, num_envs=4, n_steps=16, batch_size=32, run_dir="~/run").learn(64)
    model.save("~/model")
    model.save("~/policy.safetensors")
    with pytest.raises(ValueError, match="~ holds model, which is no part of a saved model"):
        model.save("~")
    assert list(here.iterdir()) == []
    for path in ("~/model", "~/policy.safetensors"):
        assert operant.PPO.load(path).predict(np.zeros(4), deterministic=True)
    assert (home / "run" / "run.toml").is_file() and operant.PPO.resume("~/model").num_timesteps == 64
    for attempt in (lambda: operant.PPO.load(" "), lambda: operant.PPO.resume(""), lambda: operant.PPO("cartpole", run_dir=" ")):
        with pytest.raises(ValueError, match="wanted a name"):
            attempt()


def test_a_loaded_model_fits_its_minibatch_to_other_envs(tmp_path: Path) -> None:
    model = operant.PPO("cartpole", seed=1, num_envs=64, num_steps=16, minibatch_size=64).learn(1024)
    model.save(tmp_path / "model")
    env = gymnasium.make("CartPole-v1")
    wanted = "saved minibatch_size 64 does not divide 1 envs [*] num_steps 16: it is 16 now; num_steps= and minibatch_size= of load"
    with pytest.warns(RuntimeWarning, match=wanted):
        one = operant.PPO.load(tmp_path / "model", env=env)
    assert one.settings["ppo"]["minibatch_size"] == 16 and one.learn(32).num_timesteps == 32
    with pytest.warns(RuntimeWarning, match="it is 56 now"):
        assert operant.PPO.load(tmp_path / "model", num_envs=7).settings["ppo"]["minibatch_size"] == 56
    for settings, size in (
        ({"env": env, "num_steps": 128}, 64),
        ({"env": env, "batch_size": 8}, 8),
        ({"env": env, "num_minibatches": 2}, 8),
        ({"num_envs": 8}, 64),
    ):
        assert operant.PPO.load(tmp_path / "model", **settings).settings["ppo"]["minibatch_size"] == size, settings
    with pytest.raises(ValueError, match="minibatch_size 5 does not divide"):
        operant.PPO.load(tmp_path / "model", env=env, minibatch_size=5)
    # A memory learns from whole rollouts of envs.
    operant.PPO("cartpole", num_envs=8, num_steps=16, minibatch_size=64, memory="lstm").save(tmp_path / "lstm")
    with pytest.warns(RuntimeWarning, match="it is 48 now"):
        assert operant.PPO.load(tmp_path / "lstm", num_envs=3).learn(48).num_timesteps == 48


def test_a_saved_model_is_replaced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = operant.PPO("cartpole", seed=1, hidden=[8]), operant.PPO("cartpole", seed=1, hidden=[16])
    small.learn(512).save(tmp_path / "model")

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    def elsewhere(*_: Any) -> None:
        raise OSError(errno.EXDEV, "another file system")

    with monkeypatch.context() as patched:
        patched.setattr(operant._operant, "copy_checkpoint", full)
        with pytest.raises(OSError, match="no space left"):
            large.save(tmp_path / "model")
    assert operant.PPO.load(tmp_path / "model").settings["network"]["hidden"] == [8]
    # Fewer steps than what is replaced.
    (tmp_path / "link").symlink_to("model")
    large.save(tmp_path / "link")
    again = operant.PPO.load(tmp_path / "model")
    assert (again.settings["network"]["hidden"], again.num_timesteps) == ([16], 0)
    # Where folders can't change places, every file is replaced.
    with monkeypatch.context() as patched:
        patched.setattr(operant._operant, "exchange_folders", elsewhere)
        small.save(tmp_path / "model")
    assert operant.PPO.load(tmp_path / "model").num_timesteps == 512
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "model"]


def test_a_saved_folder_trains_on_exactly(tmp_path: Path) -> None:
    model = operant.PPO("cartpole", seed=2).learn(4096)
    model.save(tmp_path / "saved")
    other = operant.PPO.load(tmp_path / "saved")
    assert other.num_timesteps == model.num_timesteps == 4096
    assert same(weights(model.learn(4096), tmp_path), weights(other.learn(4096), tmp_path))
    # A policy's file has weights alone: it goes on, but not exactly, and counts from 0.
    model.save(tmp_path / "policy.safetensors")
    policy = operant.PPO.load(tmp_path / "policy.safetensors", learning_rate=1e-4, n_steps=32)
    assert policy.num_timesteps == 0 and policy.settings["ppo"]["num_steps"] == 32
    assert same(weights(policy, tmp_path), weights(model, tmp_path))
    policy.learn(512)
    assert not same(weights(policy, tmp_path), weights(model, tmp_path))


def test_resume_is_exact(tmp_path: Path) -> None:
    options: dict[str, Any] = {"seed": 5, "steps": 16_384, "checkpoint": {"every": 20, "keep": 9}}
    whole = operant.PPO("cartpole", run_dir=tmp_path / "whole", **options).learn()
    assert whole.num_timesteps == 16_384
    wanted = weights(whole, tmp_path)
    with pytest.raises(ValueError, match="is in use by a run that goes on"):
        operant.PPO.resume(tmp_path / "whole")
    del whole
    # As if it had been killed: the newest checkpoint is of the middle.
    shutil.copytree(tmp_path / "whole", tmp_path / "part")
    names = sorted(path.name for path in (tmp_path / "part" / "ckpt").glob("step-*"))
    assert [int(name.removeprefix("step-")) for name in names] == [256, 5120, 10_240, 15_360, 16_384]
    names = names[1:]
    for name in names[2:]:
        shutil.rmtree(tmp_path / "part" / "ckpt" / name)
    model = operant.PPO.resume(tmp_path / "part")
    assert model.num_timesteps == 10_240 and model.run_dir == tmp_path / "part"
    assert model.learn().num_timesteps == 16_384
    assert same(wanted, weights(model, tmp_path))
    del model
    older = operant.PPO.resume(tmp_path / "part", checkpoint=names[0])
    assert older.num_timesteps == 5120
    # A checkpoint as a model of its own.
    other = operant.PPO.load(tmp_path / "whole" / "ckpt" / names[1])
    assert other.num_timesteps == 10_240 and other.run_dir != tmp_path / "whole"
    assert same(wanted, weights(other.learn(), tmp_path))


def test_a_run_folder_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    model = operant.PPO("cartpole", seed=1, run_dir=folder).learn(8192)
    assert model.run_dir == folder
    final = json.loads((folder / "final.json").read_text())
    assert final["steps"] == 8192 and final["eval_return"] is not None
    with pytest.raises(ValueError, match="holds a run already"):
        operant.PPO("cartpole", run_dir=folder)
    with pytest.raises(ValueError, match="holds a run"):
        operant.PPO("cartpole").save(folder)
    del model
    # Closed, so that everything is there: sinks open their files on a thread of their own.
    assert {"run.toml", "metrics.jsonl", "events.jsonl", "live.ring", "ckpt", "final.json"} <= {
        p.name for p in folder.iterdir()
    }
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    assert any('"return"' in line for line in lines)
    temporary = operant.PPO("cartpole")
    other = temporary.run_dir
    assert other.exists()
    del temporary
    assert not other.exists()


def test_a_batch_and_a_run_keep_to_themselves(tmp_path: Path) -> None:
    batch, run = tmp_path / "batch", tmp_path / "run"
    batch.mkdir()
    (batch / "batch.toml").write_text("seeds = 2\n")
    small: dict[str, Any] = {"seed": 1, "num_envs": 4, "n_steps": 16, "batch_size": 32}
    model = operant.PPO("cartpole", run_dir=run, **small).learn(64)
    for attempt in (
        lambda: operant.PPO("cartpole", run_dir=batch, **small),
        lambda: model.save(batch),
        lambda: operant.PPO.load(run, run_dir=batch),
        lambda: operant.PPO.load(batch),
        lambda: operant.PPO.resume(batch),
    ):
        with pytest.raises(ValueError, match="holds a batch of runs"):
            attempt()
    assert [path.name for path in batch.iterdir()] == ["batch.toml"]
    for seed in range(7, 13):
        (batch / f"seed-{seed}").mkdir()
        (batch / f"seed-{seed}" / "run.toml").write_text("")
    wanted = rf"name one of them: {batch}/seed-7, {batch}/seed-8, {batch}/seed-9, {batch}/seed-10 and 2 more"
    for attempt in (lambda: operant.PPO.load(batch), lambda: operant.PPO.resume(batch)):
        with pytest.raises(ValueError, match=wanted):
            attempt()
    before = sorted(path.name for path in (run / "ckpt").iterdir())
    with pytest.raises(ValueError, match="holds a run already"):
        operant.PPO.load(run, run_dir=run)
    assert before == sorted(path.name for path in (run / "ckpt").iterdir())


def test_the_file_of_a_run_that_learned_twice_says_so(tmp_path: Path) -> None:
    model = operant.PPO("cartpole", seed=1, num_envs=4, n_steps=16, batch_size=32, run_dir=tmp_path / "run")
    model.learn(64)
    assert "changed" not in model.settings
    model.learn(64)
    assert model.settings["changed"] == [{"step": 64, "before": {"steps": 64}}]
    assert model.settings["steps"] == 128
    # Without schedules over all steps, more of them are no change.
    model = operant.PPO("cartpole", num_envs=4, n_steps=16, batch_size=32, anneal_lr=False, run_dir=tmp_path / "plain")
    for _ in range(3):
        model.learn(64)
    assert "changed" not in model.settings and model.settings["steps"] == 192


def test_tables_have_the_names_of_the_command_line(tmp_path: Path) -> None:
    model = operant.PPO("cartpole", seed=1, num_envs=4, n_steps=16, batch_size=32, run_dir=tmp_path / "b" / "seed-1")
    model.learn(256)
    metrics = model.metrics
    del model
    tables = operant.RunTables(tmp_path / "b" / "seed-1")
    assert sorted(tables) == ["episodes", "events", "metrics", "settings"]
    columns = {name: list(tables[name]) for name in ("events", "episodes", "settings")}
    assert columns == {
        "events": ["step", "time", "kind", "severity", "topic", "text"],
        "episodes": ["step", "env", "return", "length"],
        "settings": ["key", "value"],
    }
    shared = {"step", "seconds", "return", "length", "episodes"}
    assert shared <= set(metrics) and shared <= set(tables["metrics"]) and "steps" not in metrics
    assert len(tables["episodes"]["return"]) > 3 and tables["episodes"]["length"].dtype == np.int64
    settings = dict(zip(*tables["settings"].values(), strict=True))
    assert settings["ppo.num_steps"] == "16" and settings["env.name"] == "cartpole"
    (tmp_path / "b" / "batch.toml").write_text("seeds = 1\n")
    batch = operant.RunTables(tmp_path / "b")
    assert list(batch["events"])[:2] == ["seed", "step"] and (batch["metrics"]["seed"] == 1).all()


def test_learning_goes_on_and_schedules_stretch() -> None:
    model = operant.PPO("cartpole", seed=1).learn(4096)
    assert model.metrics["learning_rate"] < 0.3e-3
    model.learn(4096)
    assert model.num_timesteps == 8192 == model.settings["steps"]
    assert 0 < model.metrics["learning_rate"] < 0.3e-3
    model.learn(1)
    assert model.num_timesteps == 8192 + 256
    assert model.learn().num_timesteps == 8192 + 256


def test_threads_do_not_matter(tmp_path: Path) -> None:
    options = {"num_envs": 512, "num_steps": 16, "num_minibatches": 4, "seed": 9}
    one, two, other = (
        weights(operant.PPO("cartpole", **{**options, **more}).learn(30_000), tmp_path)
        for more in ({"threads": 1}, {"threads": 2}, {"threads": 1, "seed": 10})
    )
    assert same(one, two) and not same(one, other)


def test_callbacks_see_and_stop() -> None:
    seen: list[dict[str, float]] = []

    def callback(model: operant.PPO, metrics: dict[str, float]) -> bool | None:
        assert metrics["step"] == model.num_timesteps
        model.predict(SOME)
        seen.append(metrics)
        return False if len(seen) == 3 else None

    model = operant.PPO("cartpole", seed=1)
    start = time.monotonic()
    model.learn(10**12, callback=callback)
    assert len(seen) == 3 and 0.2 < time.monotonic() - start < 5
    last: list[float] = []
    model.learn(256, callback=lambda _, metrics: last.append(metrics["step"]))
    assert last == [model.num_timesteps]

    def broken(model: operant.PPO, metrics: dict[str, float]) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        model.learn(10**12, callback=broken)
    model.learn(256)


@pytest.mark.parametrize("kept", [False, True])
def test_keyboard_interrupt_stops_and_leaves_a_model(kept: bool, tmp_path: Path) -> None:
    # Python leaves the signal ignored where its parent had it so, as shells do for programs in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    model = operant.PPO("cartpole", seed=1, run_dir=tmp_path / "run" if kept else None)
    at: list[float] = []

    def interrupt() -> None:
        time.sleep(0.5)
        at.append(time.monotonic())
        _thread.interrupt_main()

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        model.learn(10**12)
    assert time.monotonic() - at[0] < 5.0
    thread.join()
    reached = model.num_timesteps
    assert reached > 0 and model.metrics["step"] == reached
    assert len(model.predict(SOME)[0]) == 37
    if kept:
        assert operant.PPO.load(tmp_path / "run").num_timesteps == reached
    model.learn(256)
    assert model.num_timesteps == reached + 256


def test_other_threads_run_meanwhile() -> None:
    model = operant.PPO("cartpole", seed=1, threads=1)
    counted, stop = [0], threading.Event()

    def count() -> None:
        while not stop.is_set():
            counted[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    start = time.monotonic()
    model.learn(10**12, callback=lambda *_: time.monotonic() - start < 1.0)
    stop.set()
    thread.join()
    # Chunks of 50 ms with the GIL held would leave about 20.
    assert counted[0] > 150
    errors: list[Exception] = []

    def intrude() -> None:
        time.sleep(0.1)
        try:
            model.learn(256)
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=intrude)
    thread.start()
    start = time.monotonic()
    model.learn(10**12, callback=lambda *_: time.monotonic() - start < 0.5)
    thread.join()
    assert errors and "trained already" in str(errors[0])


def test_threads_take_turns_at_predicting() -> None:
    model = operant.PPO("cartpole", seed=1)
    rows = np.tile(SOME, (200, 1))
    wanted = model.predict(rows, deterministic=True)[0]
    right: list[bool] = []

    def predict() -> None:
        right.extend(np.array_equal(model.predict(rows, deterministic=True)[0], wanted) for _ in range(50))

    threads = [threading.Thread(target=predict, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert right == [True] * 200


def test_divergence_is_told() -> None:
    model = operant.PPO("cartpole", seed=1, learning_rate=1e30, max_grad_norm=0.0)
    with pytest.raises(RuntimeError, match="not finite.*lower the learning rate"):
        model.learn(10_000)


def test_names_of_other_libraries_work() -> None:
    model = operant.PPO(
        "CartPole-v1", n_envs=8, n_steps=32, batch_size=np.int64(64), n_epochs=3, clip_range=0.1, net_arch=[32, 16],
        normalize_advantage=False, target_kl=None, threads=1,
    )  # fmt: skip
    settings = model.settings
    assert settings["num_envs"] == 8 and settings["network"]["hidden"] == [32, 16]
    wanted = {"num_steps": 32, "minibatch_size": 64, "update_epochs": 3, "clip_coef": 0.1, "norm_adv": False}
    assert wanted.items() <= settings["ppo"].items()
    model = operant.PPO("CartPole-v1", lr=1e-4, entropy_coeff=0.5, lam=0.9, fcnet_activation="relu", policy_kwargs=None)
    wanted = {"learning_rate": 1e-4, "ent_coef": 0.5, "gae_lambda": 0.9}
    assert wanted.items() <= model.settings["ppo"].items() and model.settings["network"]["activation"] == "relu"
    # What was not given is what is shipped for the env.
    assert settings["ppo"]["learning_rate"] == 2.5e-3
    assert operant.PPO("cartpole", num_envs=8, num_steps=32, num_minibatches=4).settings["ppo"]["minibatch_size"] == 64
    assert operant.PPO("cartpole", env_kwargs={"gravity": 3.5}).settings["env"] == {"name": "cartpole", "gravity": 3.5}


@pytest.mark.parametrize(
    ("keywords", "error", "message"),
    [
        ({"learning_rat": 1e-3}, TypeError, "unknown keyword 'learning_rat'; did you mean 'learning_rate'"),
        ({"n_step": 8}, TypeError, "did you mean 'n_steps'"),
        ({"n_steps": 8, "num_steps": 8}, TypeError, "same setting"),
        ({"learning_rate": "fast"}, ValueError, 'ppo.learning_rate = "fast": wanted a number'),
        ({"learning_rate": print}, TypeError, "learning_rate is a builtin_.*wanted a number.*; anneal_lr=True lowers it"),
        ({"clip_range": lambda left: 0.2 * left}, TypeError, "clip_range is a function: .*; anneal_clip=True lowers it"),
        ({"policy": "MlpPolicy"}, TypeError, "no keyword 'policy'; see hidden: .*; activation, memory and encoder say"),
        ({"policy_kwargs": {"net_arch": [64]}}, TypeError, "no keyword 'policy_kwargs'; see hidden: the sizes"),
        ({"verbose": 1}, TypeError, r"no keyword 'verbose'; learn\(progress_bar=True\) shows progress"),
        ({"tensorboard_log": "logs"}, TypeError, 'no keyword \'tensorboard_log\'; .* run_dir="runs/mine"'),
        ({"use_sde": True}, TypeError, "no state-dependent exploration here; leave it out"),
        ({"buffer_size": 9}, TypeError, "'buffer_size'; ppo learns from the newest num_steps steps .*leave it out, or train dqn"),
        ({"exploration_fraction": 0.1}, TypeError, "see ent_coef: the weight of entropy"),
        ({"max_episode_steps": 9}, TypeError, "see env_kwargs={'time_limit': …}: the most steps of an episode"),
        ({"device": "gpu"}, ValueError, 'did you mean "cuda"'),
        ({"seed": -1}, ValueError, "seed = -1: wanted a whole number of 0 or more"),
        ({"num_envs": -5}, ValueError, "num_envs = -5: wanted"),
        ({"steps": 1e30}, ValueError, "steps = 1e30: wanted a whole number of at most 9.2e18"),
        ({"learning_rate": -1.0}, ValueError, "ppo.learning_rate = -1: wanted more than 0"),
        ({"minibatch_size": 3000}, ValueError, "3000 does not divide num_envs\\*num_steps"),
        ({"num_minibatches": 3}, ValueError, "num_minibatches = 3 does not divide"),
        ({"num_minibatches": 3, "batch_size": 3}, TypeError, "wanted one of them"),
        ({"num_envs": 0}, ValueError, "num_envs = 0: wanted 1"),
        ({"memory": "lstn"}, ValueError, "lstm"),
        ({"seed": 2**63}, ValueError, "seed = 9223372036854775808: wanted at most"),
        ({"checkpoint": {"evry": 1}}, ValueError, 'did you mean "checkpoint.every"'),
        ({"env_kwargs": {"gravty": 1}}, ValueError, 'did you mean "gravity"'),
    ],
)
def test_mistakes_are_explained(keywords: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        operant.PPO("cartpole", **keywords)


def test_other_mistakes_are_explained(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="did you mean 'CartPole-v1'"):
        operant.PPO("CartPol-v1")
    with pytest.raises(TypeError, match=r"the env comes first here, .*; type operant\.PPO\(env, hidden=\[64, 64\]\)"):
        operant.PPO("MlpPolicy")
    with pytest.raises(TypeError, match=r"type operant\.PPO\('CartPole-v1', hidden=\[64, 64\]\)"):
        operant.PPO("MlpPolicy", "CartPole-v1", verbose=1)
    with pytest.raises(TypeError, match=r"type operant\.DQN\(env, hidden=\[64, 64\]\)"):
        operant.DQN("CnnPolicy", operant.make_vec("CartPole-v1", 2))
    with pytest.raises(TypeError, match=r'type operant\.DQN\(env, encoder="conv"\)'):
        operant.DQN("CnnPolicy", lambda: None)
    with pytest.raises(TypeError, match=r"type operant\.PPO\('Pong', memory=\"lstm\", encoder=\"conv\"\)"):
        operant.PPO("CnnLstmPolicy", "Pong")
    wanted = r'DQN has no memory; type operant\.PPO\(env, memory="lstm"\), or operant\.DQN\(env, hidden=\[64, 64\]\) without'
    with pytest.raises(TypeError, match=wanted):
        operant.DQN("MlpLstmPolicy", operant.make_vec("CartPole-v1", 2))
    with pytest.raises(TypeError, match="takes the env and then keywords, got 64 without a name"):
        operant.PPO("CartPole-v1", 64)
    with pytest.raises(TypeError, match="env is of type int: wanted a name"):
        operant.PPO(3)
    model = operant.PPO("cartpole")
    for steps, message in ((0, "0: wanted at least 1"), (1e30, "1e.30: wanted less than"), (float("inf"), "inf: wanted a whole")):
        with pytest.raises(ValueError, match=f"total_timesteps = {message}"):
            model.learn(steps)
    with pytest.raises(TypeError, match="learn has no keyword 'log_interval'; callback= is called"):
        model.learn(100, log_interval=4)
    with pytest.raises(TypeError, match="learn got an unknown keyword 'progres_bar'; did you mean 'progress_bar'"):
        model.learn(100, progres_bar=True)
    with pytest.raises(ValueError, match="episodes = 0"):
        model.evaluate(0)
    with pytest.raises(FileNotFoundError, match="there is no .*absent: wanted a .safetensors file, a run folder"):
        operant.PPO.load(tmp_path / "absent")
    with pytest.raises(ValueError, match="holds no policy"):
        operant.PPO.load(tmp_path)
    (tmp_path / "other.zip").write_bytes(b"PK")
    with pytest.raises(ValueError, match="other.zip is not a model of this library"):
        operant.PPO.load(tmp_path / "other.zip")
    with pytest.raises(OSError, match="run.toml"):
        operant.PPO.resume(tmp_path)
    model.save(tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="the policy is"):
        operant.PPO.load(tmp_path / "model.safetensors", env="pendulum")


def test_memory_is_used_and_carried() -> None:
    model = operant.PPO("probe_memory", seed=1).learn(120_000)
    assert model.metrics["return"] > 0.8 * model.evaluate(50)["mean_return"] > 0
    rows = np.random.default_rng(0).normal(size=(5, *model.observation_space.shape)).astype(np.float32)
    first, state = model.predict(rows, deterministic=True)
    assert state is not None and [part.shape for part in state] == [(5, 32)]
    _, after = model.predict(rows, state=state, deterministic=True)
    assert after is not None and not np.array_equal(after[0], state[0])
    # Where an episode begins, the state is forgotten.
    _, begun = model.predict(rows, state=state, episode_start=np.array([1, 0, 0, 1, 0]), deterministic=True)
    assert begun is not None
    assert np.array_equal(begun[0][[0, 3]], state[0][[0, 3]]) and np.array_equal(
        begun[0][[1, 2, 4]], after[0][[1, 2, 4]]
    )
    with pytest.raises(ValueError, match=r"wanted 1 arrays of shape \(4, 32\)"):
        model.predict(rows[:4], state=state)
    with pytest.raises(ValueError, match="the state holds numbers that are not finite"):
        model.predict(rows, state=tuple(part * np.nan for part in state))


def test_the_progress_line(capfd: pytest.CaptureFixture[str]) -> None:
    operant.PPO("cartpole", seed=1).learn(2048, progress_bar=True)
    error = capfd.readouterr().err
    assert "100% 2,048 steps" in error and error.endswith("\n")


def test_sinks_that_fail_are_told(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    # A folder where a file should be.
    (folder / "metrics.jsonl").mkdir()
    model = operant.PPO("cartpole", seed=1, run_dir=folder)
    start = time.monotonic()
    with pytest.warns(RuntimeWarning, match="metrics.jsonl.*training goes on without it"):
        model.learn(10**12, callback=lambda *_: time.monotonic() - start < 0.5)
    assert model.num_timesteps > 0
