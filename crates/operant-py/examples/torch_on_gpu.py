"""PPO in PyTorch over environments on a GPU: no step touches the host.

python crates/operant-py/examples/torch_on_gpu.py [--num-envs 65536] [--iterations 30]
"""

from __future__ import annotations

import argparse
import time

import torch
from torch import nn

import operant

GAMMA, LAMBDA, CLIP, ENTROPY = 0.99, 0.95, 0.2, 0.01


def network(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs)
    ).cuda()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--num-envs", type=int, default=65536)
    parser.add_argument("--num-steps", type=int, default=16)
    parser.add_argument("--iterations", type=int, default=30)
    args = parser.parse_args()
    n, steps = args.num_envs, args.num_steps
    torch.manual_seed(1)
    envs = operant.make_vec("CartPole-v1", num_envs=n, seed=1, device="cuda", output="torch")
    actor, critic = network(4, 2), network(4, 1)
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=3e-3, fused=True)
    obs = torch.empty(steps + 1, n, 4, device="cuda")
    actions = torch.empty(steps, n, dtype=torch.int64, device="cuda")
    log_probs, rewards = (torch.empty(steps, n, device="cuda") for _ in range(2))
    ended = torch.empty(steps, n, dtype=torch.bool, device="cuda")
    returns = torch.zeros(n, device="cuda")
    obs[0] = envs.reset()[0]
    torch.cuda.synchronize()
    start = time.perf_counter()
    stepping = 0.0
    for iteration in range(args.iterations):
        began = time.perf_counter()
        with torch.no_grad():
            for t in range(steps):
                logits = actor(obs[t]).log_softmax(-1)
                actions[t] = (torch.rand(n, device="cuda") > logits[:, 0].exp()).long()
                log_probs[t] = logits.gather(1, actions[t, :, None]).squeeze(1)
                obs[t + 1], rewards[t], stopped, cut, infos = envs.step(actions[t])
                ended[t] = stopped | cut
                # An episode that is cut off would have gone on: what its last state is worth counts.
                beyond = critic(infos["final_obs"]).squeeze(1)
                rewards[t] += GAMMA * torch.where(cut & ~stopped, beyond, 0.0)
                returns = torch.where(ended[t], infos["episode_return"], returns)
            torch.cuda.synchronize()
            stepping += time.perf_counter() - began
            values = critic(obs).squeeze(-1)
            advantages = torch.zeros_like(rewards)
            last = torch.zeros(n, device="cuda")
            for t in reversed(range(steps)):
                goes_on = GAMMA * (~ended[t])
                last = rewards[t] + goes_on * values[t + 1] - values[t] + goes_on * LAMBDA * last
                advantages[t] = last
            targets = (advantages + values[:-1]).flatten()
            advantages = advantages.flatten()
        samples = obs[:-1].reshape(-1, 4)
        for part in torch.randperm(n * steps, device="cuda").chunk(4) * 4:
            logits = actor(samples[part]).log_softmax(-1)
            chosen = logits.gather(1, actions.flatten()[part, None]).squeeze(1)
            ratio = (chosen - log_probs.flatten()[part]).exp()
            scaled = advantages[part]
            scaled = (scaled - scaled.mean()) / (scaled.std() + 1e-8)
            policy = -torch.minimum(scaled * ratio, scaled * ratio.clamp(1 - CLIP, 1 + CLIP)).mean()
            value = 0.5 * (critic(samples[part]).squeeze(1) - targets[part]).square().mean()
            entropy = -(logits.exp() * logits).sum(-1).mean()
            optimizer.zero_grad()
            (policy + 0.5 * value - ENTROPY * entropy).backward()
            nn.utils.clip_grad_norm_([*actor.parameters(), *critic.parameters()], 0.5)
            optimizer.step()
    torch.cuda.synchronize()
    seconds, count = time.perf_counter() - start, args.iterations * n * steps
    print(f"mean return {returns.mean().item():.1f} after {count:,} steps in {seconds:.2f} s")
    print(f"{count / seconds:,.0f} steps/s in all, {count / stepping:,.0f} steps/s collecting")


if __name__ == "__main__":
    main()
