"""The trainer on images: a convolutional encoder sees them first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import operant
import pytest
from gymnasium import spaces
from operant import nn

SIDE = 16
EPISODE = 8
# Where the square lies: left, right, up, down.
PLACES = [(6, 0), (6, 12), (0, 6), (12, 6)]


class Square(gymnasium.Env[Any, Any]):
    """A bright square says which way to go. It trembles by a pixel or two, in a picture of noise."""

    def __init__(self, layout: str = "hwc", dtype: str = "uint8", continuous: bool = False) -> None:
        self.layout, self.dtype = layout, dtype
        shape = (SIDE, SIDE, 2) if layout == "hwc" else (2, SIDE, SIDE)
        high = 255 if dtype == "uint8" else 1
        self.observation_space = spaces.Box(0, high, shape, np.dtype(dtype).type)
        self.action_space = spaces.Box(-1, 1, (2,), np.float32) if continuous else spaces.Discrete(4)

    def _observe(self) -> Any:
        self.place = int(self.np_random.integers(4))
        picture = self.np_random.uniform(0, 0.3, (SIDE, SIDE, 2))
        top, left = np.array(PLACES[self.place]) + self.np_random.integers(0, 2, 2)
        picture[top : top + 3, left : left + 3, 0] = 1
        if self.layout == "chw":
            picture = picture.transpose(2, 0, 1)
        return (picture * 255).astype(np.uint8) if self.dtype == "uint8" else picture.astype(np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        if isinstance(self.action_space, spaces.Discrete):
            reward = float(action == self.place)
        else:
            # Down-right is positive, as rows and columns count.
            wanted = np.sign(np.array(PLACES[self.place]) - 6.0)
            reward = 1 - float(np.abs(action - 0.8 * wanted).mean())
        return self._observe(), reward, self.time == EPISODE, False, {}


OPTIONS: dict[str, Any] = {
    "seed": 1,
    "num_envs": 16,
    "num_steps": 32,
    "minibatch_size": 128,
    "update_epochs": 4,
    "learning_rate": 2e-3,
    "gamma": 0.5,
}


def train(steps: int, until: float, **options: Any) -> operant.PPO:
    kinds = {key: options.pop(key) for key in ("layout", "dtype", "continuous") if key in options}
    model = operant.PPO(lambda: Square(**kinds), **{**OPTIONS, **options})
    return model.learn(steps, callback=lambda _, metrics: not metrics["return"] >= until)


@pytest.mark.parametrize(
    ("kinds", "until"),
    [
        ({}, 7.5),
        ({"layout": "chw"}, 7.5),
        ({"dtype": "float32"}, 7.5),
        ({"continuous": True}, 5.5),
        ({"normalize_obs": True}, 7.5),
    ],
)
def test_images_are_learned_by_convolutions(kinds: dict[str, Any], until: float) -> None:
    model = train(40_000, until, **kinds)
    assert model.metrics["return"] >= until, model.metrics
    assert model.evaluate(50)["mean_return"] >= until


def test_an_image_policy_is_saved_loaded_and_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    model = train(4096, 9.0, run_dir=folder)
    assert model.settings["network"]["encoder"] == "auto"
    model.save(tmp_path / "policy.safetensors")
    model.save(tmp_path / "saved")
    env = Square()
    images = np.stack([env.reset(seed=seed)[0] for seed in range(7)])
    wanted = model.predict(images, deterministic=True)[0]
    assert wanted.shape == (7,) and model.predict(images[3], deterministic=True)[0] == wanted[3]
    for path in (folder, tmp_path / "saved", tmp_path / "policy.safetensors"):
        other = operant.PPO.load(path)
        np.testing.assert_array_equal(other.predict(images, deterministic=True)[0], wanted)
        again = operant.PPO.load(path, env=Square, num_envs=16)
        np.testing.assert_array_equal(again.predict(images, deterministic=True)[0], wanted)
        again.learn(512)
        assert again.num_timesteps == 512
    # As a network alone, images as the env gives them.
    net = nn.load(tmp_path / "policy.safetensors")
    image = {"height": SIDE, "width": SIDE, "channels": 2, "channels_first": False, "bytes": True}
    assert net.architecture["image"] == {"image": image, "features": [16, 32]}
    policy = nn.load_policy(tmp_path / "policy.safetensors")
    np.testing.assert_array_equal(policy(images), wanted)
    assert policy(images[2]) == wanted[2] and policy(images[2].reshape(-1)) == wanted[2]
    assert net.state_dict()["encoder.0.weight"].shape == (16, 2, 3, 3)


def test_encoders_are_chosen() -> None:
    def image(**options: Any) -> Any:
        model = operant.PPO(Square, **{**OPTIONS, **options})
        return json.loads(model._current_actor().architecture).get("image")

    assert image() and image(encoder="conv")
    assert image(encoder="flat") is None
    assert image(memory="mingru", minibatch_size=128) is None, "auto gives way to a memory"
    with pytest.raises(ValueError, match="conv beside network.memory"):
        image(memory="lstm", encoder="conv")
    with pytest.raises(ValueError, match="shows no image"):
        operant.PPO("cartpole", encoder="conv")
    with pytest.raises(ValueError, match="network.encoder"):
        image(encoder="cnn")
