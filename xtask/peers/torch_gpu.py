"""One PyTorch loop on a GPU over two sets of environments: Operant's, and CartPole written in PyTorch.

python xtask/peers/torch_gpu.py [--num-envs 65536] [--steps 500]

The loop is that of a trainer that collects: policy of 2x64 tanh, a sampled action, a step, rows stored in a rollout of 16. It is measured
as it stands, with the policy's part recorded in CUDA graphs, with all of it recorded, and with given actions in place of a policy.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import torch
from torch import nn

import operant

Rows = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


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

    def step(self, actions: torch.Tensor, rows: Rows) -> None:
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
        # In place, so that a recorded step finds them where it left them.
        torch.where(ended[:, None], self.start(), state, out=self.state)
        self.elapsed.masked_fill_(ended, 0)
        for row, column in zip(rows, (self.state, 1.0, terminated, truncated), strict=True):
            row.copy_(column) if isinstance(column, torch.Tensor) else row.fill_(column)


class Operant:
    """The same four rows from Operant's envs."""

    def __init__(self, num_envs: int) -> None:
        self.envs = operant.make_vec("CartPole-v1", num_envs=num_envs, seed=1, device="cuda", output="torch")

    def reset(self) -> torch.Tensor:
        return self.envs.reset()[0]

    def step(self, actions: torch.Tensor, rows: Rows) -> None:
        self.envs.step(actions, out=rows)


@torch.no_grad()
def steps_per_second(envs: TorchCartPole | Operant, num_envs: int, steps: int, way: str) -> float:
    torch.manual_seed(0)
    policy = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2)).cuda()
    count = 16
    obs = torch.empty(count, num_envs, 4, device="cuda")
    rewards = torch.empty(count, num_envs, device="cuda")
    flags = torch.empty(2, count, num_envs, dtype=torch.bool, device="cuda")
    actions = torch.randint(0, 2, (count, num_envs), device="cuda")
    obs[0] = envs.reset()

    def choose(t: int) -> None:
        actions[t] = torch.rand(num_envs, device="cuda") < policy(obs[t]).softmax(-1)[:, 1]

    def step(t: int) -> None:
        envs.step(actions[t], (obs[(t + 1) % count], rewards[t], flags[0, t], flags[1, t]))

    def recorded(work: Callable[[int], None]) -> list[Callable[[], None]]:
        graphs = [torch.cuda.CUDAGraph() for _ in range(count)]
        for t, graph in enumerate(graphs):
            with torch.cuda.graph(graph):
                work(t)
        return [graph.replay for graph in graphs]

    def both(t: int) -> None:
        choose(t)
        step(t)

    for t in range(count):
        both(t)
    torch.cuda.synchronize()
    chosen = recorded(choose) if way == "recorded_policy" else []
    whole = recorded(both) if way == "recorded" else []
    start = 0.0
    for i in range(steps + count):
        t = i % count
        if i == count:
            torch.cuda.synchronize()
            start = time.perf_counter()
        if way == "recorded":
            whole[t]()
        elif way == "recorded_policy":
            chosen[t]()
            step(t)
        elif way == "given":
            step(t)
        else:
            both(t)
    torch.cuda.synchronize()
    rate = steps * num_envs / (time.perf_counter() - start)
    ended = flags.any(0).float().mean().item()
    assert 0.001 < ended < 0.5 and obs.isfinite().all(), f"{ended} of the rows end an episode"
    return rate


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--num-envs", type=int, default=65536)
    parser.add_argument("--steps", type=int, default=500)
    args = parser.parse_args()
    report: dict[str, float] = {"num_envs": args.num_envs}
    for way in ("policy", "recorded_policy", "recorded", "given"):
        # The better of two: others share the host.
        ours, theirs = (
            max(steps_per_second(make(args.num_envs), args.num_envs, args.steps, way) for _ in range(2))
            for make in (Operant, TorchCartPole)
        )
        report |= {f"{way}_operant": ours, f"{way}_torch": theirs, f"{way}_ratio": ours / theirs}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
