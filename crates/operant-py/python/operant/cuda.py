"""Vector environments on a GPU: rows that PyTorch, JAX and CuPy read where they lie."""

from __future__ import annotations

import importlib
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from operant import devices, spaces
from operant._operant import DeviceArray, DeviceEngine


class CudaVectorEnv(VectorEnv[DeviceArray, Any, DeviceArray]):
    """N environments of one kind on a GPU. Made by :func:`operant.make_vec` with ``device="cuda"``.

    Observations, rewards and flags are :class:`DeviceArray`: ``torch.from_dlpack(obs)``, ``jax.dlpack.from_dlpack(obs)``
    and ``cupy.asarray(obs)`` see the same memory, ordered behind the step on the stream that they work on;
    ``obs.numpy()`` waits and copies. ``step`` with a tensor of this GPU returns as soon as the work is queued; what waits for
    the GPU are ``reset``, host arrays as actions, and the CUDA array interface, which has no stream of its own to order by.

    With ``output="torch"`` they are PyTorch's tensors, made once for both blocks, and PyTorch's current stream waits for
    every step: the fastest way for a loop in PyTorch. ``step(actions, out=(obs, rewards, terminations, truncations))`` writes
    into tensors of the caller's, such as rows of a rollout, and such steps can be recorded in a ``torch.cuda.CUDAGraph``.

    Actions are tensors of this GPU, read in place on a stream that follows the one they were made on, or host arrays,
    which are copied.

    Lifetime: rows lie in two blocks, written in turn, so that an array is valid until the second next call of ``step`` or
    ``reset``; keep it for longer with a copy (``.clone()``). Tensors outlive the env.

    Infos have ``final_obs``, ``episode_return`` and ``episode_length``, which hold something only where an episode ended
    in this step, and ``action_mask`` where some actions are illegal.
    """

    def __init__(
        self,
        env_id: str,
        num_envs: int = 1,
        *,
        device: str = "cuda",
        seed: int | None = None,
        autoreset: tuple[str, AutoresetMode] = ("same_step", AutoresetMode.SAME_STEP),
        math: str = "strict",
        max_episode_steps: int | None = None,
        first_env: int = 0,
        output: str = "dlpack",
        **params: Any,
    ) -> None:
        """See :func:`operant.make_vec`."""
        info = spaces.env_info(env_id)
        devices.add_library_folders()
        seed = spaces.fresh_seed() if seed is None else spaces.check_seed(seed)
        options = {"device": device, "seed": seed, "autoreset": autoreset, "math": math, "output": output}
        limits = {"max_episode_steps": max_episode_steps, "first_env": first_env}
        self._made: dict[str, Any] = {"env_id": env_id, "num_envs": num_envs, **options, **limits, **params}
        self._begun = False
        num_envs = spaces.whole("num_envs", num_envs)
        if num_envs < 1:
            raise ValueError(f"num_envs = {num_envs}: wanted at least 1")
        self._engine = DeviceEngine(
            env_id,
            num_envs,
            device=device,
            seed=seed,
            fast_math=math == "fast",
            autoreset=autoreset[0],
            max_episode_steps=(
                None if max_episode_steps is None else spaces.whole("max_episode_steps", max_episode_steps)
            ),
            first_env=first_env,
            params=spaces.numbers(params, info),
        )
        self._step = self._engine.step
        if output not in ("dlpack", "torch"):
            raise ValueError(f"output = {output!r}: wanted 'dlpack' or 'torch'")
        self._torch = importlib.import_module("torch") if output == "torch" else None
        # By the observations' array: there are two blocks of rows, so two entries.
        self._tensors: dict[int, tuple[Any, ...]] = {}
        # The same by the blocks' numbers.
        self._blocks: list[tuple[Any, ...] | None] = [None, None]
        self._index = int(self._engine.rows(0)[0].device.split(":")[1])
        self.env_info: dict[str, Any] = self._engine.spec()
        self.num_envs = num_envs
        self.device = device
        self.single_observation_space = spaces.observation_space(self.env_info)
        self.single_action_space = spaces.action_space(self.env_info)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.autoreset_mode = autoreset[1]
        self.metadata = {"render_modes": [], "autoreset_mode": autoreset[1]}
        self.render_mode = None
        self.spec = gymnasium.registry.get(spaces.gymnasium_id(info["id"]))
        if self._torch is not None:
            torch, shape = self._torch, self.action_space.shape
            discrete = not isinstance(self.single_action_space, gymnasium.spaces.Box)
            kinds = (torch.int64, torch.int32, torch.uint8) if discrete else (None, None, None, torch.float32, torch.float64)
            self._kinds = {dtype: kind for kind, dtype in enumerate(kinds) if dtype is not None}
            self._action_shape = torch.Size(shape or (num_envs,))
            flags = (torch.Size((num_envs,)), torch.bool)
            observations = (torch.Size(self.observation_space.shape or ()), torch.float32)
            self._out = (observations, (flags[0], torch.float32), flags, flags)
            # What PyTorch's own compilers use: a tenth of the time of `torch.cuda.current_stream`.
            self._raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)

    def __getstate__(self) -> dict[str, Any]:
        """What it was made with and where it stands, for pickle and copy."""
        return {"made": self._made, "saved": self.save() if self._begun else None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state["made"])  # type: ignore[misc]
        if state["saved"] is not None:
            self.load(state["saved"])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode in every env, or in those of ``options["reset_mask"]``.

        Args:
            seed: from which every env has its own stream by its number; None goes on with the next episode of each.
            options: ``reset_mask``, a boolean array ``[N]`` of the host.
        """
        options = dict(options or {})
        mask = options.pop("reset_mask", None)
        if options:
            raise ValueError(f"options {sorted(options)}: on a GPU wanted reset_mask or nothing")
        if mask is not None:
            mask = np.asarray(mask, dtype=np.bool_).tolist()
        seed = None if seed is None else spaces.check_seed(seed)
        rows = self._engine.reset(seed, mask, self._stream())
        self._begun = True
        return self._as_tensors(*rows)

    def _stream(self) -> int | None:
        """PyTorch's current stream, on which older rows may still be read."""
        if self._torch is None:
            return None
        raw = self._raw_stream
        stream = raw(self._index) if raw else self._torch.cuda.current_stream(self._index).cuda_stream
        # 1 is the legacy default stream, which PyTorch calls 0.
        return stream or 1

    def _as_tensors(self, obs: DeviceArray, infos: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        if self._torch is None:
            return obs, infos
        tensor = self._torch.from_dlpack
        return tensor(obs), {key: tensor(row) for key, row in infos.items()}

    def step(
        self, actions: Any, *, out: tuple[Any, Any, Any, Any] | None = None
    ) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Queues a step of every env: observations, rewards, terminations, truncations, infos.

        Args:
            actions: ``[N]`` integers (int64, int32, uint8) for a discrete space, else ``[N, A]`` numbers (float32,
                float64): a contiguous tensor of this GPU, or a host array.
            out: with ``output="torch"``, contiguous tensors of this GPU for observations and rewards (float32) and both
                flags (bool), which are then given back; infos are as without.
        """
        if self._torch is None:
            if out is not None:
                raise ValueError('out: wanted envs made with output="torch"')
            return self._step(actions)
        stream = self._stream()
        if (
            isinstance(actions, self._torch.Tensor)
            and (kind := self._kinds.get(actions.dtype)) is not None
            and actions.shape == self._action_shape
            and actions.get_device() == self._index
            and actions.is_contiguous()
        ):
            places = None if out is None else self._places(out)
            block = self._engine.step_at(actions.data_ptr(), kind, stream, places)
            known = self._blocks[block]
            if known is None:
                known = self._blocks[block] = self._tensors_of(self._engine.rows(block))
        elif out is not None:
            raise TypeError(
                f"actions for a step with out: wanted a contiguous tensor of cuda:{self._index} of shape"
                f" {tuple(self._action_shape)} and one of {sorted(map(str, self._kinds))}"
            )
        else:
            known = self._tensors_of(self._step(actions, stream))
        obs, rewards, terminations, truncations = known[:4] if out is None else out
        return obs, rewards, terminations, truncations, dict(known[4])

    def _tensors_of(self, rows: tuple[Any, ...]) -> tuple[Any, ...]:
        """PyTorch's tensors of a block's arrays, made once."""
        known = self._tensors.get(id(rows[0]))
        if known is None:
            tensor = self._torch.from_dlpack
            infos = {key: tensor(row) for key, row in rows[4].items()}
            # The arrays are kept too, so that no other can have their number.
            known = (*(tensor(row) for row in rows[:4]), infos, rows)
            self._tensors[id(rows[0])] = known
        return known

    def _places(self, out: tuple[Any, Any, Any, Any]) -> tuple[int, int, int, int]:
        """Addresses of the caller's tensors."""
        obs, rewards, terminations, truncations = out
        for name, tensor, (shape, dtype) in zip(
            ("observations", "rewards", "terminations", "truncations"), out, self._out, strict=True
        ):
            if (
                tensor.shape != shape
                or tensor.dtype != dtype
                or tensor.get_device() != self._index
                or not tensor.is_contiguous()
            ):
                raise ValueError(
                    f"out: {name} of shape {tuple(tensor.shape)}, {tensor.dtype}, on {tensor.device}; wanted a contiguous"
                    f" tensor of shape {tuple(shape)}, {dtype}, on cuda:{self._index}"
                )
        return obs.data_ptr(), rewards.data_ptr(), terminations.data_ptr(), truncations.data_ptr()

    def synchronize(self) -> None:
        """Waits for all steps, and raises what went wrong in them."""
        self._engine.synchronize()

    def save(self) -> bytes:
        """Everything needed to go on exactly from here, on a GPU or on the CPU."""
        return self._engine.save()

    def load(self, saved: bytes) -> tuple[Any, dict[str, Any]]:
        """Goes on from :meth:`save`'s bytes; gives what :meth:`reset` does."""
        rows = self._engine.load(saved, self._stream())
        self._begun = True
        return self._as_tensors(*rows)

    def close_extras(self, **kwargs: Any) -> None:
        """Gives the memory back, save what tensors still show."""
        if "_engine" in self.__dict__:
            self._engine.close()
