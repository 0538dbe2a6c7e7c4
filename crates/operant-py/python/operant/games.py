"""Games: rules, positions and plays, for search and learning of your own."""

from operant._operant import Backgammon, BackgammonMatch, Rules

__all__ = ["Backgammon", "BackgammonMatch", "Rules"]
