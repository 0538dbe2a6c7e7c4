"""Deep Q-learning on the engine's environments and on those that the user brings.

>>> import operant
>>> model = operant.DQN("CartPole-v1", seed=1).learn(10_000)
>>> actions, _ = model.predict([0.0, 0.0, 0.1, 0.0])
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from operant import _operant
from operant.model import Model

__all__ = ["DQN"]

class DQN(Model, algo="dqn"):
    """Deep Q-learning with its environments, network, replay and run.

    Keywords are the keys of a ``run.toml``: those of its top level (``seed``, ``num_envs``, ``threads``,
    ``precision``, ``until``), of ``[dqn]`` (``buffer_size``, ``batch_size``, ``replay_ratio``, ``learning_starts``,
    ``learning_rate``, ``gamma``, ``tau``, ``target_network_frequency``, ``start_e``, ``end_e``,
    ``exploration_fraction``, ``n_step``, ``double_q``, ``dueling``, ``noisy``, ``quantiles``, ``prioritized_replay``,
    ``loss`` …, and the table ``curriculum`` as a dictionary) and of ``[network]`` (``hidden``, ``activation``,
    ``encoder``); :attr:`settings` has them all with their values. Stable-Baselines3's ``exploration_initial_eps``,
    ``exploration_final_eps``, ``net_arch`` and ``n_envs`` work too.

    For a registered env, what is not given comes from the tuned settings that are shipped for it, if there are any.
    The same settings and seed give the same weights, whatever the number of threads. :meth:`predict` takes the best
    action, also with ``deterministic=False``.
    """

    @classmethod
    def _brought_settings(cls, values: dict[str, Any]) -> dict[str, Any]:
        return {"activation": "relu", "learning_starts": 1000, **values}

    @classmethod
    def _can_run(cls, network: Mapping[str, Any]) -> bool:
        return network["kind"] == "action_value"

    @classmethod
    def _network_of(cls, actor: _operant.Actor) -> dict[str, Any]:
        network = json.loads(actor.architecture)
        heads = {"dueling": network.get("dueling", False), "noisy": network.get("noisy", False)}
        rest = {"quantiles": network.get("quantiles") or 0, "normalize_obs": actor.normalizes}
        return super()._network_of(actor) | heads | rest
