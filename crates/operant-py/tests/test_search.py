"""Rules by name, tree search with a function of one's own, AlphaZero."""

import random

import numpy as np
import pytest

import operant
from operant.games import Rules


@pytest.mark.parametrize("name", ["connect4", "2048", "backgammon"])
def test_rules_play_games(name):
    rules, rng = Rules(name), random.Random(1)
    state, turns = rules.start(), 0
    while rules.turn(state) != "over" and turns < 5000:
        turns += 1
        if rules.turn(state) == "chance":
            outcomes = rules.outcomes(state)
            assert sum(chance for _, chance in outcomes) == pytest.approx(1, abs=1e-5)
            state = rng.choices([after for after, _ in outcomes], [chance for _, chance in outcomes])[0]
        else:
            actions = rules.actions(state)
            assert all(0 <= index < rules.policy_size for _, indices in actions for index in indices)
            assert rules.observation(state).shape == (rules.observation_size,)
            state = rules.after(state, rng.randrange(len(actions)))
    assert rules.turn(state) == "over"
    assert rules.points(state) in ((-1, 0, 1) if name == "connect4" else range(-3, 4)) or name == "2048"


def test_rules_say_what_is_wrong():
    with pytest.raises(ValueError, match='did you mean "connect4"'):
        Rules("conect4")
    rules = Rules("connect4")
    with pytest.raises(ValueError, match="column 1 is full"):
        rules.turn("1111111")
    with pytest.raises(ValueError, match="wanted 0..=6"):
        rules.after(rules.start(), 7)
    with pytest.raises(ValueError, match="nobody decides"):
        rules.actions("1122334")


def test_a_search_asks_a_function_in_batches():
    sizes = []

    def evaluator(observations):
        assert observations.dtype == np.float32 and observations.shape[1] == 168
        sizes.append(len(observations))
        return np.zeros(len(observations)), np.zeros((len(observations), 7))

    found = operant.Mcts("connect4", evaluator, simulations=400, leaves=8, proofs=False).search("112233")
    assert found["actions"][found["best"]] == "4"
    assert found["visits"].sum() == 400 and found["value"] > 0.5
    assert 4 <= max(sizes) <= 8 and sum(sizes) == found["evaluations"]
    assert found["policy"].sum() == pytest.approx(1, abs=1e-5)
    # A win that is proven needs no more simulations.
    proven = operant.Mcts("connect4", evaluator, simulations=400).search("112233")
    assert proven["actions"][proven["best"]] == "4" and proven["value"] == 1 and proven["visits"].sum() < 400


def test_what_a_function_raises_is_raised():
    def broken(observations):
        raise RuntimeError("no network here")

    with pytest.raises(RuntimeError, match="no network here"):
        operant.Mcts("connect4", broken, simulations=16).search()
    with pytest.raises(ValueError, match=r"wanted \[1\] and \[1, 7\]"):
        operant.Mcts("connect4", lambda obs: (np.zeros(1), np.zeros((1, 6))), simulations=16).search()
    with pytest.raises(ValueError, match="an eighth"):
        operant.Mcts("connect4", simulations=16, leaves=16)
    with pytest.raises(TypeError, match="wanted a function"):
        operant.Mcts("connect4", 3)


def test_a_search_with_chance():
    found = operant.Mcts("backgammon", simulations=64).search("4HPwATDgc/ABMA 0 31")
    assert "8/5 6/5" in found["actions"] and found["visits"].sum() == 64
    exact = operant.Mcts("2048", simulations=64, chance="exact").search("2 2 . ./. . . ./. . . ./. . . . : 0")
    assert exact["evaluations"] > exact["simulations"]


def test_alphazero_learns_and_goes_on(tmp_path):
    small = {"num_envs": 8, "hidden": [16], "moves": 8, "batch_size": 32, "learning_starts": 32}
    search = {"simulations": 16, "leaves": 2}

    def run(folder=None):
        return operant.AlphaZero("connect4", seed=3, threads=1, run_dir=folder, search=search, **small)

    model = run(tmp_path / "run").learn(640)
    assert model.num_timesteps == 640
    found = model.mcts(simulations=32).search("4435")
    assert len(found["actions"]) == 7 and found["visits"].sum() == 32
    again = run().learn(640).mcts(simulations=32).search("4435")
    assert np.array_equal(found["visits"], again["visits"]) and found["value"] == again["value"]
    with pytest.raises(TypeError, match="mcts"):
        model.predict(np.zeros(168))


def test_states_are_drawn():
    red, yellow, hole = [220, 50, 47], [250, 200, 40], [235, 238, 245]
    board = Rules("connect4").render("445")
    assert board.shape == (380, 440, 3) and board.dtype == np.uint8
    # Columns 4 and 5, the lowest row and the one above it.
    spots = [board[340, 220], board[280, 220], board[340, 280], board[280, 280]]
    assert [spot.tolist() for spot in spots] == [red, yellow, red, hole]
    tiles = Rules("2048").render("2 . . ./. . . ./. . 4 ./. . . . : 8")
    colours = [tiles[44 + 20 + 112 * row, 20 + 112 * column].tolist() for row, column in ((0, 0), (2, 2), (3, 3))]
    assert colours == [[238, 228, 218], [237, 224, 200], [205, 193, 180]]
    backgammon = Rules("backgammon")
    assert backgammon.render(backgammon.start()).shape == (460, 612, 3)
    with pytest.raises(ValueError, match="no game comes there|wanted"):
        Rules("connect4").render("nothing")
