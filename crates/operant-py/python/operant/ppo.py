"""Proximal policy optimisation on the engine's environments and on those that the user brings.

>>> import operant
>>> model = operant.PPO("CartPole-v1", seed=1).learn(20_000)
>>> actions, _ = model.predict([0.0, 0.0, 0.1, 0.0], deterministic=True)
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from typing import Any

from operant import _operant
from operant.model import Model, _count

__all__ = ["PPO"]

_BROUGHT = {
    "learning_rate": 3e-4,
    "anneal_lr": False,
    "update_epochs": 10,
    "ent_coef": 0.0,
    "clip_vloss": False,
}
"""Settings for envs that the user brings, where Stable-Baselines3's differ from the engine's."""
_BROUGHT_SAMPLES = 2048
_BROUGHT_MINIBATCH = 64


class PPO(Model, algo="ppo"):
    """Proximal policy optimisation with its environments, network and run.

    Keywords are the keys of a ``run.toml``: those of its top level (``seed``, ``num_envs``, ``threads``,
    ``precision``, ``until``, ``device``: cpu, cuda or auto, a GPU that has kernels for the run), of ``[ppo]`` (``num_steps``, ``minibatch_size``, ``update_epochs``, ``learning_rate``,
    ``anneal_lr``, ``gamma``, ``gae_lambda``, ``clip_coef``, ``ent_coef``, ``vf_coef``, ``max_grad_norm``,
    ``target_kl``, ``normalize_obs``, ``normalize_reward`` …) and of ``[network]`` (``hidden``, ``activation``,
    ``memory``, ``memory_size``, ``encoder``); :attr:`settings` has them all with their values. Stable-Baselines3's names work too:
    ``n_steps``, ``batch_size``, ``n_epochs``, ``clip_range`` and so on, and CleanRL's ``num_minibatches``.

    For a registered env, what is not given comes from the tuned settings that are shipped for it. For envs that the
    user brings it is Stable-Baselines3's: rollouts of 2048 samples over all envs, minibatches of 64, 10 epochs,
    learning rate 3e-4. The same settings and seed give the same weights, whatever the number of threads.
    """

    _extra = ("num_minibatches",)

    @classmethod
    def _by_name(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        if "num_minibatches" in settings and ("minibatch_size" in settings or "batch_size" in settings):
            raise TypeError("PPO got num_minibatches and minibatch_size: wanted one of them")
        values = super()._by_name(settings)
        if "target_kl" in settings:
            values.setdefault("target_kl", 0.0)
        return values

    @classmethod
    def _brought_settings(cls, values: dict[str, Any]) -> dict[str, Any]:
        """What was given over Stable-Baselines3's settings, in sizes that fit together."""
        values = {**_BROUGHT, **values}
        envs = values["num_envs"]
        values.setdefault("num_steps", max(1, _BROUGHT_SAMPLES // envs))
        if "minibatch_size" not in values:
            steps = _count("num_steps", values["num_steps"])
            if values.get("memory", "none") == "none":
                values["minibatch_size"] = _divisor(envs * steps, _BROUGHT_MINIBATCH)
            else:
                values["minibatch_size"] = steps * _divisor(envs, max(1, envs // 4))
        return values

    @classmethod
    def _fitting(cls, saved: dict[str, Any], settings: Mapping[str, Any], num_envs: int) -> dict[str, Any]:
        """With a minibatch that divides what so many envs collect, unless one was given."""
        fitting, values = dict(saved), {**saved, **cls._by_name(settings)}
        size = fitting.pop("minibatch_size", None)
        if size is None or "num_minibatches" in settings:
            return fitting
        steps, envs = _count("num_steps", values.get("num_steps", 1)), _count("num_envs", num_envs)
        one = 1 if values.get("memory", "none") == "none" else steps
        if steps * envs % size or size % one:
            fitting["minibatch_size"] = one * _divisor(steps * envs // one, max(1, size // one))
            sizes = f"the saved minibatch_size {size} does not divide {envs} envs * num_steps {steps}"
            next_step = "num_steps= and minibatch_size= of load give other sizes"
            warnings.warn(f"{sizes}: it is {fitting['minibatch_size']} now; {next_step}", RuntimeWarning, stacklevel=3)
            return fitting
        return {**fitting, "minibatch_size": size}

    @classmethod
    def _computed(
        cls, env: str, pairs: list[tuple[str, Any]], settings: Mapping[str, Any]
    ) -> list[tuple[str, Any]]:
        if "num_minibatches" not in settings:
            return []
        path = "ppo.minibatch_size"
        count = _count("num_minibatches", settings["num_minibatches"])
        sizes = _operant.resolve_settings("ppo", env, [pair for pair in pairs if pair[0] != path])
        samples = sizes["num_envs"] * sizes["ppo"]["num_steps"]
        if samples % count:
            raise ValueError(f"num_minibatches = {count} does not divide num_envs*num_steps = {samples}")
        return [(path, int(samples // count))]

    @classmethod
    def _can_run(cls, network: Mapping[str, Any]) -> bool:
        return network["kind"] == "actor_critic"

    @classmethod
    def _network_of(cls, actor: _operant.Actor) -> dict[str, Any]:
        memory = json.loads(actor.architecture).get("memory")
        found = super()._network_of(actor)
        found |= {"normalize_obs": actor.normalizes, "memory": memory["kind"] if memory else "none"}
        return found | ({"memory_size": memory["size"]} if memory else {})


def _divisor(number: int, most: int) -> int:
    return next(size for size in range(min(number, most), 0, -1) if number % size == 0)
