"""Growing networks: a host trains, and a controller decides what grows in it.

>>> import operant
>>> growth = operant.Growth(epochs=12, train_samples=64)
>>> table = growth.episode("heuristic", seed=1)
>>> table["accuracy"].shape, table["alpha"].shape
((12,), (12, 3))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from operant import _operant
from operant.model import Model
from operant.ppo import PPO
from operant.spaces import check_seed, whole

__all__ = ["Growth"]

Controller = str | Model | Callable[[npt.NDArray[np.float32], npt.NDArray[np.uint8]], npt.ArrayLike]

HEADS = ("op", "slot", "blueprint", "style", "tempo", "target", "speed", "curve")
_INTS = {"stage": np.uint8, "blueprint": np.int64}


class Growth:
    """A host network in training and the rules of its growth.

    Keywords are parameters of the env ``growth`` (``operant list growth`` has them all); what is not given comes from the
    shipped settings. An episode is one training of the host, a step one epoch of it. Files of tasks (a text for
    ``task="bytes"``) are named by the environment variable ``OPERANT_TASK_DATA``.
    """

    heads = HEADS
    """Names of the numbers of an action, in their order."""

    def __init__(self, **parameters: Any) -> None:
        self._engine = _operant.Growth([(f"env.{name}", value) for name, value in parameters.items()])
        self._parameters = parameters
        self.model: PPO | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """Every parameter of the env."""
        return self._engine.settings()

    @staticmethod
    def choices() -> dict[str, list[Any]]:
        """What the heads of an action choose from; slots and curves are numbers."""
        return _operant.Growth.choices()

    def reset(self, seed: int = 1, number: int = 0) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.uint8]]:
        """Begins the episode that env ``number`` of a vector env with this seed begins with: observation and mask of actions."""
        if not 0 <= whole("number", number) < 2**32:
            raise ValueError(f"number = {number}: wanted 0 <= number < 2**32")
        self._engine.reset(check_seed(seed), number)
        return self._engine.observe()

    def step(self, action: npt.ArrayLike | Mapping[str, int] | None = None) -> tuple[bool, dict[str, Any]]:
        """One epoch after an action: eight numbers in the order of :attr:`heads`, or some of them by name (others are 0), or
        the heuristic's where there is none. Gives whether the episode is over, and what the epoch showed."""
        if action is None:
            return self._engine.step()
        if isinstance(action, Mapping):
            unknown = set(action) - set(HEADS)
            if unknown:
                raise ValueError(f"heads {sorted(unknown)}: wanted some of {', '.join(HEADS)}")
            action = [action.get(head, 0) for head in HEADS]
        numbers = [int(x) for x in np.asarray(action).reshape(-1)]
        if len(numbers) != len(HEADS) or min(numbers) < 0:
            raise ValueError(f"action {numbers}: wanted {len(HEADS)} numbers of 0 or more")
        return self._engine.step(numbers)

    def render(self) -> npt.NDArray[np.uint8]:
        """A picture of the episode as it is, ``[height, width, 3]``: accuracy, and a row per slot with its seed."""
        picture = self._engine.render()
        if picture is None:
            raise RuntimeError("no episode has begun; call reset")
        return picture

    def episode(
        self, controller: Controller | None = None, *, seed: int = 1, number: int = 0, deterministic: bool = False
    ) -> dict[str, npt.NDArray[Any]]:
        """One episode as a table: a NumPy array per column, one row per epoch; those of slots are ``[epochs, slots]``.

        Args:
            controller: ``"heuristic"``, ``"host"`` (nothing grows), a model, or a function of observation and mask that
                gives an action; the model that :meth:`learn` trained, or else the heuristic, where none is given.
            seed: of the episode.
            number: of the env in a vector env with this seed.
            deterministic: take a model's most probable actions in place of samples.
        """
        controller = controller if controller is not None else self.model or "heuristic"
        if isinstance(controller, str) and controller not in ("heuristic", "host"):
            raise ValueError(f'controller {controller!r}: wanted "heuristic", "host", a model or a function')
        seen, state, rows, over = self.reset(seed, number), None, [], False
        while not over:
            action: Any = None
            if controller == "host":
                action = [0] * len(HEADS)
            elif isinstance(controller, Model):
                action, state = controller.predict(
                    seen[0], state=state, deterministic=deterministic, action_masks=seen[1]
                )
            elif callable(controller):
                action = controller(*seen)
            over, row = self.step(action)
            rows.append(row)
            seen = self._engine.observe()
        return {name: np.array([row[name] for row in rows], dtype=_INTS.get(name)) for name in rows[0]}

    def learn(self, steps: int, **settings: Any) -> PPO:
        """Trains a controller by PPO for so many epochs of hosts in all; keywords are :class:`operant.PPO`'s. A second call
        goes on with it."""
        if self.model is None:
            self.model = PPO("growth", env_kwargs=self._parameters, **settings)
        elif settings:
            raise ValueError("a controller that is being trained takes no new settings; make another Growth")
        return self.model.learn(steps)
