"""Env steps per CPU-second of a library's PPO on CartPole, whole iterations on one thread.

    python bench_ppo.py jax|torch|pufferlib RECIPE --seconds 5

One repeat: the caller interleaves libraries and keeps the best. Compiling and a first iteration come before the clock
starts. The recipes are those of `operant bench ppo`. Prints tab-separated lines:

    version  TEXT
    row      STEPS_PER_CPU_S  STEPS_PER_S  WAY
    fail     REASON
"""

import argparse
import dataclasses
import importlib.metadata
import time

GAMMA, LAMBDA, CLIP = 0.99, 0.95, 0.2
VALUE_WEIGHT, ENTROPY_WEIGHT, MAX_NORM = 0.5, 0.01, 0.5
SEED = 0


@dataclasses.dataclass
class Recipe:
    envs: int
    steps: int
    epochs: int
    minibatches: int
    hidden: tuple
    activation: str
    optimizer: str
    learning_rate: float


RECIPES = {
    "purejaxrl": Recipe(1024, 32, 4, 4, (64, 64), "tanh", "adam", 2.5e-4),
    "puffer": Recipe(4096, 64, 1, 4, (32,), "relu", "muon", 1.5e-2),
}


def versions(*packages):
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)


def measure(iterate, steps, seconds):
    """Steps per CPU-second and per second of calls that take `steps` each."""
    iterate()
    calls, cpu, wall = 0, time.process_time(), time.perf_counter()
    while calls < 2 or time.perf_counter() - wall < seconds:
        iterate()
        calls += 1
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return calls * steps / max(cpu, 1e-9), calls * steps / wall


def jax_ppo(recipe, seconds):
    """As PureJaxRL does it: envs of gymnax, and the whole iteration in one jit."""
    import gymnax
    import jax
    import jax.numpy as jnp
    import optax

    env, params = gymnax.make("CartPole-v1")
    n, steps, batch = recipe.envs, recipe.steps, recipe.envs * recipe.steps
    act = {"tanh": jnp.tanh, "relu": jax.nn.relu}[recipe.activation]

    def layers(key, out, gain):
        sizes = (4, *recipe.hidden, out)
        gains = [2**0.5] * len(recipe.hidden) + [gain]
        keys = jax.random.split(key, len(gains))
        make = lambda k, a, b, g: (jax.nn.initializers.orthogonal(g)(k, (a, b)), jnp.zeros(b))
        return [make(*args) for args in zip(keys, sizes, sizes[1:], gains)]

    def net(layers, x):
        for weight, bias in layers[:-1]:
            x = act(x @ weight + bias)
        weight, bias = layers[-1]
        return x @ weight + bias

    if recipe.optimizer == "muon":
        rule = optax.contrib.muon(recipe.learning_rate)
    else:
        rule = optax.adam(recipe.learning_rate, eps=1e-5)
    optimizer = optax.chain(optax.clip_by_global_norm(MAX_NORM), rule)

    def log_prob_of(log_probs, actions):
        return jnp.take_along_axis(log_probs, actions[:, None], 1)[:, 0]

    def play(carry, _):
        weights, state, obs, key = carry
        key, draw, step = jax.random.split(key, 3)
        log_probs = jax.nn.log_softmax(net(weights["actor"], obs))
        value = net(weights["critic"], obs)[:, 0]
        action = (jax.random.uniform(draw, (n,)) > jnp.exp(log_probs[:, 0])).astype(jnp.int32)
        stepped = jax.vmap(env.step, (0, 0, 0, None))(jax.random.split(step, n), state, action, params)
        # gymnax 1 tells terminated and truncated apart.
        new_obs, state, reward, *flags = stepped[:-1]
        done = sum(flag.astype(jnp.float32) for flag in flags)
        seen = (obs, action, log_prob_of(log_probs, action), value, reward, done)
        return (weights, state, new_obs, key), seen

    def advantage(carry, seen):
        later, next_value = carry
        value, reward, done = seen
        delta = reward + GAMMA * next_value * (1 - done) - value
        later = delta + GAMMA * LAMBDA * (1 - done) * later
        return (later, value), later

    def loss(weights, obs, action, old_log_prob, advantages, returns):
        log_probs = jax.nn.log_softmax(net(weights["actor"], obs))
        ratio = jnp.exp(log_prob_of(log_probs, action) - old_log_prob)
        normal = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        policy = jnp.maximum(-normal * ratio, -normal * jnp.clip(ratio, 1 - CLIP, 1 + CLIP)).mean()
        value = 0.5 * ((net(weights["critic"], obs)[:, 0] - returns) ** 2).mean()
        entropy = -(jnp.exp(log_probs) * log_probs).sum(-1).mean()
        return policy + VALUE_WEIGHT * value - ENTROPY_WEIGHT * entropy

    def minibatch(carry, data):
        weights, memory = carry
        updates, memory = optimizer.update(jax.grad(loss)(weights, *data), memory, weights)
        return (optax.apply_updates(weights, updates), memory), None

    def iterate(carry):
        weights, memory, state, obs, key = carry
        (_, state, obs, key), seen = jax.lax.scan(play, (weights, state, obs, key), None, steps)
        observations, actions, log_probs, values, rewards, dones = seen
        last = net(weights["critic"], obs)[:, 0]
        _, advantages = jax.lax.scan(advantage, (jnp.zeros(n), last), (values, rewards, dones), reverse=True)
        flat = lambda x: x.reshape(batch, *x.shape[2:])
        data = tuple(map(flat, (observations, actions, log_probs, advantages, advantages + values)))

        def epoch(carry, _):
            weights, memory, key = carry
            key, draw = jax.random.split(key)
            order = jax.random.permutation(draw, batch)
            cut = lambda x: x[order].reshape(recipe.minibatches, -1, *x.shape[1:])
            (weights, memory), _ = jax.lax.scan(minibatch, (weights, memory), tuple(map(cut, data)))
            return (weights, memory, key), None

        (weights, memory, key), _ = jax.lax.scan(epoch, (weights, memory, key), None, recipe.epochs)
        return weights, memory, state, obs, key

    actor, critic, reset, key = jax.random.split(jax.random.PRNGKey(SEED), 4)
    weights = {"actor": layers(actor, 2, 0.01), "critic": layers(critic, 1, 1.0)}
    obs, state = jax.vmap(env.reset, (0, None))(jax.random.split(reset, n), params)
    carry = (weights, optimizer.init(weights), state, obs, key)
    compiled = jax.jit(iterate).lower(carry).compile()

    def call():
        nonlocal carry
        carry = jax.block_until_ready(compiled(carry))

    return *measure(call, batch, seconds), "one jit, gymnax"


def torch_ppo(recipe, seconds):
    """As CleanRL does it, on the fastest CartPole that Gymnasium has: its NumPy vector env."""
    import gymnasium
    import numpy as np
    import torch
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    n, steps, batch = recipe.envs, recipe.steps, recipe.envs * recipe.steps
    env = gymnasium.make_vec("CartPole-v1", num_envs=n, vectorization_mode="vector_entry_point")
    act = {"tanh": nn.Tanh, "relu": nn.ReLU}[recipe.activation]

    def layer(inputs, outputs, gain):
        made = nn.Linear(inputs, outputs)
        nn.init.orthogonal_(made.weight, gain)
        nn.init.zeros_(made.bias)
        return made

    def net(out, gain):
        sizes = (4, *recipe.hidden)
        hidden = [part for pair in zip(sizes, sizes[1:]) for part in (layer(*pair, 2**0.5), act())]
        return nn.Sequential(*hidden, layer(sizes[-1], out, gain))

    actor, critic = net(2, 0.01), net(1, 1.0)
    parameters = [*actor.parameters(), *critic.parameters()]
    if recipe.optimizer == "muon":
        matrices = [p for p in parameters if p.dim() == 2]
        vectors = [p for p in parameters if p.dim() != 2]
        optimizers = [torch.optim.Muon(matrices, lr=recipe.learning_rate)]
        optimizers += [torch.optim.Adam(vectors, lr=recipe.learning_rate, fused=True)]
    else:
        optimizers = [torch.optim.Adam(parameters, lr=recipe.learning_rate, eps=1e-5, fused=True)]
    observations = torch.zeros(steps, n, 4)
    actions = torch.zeros(steps, n, dtype=torch.long)
    log_probs, rewards, dones, values, advantages = (torch.zeros(steps, n) for _ in range(5))
    obs = torch.as_tensor(env.reset(seed=SEED)[0], dtype=torch.float32)
    done = torch.zeros(n)

    @torch.no_grad()
    def collect():
        nonlocal obs, done
        for t in range(steps):
            observations[t], dones[t] = obs, done
            log_prob = torch.log_softmax(actor(obs), -1)
            action = (torch.rand(n, 1) > log_prob[:, :1].exp()).long()
            actions[t], log_probs[t] = action[:, 0], log_prob.gather(1, action)[:, 0]
            values[t] = critic(obs)[:, 0]
            new_obs, reward, terminated, truncated, _ = env.step(action[:, 0].numpy())
            rewards[t] = torch.as_tensor(reward, dtype=torch.float32)
            obs = torch.as_tensor(new_obs, dtype=torch.float32)
            done = torch.as_tensor(np.logical_or(terminated, truncated), dtype=torch.float32)
        next_value, alive, later = critic(obs)[:, 0], 1 - done, torch.zeros(n)
        for t in reversed(range(steps)):
            delta = rewards[t] + GAMMA * next_value * alive - values[t]
            later = delta + GAMMA * LAMBDA * alive * later
            advantages[t], next_value, alive = later, values[t], 1 - dones[t]

    def learn():
        flat = [x.reshape(batch, *x.shape[2:]) for x in (observations, actions, log_probs, advantages, advantages + values)]
        for _ in range(recipe.epochs):
            for rows in torch.randperm(batch).chunk(recipe.minibatches):
                obs, action, old_log_prob, advantage, returns = (x[rows] for x in flat)
                log_prob = torch.log_softmax(actor(obs), -1)
                ratio = (log_prob.gather(1, action[:, None])[:, 0] - old_log_prob).exp()
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                policy = torch.max(-advantage * ratio, -advantage * ratio.clamp(1 - CLIP, 1 + CLIP)).mean()
                value = 0.5 * ((critic(obs)[:, 0] - returns) ** 2).mean()
                entropy = -(log_prob.exp() * log_prob).sum(-1).mean()
                loss = policy + VALUE_WEIGHT * value - ENTROPY_WEIGHT * entropy
                for optimizer in optimizers:
                    optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(parameters, MAX_NORM)
                for optimizer in optimizers:
                    optimizer.step()

    def iterate():
        collect()
        learn()

    return *measure(iterate, batch, seconds), "eager, fused Adam, Gymnasium's NumPy envs"


def pufferlib_ppo(recipe, seconds):
    """Its own trainer, env (whose episodes end after 200 steps) and policy: one hidden layer that actor and critic share."""
    import configparser
    import pathlib
    import sys
    import types

    import torch

    if recipe is not RECIPES["puffer"]:
        return None
    # Sweeps of settings want Pyro; training does not.
    sys.modules["pufferlib.sweep"] = types.ModuleType("pufferlib.sweep")
    import pufferlib
    import pufferlib.models
    import pufferlib.pufferl
    import pufferlib.vector
    from pufferlib.ocean.cartpole.cartpole import Cartpole

    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    pufferlib.pufferl.PuffeRL.print_dashboard = lambda *_, **__: None
    defaults = configparser.ConfigParser()
    defaults.read(pathlib.Path(pufferlib.__file__).parent / "config/default.ini")
    config = {key: pufferlib.pufferl.ast.literal_eval(text) if text[0] in "0123456789TF" else text
              for key, text in defaults["train"].items()}
    size = recipe.envs * recipe.steps // recipe.minibatches
    config |= {"device": "cpu", "env": "cartpole", "use_rnn": False, "bptt_horizon": recipe.steps, "minibatch_size": size,
               "max_minibatch_size": size, "total_timesteps": 10**9, "checkpoint_interval": 10**9}
    envs = pufferlib.vector.make(Cartpole, env_kwargs={"num_envs": recipe.envs}, backend=pufferlib.vector.Serial)
    policy = pufferlib.models.Default(envs, hidden_size=recipe.hidden[0])
    trainer = pufferlib.pufferl.PuffeRL(config, envs, policy)

    def iterate():
        trainer.evaluate()
        trainer.train()

    try:
        speeds = measure(iterate, recipe.envs * recipe.steps, seconds)
    finally:
        # A thread that watches the machine, for which the process would wait.
        trainer.utilization.stop()
    return *speeds, "its own trainer and C env"


def pufferlib_version():
    import pufferlib

    return f"pufferlib {pufferlib.__version__} (torch {importlib.metadata.version('torch')})"


LIBRARIES = {
    "jax": (jax_ppo, lambda: versions("jax", "gymnax", "optax")),
    "torch": (torch_ppo, lambda: versions("torch", "gymnasium")),
    "pufferlib": (pufferlib_ppo, pufferlib_version),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", choices=LIBRARIES)
    parser.add_argument("recipe", choices=RECIPES)
    parser.add_argument("--seconds", type=float, default=5.0)
    args = parser.parse_args()
    bench, version = LIBRARIES[args.library]
    print("version", version(), sep="\t")
    try:
        row = bench(RECIPES[args.recipe], args.seconds)
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        print("fail", reason, sep="\t", flush=True)
    else:
        if row is not None:
            print("row", *row, sep="\t", flush=True)


if __name__ == "__main__":
    main()
