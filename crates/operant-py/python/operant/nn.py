"""Networks: checkpoints with PyTorch's names and layouts, run on NumPy arrays by the engine.

>>> import numpy as np
>>> from operant import nn
>>> net = nn.actor_critic(inputs=4, actions=2, hidden=[64, 64])
>>> net.save("policy.safetensors")
>>> policy = nn.load_policy("policy.safetensors")
>>> policy(np.zeros((3, 4), dtype=np.float32))
array([0, 0, 0])

Files are safetensors. ``torch_module.load_state_dict(safetensors.torch.load_file(path))`` takes one into the equivalent
``torch.nn`` module, and ``net.load_state_dict`` takes a module's ``state_dict()`` back.

Images are held as ``[N, H, W, C]``: weights of convolutions have PyTorch's layout, but the layer behind the last
``encoder.<n>`` reads its numbers in that order, as ``x.permute(0, 2, 3, 1).flatten(1)`` gives them in PyTorch, and not
``x.flatten(1)``. Observations go in as ``architecture["image"]["image"]`` says: ``[H, W, C]``, or ``[C, H, W]`` with
``channels_first``; with ``bytes`` they are divided by 255.

A policy that was trained with ``normalize_obs`` learned from normalised observations. Its file says how in the note
``operant.obs_normaliser``, a JSON object. Networks that ``load`` gives apply it, so they take observations as envs give
them. In PyTorch these lines do the same, in float32::

    with safetensors.safe_open("policy.safetensors", "pt") as file:
        note = json.loads(file.metadata()["operant.obs_normaliser"])
    shift, factor, limit = torch.tensor(note["shift"]), torch.tensor(note["factor"]), note["limit"]
    seen = ((obs - shift) * factor).clamp(-limit, limit)
    actions = module(seen)["logits"].argmax(-1)

``shift`` and ``factor`` have a number for each number of an observation. The other keys are what training goes on from:
``count`` observations were seen, with this ``mean`` and ``squares``, the sum of squared distances from it;
``factor = 1 / sqrt(squares / count + 1e-8)``.

A precision that this CPU does not have is replaced by one that it has, with a ``RuntimeWarning`` that says why.
"""

from __future__ import annotations

import json
import operator
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from operant._operant import Network as _Network
from operant.spaces import check_seed, whole

__all__ = ["Network", "Policy", "actor_critic", "dueling", "load", "load_policy", "residual"]

FloatArray = npt.NDArray[np.float32]


class Network:
    """A network with its parameters. Calling it gives its outputs by name."""

    def __init__(self, engine: _Network) -> None:
        self._engine = engine

    @property
    def architecture(self) -> dict[str, Any]:
        """The description from which the network is built; a saved file carries it."""
        description: dict[str, Any] = json.loads(self._engine.architecture)
        return description

    @property
    def precision(self) -> str:
        """The precision that products run in."""
        return self._engine.precision()[0]

    @property
    def normaliser(self) -> dict[str, Any] | None:
        """What observations go through first, ``((obs - shift) * factor).clip(-limit, limit)``; None if nothing."""
        scaling = self._engine.normaliser()
        return None if scaling is None else dict(zip(("shift", "factor", "limit"), scaling, strict=True))

    def __call__(self, obs: npt.ArrayLike) -> dict[str, FloatArray]:
        """Outputs for observations ``[N, inputs]``, or for one observation ``[inputs]``; images in their own shape.

        Observations are given as the env gives them: a ``normaliser`` is applied here.
        """
        rows = np.asarray(obs, dtype=np.float32)
        if rows.ndim == 0:
            inputs = self._engine.inputs
            raise ValueError(f"observations of a single number: wanted an array [N, {inputs}] or [{inputs}]")
        if rows.ndim == 1 or (rows.ndim == 3 and rows.size == self._engine.inputs and "image" in self.architecture):
            rows = rows.reshape(1, -1)
            return {name: output[0] for name, output in self._engine.forward(rows).items()}
        return self._engine.forward(np.ascontiguousarray(rows.reshape(len(rows), int(np.prod(rows.shape[1:])))))

    def state_dict(self) -> dict[str, FloatArray]:
        """Parameters and buffers by name, copied, in PyTorch's layouts."""
        return {name: self._engine.get(name).reshape(shape) for name, shape, _ in self._engine.parameters()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes all parameters from arrays or torch tensors. Nothing changes if a name or a shape does not fit."""
        wanted = {name: tuple(shape) for name, shape, _ in self._engine.parameters()}
        arrays = {name: _as_array(value) for name, value in state.items()}
        faults = [f"missing {name} {list(shape)}" for name, shape in wanted.items() if name not in arrays]
        faults += [f"extra {name} {list(array.shape)}" for name, array in arrays.items() if name not in wanted]
        faults += [
            f"{name} has shape {list(array.shape)}, wanted {list(wanted[name])}"
            for name, array in arrays.items()
            if name in wanted and array.shape != wanted[name]
        ]
        if faults:
            raise ValueError(f"parameters do not fit: {'; '.join(faults)}; give a state_dict of the same network")
        for name, array in arrays.items():
            self._engine.set(name, array.reshape(-1))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a safetensors file that ``load``, the command line and PyTorch read, with the notes of the file it came from."""
        self._engine.save(os.fspath(path))

    def __repr__(self) -> str:
        return f"operant.nn.Network({self.architecture}, precision={self.precision!r})"


class Policy:
    """Actions from a network with outputs ``logits`` or ``q``."""

    def __init__(self, network: Network) -> None:
        self.network = network

    def __call__(
        self,
        obs: npt.ArrayLike,
        *,
        sample: bool = False,
        legal: npt.ArrayLike | None = None,
        rng: np.random.Generator | None = None,
    ) -> npt.NDArray[np.int64]:
        """The best action for each observation; with ``sample``, one drawn from softmax(logits).

        ``legal`` is 0 or 1 for every action; forbidden ones are never taken.
        """
        outputs = self.network(obs)
        scores = outputs["logits"] if "logits" in outputs else outputs["q"]
        if legal is not None:
            allowed = np.asarray(legal, dtype=bool)
            if allowed.shape != scores.shape:
                raise ValueError(f"legal has shape {list(allowed.shape)}, wanted {list(scores.shape)}")
            if not allowed.any(axis=-1).all():
                raise ValueError("legal forbids every action of a row; wanted at least one allowed")
            scores = np.where(allowed, scores, -np.inf)
        if np.isnan(scores).any():
            raise ValueError("scores of actions are NaN: the network's weights are no numbers, or too large")
        if sample:
            noise = (rng or np.random.default_rng()).gumbel(size=scores.shape)
            scores = scores + noise
        return scores.argmax(axis=-1)


def _as_array(value: Any) -> FloatArray:
    if hasattr(value, "detach"):
        value = value.detach().float().cpu().numpy()
    return np.ascontiguousarray(value, dtype=np.float32)


def _threads(threads: int | None) -> int | None:
    if threads is None or 1 <= whole("threads", threads) <= 1024:
        return threads
    raise ValueError(f"threads = {threads}: wanted 1..=1024, or None for all cores")


def _make(description: dict[str, Any], seed: int, threads: int | None, precision: str) -> Network:
    for name, value in description.items():
        sizes = value if isinstance(value, list) else [value]
        if any(hasattr(size, "__index__") and operator.index(size) < 0 for size in sizes):
            raise ValueError(f"{name} = {value}: wanted no negative size")
    # NumPy's integers are sizes too.
    text = json.dumps(description, default=operator.index)
    seed, threads = check_seed(seed), _threads(threads)
    return _network(_Network(text, seed=seed, threads=threads, precision=precision), precision)


def _load(path: str | os.PathLike[str], threads: int | None, precision: str) -> Network:
    return _network(_Network.load(os.fspath(path), threads=_threads(threads), precision=precision), precision)


def _network(engine: _Network, asked: str) -> Network:
    """Warns the caller of this function's caller's caller, which is the user, where another precision runs."""
    served, reason = engine.precision()
    if reason is not None and served != asked:
        warnings.warn(reason, RuntimeWarning, stacklevel=4)
    return Network(engine)


def actor_critic(
    *,
    inputs: int,
    actions: int,
    hidden: Sequence[int] = (64, 64),
    activation: str = "tanh",
    seed: int = 0,
    threads: int | None = None,
    precision: str = "f32",
) -> Network:
    """Separate ``actor`` and ``critic`` networks, CleanRL's names and initialisation: outputs ``logits``, ``value``."""
    description = {"kind": "actor_critic", "inputs": inputs, "hidden": list(hidden), "actions": actions}
    return _make({**description, "activation": activation}, seed, threads, precision)


def dueling(
    *,
    inputs: int,
    actions: int,
    hidden: Sequence[int] = (256, 128),
    stream: int = 64,
    seed: int = 0,
    threads: int | None = None,
    precision: str = "f32",
) -> Network:
    """A trunk with value and advantage streams: output ``q``."""
    description = {"kind": "dueling", "inputs": inputs, "hidden": list(hidden), "stream": stream, "actions": actions}
    return _make(description, seed, threads, precision)


def residual(
    *,
    inputs: int,
    policy: int,
    width: int = 128,
    blocks: int = 3,
    value_hidden: int = 64,
    value: int = 1,
    seed: int = 0,
    threads: int | None = None,
    precision: str = "f32",
) -> Network:
    """Fully connected residual blocks: outputs ``logits``, ``value``."""
    description = {"kind": "residual", "inputs": inputs, "width": width, "blocks": blocks, "policy": policy}
    return _make({**description, "value_hidden": value_hidden, "value": value}, seed, threads, precision)


def load(path: str | os.PathLike[str], *, threads: int | None = None, precision: str = "f32") -> Network:
    """The network in a file that ``Network.save`` or a run wrote, with the normaliser of its observations, if it has one."""
    return _load(path, threads, precision)


def load_policy(path: str | os.PathLike[str], *, threads: int | None = None, precision: str = "f32") -> Policy:
    """The policy in a file: ``policy(obs)`` gives actions.

    For networks whose first outputs are scores of actions 0, 1, …; policies that are more than that are refused, and
    ``operant.PPO.load`` takes them.
    """
    network = _load(path, threads, precision)
    if reason := _more_than_scores(network.architecture, path):
        raise ValueError(f"the policy in {os.fspath(path)} {reason}; load it with operant.PPO.load")
    return Policy(network)


def _notes(path: str | os.PathLike[str]) -> dict[str, str]:
    """What a safetensors file says of itself, of a file that the engine has read."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return header.get("__metadata__") or {}


def _is_head(value: Any) -> bool:
    kinds = {"choices": list, "gaussian": int}
    return isinstance(value, dict) and len(value) == 1 and all(isinstance(x, kinds.get(key, ())) for key, x in value.items())


def _are_spaces(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(isinstance(space, dict) for space in value)


def _more_than_scores(architecture: Mapping[str, Any], path: str | os.PathLike[str]) -> str | None:
    """What a saved policy does beside choosing among scores."""
    notes = _notes(path)

    def read(name: str, fits: Callable[[Any], bool], wanted: str) -> Any:
        text = notes.get(name)
        if text is None:
            return None
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        if not fits(value):
            got = text if len(text) <= 200 else f"{text[:200]}…"
            raise ValueError(
                f"{os.fspath(path)}: the note {name!r} is damaged: got {got!r}, wanted {wanted} in JSON; save the policy "
                "again, or take its network alone with operant.nn.load"
            )
        return value

    head = read("operant.head", _is_head, "an object with choices or gaussian") or {}
    spaces = read("operant.spaces", _are_spaces, "a list of two objects, of observations and of actions")
    if "gaussian" in head or architecture.get("continuous"):
        return "has real numbers as actions"
    if len(head.get("choices", [])) > 1:
        return "makes several choices at once"
    if architecture.get("memory"):
        return "has a memory"
    if spaces is not None and spaces[-1].get("start"):
        return "has actions that do not begin with 0"
    return None
