"""Imports what the wheel brings and steps an env: run where nothing else is installed."""

import gymnasium
import operant

env = operant.make_vec("CartPole-v1", num_envs=4)
assert isinstance(env, gymnasium.vector.VectorEnv), type(env)
observations, _ = env.reset(seed=0)
assert observations.shape == (4, 4), observations.shape
observations, rewards, terminated, truncated, _ = env.step(env.action_space.sample())
assert rewards.shape == terminated.shape == truncated.shape == (4,), rewards.shape
env.close()
print(f"operant {operant.__version__} with Gymnasium {gymnasium.__version__}: ok")
