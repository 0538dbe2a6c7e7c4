"""Solvers of cubes and the networks of backgammon, from Python."""

import copy
import pickle
from pathlib import Path

import pytest

import operant
from operant.games import Backgammon, BackgammonNetwork, Cube2Solver, CubeSolver


@pytest.fixture(scope="module")
def exact():
    return Cube2Solver()


def test_shortest_solutions(exact, tmp_path):
    assert exact.metric == "qtm" and exact.distance("") == 0 and exact.distance("R U'") == 2
    for distance in (1, 7, 14):
        for scramble in exact.scrambles(distance, count=3, seed=5):
            found = exact.solve(scramble)
            assert found["length"] == distance == len(found["solution"].split()) == exact.distance(scramble)
            assert exact.distance(f"{scramble} {found['solution']}") == 0
            assert exact.distance(found["facelets"]) == distance
    assert exact.scrambles(9, seed=1) == exact.scrambles(9, seed=1) != exact.scrambles(9, seed=2)
    exact.save(tmp_path / "table")
    assert Cube2Solver(table=tmp_path / "table").distance("R U' F2") == exact.distance("R U' F2")
    with pytest.raises(ValueError, match="the table is of qtm, wanted htm"):
        Cube2Solver("htm", table=tmp_path / "table")
    with pytest.raises(ValueError, match='move "X"'):
        exact.distance("X")
    with pytest.raises(ValueError, match="no state is at distance 15"):
        exact.scrambles(15)
    with pytest.raises(ValueError, match='unknown metric "stm"'):
        Cube2Solver("stm")


@pytest.mark.parametrize("env", ["cube2", "cube3"])
def test_a_run_solves(env, exact, tmp_path):
    settings = {"hidden": [8], "num_envs": 8, "num_steps": 8, "num_minibatches": 1, "seed": 1}
    model = operant.PPO(env, run_dir=tmp_path / "run", **settings)
    model.learn(64)
    solver = CubeSolver(tmp_path / "run")
    assert solver.env == env and solver.checkpoint.startswith("step")
    # A beam as wide as all that two moves lead to finds what two moves scrambled, whatever was learned.
    found = solver.solve(["R U'", "", "F"], search="beam", width=200, most_moves=3)
    assert [one["length"] for one in found] == [2, 0, 1] and found[1]["moves"] == ""
    if env == "cube2":
        assert exact.distance(f"R U' {found[0]['moves']}") == 0
    assert found[0]["moves"] == "U R'"
    far = solver.solve(["R U F' R' U F U' R F"], search="greedy", most_moves=2)
    assert far[0]["moves"] is None and far[0]["length"] is None
    assert solver.solve(["R"], search="astar", width=4, most_expanded=50)[0]["expanded"] <= 54
    again = pickle.loads(pickle.dumps(solver))
    assert again.checkpoint == solver.checkpoint
    with pytest.raises(ValueError, match='unknown search "dfs"'):
        solver.solve(["R"], search="dfs")
    with pytest.raises(ValueError, match="width = 0: wanted at least 1"):
        solver.solve(["R"], width=0)
    with pytest.raises(ValueError, match='unknown checkpoint "first"'):
        CubeSolver(tmp_path / "run", "first")


def test_runs_of_other_envs_are_refused(tmp_path):
    model = operant.PPO("cartpole", run_dir=tmp_path / "run", num_envs=4, num_steps=8, num_minibatches=1)
    model.learn(32)
    with pytest.raises(ValueError, match="ppo on cartpole: wanted one on cube2 or cube3"):
        CubeSolver(tmp_path / "run")


@pytest.fixture(scope="module")
def network():
    return BackgammonNetwork()


def test_the_shipped_network_plays(network):
    start = Backgammon()
    # Plays that everybody makes.
    for dice, best in (((3, 1), "8/5 6/5"), ((4, 2), "8/4 6/4"), ((6, 1), "13/7 8/7")):
        assert network.best_play(start, dice) == best
    plays = network.plays(start, (1, 3))
    assert len(plays) == len(start.plays((3, 1))) and plays[0]["play"] == "8/5 6/5"
    equities = [play["equity"] for play in plays]
    assert equities == sorted(equities, reverse=True) and all(play["plies"] == 1 for play in plays)
    assert plays[0]["position"] == start.play((3, 1), "8/5 6/5")
    after = network.outcome(plays[0]["position"])
    assert plays[0]["equity"] == pytest.approx(-after["equity"], abs=1e-5)
    outcome = network.outcome(start)
    points = 2 * outcome["win"] - 1 + outcome["win_gammon"] - outcome["lose_gammon"]
    assert outcome["equity"] == pytest.approx(points + outcome["win_backgammon"] - outcome["lose_backgammon"], abs=1e-5)
    assert 0.5 < outcome["win"] < 0.56
    assert copy.deepcopy(network).outcome(start) == outcome
    many = network.outcomes([start, plays[0]["position"]])
    assert many.shape == (2, 5) and many[0, 0] == pytest.approx(outcome["win"])


def test_a_network_from_a_file_is_copied_from_another_folder(network, tmp_path, monkeypatch):
    shipped = Path(__file__).parents[3] / "models/backgammon.safetensors"
    (tmp_path / "net.safetensors").write_bytes(shipped.read_bytes())
    monkeypatch.chdir(tmp_path)
    saved = pickle.dumps(BackgammonNetwork("net.safetensors"))
    monkeypatch.chdir("/")
    assert pickle.loads(saved).outcome(Backgammon()) == network.outcome(Backgammon())


def test_plies_look_ahead(network):
    # One checker of each side is left, on the ace point: who rolls first wins.
    race = Backgammon("AQAABAAAAAAAAA")
    assert race.mover[1] == race.other[1] == 1 and race.pips == (1, 1)
    assert network.outcome(race, plies=2)["win"] == pytest.approx(1.0, abs=1e-6)
    # Two checkers of each side, on the points 5 and 6: a roll ahead is the best play of every roll.
    ending = Backgammon("UAAAgAIAAAAAAA")
    assert ending.pips == (11, 11)
    best = [(chance, network.plays(ending, dice)[0]) for dice, chance in Backgammon.chance_outcomes()]
    ahead = network.outcome(ending, plies=2)
    for part in ("win", "equity", "lose_gammon"):
        assert ahead[part] == pytest.approx(sum(chance * play[part] for chance, play in best), abs=1e-5)
    plays = network.plays(ending, (2, 1), plies=2)
    assert len(plays) > 2 and plays[0]["plies"] == 2
    answered = network.outcome(plays[0]["position"], plies=2)
    assert plays[0]["equity"] == pytest.approx(-answered["equity"], abs=1e-5)
    with pytest.raises(ValueError, match="plies = 4: wanted 1 to 3"):
        network.best_play(race, (1, 2), plies=4)
    with pytest.raises(ValueError, match="plies = 0: wanted 1 to 3"):
        network.outcome(race, plies=0)
    with pytest.raises(ValueError, match="two numbers from 1 to 6"):
        network.best_play(race, (0, 2))
    with pytest.raises(OSError, match="can't read"):
        BackgammonNetwork("nowhere.safetensors")
