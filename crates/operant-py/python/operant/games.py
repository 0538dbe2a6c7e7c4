"""Games: rules, positions and plays, for search and learning of your own; networks and solvers that play and solve.

>>> from operant import games
>>> network = games.BackgammonNetwork()
>>> network.best_play(games.Backgammon(), (3, 1))
'8/5 6/5'
>>> games.Rules("connect4").render("4453").shape
(380, 440, 3)
"""

from operant._operant import Backgammon, BackgammonMatch, BackgammonNetwork, Cube2Solver, CubeSolver, Rules

__all__ = ["Backgammon", "BackgammonMatch", "BackgammonNetwork", "Cube2Solver", "CubeSolver", "Rules"]
