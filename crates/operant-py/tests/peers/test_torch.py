"""Files that Operant saves load into the equivalent torch modules, which give the same outputs; and back."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import operant
import pytest
import torch
from operant import nn
from safetensors import safe_open
from safetensors.torch import load_file, save_file

sys.path[:0] = [str(Path(__file__).parent.parent), str(Path(__file__).parent.parent / "golden")]
import generate
from test_ppo_images import SIDE, Square

MAKE = {
    "actor_critic": lambda seed: nn.actor_critic(inputs=4, actions=3, hidden=[16, 8], seed=seed),
    "dueling": lambda seed: nn.dueling(inputs=10, actions=5, hidden=[24, 16], stream=8, seed=seed),
    "residual": lambda seed: nn.residual(inputs=7, policy=9, width=16, blocks=2, value_hidden=8, value=2, seed=seed),
}


@pytest.mark.parametrize("name", MAKE)
def test_exported_files_load_into_torch(name: str, tmp_path: Path) -> None:
    net = MAKE[name](5)
    path = tmp_path / "net.safetensors"
    net.save(path)
    module, inputs = generate.NETS[name]
    module.load_state_dict(load_file(path))
    obs = torch.randn(100, inputs)
    with torch.no_grad():
        wanted = module(obs)
    outputs = net(obs.numpy())
    assert outputs.keys() == wanted.keys()
    for key, value in outputs.items():
        np.testing.assert_allclose(value, wanted[key].numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MAKE)
def test_torch_parameters_load_back(name: str, tmp_path: Path) -> None:
    module, inputs = generate.NETS[name]
    net = MAKE[name](6)
    net.load_state_dict(module.state_dict())
    obs = torch.randn(10, inputs)
    with torch.no_grad():
        wanted = module(obs)
    for key, value in net(obs.numpy()).items():
        np.testing.assert_allclose(value, wanted[key].numpy(), rtol=1e-4, atol=1e-5)
    save_file(module.state_dict(), tmp_path / "torch.safetensors")
    with pytest.raises(ValueError, match="does not say which network"):
        nn.load(tmp_path / "torch.safetensors")


def test_policies_act_in_torch_by_the_note_on_their_normaliser(tmp_path: Path) -> None:
    path = tmp_path / "policy.safetensors"
    model = operant.PPO("MountainCar-v0", normalize_obs=True, num_envs=4, num_steps=32, minibatch_size=64, seed=1)
    model.learn(1024).save(path)
    module = generate.ActorCritic(2, nn.load(path).architecture["hidden"], 3)
    module.load_state_dict(load_file(path))
    obs = torch.rand(2000, 2) * torch.tensor([1.8, 0.14]) - torch.tensor([1.2, 0.07])
    # As the documentation of operant.nn has it.
    with safe_open(path, "pt") as file:
        note = json.loads(file.metadata()["operant.obs_normaliser"])
    shift, factor, limit = torch.tensor(note["shift"]), torch.tensor(note["factor"]), note["limit"]
    seen = ((obs - shift) * factor).clamp(-limit, limit)
    with torch.no_grad():
        logits = module(seen)["logits"]
    actions = logits.argmax(-1).numpy()
    best = logits.sort(-1).values
    # Where the two best are apart by more than roundings.
    clear = (best[:, -1] - best[:, -2] > 1e-4).numpy()
    wanted = model.predict(obs.numpy(), deterministic=True)[0].reshape(-1)
    assert clear.mean() > 0.99 and (actions[clear] == wanted[clear]).all()


class ImageActorCritic(torch.nn.Module):
    """What ``operant.PPO`` makes of images: the layers after the encoder read it as ``[H, W, C]``."""

    def __init__(self, channels: int, features: list[int], hidden: list[int], actions: int, bytes_: bool) -> None:
        super().__init__()
        layers: list[torch.nn.Module] = []
        for a, b in zip([channels, *features], features, strict=False):
            layers += [torch.nn.Conv2d(a, b, 3, stride=2, padding=1), torch.nn.ReLU()]
        self.encoder = torch.nn.Sequential(*layers)
        width = (SIDE >> len(features)) ** 2 * features[-1]
        self.actor = generate.mlp([width, *hidden, actions], torch.nn.Tanh)
        self.critic = generate.mlp([width, *hidden, 1], torch.nn.Tanh)
        self.scale = 1 / 255 if bytes_ else 1.0

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        """Images ``[N, C, H, W]``."""
        h = self.encoder(x * self.scale).permute(0, 2, 3, 1).flatten(1)
        return {"logits": self.actor(h), "value": self.critic(h)}


@pytest.mark.parametrize("layout", ["hwc", "chw"])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_image_networks_load_into_torch_and_back(layout: str, dtype: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.safetensors"
    operant.PPO(lambda: Square(layout, dtype), num_envs=4, num_steps=8, minibatch_size=16, seed=3).save(path)
    net = nn.load(path)
    described = net.architecture
    image, features = described["image"]["image"], described["image"]["features"]
    assert (image["channels_first"], image["bytes"]) == (layout == "chw", dtype == "uint8")
    module = ImageActorCritic(image["channels"], features, described["hidden"], described["actions"], image["bytes"])
    module.load_state_dict(load_file(path))

    env = Square(layout, dtype)
    images = np.stack([env.reset(seed=seed)[0] for seed in range(20)])
    first = images if layout == "chw" else images.transpose(0, 3, 1, 2)

    def compare() -> None:
        with torch.no_grad():
            wanted = module(torch.from_numpy(np.ascontiguousarray(first, dtype=np.float32)))
        outputs = net(images)
        assert outputs.keys() == wanted.keys()
        for key, value in outputs.items():
            np.testing.assert_allclose(value, wanted[key].numpy(), rtol=1e-4, atol=1e-5)

    compare()
    # Logits begin near 0: with weights of PyTorch's own size an order of numbers that is wrong shows.
    for layer in module.modules():
        if hasattr(layer, "reset_parameters"):
            layer.reset_parameters()
    net.load_state_dict(module.state_dict())
    compare()
