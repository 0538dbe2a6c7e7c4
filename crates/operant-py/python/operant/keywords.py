"""Keywords of models: what to type here in place of what other libraries take."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any

import gymnasium

from operant import _operant

_OF_LEARN = {
    "log_interval": "callback= is called with the newest metrics, progress_bar=True shows them",
    "tb_log_name": "run_dir= of the model names the folder that holds its TensorBoard file",
    "reset_num_timesteps": "learn goes on where the model is; a new model counts from 0",
    "eval_env": "model.evaluate(episodes) plays without learning",
    "eval_freq": "model.evaluate(episodes) plays without learning, also between two calls of learn",
    "n_eval_episodes": "model.evaluate(episodes) plays without learning",
}
"""What other libraries' keywords of learn come to."""

_LAYERS = "hidden=[64, 64]"
_POLICIES = {"lstm": 'memory="lstm"', "cnn": 'encoder="conv"'}
"""Keywords for networks of other libraries, by a part of their names."""

_LOWERED = {"learning_rate": "anneal_lr", "clip_coef": "anneal_clip", "ent_coef": "anneal_ent"}
"""Switches that lower a number in a straight line to 0."""


def of_other_libraries(algo: str, paths: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Names of other libraries that are taken for keywords here, and what to do in place of those that are not."""
    keys = {path: key for key, path in paths.items()}
    # Keywords have no tables before them.
    dotted = re.compile("|".join(re.escape(path) for path in sorted(keys, key=len, reverse=True) if "." in path))
    aliases, advice = dict[str, str](), dict[str, str]()
    for name, (path, words) in _operant.setting_aliases(algo).items():
        said = dotted.sub(lambda found: keys[found[0]], words or "")
        if path is None:
            advice[name] = said
        elif path in keys and words is None:
            aliases[name] = keys[path]
        else:
            key = keys.get(path, f"env_kwargs={{{path.removeprefix('env.')!r}: …}}")
            advice[name] = f"see {key}: {said}" if said else f"here it is {key}"
    return aliases, advice


def unknown(
    model: str, key: str, known: Mapping[str, str], others: Iterable[str], advice: Mapping[str, str]
) -> TypeError:
    """The error for a keyword that a model does not have."""
    if key in advice:
        return TypeError(f"{model} has no keyword {key!r}; {advice[key]}")
    near = difflib.get_close_matches(key, [*known, *others, "run_dir", "env_kwargs", "checkpoint", "evaluation"], 1)
    hint = f"; did you mean {near[0]!r}?" if near else f" (known: {', '.join(known)})"
    return TypeError(f"{model} got an unknown keyword {key!r}{hint}")


def no_function(key: str, name: str, value: Any) -> Any:
    """The value of a keyword, unless it is a schedule of another library."""
    if not callable(value):
        return value
    lowered = _LOWERED.get(name)
    next_step = f"; {lowered}=True lowers it in a straight line to 0" if lowered else ""
    raise TypeError(f"{key} is a {type(value).__name__}: wanted a number, text, bool, list or dict{next_step}")


def check_positional(model: str, env: Any, more: tuple[Any, ...]) -> None:
    """Refuses a policy before the env, as other libraries take it, and anything after the env."""
    is_class = isinstance(env, type) and not issubclass(env, gymnasium.Env | gymnasium.vector.VectorEnv)
    name = env if isinstance(env, str) else env.__name__ if is_class else ""
    if name.endswith("Policy"):
        given = repr(more[0]) if more and isinstance(more[0], str) else "env"
        first = repr(env) if isinstance(env, str) else name
        parts = [words for part, words in _POLICIES.items() if part in name.lower()]
        if not _may_show_images(more[0] if more else None):
            parts = [words for words in parts if words != _POLICIES["cnn"]]
        network, own = ", ".join(parts) or _LAYERS, f"operant.{model}({given}, {_LAYERS})"
        wanted = f"the env comes first here, and keywords describe the network; type operant.{model}({given}, {network})"
        if "lstm" in name.lower() and model != "PPO":
            wanted = f"the env comes first here, and {model} has no memory; type operant.PPO({given}, {network}), or {own} without"
        raise TypeError(f"{model}({first}, {given}): {wanted}")
    if more:
        wanted = f"got {more[0]!r} without a name; type operant.{model}(env, seed=1)"
        raise TypeError(f"{model} takes the env and then keywords, {wanted}")


def _may_show_images(env: Any) -> bool:
    """Whether an env shows images, or does not say before it is made."""
    space = getattr(env, "single_observation_space", getattr(env, "observation_space", None))
    return not isinstance(space, gymnasium.Space) or len(space.shape or ()) == 3


def check_learn(other: Mapping[str, Any]) -> None:
    """Refuses keywords that learn does not have."""
    for key in other:
        if key in _OF_LEARN:
            raise TypeError(f"learn has no keyword {key!r}; {_OF_LEARN[key]}")
        near = difflib.get_close_matches(key, ["total_timesteps", "callback", "progress_bar"], 1)
        hint = f"; did you mean {near[0]!r}?" if near else " (known: total_timesteps, callback, progress_bar)"
        raise TypeError(f"learn got an unknown keyword {key!r}{hint}")
