"""Tree search over games, and AlphaZero: self-play by search over a network that learns from it.

>>> import operant
>>> model = operant.AlphaZero("connect4", seed=1, num_envs=8, search={"simulations": 16, "leaves": 2})
>>> found = model.learn(128).mcts(simulations=64).search("4435")
>>> found["actions"][found["best"]]  # doctest: +SKIP
'4'
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from operant import _operant
from operant.model import Model
from operant.spaces import check_seed

__all__ = ["AlphaZero", "Mcts"]

Evaluator = Callable[[npt.NDArray[np.float32]], tuple[npt.ArrayLike, npt.ArrayLike]]


class Mcts:
    """Monte Carlo tree search in a game, with an evaluator of your own.

    >>> import numpy as np, operant
    >>> def even(observations):
    ...     return np.zeros(len(observations)), np.zeros((len(observations), 7))
    >>> found = operant.Mcts("connect4", even, simulations=200).search("112233")
    >>> found["actions"][found["best"]]
    '4'
    """

    def __init__(
        self,
        game: str | _operant.Rules,
        evaluator: Evaluator | None = None,
        *,
        network: bytes | None = None,
        **settings: Any,
    ) -> None:
        """Prepares a search.

        Args:
            game: ``backgammon``, ``connect4`` or ``2048``, or its :class:`operant.games.Rules`.
            evaluator: called with observations ``[B, O]``; gives values ``[B]``, points still to come as the player
                whose turn it is counts them, and logits ``[B, policy_size]``, read where somebody decides. None says 0
                and that all actions are alike.
            network: the file of a network in place of a function (``network.safetensors`` of a checkpoint).
            **settings: ``simulations``, ``leaves`` (how many states an evaluator sees at once; at most an eighth of the
                simulations), ``c_puct``, ``chance`` (``"sample"``, ``"widen"``, ``"exact"``), ``transpositions``,
                ``noise``, ``gumbel`` and the other keys of ``[alphazero.search]``.
        """
        if evaluator is not None and network is not None:
            raise ValueError("an evaluator and a network: wanted one of them")
        if evaluator is not None and not callable(evaluator):
            raise TypeError(f"evaluator is a {type(evaluator).__name__}: wanted a function over a batch")
        name = game.name if isinstance(game, _operant.Rules) else game
        self._made = {"game": name, "evaluator": evaluator, "network": network, **settings}
        self._search = _operant.Search(name, evaluator, network, list(settings.items()))
        self.rules = _operant.Rules(name)

    def __getstate__(self) -> dict[str, Any]:
        # A tree lives for one call of `search`, so there is nothing to keep but what it is made with.
        return self._made

    def __setstate__(self, made: dict[str, Any]) -> None:
        self.__init__(**made)  # type: ignore[misc]

    def search(self, state: str | None = None, seed: int = 0) -> dict[str, Any]:
        """Searches from a state, a decision; the beginning of a game without chance if None.

        Returns ``actions`` (text), ``visits``, ``policy``, ``values`` (points of each action for the player whose turn
        it is), ``best`` (a number), ``value`` of the state, and what was done: ``simulations``, ``evaluations``,
        ``hits``, ``deepest``. A search ends as soon as the value is proven: with a win at hand before any simulation.
        ``best`` and ``policy`` are the soonest wins then, or the latest losses.
        """
        return self._search.search(self.rules.start() if state is None else state, check_seed(seed))


class AlphaZero(Model, algo="alphazero"):
    """AlphaZero with its games, network and run.

    Keywords are the keys of a ``run.toml``: those of its top level (``seed``, ``num_envs``: games side by side,
    ``threads``, ``precision``), of ``[alphazero]`` (``moves``, ``drawn_moves``, ``window``, ``reuse``, ``batch_size``,
    ``td_lambda``, ``learning_rate`` …, and the table ``search`` as a dictionary) and of ``[network]`` (``hidden``: a
    width per residual block); :attr:`settings` has them all with their values. What is not given comes from the tuned
    settings that are shipped for the game. The same settings and seed give the same weights, whatever the number of
    threads. A step is a decision of a player.
    """

    def mcts(self, **settings: Any) -> Mcts:
        """A search with the network as it is now; settings are laid over those of training, without their noise."""
        trainer = self._need("mcts")
        own = dict(self.settings["alphazero"]["search"])
        own |= {"noise": 0.0, **settings}
        own["leaves"] = settings.get("leaves", max(1, min(own["leaves"], own["simulations"] // 8)))
        network = bytes(trainer.part("network.safetensors"))
        return Mcts(self.settings["env"]["name"], network=network, **own)

    @classmethod
    def _can_run(cls, network: Mapping[str, Any]) -> bool:
        return network["kind"] == "residual"

    def predict(self, *_: Any, **__: Any) -> Any:
        """Not for a search, which looks at states and not at observations: use :meth:`mcts`."""
        raise TypeError("AlphaZero plays by search over states: use model.mcts().search(state)")

    def evaluate(self, *_: Any, **__: Any) -> Any:
        """Not from here: ``operant eval RUN --against random`` plays matches."""
        raise TypeError("AlphaZero plays matches: operant eval RUN --against random|solver|RUN2")
