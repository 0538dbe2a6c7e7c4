"""Backgammon from Python."""

import random

import numpy as np
import pytest

from operant.games import Backgammon, BackgammonMatch


def test_a_game_from_start_to_end():
    rng = random.Random(0)
    position, turns = Backgammon(), 0
    assert position.position_id == "4HPwATDgc/ABMA"
    assert position.pips == (167, 167)
    while position.outcome is None:
        dice = (rng.randint(1, 6), rng.randint(1, 6))
        plays = position.plays(dice)
        assert len({after for _, after in plays}) == len(plays)
        text, after = rng.choice(plays)
        assert position.play(dice, text) == after
        assert sum(after.other) == sum(after.mover) == 15
        position, turns = after, turns + 1
    assert position.outcome in (-1, -2, -3)
    assert position.other[0] == 15 and 20 < turns < 500
    with pytest.raises(ValueError, match="the game is over"):
        position.plays((1, 2))


def test_chances_ids_and_observations():
    for first_turn, rolls in ((True, 15), (False, 21)):
        outcomes = Backgammon.chance_outcomes(first_turn)
        assert len(outcomes) == rolls
        assert sum(chance for _, chance in outcomes) == pytest.approx(1, abs=1e-6)
    position = Backgammon("AfDB+UAD4IPzAQ")
    assert position.mover[1] == 2 and position.other[25] == 1
    assert repr(position) == 'Backgammon("AfDB+UAD4IPzAQ")'
    observation = position.observation()
    assert observation.shape == (196,) and observation.dtype == np.float32
    assert observation[98 + 96] == 0.5


def test_what_is_wrong_is_said():
    with pytest.raises(ValueError, match="wanted 14 characters"):
        Backgammon("nonsense")
    with pytest.raises(ValueError, match="wanted two numbers from 1 to 6"):
        Backgammon().plays((0, 7))
    with pytest.raises(ValueError, match="not a legal way to play this roll; wanted one of 16 plays"):
        Backgammon().play((3, 1), "24/10")


def test_a_match_with_the_cube():
    rng = random.Random(1)
    game, games, doubles = BackgammonMatch(5, first=1), 0, 0
    assert (game.phase, game.who, game.player, game.length) == ("roll", None, 1, 5)
    while game is not None:
        while game.result is None:
            if game.phase == "roll":
                dice = (rng.randint(1, 6), rng.randint(1, 6))
                while game.position == Backgammon() and dice[0] == dice[1]:
                    dice = (rng.randint(1, 6), rng.randint(1, 6))
                game = game.roll(dice)
                assert game.dice == (max(dice), min(dice))
                continue
            again = BackgammonMatch(position_id=game.position.position_id, match_id=game.match_id)
            assert (again.phase, again.cube, again.owner, again.scores) == (
                game.phase,
                game.cube,
                game.owner,
                game.scores,
            )
            decision = rng.choice(game.decisions())
            doubles += decision == "double"
            game = game.apply(decision)
        player, points = game.result
        assert player in (0, 1) and points >= 1 and game.decisions() == []
        before, game, games = game, game.next_game(first=player), games + 1
        if game is not None:
            assert sum(game.scores) == sum(before.scores) + points
    assert games > 1 and doubles > 0
    with pytest.raises(ValueError, match="wanted 1..=64"):
        BackgammonMatch(65)
    with pytest.raises(ValueError, match="wanted the dice first"):
        BackgammonMatch().apply("double")
    with pytest.raises(ValueError, match="wanted one of"):
        BackgammonMatch().apply("8/5 6/5")


def test_boards_are_drawn():
    start = Backgammon()
    picture = start.render()
    assert picture.dtype == np.uint8 and picture.ndim == 3 and picture.shape[2] == 3
    # White's point 24 is at the top right, its 13 at the top left; black stands opposite.
    white, black = [250, 248, 240], [52, 46, 48]
    assert picture[34, 520].tolist() == picture[34, 36].tolist() == white
    assert picture[426, 520].tolist() == picture[426, 36].tolist() == black
    # The same board, seen by the other player, and with dice.
    np.testing.assert_array_equal(start.render(player=1), picture)
    assert (start.render((6, 4), player=1) != start.render((6, 4))).any()
    after = start.play((3, 1), "8/5 6/5")
    assert after.render(player=1)[426, 360].tolist() == white
    with pytest.raises(ValueError, match="player = 2: wanted 0 or 1"):
        start.render(player=2)
    with pytest.raises(ValueError, match="two numbers from 1 to 6"):
        start.render((7, 1))


def test_borne_off_and_hit_checkers_are_drawn():
    # Two checkers of the one whose turn it is are on the bar.
    hit = Backgammon("AfDB+UAD4IPzAQ")
    assert hit.other[25] == 1
    bare = hit.render()
    assert bare[200:262, 270:286].tolist() != Backgammon().render()[200:262, 270:286].tolist()
    over = Backgammon("AQAABAAAAAAAAA").render()
    # Fourteen of each side in the tray.
    assert (over[16:198, 560].tolist().count([52, 46, 48]), over[262:444, 560].tolist().count([250, 248, 240])) == (154, 154)
