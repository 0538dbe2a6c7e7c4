"""Advantages and returns of a rollout, as PPO computes them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from operant import _operant

__all__ = ["gae"]


def gae(
    rewards: npt.ArrayLike,
    values: npt.ArrayLike,
    terminated: npt.ArrayLike,
    truncated: npt.ArrayLike | None = None,
    final_values: npt.ArrayLike | None = None,
    *,
    gamma: float = 0.99,
    gae_lambda: float = 0.95,
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Generalised advantage estimation (Schulman et al., arXiv:1506.02438) over T steps, of one env or of many.

    A step that terminated is worth its reward alone. A step that was truncated goes on to the value of the last
    observation of its own episode, never to that of the next episode.

    >>> import operant
    >>> advantages, returns = operant.gae([0.0, 1.0], [0.5, 0.5, 9.0], [False, True], gamma=0.5, gae_lambda=1.0)
    >>> returns.tolist()
    [0.5, 1.0]

    Args:
        rewards: ``[T, ...]``, such as ``[T, num_envs]``.
        values: ``[T + 1, ...]``: of the observation before each step, and of the one after the last step.
        terminated: ``[T, ...]``, where the env ended the episode.
        truncated: ``[T, ...]``, where a time limit did; nowhere if None.
        final_values: ``[T, ...]``, read where an episode was truncated: the value of its last observation
            (``infos["final_obs"]`` with same-step autoreset). With next-step autoreset it is ``values[1:]``, and the
            step after an end, which is a reset, is no sample: leave it out of the loss.
        gamma: discount, 0 to 1.
        gae_lambda: weight of later errors, 0 to 1.

    Returns:
        Advantages, and returns (advantages + values): what the values should have been. Both are float32, shaped like
        the rewards.
    """
    for name, number in (("gamma", gamma), ("gae_lambda", gae_lambda)):
        if not 0.0 <= number <= 1.0:
            raise ValueError(f"{name} = {number}: wanted 0 to 1")
    reward = _numbers("rewards", rewards)
    if reward.ndim == 0 or 0 in reward.shape:
        raise ValueError(f"rewards of shape {reward.shape}: wanted [T, ...], at least one step of one env")
    shape, after = reward.shape, (len(reward) + 1, *reward.shape[1:])
    value = _shaped("values", _numbers("values", values), after, "a row more than rewards")
    ended = _shaped("terminated", _flags("terminated", terminated), shape)
    cut = np.zeros(shape, bool) if truncated is None else _shaped("truncated", _flags("truncated", truncated), shape)
    final = np.zeros(shape, np.float32)
    if final_values is not None:
        # What is not read may be anything.
        given = _shaped("final_values", np.asarray(final_values, np.float32), shape)
        final[cut] = _numbers("final_values of truncated steps", given[cut])
    elif (cut & ~ended).any():
        raise ValueError("steps were truncated and there are no final_values: wanted values of those episodes' last observations")
    flat = [array.reshape(len(array), -1) for array in (reward, value, ended, cut, final)]
    advantages, returns = _operant.estimate_advantages(*flat, gamma, gae_lambda)
    return advantages.reshape(shape), returns.reshape(shape)


def _numbers(name: str, given: npt.ArrayLike) -> npt.NDArray[np.float32]:
    numbers = np.ascontiguousarray(given, np.float32).reshape(np.shape(given))
    if not np.isfinite(numbers).all():
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(numbers))[0])
        raise ValueError(f"{name}: {numbers[place]} at {list(place)}; wanted finite numbers")
    return numbers


def _flags(name: str, given: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    flags = np.asarray(given)
    if not np.isin(flags, (0, 1)).all():
        raise ValueError(f"{name}: wanted True and False, or 1 and 0")
    return np.ascontiguousarray(flags, bool).reshape(flags.shape)


def _shaped(name: str, array: npt.NDArray, wanted: tuple[int, ...], which: str = "that of rewards") -> npt.NDArray:
    if array.shape != wanted:
        raise ValueError(f"{name} of shape {array.shape}: wanted {wanted}, {which}")
    return array
