"""The vector environment: N environments stepped together, as ``gymnasium.vector.VectorEnv``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from operant import spaces
from operant._operant import Engine
from operant.cuda import CudaVectorEnv

Observations = npt.NDArray[np.float32]
Step = tuple[Observations, npt.NDArray[np.float32], npt.NDArray[np.bool_], npt.NDArray[np.bool_], dict[str, Any]]

_MODES = {
    "same_step": AutoresetMode.SAME_STEP,
    "next_step": AutoresetMode.NEXT_STEP,
    "disabled": AutoresetMode.DISABLED,
}


def _autoreset_mode(mode: str | AutoresetMode) -> tuple[str, AutoresetMode]:
    for name, value in _MODES.items():
        if mode is value or (isinstance(mode, str) and mode.lower() in (name, value.value.lower())):
            return name, value
    raise ValueError(f"autoreset_mode = {mode!r}: wanted one of {', '.join(map(repr, _MODES))} or an AutoresetMode")


def _lanes(lanes: int | str) -> int:
    widths: dict[int | str, int] = {"auto": 0, 1: 1, 8: 8, 16: 16}
    if lanes not in widths:
        raise ValueError(f"lanes = {lanes!r}: wanted 'auto', 1, 8 or 16")
    return widths[lanes]


class OperantVectorEnv(VectorEnv[Observations, npt.ArrayLike, np.ndarray]):
    """N environments of one kind, stepped together by the engine. Made by :func:`make_vec`.

    Lifetime of arrays: observations, rewards, flags and the arrays within infos are views of the engine's memory,
    of which there are two blocks, written in turn. An array is valid until the second next call of ``step``,
    ``reset`` or ``observe``, so those of the last step can be read while the next is taken; keep one for longer with
    ``.copy()``, or make the env with ``copy=True``. If an array of a former step is still referenced when it is
    overwritten, a ``RuntimeWarning`` says so, once. Views outlive the env and may be written to, but not by another
    thread while a step runs.

    Pickle and copy take the state along: a copy goes on with the same bits, random streams included.

    Infos: if an episode ended, ``episode`` has the arrays ``r`` (return), ``l`` (length) and ``t`` (seconds), zero
    where none ended, and ``_episode`` says where one did, as ``gymnasium.wrappers.vector.RecordEpisodeStatistics``
    gives them. With same-step autoreset there are also ``final_obs``, here a dense ``[N, O]`` array that is zero
    where no episode ended (Gymnasium's own vector envs give an array of objects), and ``final_info``. Envs in which
    some actions are illegal give ``action_mask``, ``[N, choices]``, 1 where legal. Otherwise infos are empty.
    """

    def __init__(
        self,
        env_id: str,
        num_envs: int = 1,
        *,
        threads: int | None = None,
        seed: int | None = None,
        autoreset_mode: str | AutoresetMode = "same_step",
        lanes: int | str = "auto",
        math: str = "strict",
        copy: bool = False,
        episode_stats: bool = True,
        max_episode_steps: int | None = None,
        first_env: int = 0,
        render_mode: str | None = None,
        **params: Any,
    ) -> None:
        """See :func:`make_vec`."""
        info = spaces.env_info(env_id)
        spaces.check_render_mode(render_mode, info)
        mode_name, mode = _autoreset_mode(autoreset_mode)
        if math not in ("strict", "fast"):
            raise ValueError(f"math = {math!r}: wanted 'strict' or 'fast'")
        if not 0 <= spaces.whole("first_env", first_env) < 2**32:
            raise ValueError(f"first_env = {first_env}: wanted 0 <= first_env < 2**32")
        seed = spaces.fresh_seed() if seed is None else spaces.check_seed(seed)
        num_envs = spaces.whole("num_envs", num_envs)
        self._engine = Engine(
            env_id,
            num_envs,
            seed=seed,
            threads=None if threads is None else spaces.whole("threads", threads),
            lanes=_lanes(lanes),
            fast_math=math == "fast",
            autoreset=mode_name,
            max_episode_steps=(
                None if max_episode_steps is None else spaces.whole("max_episode_steps", max_episode_steps)
            ),
            first_env=first_env,
            copy=bool(copy),
            episode_stats=bool(episode_stats),
            guarded=True,
            params=spaces.numbers(params, info),
        )
        # Looked up here, so that a step pays for one attribute and one call.
        self._step = self._engine.step
        self.env_info: dict[str, Any] = self._engine.spec()
        self.num_envs = num_envs
        self.single_observation_space = spaces.observation_space(self.env_info)
        self.single_action_space = spaces.action_space(self.env_info)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.autoreset_mode = mode
        self.metadata = {**spaces.metadata(self.env_info), "autoreset_mode": mode}
        self.render_mode = render_mode
        self.spec = gymnasium.registry.get(spaces.gymnasium_id(info["id"]))
        # `np_random_seed` names the seed even where nobody gave one, so that every run can be repeated.
        self._np_random, self._np_random_seed = seeding.np_random(seed)

    def __getstate__(self) -> dict[str, Any]:
        # `copy.deepcopy` would keep the method of this engine.
        return {name: value for name, value in self.__dict__.items() if name != "_step"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._step = self._engine.step

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Observations, dict[str, Any]]:
        """Begins an episode in every env.

        Args:
            seed: an integer, from which every env has its own stream by its number (not, as in Gymnasium's own vector
                envs, the seeds ``seed``, ``seed + 1`` and so on); or one seed per env, where None goes on; or None, which goes on with the next episode of each env's stream (in the first reset: that
                of the seed given to :func:`make_vec`, or of a fresh one).
            options: ``low`` and ``high`` (Pendulum: ``x_init`` and ``y_init``) bound the first states of the episodes
                that this call begins, and of no others; ``reset_mask``, a boolean array ``[N]``, limits the reset to
                some envs.
        """
        options = {} if options is None else options
        if not isinstance(options, dict):
            raise TypeError(f"options = {options!r}: wanted a dictionary")
        mask = options.get("reset_mask")
        if "reset_mask" in options:
            self._check_mask(mask)
        bounds = spaces.reset_bounds(options, self._engine.params(), ("reset_mask",)) if options else []
        chosen: int | list[int | None] | None
        if seed is None:
            chosen = None
        elif isinstance(seed, (Sequence, np.ndarray)) and not isinstance(seed, str):
            if len(seed) != self.num_envs:
                raise ValueError(f"seed has {len(seed)} entries, wanted one per env: {self.num_envs}")
            chosen = [None if one is None else spaces.check_seed(one) for one in seed]
        else:
            chosen = spaces.check_seed(seed)
            self._np_random, self._np_random_seed = seeding.np_random(chosen)
        return self._engine.reset(chosen, mask, bounds)

    def _check_mask(self, mask: Any) -> None:
        if not isinstance(mask, np.ndarray):
            raise TypeError(f"`options['reset_mask']` must be a numpy array, got {type(mask)}")
        if mask.shape != (self.num_envs,):
            raise ValueError(f"`options['reset_mask']` must have shape `({self.num_envs},)`, got {mask.shape}")
        if mask.dtype != np.bool_:
            raise TypeError(f"`options['reset_mask']` must have `dtype=np.bool_`, got {mask.dtype}")
        if not mask.any():
            raise ValueError("`options['reset_mask']` must have at least one True value")

    def step(self, actions: npt.ArrayLike) -> Step:
        """Steps every env: observations, rewards, terminations, truncations, infos.

        Args:
            actions: ``[N]`` integers for a discrete space, else ``[N, A]``. Contiguous int64, int32, float32 and
                float64 arrays are read in place; others are converted first.
        """
        return self._step(actions)

    def observe(self) -> Observations:
        """Observations of the states as they are, after :meth:`set_state` or :meth:`load`."""
        return self._engine.observe()

    def get_state(self) -> dict[str, npt.NDArray[np.float32] | npt.NDArray[np.int32]]:
        """Copies of the state, one ``[N]`` array per column; ``elapsed`` is the steps since the episode began."""
        return self._engine.get_state()

    def set_state(self, state: Mapping[str, npt.ArrayLike]) -> None:
        """Replaces some or all columns of the state, all envs at once; pending autoresets are forgotten."""
        self._engine.set_state(dict(state))

    def save(self) -> bytes:
        """Everything needed to go on exactly from here, random streams included."""
        return self._engine.save()

    def load(self, saved: bytes) -> None:
        """Goes on from :meth:`save`'s bytes, of the same environment and number of envs."""
        self._engine.load(saved)

    @property
    def params(self) -> dict[str, float]:
        """The environment's parameters."""
        return self._engine.params()

    def draw(self, env: int) -> npt.NDArray[np.uint8]:
        """A picture of one env, ``[height, width, 3]``, whatever the render mode."""
        picture = self._engine.draw(spaces.whole("env", env))
        if picture is None:
            raise ValueError(f"{self.env_info['id']} draws no picture")
        return picture

    def render(self) -> tuple[npt.NDArray[np.uint8] | str, ...] | None:
        """A picture of every env, if made with ``render_mode="rgb_array"``, or text in colours, with ``"ansi"``."""
        if self.render_mode is None:
            gymnasium.logger.warn('render() without a render mode; make the env with render_mode="rgb_array"')
            return None
        pictures = (self.draw(env) for env in range(self.num_envs))
        return tuple(spaces.ansi(picture) if self.render_mode == "ansi" else picture for picture in pictures)

    def close_extras(self, **kwargs: Any) -> None:
        """Ends the worker threads and gives the memory back, save what arrays still show."""
        # Gymnasium before 1.3 also closes an env whose constructor raised.
        if "_engine" in self.__dict__:
            self._engine.close()


def make_vec(
    env_id: str,
    num_envs: int = 1,
    *,
    threads: int | None = None,
    seed: int | None = None,
    autoreset_mode: Literal["same_step", "next_step", "disabled"] | AutoresetMode = "same_step",
    lanes: Literal["auto", 1, 8, 16] = "auto",
    math: Literal["strict", "fast"] = "strict",
    copy: bool = False,
    episode_stats: bool = True,
    max_episode_steps: int | None = None,
    first_env: int = 0,
    render_mode: str | None = None,
    device: str = "cpu",
    **params: Any,
) -> OperantVectorEnv | CudaVectorEnv:
    """N environments of one kind, stepped together. Results depend on neither ``threads`` nor ``lanes``.

    Args:
        env_id: "CartPole-v1", "cartpole" or "operant/CartPole-v1"; :func:`operant.list_envs` names all.
        num_envs: N.
        threads: threads that step; None for all cores. Steps too short to be worth sharing are not shared.
        seed: seed of the first reset, if that brings none; None for a fresh one.
        autoreset_mode: what happens after an episode's last step.
        lanes: envs per vector instruction.
        math: "fast" lets multiply-adds round once; results then differ in the last bits from "strict", which gives
            the same bits on every machine.
        copy: whether to return fresh arrays in place of views; see :class:`OperantVectorEnv` for their lifetime.
        episode_stats: whether infos have the statistics of ended episodes. Say False to use Gymnasium's
            ``RecordEpisodeStatistics``, which refuses infos that have them already (and before Gymnasium 1.4
            miscounts with same-step autoreset).
        max_episode_steps: time limit in place of the environment's own; -1 for none.
        first_env: number of the first env. Env ``i`` of a vector has the random stream of number ``first_env + i``,
            so that several vectors can share out one large one.
        render_mode: "rgb_array" for :meth:`OperantVectorEnv.render`.
        device: "cpu", or "cuda" or "cuda:i" for envs on a GPU, whose rows are tensors there
            (:class:`operant.CudaVectorEnv`); ``threads``, ``lanes``, ``copy``, ``episode_stats`` and ``render_mode`` are
            then not used, and ``output="torch"`` makes the rows PyTorch's tensors.
        **params: parameters of the environment by name, such as ``gravity=9.81``; see :func:`operant.env_info`.
    """
    if device != "cpu":
        if math not in ("strict", "fast"):
            raise ValueError(f"math = {math!r}: wanted 'strict' or 'fast'")
        return CudaVectorEnv(
            env_id,
            num_envs,
            device=device,
            seed=seed,
            autoreset=_autoreset_mode(autoreset_mode),
            math=math,
            max_episode_steps=max_episode_steps,
            first_env=first_env,
            **params,
        )
    return OperantVectorEnv(
        env_id,
        num_envs,
        threads=threads,
        seed=seed,
        autoreset_mode=autoreset_mode,
        lanes=lanes,
        math=math,
        copy=copy,
        episode_stats=episode_stats,
        max_episode_steps=max_episode_steps,
        first_env=first_env,
        render_mode=render_mode,
        **params,
    )
