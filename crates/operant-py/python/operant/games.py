"""Games: rules, positions and plays, for search and learning of your own."""

from operant._operant import Backgammon, Rules

__all__ = ["Backgammon", "Rules"]
