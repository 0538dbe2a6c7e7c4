"""What the engine says of an environment, as Gymnasium's spaces and arguments."""

from __future__ import annotations

import difflib
import operator
from collections.abc import Iterable, Mapping
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces

from operant import _operant

RESET_BOUNDS = ("low", "high", "x_init", "y_init")
"""Parameters that a reset may replace for itself alone, as in Gymnasium's classic control."""


class UnknownEnvError(gymnasium.error.NameNotFound, ValueError):
    """No environment has this name."""


class UnknownParameterError(TypeError, ValueError):
    """An environment has no parameter of this name. It is a ``TypeError``, as for any keyword that a function does not take,
    since libraries that try keywords look for that."""


def env_info(name: str) -> dict[str, Any]:
    """All that is known of one environment: spaces, limits, parameters with their ranges.

    Args:
        name: short name ("cartpole"), id ("CartPole-v1") or Gymnasium id ("operant/CartPole-v1"), in any case.
    """
    try:
        return _operant.env_info(name)
    except ValueError as error:
        raise UnknownEnvError(str(error)) from None


def gymnasium_id(env_id: str) -> str:
    """The id under which Gymnasium's registry has an environment."""
    return env_id if env_id.startswith("operant/") else f"operant/{env_id}"


def _box(channels: list[dict[str, Any]]) -> spaces.Box:
    low = np.array([channel["low"] for channel in channels], dtype=np.float32)
    high = np.array([channel["high"] for channel in channels], dtype=np.float32)
    return spaces.Box(low, high, dtype=np.float32)


def observation_space(info: Mapping[str, Any]) -> spaces.Space[Any]:
    """The observation of one env."""
    return _box(info["observation"])


def action_space(info: Mapping[str, Any]) -> spaces.Space[Any]:
    """The action of one env."""
    action = info["action"]
    if action["kind"] == "box":
        return _box(action["channels"])
    if action["kind"] == "discrete":
        return spaces.Discrete(action["n"])
    return spaces.MultiDiscrete(action["n"])


def metadata(info: Mapping[str, Any]) -> dict[str, Any]:
    """Gymnasium's metadata: render modes, if the env draws a picture, and frames per second."""
    fps = info["render_fps"]
    return {"render_modes": ["rgb_array", "ansi"], "render_fps": fps} if fps else {"render_modes": []}


def ansi(picture: npt.NDArray[np.uint8], columns: int = 64) -> str:
    """A picture as text for a terminal: half blocks in 24-bit colours, each two pixels of a smaller picture."""
    height, width, _ = picture.shape
    columns = min(columns, width)
    rows = max(2, round(height * columns / width / 2) * 2)
    across, down = ((np.arange(count) + 0.5) * size / count for count, size in ((columns, width), (rows, height)))
    small = picture[down.astype(int)][:, across.astype(int)].tolist()
    lines = []
    for top, bottom in zip(small[::2], small[1::2], strict=True):
        cells = (
            f"\x1b[38;2;{a[0]};{a[1]};{a[2]}m\x1b[48;2;{b[0]};{b[1]};{b[2]}m▀" for a, b in zip(top, bottom, strict=True)
        )
        lines.append("".join(cells) + "\x1b[0m")
    return "\n".join(lines)


def check_render_mode(render_mode: str | None, info: Mapping[str, Any]) -> None:
    """Raises unless the env can draw what is asked for."""
    modes = metadata(info)["render_modes"]
    if render_mode is not None and render_mode not in modes:
        wanted = '"rgb_array", "ansi" or None' if modes else "None, since it draws no picture"
        raise ValueError(f"render_mode = {render_mode!r}: {info['id']} takes {wanted}")


def whole(name: str, value: Any) -> int:
    """An integer argument, or what is wrong with it."""
    try:
        number: int = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} = {value!r}: wanted an integer") from None
    if not -(2**63) <= number < 2**64:
        raise ValueError(f"{name} = {number}: wanted an integer of 64 bits")
    return number


def check_seed(seed: Any) -> int:
    """A seed that the engine takes."""
    number = whole("seed", seed)
    if number < 0:
        raise ValueError(f"seed = {number}: wanted 0 <= seed < 2**64")
    return number


def fresh_seed() -> int:
    """A seed from the system's entropy."""
    return int(np.random.SeedSequence().generate_state(1, np.uint64)[0])


def numbers(params: Mapping[str, SupportsFloat | str], info: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Parameters as the engine takes them; it knows their names and ranges."""
    # Every env has a limit of steps in addition to its own parameters.
    known = {param["name"]: param["names"] for param in info["params"]} | {"time_limit": []}
    pairs = []
    for name, value in params.items():
        if name not in known:
            raise _unknown_parameter(name, list(known))
        if isinstance(value, str):
            names = known[name]
            if not names:
                raise TypeError(f"parameter {name} = {value!r}: wanted a number")
            if value not in names:
                raise ValueError(f"parameter {name} = {value!r}: wanted one of {', '.join(names)}")
            value = names.index(value)
        try:
            pairs.append((name, float(value)))
        except (TypeError, ValueError):
            raise TypeError(f"parameter {name} = {value!r}: wanted a number") from None
    return pairs


def _unknown_parameter(name: str, known: list[str]) -> UnknownParameterError:
    near = difflib.get_close_matches(name, known, 1)
    hint = f'; did you mean "{near[0]}"?' if near else ""
    # The words that Python itself has for it, which TorchRL looks for.
    said = f'got an unexpected keyword argument {name!r}: unknown parameter "{name}"{hint}'
    return UnknownParameterError(f"{said} (it has {', '.join(known) or 'none'})")


def reset_bounds(
    options: Mapping[str, Any], params: Mapping[str, float], others: Iterable[str] = ()
) -> list[tuple[str, float]]:
    """The bounds of first states in a reset's options; ``others`` are options that the caller sees to."""
    allowed = [name for name in RESET_BOUNDS if name in params]
    bounds: dict[str, float] = {}
    for name, value in options.items():
        if name in others:
            continue
        if name not in allowed:
            known = ", ".join([*allowed, *others]) or "none"
            raise ValueError(f"unknown reset option {name!r}; it takes {known}")
        try:
            bounds[name] = float(value)
        except (TypeError, ValueError):
            raise ValueError(f"reset option {name} = {value!r}: wanted a number") from None
    if "low" in allowed:
        low, high = bounds.get("low", params["low"]), bounds.get("high", params["high"])
        if low > high:
            raise ValueError(f"reset options low = {low}, high = {high}: wanted low <= high")
    return list(bounds.items())
