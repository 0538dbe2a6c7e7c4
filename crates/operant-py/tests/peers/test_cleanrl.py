"""A PPO loop in the manner of CleanRL's ppo.py, over `gymnasium.make_vec`, with nothing of ours in it but the id."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import operant  # noqa: F401  (registers the ids)
import pytest

torch = pytest.importorskip("torch")
nn = torch.nn


def layer(size_in: int, size_out: int, std: float = 2**0.5) -> nn.Linear:
    linear = nn.Linear(size_in, size_out)
    nn.init.orthogonal_(linear.weight, std)
    nn.init.zeros_(linear.bias)
    return linear


def train(
    env_id: str, num_envs: int = 32, num_steps: int = 64, iterations: int = 60, gamma: float = 0.99, lam: float = 0.95
) -> list[float]:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    envs = gym.make_vec(env_id, num_envs=num_envs, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP)
    envs = gym.wrappers.vector.RecordEpisodeStatistics(envs)
    size, choices = envs.single_observation_space.shape[0], envs.single_action_space.n
    actor = nn.Sequential(layer(size, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, choices, 0.01))
    critic = nn.Sequential(layer(size, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, 1, 1.0))
    weights = [*actor.parameters(), *critic.parameters()]
    optimizer = torch.optim.Adam(weights, lr=1e-3, eps=1e-5)

    obs = torch.zeros(num_steps, num_envs, size)
    actions = torch.zeros(num_steps, num_envs, dtype=torch.int64)
    logprobs, rewards, dones, values = (torch.zeros(num_steps, num_envs) for _ in range(4))
    returns: list[float] = []
    next_obs, _ = envs.reset(seed=0)
    next_obs, next_done = torch.tensor(next_obs), torch.zeros(num_envs)
    for _ in range(iterations):
        for step in range(num_steps):
            obs[step], dones[step] = next_obs, next_done
            with torch.no_grad():
                policy = torch.distributions.Categorical(logits=actor(next_obs))
                actions[step] = policy.sample()
                logprobs[step] = policy.log_prob(actions[step])
                values[step] = critic(next_obs).flatten()
            next_obs, reward, terminated, truncated, infos = envs.step(actions[step].numpy())
            rewards[step] = torch.tensor(reward)
            if truncated.any():
                with torch.no_grad():
                    last = critic(torch.tensor(np.stack(infos["final_obs"])).float()).flatten()
                rewards[step] += gamma * last * torch.tensor(truncated & ~terminated)
            next_obs, next_done = torch.tensor(next_obs), torch.tensor(terminated | truncated).float()
            if "episode" in infos:
                returns += infos["episode"]["r"][infos["_episode"]].tolist()
        with torch.no_grad():
            advantages = torch.zeros_like(rewards)
            next_value, last_gae = critic(next_obs).flatten(), torch.zeros(num_envs)
            for t in reversed(range(num_steps)):
                going_on = 1.0 - (next_done if t == num_steps - 1 else dones[t + 1])
                delta = rewards[t] + gamma * next_value * going_on - values[t]
                advantages[t] = last_gae = delta + gamma * lam * going_on * last_gae
                next_value = values[t]
        flat = [x.flatten(0, 1) for x in (obs, actions, logprobs, advantages, advantages + values)]
        for _ in range(4):
            for batch in torch.randperm(num_steps * num_envs).chunk(4):
                b_obs, b_actions, b_logprobs, b_advantages, b_returns = (x[batch] for x in flat)
                policy = torch.distributions.Categorical(logits=actor(b_obs))
                ratio = (policy.log_prob(b_actions) - b_logprobs).exp()
                b_advantages = (b_advantages - b_advantages.mean()) / (b_advantages.std() + 1e-8)
                policy_loss = torch.max(-b_advantages * ratio, -b_advantages * ratio.clamp(0.8, 1.2)).mean()
                value_loss = 0.5 * ((critic(b_obs).flatten() - b_returns) ** 2).mean()
                loss = policy_loss + 0.5 * value_loss - 0.01 * policy.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(weights, 0.5)
                optimizer.step()
    return returns


def test_returns_improve() -> None:
    returns = train("operant/CartPole-v1")
    first, last = np.mean(returns[:100]), np.mean(returns[-100:])
    assert first < 40
    assert last > 4 * first
