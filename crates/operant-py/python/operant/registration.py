"""Every environment of the engine in Gymnasium's registry."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.vector import AutoresetMode

from operant import spaces
from operant._operant import list_envs
from operant.vector import OperantVectorEnv


def register_envs() -> None:
    """Registers ``operant/<id>`` for every environment that is not there yet."""
    for env_id in list_envs():
        name = spaces.gymnasium_id(env_id)
        if name in gymnasium.registry:
            continue
        info = spaces.env_info(env_id)
        gymnasium.register(
            id=name,
            entry_point="operant.single:OperantEnv",
            vector_entry_point="operant.registration:make_registered_vec",
            max_episode_steps=info["time_limit"],
            reward_threshold=info["solved_at"],
            kwargs={"env_id": env_id},
        )


def make_registered_vec(
    env_id: str,
    num_envs: int = 1,
    *,
    autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
    episode_stats: bool = False,
    copy: bool = True,
    **options: Any,
) -> OperantVectorEnv:
    """What ``gymnasium.make_vec("operant/CartPole-v1")`` calls: :func:`operant.make_vec` with Gymnasium's defaults.

    Scripts written for Gymnasium expect next-step autoreset and wrap a vector env in ``RecordEpisodeStatistics``,
    which refuses infos that have statistics already; so here that is the mode and statistics are off, unless asked
    for otherwise. They also keep arrays, as those of Gymnasium's own vector envs stay: here arrays are fresh, unless
    ``copy=False`` asks for views of the engine's memory (:class:`operant.OperantVectorEnv` says how long they are valid).
    """
    return OperantVectorEnv(
        env_id, num_envs, autoreset_mode=autoreset_mode, episode_stats=episode_stats, copy=copy, **options
    )
