"""Backgammon from Python."""

import random

import numpy as np
import pytest

from operant.games import Backgammon


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
