"""Ten steps of Adam by PyTorch on each of the networks that are benchmarked; `cargo xtask golden nn` runs it.

Parameters and data come from a hash of their index, which `tests/golden/training.rs` computes too, so that the file holds
only losses and, of how far each parameter tensor moved in all steps, the length and its products with vectors of the same
hash. A vector that is off by some length shows about 0.3 of it in each product, whichever of its numbers are off. Images are
NHWC on our side; inputs are f32 numbers, and the reference computes with them in f64.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import save_file
from torch import nn

STEPS = 10
PRODUCTS = 4


def hashed(count: int, salt: int) -> np.ndarray:
    """Numbers in [-0.5, 0.5), the same in Rust."""
    x = (np.arange(count, dtype=np.uint64) + np.uint64(salt * 1_000_003)) * np.uint64(2654435761) & np.uint64(0xFFFFFFFF)
    x ^= x >> np.uint64(15)
    x = x * np.uint64(2246822519) & np.uint64(0xFFFFFFFF)
    x ^= x >> np.uint64(13)
    return (x.astype(np.float64) / 2**32 - 0.5).astype(np.float32)


def data(shape: list[int], salt: int) -> torch.Tensor:
    return torch.from_numpy(hashed(int(np.prod(shape)), salt).reshape(shape)).double() * 2


def classes(count: int, below: int, salt: int) -> torch.Tensor:
    return torch.from_numpy(((hashed(count, salt) + 0.5) * below).astype(np.int64))


def fill(module: nn.Module) -> None:
    """Every parameter uniform within 1.5/sqrt(fan in); norms and biases around what they begin with."""
    with torch.no_grad():
        for salt, (_, parameter) in enumerate(sorted(module.named_parameters())):
            values = torch.from_numpy(hashed(parameter.numel(), 100 + salt)).reshape(parameter.shape).double()
            if parameter.dim() > 1:
                values = values * 3 / np.sqrt(parameter[0].numel())
            else:
                values = values * 0.2
            parameter.copy_(values)


def mlp(sizes: list[int], act: type[nn.Module]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in zip(sizes, sizes[1:], strict=False):
        layers += [nn.Linear(a, b), act()]
    return nn.Sequential(*layers[:-1])


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.actor, self.critic = mlp([4, 64, 64, 2], nn.Tanh), mlp([4, 64, 64, 1], nn.Tanh)

    def loss(self) -> torch.Tensor:
        x, policy, value = data([48, 4], 1), data([48, 2], 2), data([48, 1], 3)
        return F.mse_loss(self.actor(x), policy) + F.mse_loss(self.critic(x), value)


class Dueling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(*mlp([144, 256, 128], nn.ReLU), nn.ReLU())
        self.value, self.advantage = mlp([128, 64, 1], nn.ReLU), mlp([128, 64, 12], nn.ReLU)

    def loss(self) -> torch.Tensor:
        h = self.trunk(data([64, 144], 1))
        advantage = self.advantage(h)
        q = self.value(h) + advantage - advantage.mean(1, keepdim=True)
        chosen = q.gather(1, classes(64, 12, 2)[:, None])
        return F.huber_loss(chosen, data([64, 1], 3))


class Resnet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.ModuleDict({"input": nn.Linear(198, 128)})
        for block in range(3):
            self.trunk[str(block)] = nn.ModuleList([nn.Linear(128, 128), nn.Linear(128, 128)])
        self.policy, self.value = nn.Linear(128, 1156), mlp([128, 64, 6], nn.ReLU)

    def loss(self) -> torch.Tensor:
        h = torch.relu(self.trunk["input"](data([16, 198], 1)))
        for block in range(3):
            first, second = self.trunk[str(block)]
            h = torch.relu(h + second(torch.relu(first(h))))
        return F.mse_loss(self.policy(h), data([16, 1156], 2)) + F.mse_loss(self.value(h), data([16, 6], 3))


class Conv(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.conv3 = nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.head = nn.Linear(32, 10)

    def loss(self) -> torch.Tensor:
        x = data([8, 32, 32, 3], 1).permute(0, 3, 1, 2)
        for layer in (self.conv1, self.conv2, self.conv3):
            x = torch.relu(layer(x))
        return F.cross_entropy(self.head(x.mean((2, 3))), classes(8, 10, 2))


class Field(nn.Module):
    """Without noise, which has no golden value."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(64, 64, 3, padding=1, padding_mode="circular")
        self.norm = nn.InstanceNorm2d(64, affine=True)

    def loss(self) -> torch.Tensor:
        x = data([2, 16, 16, 64], 1).permute(0, 3, 1, 2)
        y = F.gelu(self.norm(self.conv(x))).permute(0, 2, 3, 1)
        return F.mse_loss(y, data([2, 16, 16, 64], 2))


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(128, 128, batch_first=True)

    def loss(self) -> torch.Tensor:
        return F.mse_loss(self.lstm(data([6, 64, 128], 1))[0], data([6, 64, 128], 2))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(64, 4, batch_first=True)

    def loss(self) -> torch.Tensor:
        x = data([5, 32, 64], 1)
        return F.mse_loss(self.attention(x, x, x)[0], data([5, 32, 64], 2))


if __name__ == "__main__":
    tensors: dict[str, np.ndarray] = {}
    for module in (Mlp(), Dueling(), Resnet(), Conv(), Field(), Lstm(), Attention()):
        name = type(module).__name__.lower()
        fill(module.double())
        before = {key: value.detach().clone() for key, value in module.named_parameters()}
        adam = torch.optim.Adam(module.parameters(), lr=1e-3)
        losses = []
        for _ in range(STEPS):
            adam.zero_grad()
            loss = module.loss()
            loss.backward()
            adam.step()
            losses.append(loss.item())
        tensors[f"{name}/losses"] = np.array(losses, dtype=np.float32)
        for key, value in module.named_parameters():
            moved = (value.detach() - before[key]).flatten().numpy()
            products = [moved @ hashed(moved.size, 1000 + i).astype(np.float64) for i in range(PRODUCTS)]
            tensors[f"{name}/{key}"] = np.array([np.linalg.norm(moved), *products], dtype=np.float32)
        print(name, losses[0], losses[-1])
    save_file(tensors, Path(__file__).parent / "training.safetensors")
