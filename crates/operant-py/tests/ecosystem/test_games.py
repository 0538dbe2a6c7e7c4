"""Rules of games beside those of OpenSpiel and pgx, move by move in random games."""

from __future__ import annotations

import numpy as np
import operant
import pytest

spiel = pytest.mark.library("open_spiel")
pgx_library = pytest.mark.library("pgx")


def choose(rng: np.random.Generator, several: list) -> int:
    return int(rng.integers(len(several)))


@spiel
def test_connect4_of_open_spiel() -> None:
    """Connect 4: legal moves, whose turn, ends and results of 100 random games."""
    import pyspiel

    rules, game, rng = operant.games.Rules("connect4"), pyspiel.load_game("connect_four"), np.random.default_rng(0)
    for _ in range(100):
        ours, theirs = rules.start(), game.new_initial_state()
        while not theirs.is_terminal():
            assert (rules.turn(ours), rules.player(ours)) == ("decision", theirs.current_player())
            actions = rules.actions(ours)
            assert [int(text) - 1 for text, _ in actions] == theirs.legal_actions()
            chosen = choose(rng, actions)
            theirs.apply_action(theirs.legal_actions()[chosen])
            ours = rules.after(ours, chosen)
        assert rules.turn(ours) == "over"
        assert rules.points(ours) == theirs.returns()[0]


def board_of(text: str) -> list[int]:
    """The sixteen tiles of a state of 2048."""
    return [0 if tile == "." else int(tile) for row in text.partition(":")[0].split("/") for tile in row.split()]


def score_of(text: str) -> int:
    return int(text.partition(":")[2].strip(" +"))


@spiel
def test_2048_of_open_spiel() -> None:
    """2048: slides, and where tiles appear with which chance, in 3 random games; legal moves (OpenSpiel 2.0.2 leaves some out)."""
    import pyspiel

    names = ("up", "right", "down", "left")
    rules, game, rng = operant.games.Rules("2048"), pyspiel.load_game("2048"), np.random.default_rng(1)
    for _ in range(3):
        ours, theirs = rules.start(), game.new_initial_state()
        while not theirs.is_terminal():
            if theirs.is_chance_node():
                assert rules.turn(ours) == "chance"
                outcomes = {tuple(board_of(text)): (text, chance) for text, chance in rules.outcomes(ours)}
                theirs_after = {}
                for action, chance in theirs.chance_outcomes():
                    theirs_after[tuple(map(int, str(theirs.child(action)).split()))] = (action, chance)
                assert outcomes.keys() == theirs_after.keys()
                for board, (_, chance) in outcomes.items():
                    assert chance == pytest.approx(theirs_after[board][1], rel=1e-5)
                board = list(outcomes)[choose(rng, list(outcomes))]
                ours = outcomes[board][0]
                theirs.apply_action(theirs_after[board][0])
                continue
            assert rules.turn(ours) == "decision"
            actions = [text for text, _ in rules.actions(ours)]
            assert sorted(actions) == sorted(name for name in names if can_slide(board_of(ours), name))
            assert {names[action] for action in theirs.legal_actions()} <= set(actions)
            action = theirs.legal_actions()[choose(rng, theirs.legal_actions())]
            ours = rules.after(ours, actions.index(names[action]))
            theirs.apply_action(action)
        assert rules.turn(ours) == "over" or len(theirs.legal_actions()) < len(rules.actions(ours))


def can_slide(board: list[int], way: str) -> bool:
    """Whether two alike tiles meet or a tile has room, in any line read from where the tiles go."""
    grid = np.array(board).reshape(4, 4)
    lines = {"left": grid, "right": grid[:, ::-1], "up": grid.T, "down": grid[::-1].T}[way]
    pairs = [(one, next_) for line in lines.tolist() for one, next_ in zip(line, line[1:], strict=False)]
    return any(next_ and one in (0, next_) for one, next_ in pairs)


def side(numbers: np.ndarray) -> list[int]:
    """Checkers on 24 points, as OpenSpiel's observation codes them: one, two, three, more than three."""
    one, two, three, more = numbers.reshape(24, 4).T
    return [int(x) for x in np.where(more > 0, more + 3, one + 2 * two + 3 * three)]


def backgammon_of(state, player: int) -> tuple[list[int], list[int]]:
    """Both players' checkers by our places: borne off, points 1 to 24, bar; those of `player` first."""
    sides = []
    for who in (player, 1 - player):
        seen = np.asarray(state.observation_tensor(who))
        points = side(seen[:96])
        # Player 0 moves up their board and player 1 down; both bear off at our place 0.
        points = points[::-1] if who == 0 else points
        sides.append([int(seen[193]), *points, int(seen[192])])
    return sides[0], sides[1]


@spiel
def test_backgammon_of_open_spiel() -> None:
    """Backgammon: the positions that all legal plays of a roll lead to, in 20 random games."""
    import pyspiel

    game, rng, decisions = pyspiel.load_game("backgammon(scoring_type=full_scoring)"), np.random.default_rng(2), 0
    for _ in range(20):
        state, ours = game.new_initial_state(), operant.games.Backgammon()
        while not state.is_terminal():
            if state.is_chance_node():
                actions = [action for action, _ in state.chance_outcomes()]
                state.apply_action(actions[choose(rng, actions)])
                continue
            player = state.current_player()
            assert backgammon_of(state, player) == (ours.mover, ours.other)
            low, high = (int(x) for x in state.observation_tensor(player)[-2:])
            # A double is played in two turns of two.
            ends = [state.child(action) for action in state.legal_actions()]
            if low == high:
                ends = [
                    end
                    for half in ends
                    for end in (
                        [half.child(action) for action in half.legal_actions()]
                        if not half.is_terminal() and not half.is_chance_node() and half.current_player() == player
                        else [half]
                    )
                ]
            theirs = {str(backgammon_of(end, player)): end for end in ends}
            moved = {key: ours.pips[0] - pips(backgammon_of(end, player)[0]) for key, end in theirs.items()}
            # Each half of a double is as long as it can be there; both together must be.
            longest = [key for key in theirs if low != high or moved[key] == max(moved.values())]
            plays = {str((after.other, after.mover)): after for _, after in ours.plays((high, low))}
            assert set(longest) == set(plays)
            key = longest[choose(rng, longest)]
            state, ours, decisions = theirs[key], plays[key], decisions + 1
        assert abs(state.returns()[0]) == -ours.outcome
    assert decisions > 500


def pips(checkers: list[int]) -> int:
    return sum(place * count for place, count in enumerate(checkers))


@pgx_library
def test_connect4_of_pgx() -> None:
    """Connect 4: legal moves, ends and results of 20 random games."""
    import jax
    import pgx

    rules, env, rng = operant.games.Rules("connect4"), pgx.make("connect_four"), np.random.default_rng(3)
    begin, step = jax.jit(env.init), jax.jit(env.step)
    for number in range(20):
        ours, theirs = rules.start(), begin(jax.random.PRNGKey(number))
        first = int(theirs.current_player)
        while not theirs.terminated:
            actions = rules.actions(ours)
            legal = [int(text) - 1 for text, _ in actions]
            assert legal == np.flatnonzero(theirs.legal_action_mask).tolist()
            assert rules.player(ours) == (int(theirs.current_player) != first)
            chosen = choose(rng, actions)
            theirs, ours = step(theirs, legal[chosen]), rules.after(ours, chosen)
        assert rules.turn(ours) == "over"
        assert rules.points(ours) == float(theirs.rewards[first])


@pgx_library
def test_2048_of_pgx() -> None:
    """2048: legal moves, slides and rewards of 3 random games."""
    import jax
    import pgx

    names = ("left", "up", "right", "down")
    rules, env, rng = operant.games.Rules("2048"), pgx.make("2048"), np.random.default_rng(4)
    begin, step = jax.jit(env.init), jax.jit(env.step)

    def board(state) -> list[int]:
        cells = np.asarray(state.observation).reshape(16, -1)
        powers = cells.argmax(-1)
        return [0 if power == 0 else 2 ** int(power) for power in powers]

    for number in range(3):
        key = jax.random.PRNGKey(number)
        theirs = begin(key)
        ours = next(
            text
            for first, _ in rules.outcomes(rules.start())
            for text, _ in rules.outcomes(first)
            if board_of(text) == board(theirs)
        )
        while not theirs.terminated:
            actions = [text for text, _ in rules.actions(ours)]
            assert sorted(actions) == sorted(names[i] for i in np.flatnonzero(theirs.legal_action_mask))
            chosen = choose(rng, actions)
            key, part = jax.random.split(key)
            before = score_of(ours)
            theirs = step(theirs, names.index(actions[chosen]), part)
            ours = rules.after(ours, chosen)
            assert score_of(ours) - before == float(theirs.rewards[0])
            ours = next(text for text, _ in rules.outcomes(ours) if board_of(text) == board(theirs))
        assert rules.turn(ours) == "over"
