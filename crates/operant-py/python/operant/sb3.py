"""Adapter to Stable-Baselines3: ``PPO("MlpPolicy", operant.sb3.Sb3VecEnv("CartPole-v1", 64))``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

try:
    from stable_baselines3.common.vec_env.base_vec_env import VecEnv
except ImportError as error:
    raise ImportError("operant.sb3 needs Stable-Baselines3: pip install 'operant[sb3]'") from error

from operant.vector import OperantVectorEnv, make_vec


class Sb3VecEnv(VecEnv):
    """Environments of the engine as Stable-Baselines3's ``VecEnv``.

    They reset within the step that ends an episode, as that library expects: ``terminal_observation`` and
    ``TimeLimit.truncated`` tell how it ended, ``episode`` has its statistics, so no ``VecMonitor`` is needed. Arrays
    are fresh, since replay and rollout buffers keep them.
    """

    def __init__(self, env: str | OperantVectorEnv, num_envs: int = 1, **options: Any) -> None:
        """Makes or wraps a vector env.

        Args:
            env: a name for :func:`operant.make_vec`, or a vector env with same-step autoreset.
            num_envs: N, if ``env`` is a name.
            **options: other arguments of :func:`operant.make_vec`, if ``env`` is a name.
        """
        self.env = make_vec(env, num_envs, **options) if isinstance(env, str) else env
        mode = self.env.metadata["autoreset_mode"]
        if mode.name != "SAME_STEP":
            raise ValueError(f"autoreset_mode = {mode.name}: Stable-Baselines3 needs SAME_STEP")
        self._actions: np.ndarray | None = None
        super().__init__(self.env.num_envs, self.env.single_observation_space, self.env.single_action_space)

    def reset(self) -> np.ndarray:
        """Begins an episode in every env, with what `seed` and `set_options` left."""
        seeds, bounds = self._seeds, self._options
        options = bounds[0] if any(bounds) else None
        if any(one != bounds[0] for one in bounds):
            raise ValueError("options differ between envs: wanted one dictionary for all")
        seed = None if all(one is None for one in seeds) else list(seeds)
        observations, infos = self.env.reset(seed=seed, options=options)
        self.reset_infos = self._infos(infos)
        self._reset_seeds()
        self._reset_options()
        return np.array(observations)

    def step_async(self, actions: np.ndarray) -> None:
        """Keeps the actions for `step_wait`."""
        self._actions = actions

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Steps every env: observations, rewards, dones, one info per env."""
        if self._actions is None:
            raise RuntimeError("step_wait without actions; call step_async first")
        actions, self._actions = self._actions, None
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        each = self._infos(infos)
        dones = terminated | truncated
        for i, info in enumerate(each):
            info["TimeLimit.truncated"] = bool(truncated[i] and not terminated[i])
        for i in np.flatnonzero(dones).tolist():
            each[i]["terminal_observation"] = infos["final_obs"][i].copy()
            if "episode" in infos:
                stats = infos["episode"]
                each[i]["episode"] = {
                    "r": float(stats["r"][i]),
                    "l": int(stats["l"][i]),
                    "t": float(stats["t"][i]),
                }
        return np.array(observations), np.array(rewards), dones, each

    def _infos(self, infos: dict[str, Any]) -> list[dict[str, Any]]:
        if "action_mask" not in infos:
            return [{} for _ in range(self.num_envs)]
        return [{"action_mask": mask.copy()} for mask in infos["action_mask"]]

    def close(self) -> None:
        """Closes the vector env."""
        self.env.close()

    def get_images(self) -> Sequence[np.ndarray | None]:
        """A picture of every env."""
        return self.env.render() or [None] * self.num_envs

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """An attribute of the vector env, once per env asked for."""
        value = getattr(self.env, attr_name)
        return [value for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Sets an attribute of the vector env, which all its envs share."""
        self._all(indices, f"set {attr_name}")
        setattr(self.env, attr_name, value)

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        """Calls a method of the vector env once; its result, once per env asked for."""
        chosen = list(self._get_indices(indices))
        result = getattr(self.env, method_name)(*method_args, **method_kwargs)
        return [result for _ in chosen]

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        """Whether wrapped: never, since there are no single envs to wrap."""
        return [False for _ in self._get_indices(indices)]

    def _all(self, indices: int | Iterable[int] | None, what: str) -> None:
        if len(list(self._get_indices(indices))) != self.num_envs:
            raise ValueError(f"{what} for some envs: they share one vector env, so wanted indices=None")
