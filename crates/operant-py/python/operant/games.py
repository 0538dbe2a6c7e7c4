"""Games for two players: rules, positions and plays, for search and learning of your own."""

from operant._operant import Backgammon

__all__ = ["Backgammon"]
