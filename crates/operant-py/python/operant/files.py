"""What models write and read: where a model goes, what is found at a path, and whether envs fit what was trained."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from operant import _operant, foreign

PathLike = str | os.PathLike[str]

SPACES_NOTE, SETTINGS_NOTE, SPACES_FILE = "operant.spaces", "operant.run", "spaces.json"

_OTHER_FORMATS = (".zip", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".bin", ".h5", ".onnx", ".npz", ".npy", ".tar", ".json", ".toml")
"""Endings of files in formats that models are not saved in."""
_OF_A_RUN = ("metrics.jsonl", "run.lock", "live.ring")
"""What only a run writes into its folder."""
_OF_A_MODEL = ("run.toml", SPACES_FILE, "ckpt")
"""What a saved model's folder holds."""


def named(keyword: str, path: PathLike) -> str:
    """A path that a user gives, with ``~`` as the folder that it stands for."""
    text = os.fspath(path)
    if not text.strip():
        raise ValueError(f"{keyword} = {text!r}: wanted a name")
    return os.path.expanduser(text)


def target(path: PathLike) -> Path:
    """Where a model is to be saved: a file if it ends in ``.safetensors``, else a folder; or what is wrong with it."""
    text = os.fspath(path)
    if not text.strip():
        raise ValueError(f'save({text!r}): wanted a name, such as "model" (a folder) or "model.safetensors"')
    whole = Path(os.path.realpath(named("path", text)))
    if whole.suffix == ".safetensors":
        if whole.is_dir():
            raise ValueError(f"{text} is a folder: wanted the name of a file that ends in .safetensors")
        _check_parents(text, whole)
        return whole
    if whole.suffix.lower() in _OTHER_FORMATS:
        name = os.path.splitext(text)[0]
        raise ValueError(
            f"save({text!r}): models are not saved as {whole.suffix}; wanted {name + '.safetensors'!r} for the policy in one file, or "
            f"{name!r} for a folder from which training goes on"
        )
    if whole.exists() and not whole.is_dir():
        raise ValueError(f"{text} is a file: wanted the name of a folder, or of a file that ends in .safetensors")
    _check_parents(text, whole)
    if whole.is_dir():
        _check_folder(text, whole)
    return whole


def _check_parents(text: str, path: Path) -> None:
    above = next(one for one in path.parents if one.exists())
    if not above.is_dir():
        raise ValueError(f"{text}: {above} is a file, wanted a folder; name another place")


def _check_folder(text: str, folder: Path) -> None:
    """Refuses a folder that holds anything but a saved model, which is to be replaced as a whole."""
    held = sorted(os.listdir(folder))
    if "batch.toml" in held:
        raise ValueError(f"{text} holds a batch of runs: wanted another folder, or one that save wrote")
    if any(name in held for name in _OF_A_RUN):
        raise ValueError(f"{text} holds a run: wanted another folder, or one that save wrote")
    checkpoints = sorted(os.listdir(folder / "ckpt")) if (folder / "ckpt").is_dir() else []
    others = [name for name in held if name not in _OF_A_MODEL]
    others += [f"ckpt/{name}" for name in checkpoints if name != "best" and not name.startswith("step-")]
    if "run.toml" not in held:
        others += held
    if others:
        raise ValueError(
            f"{text} holds {others[0]}, which is no part of a saved model: wanted a new or empty folder, or one that save wrote"
        )


def write_folder(folder: Path, fill: Callable[[Path], None]) -> None:
    """Puts what ``fill`` writes in a folder's place. Until all of it is written, the folder stays as it was."""
    beside = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    folder.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(beside, ignore_errors=True)
    try:
        fill(beside)
        try:
            if folder.is_dir() and os.listdir(folder):
                _operant.exchange_folders(os.fspath(beside), os.fspath(folder))
            else:
                os.replace(beside, folder)
        except OSError as error:
            if error.errno not in (errno.EBUSY, errno.EXDEV, errno.EINVAL, errno.ENOTEMPTY, errno.ENOSYS, errno.ENOTSUP):
                raise
            # A mount point has no other name. Each file in it is replaced whole.
            fill(folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def contents(folder: Path) -> dict[str, bytes]:
    """All files below a folder."""
    written = (file for file in folder.rglob("*") if file.is_file())
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in written}


def check_spaces(folder: Path, observation: Any, action: Any) -> None:
    """Refuses envs whose spaces are not those of the run in a folder."""
    try:
        described = json.loads((folder / SPACES_FILE).read_text(encoding="utf-8"))
        run = [foreign.describe_space(foreign.space_of(space)) for space in described]
    except (AttributeError, KeyError, OSError, RecursionError, TypeError, ValueError) as error:
        next_step = "take its policy with load(run_dir, env=env)"
        raise ValueError(
            f"{folder / SPACES_FILE} says what envs the run needs and can't be read: {error!r}; {next_step}"
        ) from error
    now = [foreign.describe_space(space) for space in (observation, action)]
    for what, wanted, got in zip(("observations", "actions"), run, now, strict=True):
        difference = _difference(what, wanted, got)
        if difference:
            raise ValueError(f"{folder}: {difference}; bring envs with the run's spaces")


def _difference(what: str, wanted: Mapping[str, Any], got: Mapping[str, Any]) -> str | None:
    """How one description of a space differs from another, in the first place where it does."""
    if wanted["kind"] != got["kind"]:
        return f"{what} are of kind {got['kind']}, those of the run {wanted['kind']}"
    for key, value in wanted.items():
        other = got[key]
        if key != "parts":
            if value != other:
                return f"{what} have {key} {other}, those of the run {value}"
        elif wanted["kind"] == "dict":
            names, others = [name for name, _ in value], [name for name, _ in other]
            if names != others:
                return f"{what} have the parts {others}, those of the run {names}"
            found = (_difference(f"{what}[{a!r}]", x, y) for (a, x), (_, y) in zip(value, other, strict=True))
            return next(filter(None, found), None)
        elif len(value) != len(other):
            return f"{what} have {len(other)} parts, those of the run {len(value)}"
        else:
            found = (_difference(f"{what}[{i}]", x, y) for i, (x, y) in enumerate(zip(value, other, strict=True)))
            return next(filter(None, found), None)
    return None


def find_policy(path: Path) -> tuple[Path, Path | None, str | None]:
    """The policy's file below a path; the run folder that it belongs to, if any; its checkpoint, if one was named."""
    wanted = "wanted a .safetensors file, a run folder or one of its checkpoints"
    if not path.exists():
        raise FileNotFoundError(f"there is no {path}: {wanted}")
    if (path / "batch.toml").is_file() and not (path / "run.toml").is_file():
        begun = [run.parent for run in path.glob("seed-*/run.toml")]
        runs = [str(run) for run in sorted(begun, key=lambda run: (len(run.name), run.name))]
        more = f" and {len(runs) - 4} more" if len(runs) > 4 else ""
        next_step = f"name one of them: {', '.join(runs[:4])}{more}" if runs else "none of them has begun"
        raise ValueError(f"{path} holds a batch of runs; {next_step}")
    if path.is_file() and path.suffix.lower() in _OTHER_FORMATS:
        raise ValueError(f"{path} is not a model of this library: {wanted}")
    if path.is_file():
        run = path.parents[2] if len(path.parents) > 2 and path.parents[1].name == "ckpt" else None
        return path, run, path.parent.name if run else None
    if (path / "policy.safetensors").is_file():
        return path / "policy.safetensors", path.parents[1], path.name
    # While a run that goes on from an older checkpoint sets later ones aside, this file names that one.
    branch = path / "ckpt" / "branch"
    newest = branch.read_text() if branch.is_file() else "~"
    whole = (one.name for one in (path / "ckpt").glob("step-*") if (one / "policy.safetensors").is_file())
    names = sorted(name for name in whole if name <= newest and not name.endswith(".part"))
    if not names:
        raise ValueError(f"{path} holds no policy: {wanted}")
    return path / "ckpt" / names[-1] / "policy.safetensors", path, None


def saved_spaces(actor: _operant.Actor, folder: Path | None, path: Path) -> tuple[Any, Any]:
    """The spaces of observations and actions that a policy was trained on."""
    text = actor.note(SPACES_NOTE)
    if text is None and folder is not None and (folder / SPACES_FILE).is_file():
        text = (folder / SPACES_FILE).read_text(encoding="utf-8")
    if text is not None:
        try:
            observation, action = (foreign.space_of(space) for space in json.loads(text))
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            got = text if len(text) <= 200 else f"{text[:200]}…"
            raise ValueError(
                f"{path}: the description of its spaces is damaged: got {got!r}, wanted that of observations and of actions, as "
                "it was saved; save the policy again, or give env="
            ) from error
        return observation, action
    box = gymnasium.spaces.Box
    action = box(-np.inf, np.inf, (actor.dims,))
    if actor.choices is not None:
        one = len(actor.choices) == 1
        action = gymnasium.spaces.Discrete(actor.choices[0]) if one else gymnasium.spaces.MultiDiscrete(actor.choices)
    return box(-np.inf, np.inf, (actor.inputs,)), action
