"""The trainer on environments that the user brings."""

from __future__ import annotations

import _thread
import threading
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import operant
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from operant.foreign import Actions, HostEnvs, Observations, describe_space, space_of

CUES = 3
OBSERVATIONS = {
    "box": spaces.Box(0, 1, (CUES,), np.float32),
    "picture": spaces.Box(0, 255, (2, CUES), np.uint8),
    "discrete": spaces.Discrete(CUES, start=5),
    "dict": spaces.Dict({"cue": spaces.Box(0, 1, (CUES,)), "noise": spaces.Tuple([spaces.MultiBinary(2)])}),
}
ACTIONS = {
    "discrete": spaces.Discrete(CUES, start=2),
    "multi_discrete": spaces.MultiDiscrete([CUES, 2]),
    "box": spaces.Box(-1, 1, (1, 1), np.float64),
    "multi_binary": spaces.MultiBinary(2),
}


class Identity(gymnasium.Env[Any, Any]):
    """The answer is the cue. Episodes terminate after 3 steps, or are truncated after 2 where `cut` says so."""

    def __init__(self, observation: str = "box", action: str = "discrete", cut: bool = False, fail_at: int = 0) -> None:
        self.observation_space, self.action_space = OBSERVATIONS[observation], ACTIONS[action]
        self.kind, self.cut, self.fail_at, self.steps = observation, cut, fail_at, 0

    def _observe(self) -> Any:
        self.cue = int(self.np_random.integers(CUES))
        hot = np.eye(CUES, dtype=np.float32)[self.cue]
        if self.kind == "box":
            return hot
        if self.kind == "picture":
            return np.stack([hot, 1 - hot]).astype(np.uint8)
        if self.kind == "discrete":
            return 5 + self.cue
        return {"cue": hot, "noise": (self.np_random.integers(2, size=2).astype(np.int8),)}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), f"{action!r} is not in {self.action_space}"
        self.steps += 1
        if self.steps == self.fail_at:
            raise FloatingPointError("the env broke")
        self.time += 1
        if isinstance(self.action_space, spaces.Discrete):
            reward = float(action - 2 == self.cue)
        elif isinstance(self.action_space, spaces.MultiDiscrete):
            reward = 0.5 * float(action[0] == self.cue) + 0.5 * float(action[1] == self.cue % 2)
        elif isinstance(self.action_space, spaces.Box):
            reward = 1 - abs(float(action[0, 0]) - (self.cue - 1) * 0.8)
        else:
            reward = 0.5 * float(action[0] == self.cue % 2) + 0.5 * float(action[1] == (self.cue == 2))
        return self._observe(), reward, self.time == 3, self.cut and self.time == 2, {}


class Bespoke(VectorEnv[Any, Any, Any]):
    """Identity as a vector env of its own, which knows no reset mask: NEXT_STEP resets in the step after."""

    def __init__(self, num_envs: int, **options: Any) -> None:
        self.inner = SyncVectorEnv([lambda: Identity(**options)] * num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)
        self.num_envs = num_envs
        self.single_observation_space = self.inner.single_observation_space
        self.single_action_space = self.inner.single_action_space
        self.observation_space, self.action_space = self.inner.observation_space, self.inner.action_space
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        assert options is None
        return self.inner.reset(seed=seed)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        return self.inner.step(actions)


# Entropy keeps a policy from settling before it has seen every cue.
OPTIONS: dict[str, Any] = {
    "seed": 1,
    "num_steps": 32,
    "minibatch_size": 64,
    "update_epochs": 4,
    "learning_rate": 3e-3,
    "ent_coef": 0.05,
    "gamma": 0.5,
}
SOLVED = 2.7


def sync(mode: AutoresetMode, count: int = 8, **options: Any) -> SyncVectorEnv:
    return SyncVectorEnv([lambda: Identity(**options)] * count, autoreset_mode=mode)


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("cut", [False, True])
def test_every_autoreset_mode_learns(mode: AutoresetMode, cut: bool) -> None:
    model = operant.PPO(sync(mode, cut=cut), **OPTIONS).learn(12_000)
    steps = 2 if cut else 3
    assert model.metrics["length"] == steps
    assert model.metrics["episodes"] == model.num_timesteps // 8 // steps * 8
    result = model.evaluate(20)
    assert result["mean_return"] == steps and set(result["lengths"]) == {steps}


def test_a_vector_env_without_masks_learns() -> None:
    model = operant.PPO(Bespoke(8), **OPTIONS).learn(14_000)
    # Every fourth step only resets: it is no episode and no part of one.
    assert model.metrics["length"] == 3
    assert model.metrics["episodes"] == model.num_timesteps // 8 // 4 * 8
    assert model.evaluate(20)["mean_return"] == 3


def test_processes_of_their_own_learn() -> None:
    for shared in (True, False):
        envs = AsyncVectorEnv([Identity] * 2, shared_memory=shared, autoreset_mode=AutoresetMode.NEXT_STEP)
        try:
            model = operant.PPO(envs, **OPTIONS).learn(256)
            assert model.metrics["length"] == 3
            assert model.metrics["episodes"] == 256 // 2 // (3 if shared else 4) * 2
        finally:
            envs.close()


@pytest.mark.parametrize(
    ("observation", "action"),
    [("picture", "discrete"), ("discrete", "discrete"), ("dict", "discrete"), ("box", "multi_discrete"),
     ("box", "box"), ("box", "multi_binary")],
)  # fmt: skip
def test_every_space_learns(observation: str, action: str) -> None:
    options = {**OPTIONS, "ent_coef": 0.0} if action == "box" else OPTIONS
    model = operant.PPO(lambda: Identity(observation, action), num_envs=8, **options)
    assert model.action_space == ACTIONS[action] and model.observation_space == OBSERVATIONS[observation]
    model.learn(16_000)
    assert model.evaluate(30)["mean_return"] > SOLVED
    sample = model.observation_space.sample()
    assert model.action_space.contains(model.predict(sample)[0])
    env = Identity(observation, action)
    first, _ = env.reset(seed=0)
    env.step(model.predict(first, deterministic=True)[0])


def test_a_function_makes_envs_for_evaluations(tmp_path: Path) -> None:
    made: list[Identity] = []

    def make() -> Identity:
        made.append(Identity())
        return made[-1]

    spaced = {"every": 500, "episodes": 6}
    model = operant.PPO(make, num_envs=4, evaluation=spaced, run_dir=tmp_path / "run", **OPTIONS).learn(2000)
    assert len(made) == 8, "as many again as play in training"
    assert model.metrics["eval/steps"] % 12 == 0 and model.metrics["eval/steps"] >= 3 * 18
    assert 0 <= model.metrics["eval/return"] <= 3 and model.metrics["eval/error"] >= 0
    alone = operant.PPO(make, num_envs=4, evaluation={"every": 0}, **OPTIONS).learn(2000)
    assert np.isnan(alone.metrics["eval/return"]) and alone.metrics["eval/steps"] == 0
    assert len(made) == 12
    assert alone._trainer is not None and model._trainer is not None
    assert alone._trainer.part("optimizer.safetensors") == model._trainer.part("optimizer.safetensors")
    with pytest.raises(ValueError, match="eval.episodes = 0: wanted 1"):
        operant.PPO(make, evaluation={"episodes": 0})


def test_envs_that_cannot_be_made_again_are_judged_by_training(tmp_path: Path) -> None:
    env, options, once = Identity(), {**OPTIONS, "num_steps": 64}, iter([Identity()])
    for name, brought in [("object", env), ("function", lambda: env), ("once", lambda: next(once))]:
        model = operant.PPO(brought, run_dir=tmp_path / name, **options).learn(1024)
        assert np.isnan(model.metrics["eval/return"]) and model.metrics["episodes"] == 1024 // 3
        del model
        events = (tmp_path / name / "events.jsonl").read_text()
        assert events.count("best and solved follow returns of training, since there are no evaluations: ") == 1
        assert (tmp_path / name / "ckpt" / "best").is_file()


def test_what_an_env_of_evaluations_raises_is_raised() -> None:
    made: list[Identity] = []

    def make() -> Identity:
        made.append(Identity(fail_at=0 if not made else 5))
        return made[-1]

    model = operant.PPO(make, evaluation={"every": 100}, **{**OPTIONS, "num_steps": 64})
    with pytest.raises(FloatingPointError, match="the env broke"):
        model.learn(2000)


def test_an_interrupt_while_envs_of_evaluations_are_made_ends_the_run() -> None:
    made = 0

    def make() -> gymnasium.Env[Any, Any]:
        nonlocal made
        made += 1
        if made > 4:
            raise KeyboardInterrupt
        return Identity()

    model = operant.PPO(make, num_envs=4, num_steps=8, num_minibatches=1, evaluation={"every": 32})
    with pytest.raises(KeyboardInterrupt):
        model.learn(4096)


def test_rows_are_what_happened() -> None:
    """Each mode against the env stepped alone: observations, flags, last observations."""
    script = np.random.default_rng(0).integers(CUES, size=(30, 4, 1))
    for envs in (*(sync(mode, 4) for mode in AutoresetMode), Bespoke(4)):
        host = HostEnvs(envs)
        alone = [Identity() for _ in range(4)]
        wanted = np.stack([env.reset(seed=7 + i)[0] for i, env in enumerate(alone)])
        np.testing.assert_array_equal(host.reset(7), wanted)
        for rows in script:
            seen, rewards, terminated, truncated, last, resets = host.step(rows)
            for i, env in enumerate(alone):
                if resets is not None and resets[i]:
                    np.testing.assert_array_equal(seen[i], env.reset()[0])
                    assert (rewards[i], terminated[i], truncated[i]) == (0, False, True)
                    continue
                obs, reward, ended, cut, _ = env.step(np.int64(rows[i, 0] + 2))
                assert (rewards[i], terminated[i], truncated[i]) == (reward, ended, cut)
                if ended or cut:
                    np.testing.assert_array_equal(last[i], obs)
                    if resets is None:
                        obs, _ = env.reset()
                np.testing.assert_array_equal(seen[i], obs)


def test_one_env_and_names_of_gymnasium(tmp_path: Path) -> None:
    model = operant.PPO(Identity(), seed=1, num_steps=64).learn(128)
    assert model.settings["num_envs"] == 1 and model.settings["env"]["name"] == "gymnasium/Identity"
    # Gymnasium's own code, which the engine's env of that name must not replace.
    envs = gymnasium.make_vec("CartPole-v1", num_envs=4, vectorization_mode="vector_entry_point")
    model = operant.PPO(envs, seed=1).learn(2048)
    assert model.settings["env"]["name"] == "gymnasium/CartPole-v1"
    settings = model.settings["ppo"]
    assert (settings["num_steps"], settings["minibatch_size"], settings["learning_rate"]) == (512, 64, 3e-4)
    gymnasium.register("test/Identity-v0", lambda **options: Identity(**options))
    model = operant.PPO("test/Identity-v0", num_envs=3, env_kwargs={"cut": True}, seed=1).learn(1000)
    assert model.metrics["length"] == 2 and model.evaluate(5)["lengths"] == [2] * 5


@pytest.mark.parametrize("mode", ["same_step", "next_step", "disabled"])
def test_vector_envs_of_the_engine_are_brought_too(mode: str) -> None:
    envs = operant.make_vec("probe_identity", 8, seed=0, autoreset_mode=mode)
    model = operant.PPO(envs, **{**OPTIONS, "gamma": 0.9}).learn(8000)
    assert model.metrics["episodes"] > 100
    native = operant.PPO("probe_identity", seed=1).learn(8000)
    assert model.evaluate(20)["mean_return"] == pytest.approx(native.evaluate(20)["mean_return"], abs=0.3)


def test_memory_learns_from_sequences() -> None:
    options = {key: value for key, value in OPTIONS.items() if key != "minibatch_size"}
    model = operant.PPO(Identity, num_envs=8, memory="mingru", hidden=[32], **{**options, "num_steps": 16})
    assert model.settings["ppo"]["minibatch_size"] == 32
    assert model.learn(16_000).evaluate(20)["mean_return"] > SOLVED


def test_what_an_env_raises_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        operant.PPO(lambda: 1 // 0)
    model = operant.PPO(lambda: Identity(fail_at=200), num_envs=2, **OPTIONS)
    with pytest.raises(FloatingPointError, match="the env broke"):
        model.learn(10_000)
    reached = model.num_timesteps
    # 32 steps an iteration: six were whole, and nothing was learned from the seventh.
    assert reached == 6 * 64
    assert model.predict(np.zeros(CUES, dtype=np.float32))[0] in (2, 3, 4)
    # Each env breaks once: the next call begins new episodes; the second env breaks at its own 200th step.
    with pytest.raises(FloatingPointError):
        model.learn(10_000)
    model.learn(1000)
    assert model.num_timesteps > reached and model.metrics["length"] == 3


class Slow(Identity):
    def step(self, action: Any) -> Any:
        time.sleep(0.01)
        return super().step(action)


def test_keyboard_interrupt_does_not_wait_for_the_iteration() -> None:
    # An iteration takes 20 s.
    model = operant.PPO(Slow, seed=1, num_steps=2000)
    at: list[float] = []

    def interrupt() -> None:
        time.sleep(0.3)
        at.append(time.monotonic())
        _thread.interrupt_main()

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        model.learn(10_000)
    assert time.monotonic() - at[0] < 0.5
    thread.join()
    assert model.num_timesteps == 0
    model.predict(np.zeros(CUES, dtype=np.float32))


class Stairs(gymnasium.Env[Any, Any]):
    """Four steps whose rewards are actions; a reset leaves nothing of what was before."""

    observation_space = spaces.Box(-1, 4, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def _observe(self) -> Any:
        return np.array([self.time, self.time % 2], dtype=np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        return self._observe(), float(action) * self.time, self.time == 4, False, {}


def checkpoint(folder: Path) -> dict[str, bytes]:
    newest = max((folder / "ckpt").glob("step-*"))
    parts = {path.name: path.read_bytes() for path in newest.iterdir()}
    # The manifest has sums of them; run.json seconds; run.toml what was to be done.
    return {name: parts[name] for name in parts if name not in ("manifest.json", "run.json", "run.toml")}


WHOLE_RUNS: list[tuple[Any, dict[str, Any]]] = [
    (operant.PPO, {"normalize_obs": True, "normalize_reward": True, "anneal_lr": True, "num_steps": 16}),
    (operant.PPO, {"memory": "mingru", "hidden": [16], "num_steps": 16, "update_epochs": 2}),
    (operant.DQN, {"learning_starts": 64, "buffer_size": 1000, "num_steps": 16, "normalize_obs": True}),
]


@pytest.mark.parametrize(("kind", "options"), WHOLE_RUNS)
def test_a_run_goes_on_with_the_bits_of_one_left_alone(kind: Any, options: dict[str, Any], tmp_path: Path) -> None:
    options = {**options, "num_envs": 2, "seed": 3, "threads": 1}
    whole = kind(Stairs, run_dir=tmp_path / "whole", **options).learn(512).learn(512)
    kind(Stairs, run_dir=tmp_path / "parts", **options).learn(512)
    with pytest.warns(RuntimeWarning, match="no state that can be saved: new episodes begin, all else goes on"):
        model = kind.resume(tmp_path / "parts", env=Stairs)
    assert model.num_timesteps == 512 and model.run_dir == tmp_path / "parts"
    model.learn(512)
    assert model.num_timesteps == whole.num_timesteps == 1024 == model.settings["steps"]
    assert model.metrics["learning_rate"] == whole.metrics["learning_rate"]
    wanted, got = checkpoint(tmp_path / "whole"), checkpoint(tmp_path / "parts")
    assert {"optimizer.safetensors", "policy.safetensors"} < wanted.keys() == got.keys()
    assert [name for name in wanted if wanted[name] != got[name]] == []
    del model
    assert "new episodes begin" in (tmp_path / "parts" / "events.jsonl").read_text()


def test_a_resumed_run_does_not_see_its_first_episodes_again(tmp_path: Path) -> None:
    seeds: list[int] = []

    class Seeded(Identity):
        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            seeds.extend([] if seed is None else [seed])
            return super().reset(seed=seed, options=options)

    options = {**OPTIONS, "minibatch_size": 32}
    operant.PPO(Seeded, run_dir=tmp_path / "run", **options).learn(32)
    assert seeds == [1]
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match="new episodes begin"):
            operant.PPO.resume(tmp_path / "run", env=Seeded)
    # Each time the run is set up as at its beginning, before it goes on.
    assert seeds == [1, 1, seeds[2], 1, seeds[2]] and seeds[2] != 1


def test_other_envs_are_refused_by_what_differs(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    operant.PPO(lambda: Identity("dict", "box"), num_envs=4, run_dir=folder, **OPTIONS).learn(128)

    def refused(message: str, env: Any, **more: Any) -> None:
        before = sorted(path.name for path in folder.rglob("*"))
        with pytest.raises(ValueError, match=message):
            operant.PPO.resume(folder, env=env, **more)
        assert sorted(path.name for path in folder.rglob("*")) == before

    refused("observations are of kind box, those of the run dict", lambda: Identity("box", "box"))
    refused("actions are of kind discrete, those of the run box", lambda: Identity("dict", "discrete"))
    refused("trained on 4 envs: got 8, wanted as many", sync(AutoresetMode.SAME_STEP, observation="dict", action="box"))
    refused("trained on 4 envs: got 1, wanted as many", Identity("dict", "box"))
    other = Identity("dict", "box")
    other.action_space = spaces.Box(-1, 2, (1, 1), np.float64)
    refused(r"actions have high 2.0, those of the run 1.0", SyncVectorEnv([lambda: other] * 4))
    other = Identity("dict", "box")
    other.observation_space = spaces.Dict({"cue": spaces.Box(0, 1, (CUES,)), "noise": spaces.Tuple([spaces.MultiBinary(3)])})
    refused(r"observations\['noise'\]\[0\] have shape \[3\], those of the run \[2\]", SyncVectorEnv([lambda: other] * 4))
    refused(rf"brought from Python: bring it again, as in operant\.PPO\.resume\('{folder}', env=env\)", None)
    with pytest.raises(ZeroDivisionError):
        operant.PPO.resume(folder, env=lambda: 1 // 0)
    operant.PPO("cartpole", run_dir=tmp_path / "own").learn(256)
    with pytest.raises(ValueError, match="whose state is saved: leave env and env_kwargs out"):
        operant.PPO.resume(tmp_path / "own", env=Identity)


def test_a_saved_folder_goes_on_too(tmp_path: Path) -> None:
    model = operant.PPO(Identity, num_envs=2, **OPTIONS).learn(128)
    model.save(tmp_path / "model")
    with pytest.warns(RuntimeWarning, match="new episodes begin"):
        again = operant.PPO.resume(tmp_path / "model", env=lambda: Identity(fail_at=100))
    assert again.num_timesteps == 128
    # Each of the two envs breaks once.
    for _ in range(2):
        with pytest.raises(FloatingPointError, match="the env broke"):
            again.learn(10_000)
    assert again.learn(64).num_timesteps > 128
    assert again.evaluate(5)["lengths"] == [3] * 5


def test_envs_are_counted(tmp_path: Path) -> None:
    gymnasium.register("test/Identity-v1", lambda **options: Identity(**options))
    for kind in (operant.PPO, operant.DQN):
        for count in (0, -5):
            for env in ("test/Identity-v1", Identity, "cartpole"):
                with pytest.raises(ValueError, match=f"num_envs = {count}: wanted"):
                    kind(env, num_envs=count)
    for count in (0, -5):
        with pytest.raises(ValueError, match=f"num_envs = {count}: wanted"):
            operant.make_vec("cartpole", count)


def test_numbers_of_envs_have_a_limit() -> None:
    with pytest.raises(ValueError, match="num_envs = 1099511627776: wanted at most 16777216"):
        operant.PPO(Identity, num_envs=2**40)
    with pytest.raises(TypeError, match="num_envs = True: wanted a whole number"):
        operant.PPO(Identity, num_envs=True)


def test_policies_are_saved(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    model = operant.PPO(lambda: Identity("dict", "box"), num_envs=4, run_dir=folder, **OPTIONS).learn(2000)
    model.save(tmp_path / "saved")
    model.save(tmp_path / "policy.safetensors")
    rows = {"cue": np.eye(CUES, dtype=np.float32), "noise": (np.ones((CUES, 2), dtype=np.int8),)}
    wanted = model.predict(rows, deterministic=True)[0]
    assert wanted.shape == (CUES, 1, 1)
    checkpoint = next((folder / "ckpt").glob("step-*"))
    for path in (folder, checkpoint, tmp_path / "saved", tmp_path / "policy.safetensors"):
        other = operant.PPO.load(path)
        assert other.action_space == model.action_space
        np.testing.assert_array_equal(other.predict(rows, deterministic=True)[0], wanted)
        with pytest.raises(ValueError, match="loaded without envs; load it with env="):
            other.learn(10)
        again = operant.PPO.load(path, env=lambda: Identity("dict", "box"), num_envs=4)
        np.testing.assert_array_equal(again.predict(rows, deterministic=True)[0], wanted)
        assert again.settings["ppo"] == model.settings["ppo"]
        again.learn(128)


def test_flat_observations_are_those_of_gymnasium() -> None:
    space = spaces.Dict(
        {
            "b": spaces.Tuple([spaces.Discrete(4, start=-1), spaces.MultiDiscrete([[2, 3], [4, 1]])]),
            "a": spaces.Box(-2, 2, (2, 3)),
            "c": spaces.MultiBinary([2, 2]),
        }
    )
    form = Observations(space)
    samples = [space.sample() for _ in range(20)]
    wanted = np.stack([spaces.utils.flatten(space, one) for one in samples])
    batched = gymnasium.vector.utils.concatenate(
        space, samples, gymnasium.vector.utils.create_empty_array(space, len(samples))
    )
    np.testing.assert_array_equal(form.batch(batched, 20), wanted.astype(np.float32))
    np.testing.assert_array_equal(form.rows(batched)[0], form.batch(batched, 20))
    np.testing.assert_array_equal(form.rows(samples[3])[0], form.batch(batched, 20)[3:4])
    assert form.rows(batched)[1] and not form.rows(samples[3])[1]
    assert space_of(describe_space(space)) == space


def test_actions_are_clipped_and_shaped() -> None:
    space = spaces.Box(np.array([[-1.0], [0.0]]), np.array([[1.0], [3.0]]), dtype=np.float64)
    native = Actions(space).native(np.array([[-5, 5], [0.5, -1]], dtype=np.float32))
    np.testing.assert_array_equal(native, [[[-1], [3]], [[0.5], [0]]])
    assert native.dtype == np.float64 and space_of(describe_space(space)) == space
    assert Actions(spaces.Discrete(3, start=7)).native(np.array([[0], [2]])).tolist() == [7, 9]


def test_mistakes_are_explained() -> None:
    one = Identity()
    with pytest.raises(ValueError, match="same env twice"):
        operant.PPO(lambda: one, num_envs=2)
    with pytest.raises(ValueError, match="num_envs = 4 of one env: wanted a function"):
        operant.PPO(one, num_envs=4)
    with pytest.raises(ValueError, match="num_envs = 4: the vector env has 8"):
        operant.PPO(sync(AutoresetMode.SAME_STEP), num_envs=4)
    with pytest.raises(ValueError, match="made already"):
        operant.PPO(one, env_kwargs={"cut": True})
    with pytest.raises(TypeError, match="the function made a int"):
        operant.PPO(lambda: 3)
    one.action_space = spaces.Dict({"a": spaces.Discrete(2)})
    with pytest.raises(ValueError, match="wanted Discrete, MultiDiscrete, MultiBinary or Box"):
        operant.PPO(one)
    other = Identity()
    other.observation_space = spaces.Text(5)
    with pytest.raises(ValueError, match="wrap the env"):
        operant.PPO(other)


def test_changed_settings_ahead_of_a_checkpoint_are_refused(tmp_path: Path) -> None:
    """The engine would have to make the envs anew when it comes to the change; what it refuses it leaves as it is."""
    folder, options = tmp_path / "run", {**OPTIONS, "checkpoint": {"every": 1, "keep": 9}}
    operant.PPO(sync(AutoresetMode.SAME_STEP), run_dir=folder, **options).learn(512)
    settings = folder / "run.toml"
    text = settings.read_text()
    assert "learning_rate = 0.003" in text
    settings.write_text(text.replace("learning_rate = 0.003", "learning_rate = 0.001"))
    with pytest.warns(RuntimeWarning, match="new episodes begin"):
        model = operant.PPO.resume(folder, env=sync(AutoresetMode.SAME_STEP))
    model.learn(512)
    assert [change["step"] for change in model.settings["changed"]] == [512]
    del model

    def files() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    before = files()
    older, newer = f"step-{256:012}", f"step-{768:012}"
    with pytest.raises(ValueError, match=f"{older}: settings changed at step 512 of this run, which can't be repeated over envs"):
        operant.PPO.resume(folder, older, env=sync(AutoresetMode.SAME_STEP))
    assert files() == before
    # After the change there is nothing to repeat.
    with pytest.warns(RuntimeWarning, match="new episodes begin"):
        assert operant.PPO.resume(folder, newer, env=sync(AutoresetMode.SAME_STEP)).num_timesteps == 768
