"""Networks: files, PyTorch's names, running on NumPy arrays, and messages. PyTorch itself is not needed."""

from __future__ import annotations

import json
import pickle
import re
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import operant
import pytest
from operant import nn
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

GOLDEN = Path(__file__).parent / "golden" / "nets.safetensors"


def golden() -> dict[str, np.ndarray]:
    return load_file(GOLDEN)


def part(name: str) -> dict[str, np.ndarray]:
    prefix = f"{name}/p."
    return {key.removeprefix(prefix): value for key, value in golden().items() if key.startswith(prefix)}


NETS = {
    "actor_critic": lambda **options: nn.actor_critic(inputs=4, actions=3, hidden=[16, 8], **options),
    "dueling": lambda **options: nn.dueling(inputs=10, actions=5, hidden=[24, 16], stream=8, **options),
    "residual": lambda **options: nn.residual(
        inputs=7, policy=9, width=16, blocks=2, value_hidden=8, value=2, **options
    ),
}


@pytest.mark.parametrize("name", NETS)
def test_outputs_agree_with_pytorch(name: str) -> None:
    net = NETS[name](seed=1)
    net.load_state_dict(part(name))
    data = golden()
    outputs = net(data[f"{name}/obs"])
    for output, values in outputs.items():
        np.testing.assert_allclose(values, data[f"{name}/{output}"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", NETS)
def test_saved_networks_come_back_exactly(name: str, tmp_path: Path) -> None:
    net = NETS[name](seed=3)
    path = tmp_path / "net.safetensors"
    net.save(path)
    other = nn.load(path)
    assert other.architecture == net.architecture
    obs = np.random.default_rng(0).normal(size=(33, golden()[f"{name}/obs"].shape[1]))
    for ours, theirs in zip(net(obs).values(), other(obs).values(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    # The file is plain safetensors under PyTorch's names.
    tensors = load_file(path)
    assert tensors.keys() == net.state_dict().keys() == part(name).keys()


def test_seeds_repeat_and_differ() -> None:
    a, b, c = (nn.actor_critic(inputs=4, actions=2, seed=seed).state_dict() for seed in (0, 0, 1))
    assert all(np.array_equal(a[key], b[key]) for key in a)
    assert not np.array_equal(a["actor.0.weight"], c["actor.0.weight"])


def test_any_batch_and_one_observation() -> None:
    net = nn.actor_critic(inputs=4, actions=2, threads=2)
    obs = np.random.default_rng(1).normal(size=(5000, 4)).astype(np.float32)
    whole = net(obs)
    assert whole["logits"].shape == (5000, 2) and whole["value"].shape == (5000, 1)
    for count in (1, 7, 300):
        np.testing.assert_allclose(net(obs[:count])["logits"], whole["logits"][:count], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(net(obs[0])["logits"], whole["logits"][0], rtol=1e-5, atol=1e-6)
    assert net(obs[:0])["logits"].shape == (0, 2)
    with pytest.raises(ValueError, match=r"a single number: wanted an array \[N, 4\] or \[4\]"):
        net(1.0)


def test_threads_take_turns() -> None:
    net = nn.actor_critic(inputs=4, actions=2, threads=1)
    obs = np.random.default_rng(1).normal(size=(5000, 4)).astype(np.float32)
    wanted = net(obs)["logits"]
    right: list[bool] = []

    def run() -> None:
        right.extend(np.array_equal(net(obs)["logits"], wanted) for _ in range(20))

    threads = [threading.Thread(target=run, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert right == [True] * 80


def test_policies_that_are_more_than_scores_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "policy.safetensors"
    small = {"num_envs": 4, "n_steps": 8, "batch_size": 32}

    def refused(env: str, **settings: Any) -> str:
        model = operant.PPO(env, **small, **settings)
        model.save(path)
        with pytest.raises(ValueError, match="load it with operant.PPO.load") as error:
            nn.load_policy(path)
        operant.PPO.load(path)
        return str(error.value)

    assert "has real numbers as actions" in refused("Pendulum-v1")
    assert "has a memory" in refused("CartPole-v1", memory="lstm")
    with pytest.raises(ValueError, match="a network of 3 inputs"):
        nn.load(path)(np.zeros((2, 4)))
    operant.PPO("CartPole-v1", **small).save(path)
    assert nn.load_policy(path)(np.zeros((2, 4))).shape == (2,)


def normalised(path: Path, obs: np.ndarray) -> np.ndarray:
    """The lines of the documentation of ``operant.nn``, in NumPy."""
    with safe_open(path, "numpy") as file:
        note = json.loads(file.metadata()["operant.obs_normaliser"])
    shift, factor = (np.array(note[key], dtype=np.float32) for key in ("shift", "factor"))
    variance = np.array(note["squares"]) / note["count"]
    np.testing.assert_allclose(factor, 1 / np.sqrt(variance + 1e-8), rtol=1e-6)
    np.testing.assert_allclose(shift, note["mean"], rtol=1e-6)
    return ((obs - shift) * factor).clip(-note["limit"], note["limit"])


@pytest.mark.parametrize("algorithm", [operant.PPO, operant.DQN])
def test_policies_act_on_observations_as_envs_give_them(algorithm: Any, tmp_path: Path) -> None:
    path, again = tmp_path / "policy.safetensors", tmp_path / "again.safetensors"
    small = {"num_steps": 32, "minibatch_size": 64} if algorithm is operant.PPO else {"learning_starts": 64}
    model = algorithm("MountainCar-v0", normalize_obs=True, num_envs=4, seed=1, **small).learn(1024)
    model.save(path)
    # Positions and velocities differ by an order of magnitude: without the normaliser other actions come out.
    rng = np.random.default_rng(0)
    obs = np.stack([rng.uniform(-1.2, 0.6, 4000), rng.uniform(-0.07, 0.07, 4000)], axis=1).astype(np.float32)
    wanted = model.predict(obs, deterministic=True)[0].reshape(-1)
    policy = nn.load_policy(path)
    assert (policy(obs) == wanted).all()
    assert policy(obs[0]) == wanted[0]
    # So do networks that are loaded, and saved and loaded once more.
    net = nn.load(path)
    net.save(again)
    assert (nn.load_policy(again)(obs) == wanted).all()
    assert (pickle.loads(pickle.dumps(policy))(obs) == wanted).all()
    assert algorithm.load(again).predict(obs, deterministic=True)[0].reshape(-1).tolist() == wanted.tolist()
    # Whoever takes the weights alone, as a module of PyTorch does, needs what the note says.
    normaliser = net.normaliser
    assert normaliser is not None and normaliser["limit"] == 10
    seen = normalised(path, obs)
    assert (seen == ((obs - normaliser["shift"]) * normaliser["factor"]).clip(-10, 10)).all()
    bare = nn._make({**net.architecture}, seed=0, threads=1, precision="f32")
    bare.load_state_dict(net.state_dict())
    assert bare.normaliser is None
    assert (nn.Policy(bare)(seen) == wanted).all() and (nn.Policy(bare)(obs) != wanted).any()


def test_notes_on_normalisers_are_checked_and_old_ones_are_read(tmp_path: Path) -> None:
    net = nn.actor_critic(inputs=2, actions=2)
    obs = np.array([[3.0, 4.0]], dtype=np.float32)
    whole = {"shift": [1.0, 2.0], "factor": [0.5, 1.0], "limit": 10.0, "count": 2.0, "mean": [1.0, 2.0]}
    whole["squares"] = [2 * (4 - 1e-8), 2 * (1 - 1e-8)]
    path = annotated(tmp_path / "policy.safetensors", net, obs_normaliser=json.dumps(whole))
    np.testing.assert_array_equal(nn.load(path)(obs)["logits"], net(np.ones((1, 2)) * [1, 2])["logits"])
    # The bits of count, means and squares, as files had them before.
    numbers = np.array([whole["count"], *whole["mean"], *whole["squares"]])
    bits = json.dumps(numbers.view(np.uint64).tolist())
    path = annotated(tmp_path / "old.safetensors", net, obs_normaliser=bits)
    np.testing.assert_array_equal(nn.load(path)(obs)["logits"], net(np.ones((1, 2)) * [1, 2])["logits"])
    wrong: list[Any] = ["", "{", "[1, 2]", [whole], {**whole, "factor": [1.0, 1.0]}, {**whole, "limit": 5.0}]
    wrong += [{**whole, "mean": [1.0]}, {**whole, "shift": [None, 2.0]}, {**whole, "colour": 1}]
    for note in wrong:
        text = note if isinstance(note, str) else json.dumps(note)
        path = annotated(tmp_path / "policy.safetensors", net, obs_normaliser=text, head='{"choices": [2]}')
        for load in (nn.load, nn.load_policy, operant.PPO.load):
            with pytest.raises(ValueError, match="obs_normaliser.* is damaged: wanted shift, .* of 2 numbers") as error:
                load(path)
            assert str(path) in str(error.value), str(error.value)


def test_a_policy_chooses(tmp_path: Path) -> None:
    path = tmp_path / "policy.safetensors"
    net = nn.actor_critic(inputs=4, actions=3)
    state = net.state_dict()
    state["actor.4.weight"][:] = 0
    state["actor.4.bias"][:] = [0.0, 2.0, 1.0]
    net.load_state_dict(state)
    net.save(path)
    policy = nn.load_policy(path)
    obs = np.zeros((2000, 4), dtype=np.float32)
    assert (policy(obs) == 1).all()
    assert policy(obs[0]) == 1
    assert (policy(obs, legal=np.tile([1, 0, 1], (2000, 1))) == 2).all()
    drawn = policy(obs, sample=True, rng=np.random.default_rng(0))
    shares = np.bincount(drawn, minlength=3) / 2000
    wanted = np.exp([0, 2, 1]) / np.exp([0, 2, 1]).sum()
    np.testing.assert_allclose(shares, wanted, atol=0.04)
    with pytest.raises(ValueError, match="forbids every action"):
        policy(obs, legal=np.zeros((2000, 3)))
    with pytest.raises(ValueError, match=r"legal has shape \[2000, 2\], wanted \[2000, 3\]"):
        policy(obs, legal=np.ones((2000, 2)))


def test_precisions_agree_within_their_error() -> None:
    obs = np.random.default_rng(2).normal(size=(64, 7)).astype(np.float32)
    exact = NETS["residual"](seed=4)(obs)["logits"]
    for precision, tolerance in (("bf16", 3e-2), ("f16", 4e-3), ("auto", 3e-2)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            other = NETS["residual"](seed=4, precision=precision)(obs)["logits"]
        assert np.abs(other - exact).max() < tolerance * np.abs(exact).max()


def test_a_precision_that_is_not_served_is_told(tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    NETS["actor_critic"]().save(path)
    makers: list[Callable[[str], Any]] = [
        lambda precision: NETS["actor_critic"](precision=precision),
        lambda precision: nn.load(path, precision=precision),
        lambda precision: nn.load_policy(path, precision=precision).network,
    ]
    for make in makers:
        with pytest.warns(RuntimeWarning, match="tf32 was asked for, which only GPUs have: computing in f32") as told:
            assert make("tf32").precision == "f32"
        assert [warning.filename for warning in told] == [__file__]
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            assert make("f32").precision == "f32" and make("f16").precision == "f16"
            make("auto")
        assert not told
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            served = make("bf16").precision
        if served == "bf16":
            assert not told
        else:
            assert served == "f32"
            assert [str(warning.message) for warning in told] == [
                "bf16 was asked for, but this CPU has no AMX tiles: computing in f32"
            ]


def test_mistakes_are_explained(tmp_path: Path) -> None:
    net = nn.actor_critic(inputs=4, actions=2)
    with pytest.raises(ValueError, match=r"shape \[3, 5\], wanted \[N, 4\]"):
        net(np.zeros((3, 5)))
    with pytest.raises(ValueError, match="observation 2 has NaN at place 1: wanted finite numbers"):
        net(np.where(np.arange(12) == 9, np.nan, 0.0).reshape(3, 4))
    with pytest.raises(ValueError, match="observation 0 has inf at place 3"):
        net([0.0, 0.0, 0.0, np.inf])
    broken = nn.actor_critic(inputs=np.int64(4), actions=2, hidden=np.array([8, 8]))
    broken.load_state_dict({name: np.full_like(x, np.nan) for name, x in broken.state_dict().items()})
    with pytest.raises(ValueError, match="scores of actions are NaN"):
        nn.Policy(broken)(np.zeros(4))
    state = net.state_dict()
    state["actor.0.wieght"] = state.pop("actor.0.weight")
    state["critic.0.bias"] = np.zeros(3)
    with pytest.raises(ValueError, match="missing actor.0.weight.*extra actor.0.wieght.*critic.0.bias has shape"):
        net.load_state_dict(state)
    with pytest.raises(ValueError, match="unknown precision"):
        nn.actor_critic(inputs=4, actions=2, precision="f31")
    with pytest.raises(ValueError, match="unknown variant"):
        nn.actor_critic(inputs=4, actions=2, activation="tan")
    for key, value in (("threads", 0), ("threads", -1), ("seed", -1), ("inputs", -4), ("hidden", [8, -2])):
        with pytest.raises(ValueError, match=re.escape(f"{key} = {value}: wanted")):
            nn.actor_critic(**{"inputs": 4, "actions": 2, key: value})
    with pytest.raises(ValueError, match="absent.safetensors"):
        nn.load(tmp_path / "absent.safetensors")
    save_file({"x": np.zeros(3)}, tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match="does not say which network"):
        nn.load(tmp_path / "other.safetensors")
    path = tmp_path / "cut.safetensors"
    net.save(path)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ValueError, match="can't be read"):
        nn.load(path)


def test_files_that_miss_tensors_are_listed(tmp_path: Path) -> None:
    net = nn.actor_critic(inputs=4, actions=2)
    path = tmp_path / "net.safetensors"
    net.save(path)
    tensors = load_file(path)
    del tensors["critic.2.bias"]
    tensors["actor.0.bias"] = np.zeros(5, dtype=np.float32)
    with safe_open(path, "numpy") as file:
        metadata = file.metadata()
    save_file(tensors, path, metadata=metadata)
    with pytest.raises(ValueError, match=r"actor.0.bias has shape \[5\], wanted \[64\].*missing critic.2.bias"):
        nn.load(path)


def annotated(path: Path, net: nn.Network, **changes: str | None) -> Path:
    """A file of the network with other notes; None takes one away."""
    net.save(path)
    with safe_open(path, "numpy") as file:
        notes = dict(file.metadata())
    for name, text in changes.items():
        notes.pop(f"operant.{name}", None)
        if text is not None:
            notes[f"operant.{name}"] = text
    save_file(load_file(path), path, metadata=notes)
    return path


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (None, "does not say which network it holds: wanted \"operant.architecture\" among its notes, got"),
        ("", "describes no network: got : EOF"),
        ("{", "describes no network: got {: EOF"),
        ("[1, 2]", r"describes no network: got \[1, 2\]"),
        ("null", "describes no network: got null"),
        ("☃" * 5000, "describes no network: got ☃{200}…: expected value"),
        ("[" * 5000, r"describes no network: got \[{200}…"),
        ({"kind": "transformer"}, "unknown variant `transformer`"),
        ({"actions": "two"}, "invalid type: string"),
        ({"actions": -1}, "invalid value: integer `-1`"),
        ({"actions": 0}, "actions = 0: wanted 1..=16777216"),
        ({"hidden": [64, 2**63]}, "hidden = 9223372036854775808: wanted 1..=16777216"),
        ({"colour": "red"}, "unknown field `colour`"),
        ({"actions": 3}, r"actor.4.weight has shape \[2, 64\], wanted \[3, 64\]"),
        ({"hidden": []}, "missing actor.0.weight|actor.0.weight has shape"),
        ({"hidden": [2**24, 2**24]}, "is too large: .*(fewer than 2³² elements|takes .* GiB)"),
    ],
)
def test_damaged_descriptions_are_explained(changes: Any, problem: str, tmp_path: Path) -> None:
    net = nn.actor_critic(inputs=4, actions=2)
    text = json.dumps({**net.architecture, **changes}) if isinstance(changes, dict) else changes
    path = annotated(tmp_path / "net.safetensors", net, architecture=text, note="kept")
    for load in (nn.load, nn.load_policy):
        with pytest.raises(ValueError, match=problem) as error:
            load(path)
        message = str(error.value)
        assert message.startswith(f"{path}: ") and "wanted" in message and "; " in message and len(message) < 2000


def test_networks_that_would_not_end_are_refused(tmp_path: Path) -> None:
    net = nn.residual(inputs=3, policy=2, width=4, blocks=1)
    text = json.dumps({**net.architecture, "blocks": 10**12})
    path = annotated(tmp_path / "net.safetensors", net, architecture=text)
    with pytest.raises(ValueError, match=r"blocks = 1000000000000: wanted 0..=4096"):
        nn.load(path)
    with pytest.raises(ValueError, match=r"blocks = 1000000000000: wanted 0..=4096"):
        nn.residual(inputs=3, policy=2, blocks=10**12)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "7", '{"colours": [2]}', '{"choices": 2}', "[" * 100_000])
def test_damaged_heads_are_explained(text: str, tmp_path: Path) -> None:
    net = nn.actor_critic(inputs=4, actions=2)
    path = annotated(tmp_path / "policy.safetensors", net, head=text)
    with pytest.raises(ValueError, match="the note 'operant.head' is damaged: got .*, wanted an object with") as error:
        nn.load_policy(path)
    assert str(path) in str(error.value) and "save the policy again" in str(error.value)
    assert len(str(error.value)) < 1000
    # The network itself is whole.
    assert nn.load(path).architecture == net.architecture


def test_damaged_notes_of_policies_are_explained(tmp_path: Path) -> None:
    net = nn.actor_critic(inputs=4, actions=2)
    for text in ("", "{}", "[]", "[1, 2]", '[{"kind": "box"}]'):
        path = annotated(tmp_path / "policy.safetensors", net, spaces=text)
        with pytest.raises(ValueError, match="the note 'operant.spaces' is damaged: got .*, wanted a list of two objects"):
            nn.load_policy(path)
    for text in ("", "{", "null", "[1, 2]", '[{"kind": "box"}]', "[" * 100_000):
        path = annotated(tmp_path / "policy.safetensors", net, spaces=text, head='{"choices": [2]}')
        with pytest.raises(ValueError, match="policy.safetensors: the description of its spaces is damaged: got .*; save"):
            operant.PPO.load(path)
    path = annotated(tmp_path / "policy.safetensors", net, run="=", head='{"choices": [2]}')
    with pytest.raises(ValueError, match="the note 'operant.run' of .*policy.safetensors is not valid TOML"):
        operant.PPO.load(path)
    path = annotated(tmp_path / "policy.safetensors", net, spaces='[{"kind": "box"}, {"kind": "discrete", "start": 3}]')
    with pytest.raises(ValueError, match="has actions that do not begin with 0"):
        nn.load_policy(path)


def test_damaged_files_are_explained(tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    nn.actor_critic(inputs=4, actions=2).save(path)
    whole = path.read_bytes()
    huge = (2**62).to_bytes(8, "little") + whole[8:]
    header = int.from_bytes(whole[:8], "little")
    garbled = whole[:8] + b"x" * header + whole[8 + header :]
    notes = whole[8 : 8 + header].replace(b'"operant.architecture":"{', b'"operant.architecture":7,"x":"{', 1)
    assert len(notes) > header
    numbers = len(notes).to_bytes(8, "little") + notes + whole[8 + header :]
    for bytes_ in (b"", whole[:5], whole[:-1], whole + b"x", huge, garbled, numbers):
        path.write_bytes(bytes_)
        for load in (nn.load, nn.load_policy):
            with pytest.raises(ValueError, match="can't be read: .*; wanted a whole safetensors file: copy it again") as error:
                load(path)
            assert str(error.value).startswith(f"{path}: ")
