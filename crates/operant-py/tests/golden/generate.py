"""Outputs of small networks by PyTorch, with their parameters: `python generate.py` (needs torch, safetensors)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file
from torch import nn


def mlp(sizes: list[int], act: type[nn.Module]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in zip(sizes, sizes[1:], strict=False):
        layers += [nn.Linear(a, b), act()]
    return nn.Sequential(*layers[:-1])


class ActorCritic(nn.Module):
    """CleanRL's agent."""

    def __init__(self, inputs: int, hidden: list[int], actions: int) -> None:
        super().__init__()
        self.actor = mlp([inputs, *hidden, actions], nn.Tanh)
        self.critic = mlp([inputs, *hidden, 1], nn.Tanh)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"logits": self.actor(x), "value": self.critic(x)}


class Dueling(nn.Module):
    """A trunk with value and advantage streams."""

    def __init__(self, inputs: int, hidden: list[int], stream: int, actions: int) -> None:
        super().__init__()
        self.trunk = nn.Sequential(*mlp([inputs, *hidden], nn.ReLU), nn.ReLU())
        self.value = mlp([hidden[-1], stream, 1], nn.ReLU)
        self.advantage = mlp([hidden[-1], stream, actions], nn.ReLU)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        h = self.trunk(x)
        advantage = self.advantage(h)
        return {"q": self.value(h) + advantage - advantage.mean(1, keepdim=True)}


class Residual(nn.Module):
    """Fully connected residual blocks."""

    def __init__(self, inputs: int, width: int, blocks: int, policy: int, value_hidden: int, value: int) -> None:
        super().__init__()
        self.trunk = nn.ModuleDict({"input": nn.Linear(inputs, width)})
        for block in range(blocks):
            self.trunk[str(block)] = nn.ModuleList([nn.Linear(width, width), nn.Linear(width, width)])
        self.blocks = blocks
        self.policy = nn.Linear(width, policy)
        self.value = mlp([width, value_hidden, value], nn.ReLU)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        h = torch.relu(self.trunk["input"](x))
        for block in range(self.blocks):
            first, second = self.trunk[str(block)]
            h = torch.relu(h + second(torch.relu(first(h))))
        return {"logits": self.policy(h), "value": self.value(h)}


NETS = {
    "actor_critic": (ActorCritic(4, [16, 8], 3), 4),
    "dueling": (Dueling(10, [24, 16], 8, 5), 10),
    "residual": (Residual(7, 16, 2, 9, 8, 2), 7),
}

if __name__ == "__main__":
    torch.manual_seed(0)
    tensors: dict[str, np.ndarray] = {}
    for name, (module, inputs) in NETS.items():
        for parameter in module.parameters():
            nn.init.normal_(parameter, std=0.5)
        obs = torch.randn(37, inputs)
        tensors[f"{name}/obs"] = obs.numpy()
        for key, value in module.state_dict().items():
            tensors[f"{name}/p.{key}"] = value.numpy()
        with torch.no_grad():
            for key, value in module(obs).items():
                tensors[f"{name}/{key}"] = value.numpy()
    save_file(tensors, Path(__file__).parent / "nets.safetensors")
