"""One PyTorch loop on a GPU over two sets of environments: Operant's, and CartPole written in PyTorch.

python xtask/peers/torch_gpu.py [--num-envs 65536] [--steps 500]

The loop is that of a trainer that collects: policy of 2x64 tanh, a sampled action, a step, rows stored in a rollout of 16.
"""

from __future__ import annotations

import argparse
import json
import time

import torch
from torch import nn

import operant


class TorchCartPole:
    """Gymnasium's CartPole-v1 with same-step autoreset, in PyTorch's own operations."""

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs

    def reset(self) -> torch.Tensor:
        self.state = self.start()
        self.elapsed = torch.zeros(self.num_envs, dtype=torch.int32, device="cuda")
        return self.state

    def start(self) -> torch.Tensor:
        return torch.rand(self.num_envs, 4, device="cuda") * 0.1 - 0.05

    def step(self, actions: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x, x_dot, theta, theta_dot = self.state.unbind(1)
        force = torch.where(actions == 1, 10.0, -10.0)
        cos, sin = theta.cos(), theta.sin()
        temp = (force + 0.05 * theta_dot.square() * sin) / 1.1
        theta_acc = (9.8 * sin - cos * temp) / (0.5 * (4.0 / 3.0 - 0.1 * cos.square() / 1.1))
        x_acc = temp - 0.05 * theta_acc * cos / 1.1
        state = torch.stack(
            [x + 0.02 * x_dot, x_dot + 0.02 * x_acc, theta + 0.02 * theta_dot, theta_dot + 0.02 * theta_acc], 1
        )
        self.elapsed += 1
        terminated = (state[:, 0].abs() > 2.4) | (state[:, 2].abs() > 0.20943951)
        truncated = self.elapsed >= 500
        ended = terminated | truncated
        self.state = torch.where(ended[:, None], self.start(), state)
        self.elapsed = torch.where(ended, 0, self.elapsed)
        return self.state, torch.ones(self.num_envs, device="cuda"), terminated, truncated


class Operant:
    """The same four rows from Operant's envs."""

    def __init__(self, num_envs: int) -> None:
        self.envs = operant.make_vec("CartPole-v1", num_envs=num_envs, seed=1, device="cuda", output="torch")

    def reset(self) -> torch.Tensor:
        return self.envs.reset()[0]

    def step(self, actions: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.envs.step(actions)[:4]


@torch.no_grad()
def steps_per_second(envs: TorchCartPole | Operant, num_envs: int, steps: int, policy: nn.Module | None) -> float:
    rows = 16
    obs = torch.empty(rows + 1, num_envs, 4, device="cuda")
    rewards = torch.empty(rows, num_envs, device="cuda")
    flags = torch.empty(rows, 2, num_envs, dtype=torch.bool, device="cuda")
    given = torch.randint(0, 2, (rows, num_envs), device="cuda")
    obs[0] = envs.reset()
    start = 0.0
    for step in range(steps + rows):
        t = step % rows
        if step == rows:
            torch.cuda.synchronize()
            start = time.perf_counter()
        if policy is None:
            actions = given[t]
        else:
            actions = (torch.rand(num_envs, device="cuda") < policy(obs[t]).softmax(-1)[:, 1]).long()
        seen, rewards[t], flags[t, 0], flags[t, 1] = envs.step(actions)
        obs[(t + 1) % rows] = seen
    torch.cuda.synchronize()
    return steps * num_envs / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--num-envs", type=int, default=65536)
    parser.add_argument("--steps", type=int, default=500)
    args = parser.parse_args()
    policy = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2)).cuda()
    report: dict[str, float] = {"num_envs": args.num_envs}
    for name, net in (("policy", policy), ("given", None)):
        ours = steps_per_second(Operant(args.num_envs), args.num_envs, args.steps, net)
        theirs = steps_per_second(TorchCartPole(args.num_envs), args.num_envs, args.steps, net)
        report |= {f"{name}_operant": ours, f"{name}_torch": theirs, f"{name}_ratio": ours / theirs}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
