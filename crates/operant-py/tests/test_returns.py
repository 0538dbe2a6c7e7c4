"""Advantages of rollouts that Python made, against their definition."""

import numpy as np
import pytest

import operant


def rollout(steps, *envs, seed=0):
    rng = np.random.default_rng(seed)
    shape = (steps, *envs)
    values = rng.normal(size=(steps + 1, *envs))
    terminated, truncated = rng.random(shape) < 0.15, rng.random(shape) < 0.15
    # What was not truncated must not be read.
    final = np.where(truncated, rng.normal(size=shape), np.nan)
    return rng.normal(size=shape), values, terminated, truncated, final


def by_definition(rewards, values, terminated, truncated, final, gamma, gae_lambda):
    """The sum of later errors, weighted, up to the end of the episode, for every step by itself."""
    advantages = np.zeros(rewards.shape)
    for place in np.ndindex(rewards.shape):
        t, env = place[0], place[1:]
        for k in range(t, len(rewards)):
            at = (k, *env)
            after = 0.0 if terminated[at] else final[at] if truncated[at] else values[(k + 1, *env)]
            error = rewards[at] + gamma * after - values[at]
            advantages[place] += (gamma * gae_lambda) ** (k - t) * error
            if terminated[at] or truncated[at]:
                break
    return advantages


@pytest.mark.parametrize("shape", [(20,), (17, 5), (6, 2, 3)])
@pytest.mark.parametrize(("gamma", "gae_lambda"), [(0.99, 0.95), (1.0, 1.0), (0.5, 0.0)])
def test_advantages_are_those_of_the_definition(shape, gamma, gae_lambda):
    given = rollout(*shape)
    advantages, returns = operant.gae(*given, gamma=gamma, gae_lambda=gae_lambda)
    assert advantages.shape == returns.shape == shape and advantages.dtype == np.float32
    np.testing.assert_allclose(advantages, by_definition(*given, gamma, gae_lambda), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(returns, advantages + given[1][:-1], rtol=1e-5, atol=1e-5)


def test_truncated_episodes_go_on_to_their_own_last_value():
    # Reward 1 for ever is worth 2; the next episode's value is another.
    rewards, values = [1.0, 1.0], [2.0, 2.0, -100.0]
    advantages, _ = operant.gae(rewards, values, [0, 0], [0, 1], [0.0, 2.0], gamma=0.5)
    assert advantages.tolist() == [0.0, 0.0]
    with pytest.raises(ValueError, match="no final_values"):
        operant.gae(rewards, values, [0, 0], [0, 1])
    # Both ends at once: it terminated.
    advantages, _ = operant.gae(rewards, values, [0, 1], [0, 1], gamma=0.5)
    assert advantages[1] == -1.0


def test_values_of_a_model_learn_nothing_from_what_they_foresee():
    envs = operant.make_vec("cartpole", num_envs=4, seed=0)
    obs, _ = envs.reset()
    values, rewards, terminated, truncated = [obs[:, 0].copy()], [], [], []
    for _ in range(30):
        obs, reward, ended, cut, _ = envs.step(envs.action_space.sample())
        values.append(obs[:, 0].copy())
        for column, of in ((rewards, reward), (terminated, ended), (truncated, cut)):
            column.append(of.copy())
    advantages, returns = operant.gae(rewards, values, terminated, truncated)
    assert advantages.shape == (30, 4) and np.isfinite(returns).all()


def test_mistakes_are_named():
    rewards, values, terminated, truncated, final = rollout(4, 2)
    with pytest.raises(ValueError, match=r"values of shape \(4, 2\): wanted \(5, 2\), a row more than rewards"):
        operant.gae(rewards, values[:-1], terminated)
    with pytest.raises(ValueError, match=r"truncated of shape \(3, 2\): wanted \(4, 2\)"):
        operant.gae(rewards, values, terminated, truncated[:3], final)
    with pytest.raises(ValueError, match=r"rewards: nan at \[1, 0\]; wanted finite numbers"):
        operant.gae(np.where(np.arange(8).reshape(4, 2) == 2, np.nan, rewards), values, terminated)
    with pytest.raises(ValueError, match="final_values of truncated steps: nan"):
        operant.gae(rewards, values, terminated, np.ones((4, 2), bool), np.full((4, 2), np.nan))
    with pytest.raises(ValueError, match="terminated: wanted True and False"):
        operant.gae(rewards, values, rewards)
    with pytest.raises(ValueError, match=r"gamma = 1.5: wanted 0 to 1"):
        operant.gae(rewards, values, terminated, gamma=1.5)
    with pytest.raises(ValueError, match="at least one step"):
        operant.gae([], [1.0], [])
