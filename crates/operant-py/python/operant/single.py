"""One environment as ``gymnasium.Env``: what ``gymnasium.make("operant/CartPole-v1")`` gives."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from operant import spaces
from operant._operant import Engine


class OperantEnv(gymnasium.Env[npt.NDArray[np.float32], Any]):
    """One environment. It neither resets itself nor limits time: Gymnasium's wrappers do.

    Observations and masks are fresh arrays. Pickle and copy take the state along, random streams included. For speed step many at once, with :func:`operant.make_vec`.
    """

    # Gymnasium asks the class whether to wrap "human" around "rgb_array"; an env that draws nothing says so itself.
    metadata: dict[str, Any] = {"render_modes": ["rgb_array", "ansi"], "render_fps": 30}

    def __init__(self, env_id: str, render_mode: str | None = None, **params: Any) -> None:
        """Makes one environment.

        Args:
            env_id: "CartPole-v1", "cartpole" or "operant/CartPole-v1".
            render_mode: "rgb_array" or "ansi" (text for a terminal) for :meth:`render`.
            **params: parameters of the environment; see :func:`operant.env_info`.
        """
        info = spaces.env_info(env_id)
        spaces.check_render_mode(render_mode, info)
        self._engine = Engine(
            env_id,
            1,
            seed=spaces.fresh_seed(),
            threads=1,
            lanes=0,
            fast_math=False,
            autoreset="disabled",
            max_episode_steps=-1,
            first_env=0,
            copy=False,
            episode_stats=False,
            guarded=False,
            params=spaces.numbers(params, info),
        )
        info = self._engine.spec()
        self.metadata = spaces.metadata(info)
        self.render_mode = render_mode
        self.observation_space = spaces.observation_space(info)
        self.action_space = spaces.action_space(info)
        self._discrete: bool = info["action"]["kind"] == "discrete"

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        """Begins an episode: of this seed, or the next of the stream.

        Args:
            seed: seed of the environment's random stream.
            options: ``low`` and ``high`` (Pendulum: ``x_init`` and ``y_init``) bound the first state.
        """
        super().reset(seed=seed)
        bounds = spaces.reset_bounds(options, self._engine.params()) if options else []
        observations, infos = self._engine.reset(None if seed is None else spaces.check_seed(seed), None, bounds)
        return observations[0].copy(), _first(infos)

    def step(self, action: Any) -> tuple[npt.NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """One step; never truncated, since time limits are Gymnasium's ``TimeLimit``."""
        actions = np.array([spaces.whole("action", action)]) if self._discrete else np.asarray(action)[None]
        observations, rewards, terminated, truncated, infos = self._engine.step(actions)
        return observations[0].copy(), float(rewards[0]), bool(terminated[0]), bool(truncated[0]), _first(infos)

    def render(self) -> npt.NDArray[np.uint8] | str | None:
        """A picture, if made with ``render_mode="rgb_array"``, or text in colours, with ``"ansi"``."""
        if self.render_mode is None:
            gymnasium.logger.warn('render() without a render mode; make the env with render_mode="rgb_array"')
            return None
        picture = self._engine.draw(0)
        return spaces.ansi(picture) if self.render_mode == "ansi" else picture

    def close(self) -> None:
        """Gives the memory back."""
        self._engine.close()


def _first(infos: dict[str, Any]) -> dict[str, Any]:
    """The info of the only env."""
    return {"action_mask": infos["action_mask"][0].copy()} if "action_mask" in infos else {}
