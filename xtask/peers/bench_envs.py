"""Steps per CPU-second of one library's environments, with random actions made before the clock starts.

    python bench_envs.py LIBRARY TASK --envs 1,64,1024,8192 --seconds 0.5

One repeat: the caller interleaves libraries and keeps the best. Prints tab-separated lines:

    version  TEXT
    row      NUM_ENVS  STEPS_PER_CPU_S  STEPS_PER_S  CPU_US_PER_CALL
    fail     NUM_ENVS  REASON

A task that the library does not have gives no row.
"""

import argparse
import importlib.metadata
import time

import numpy as np

TASKS = {
    "CartPole": "CartPole-v1",
    "MountainCar": "MountainCar-v0",
    "Pendulum": "Pendulum-v1",
    "Acrobot": "Acrobot-v1",
}
WARM_UP_SECONDS = 0.1
SEED = 0


def action_batches(num_envs):
    """How many batches of actions are made beforehand and used in turn: as many as `operant bench env` uses."""
    return min(64, max(4, -(-(1 << 17) // num_envs)))


def random_batches(space, num_envs):
    space.seed(SEED)
    return [space.sample() for _ in range(action_batches(num_envs))]


def measure(call, seconds):
    """Calls per CPU-second and per second of `call(i)`."""
    calls, start = 0, time.perf_counter()
    while calls < 4 or time.perf_counter() - start < WARM_UP_SECONDS:
        call(calls)
        calls += 1
    # The clock is not read inside the timed loop, so that it does not show at one env.
    calls = max(3, int(calls * seconds / (time.perf_counter() - start)))
    cpu, wall = time.process_time(), time.perf_counter()
    for i in range(calls):
        call(i)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return calls / max(cpu, 1e-9), calls / wall


class Library:
    package = None

    def __init__(self, env_id):
        self.env_id = env_id

    def version(self):
        package, numpy = (importlib.metadata.version(name) for name in (self.package, "numpy"))
        return f"{self.package} {package} (NumPy {numpy})"

    def has_task(self):
        return True

    def bench(self, num_envs, seconds):
        """Steps per CPU-second, steps per second and CPU microseconds of one call."""
        raise NotImplementedError


class Gymnasium(Library):
    """Any library with Gymnasium's vector interface."""

    package = "gymnasium"

    def make(self, num_envs):
        raise NotImplementedError

    def bench(self, num_envs, seconds):
        env = self.make(num_envs)
        env.reset(seed=SEED)
        batches = random_batches(env.action_space, num_envs)
        per_cpu, per_wall = measure(lambda i: env.step(batches[i % len(batches)]), seconds)
        env.close()
        return per_cpu * num_envs, per_wall * num_envs, 1e6 / per_cpu


class Operant(Gymnasium):
    package = "operant"

    def make(self, num_envs):
        import operant

        return operant.make_vec(self.env_id, num_envs=num_envs, threads=1)


class GymnasiumVector(Gymnasium):
    def has_task(self):
        import gymnasium

        return gymnasium.spec(self.env_id).vector_entry_point is not None

    def make(self, num_envs):
        import gymnasium

        return gymnasium.make_vec(self.env_id, num_envs=num_envs, vectorization_mode="vector_entry_point")


class GymnasiumSync(Gymnasium):
    def make(self, num_envs):
        import gymnasium

        return gymnasium.make_vec(self.env_id, num_envs=num_envs, vectorization_mode="sync")


class EnvPool(Library):
    package = "envpool"

    def bench(self, num_envs, seconds):
        import envpool

        env = envpool.make(self.env_id, env_type="gymnasium", num_envs=num_envs, num_threads=1, seed=SEED)
        env.reset()
        # EnvPool's space is that of one env.
        rng, space = np.random.default_rng(SEED), env.action_space
        if hasattr(space, "n"):
            batches = [rng.integers(0, space.n, num_envs).astype(space.dtype) for _ in range(action_batches(num_envs))]
        else:
            shape = (num_envs, *space.shape)
            batches = [rng.uniform(space.low, space.high, shape).astype(space.dtype) for _ in range(action_batches(num_envs))]
        per_cpu, per_wall = measure(lambda i: env.step(batches[i % len(batches)]), seconds)
        return per_cpu * num_envs, per_wall * num_envs, 1e6 / per_cpu


class PufferLib(Library):
    """Its own C environment; of these tasks it has CartPole. Episodes end after 200 steps there, not 500."""

    def version(self):
        import pufferlib

        return f"pufferlib {pufferlib.__version__} (NumPy {np.__version__})"

    def has_task(self):
        return self.env_id == "CartPole-v1"

    def bench(self, num_envs, seconds):
        from pufferlib.ocean.cartpole.cartpole import Cartpole

        env = Cartpole(num_envs=num_envs)
        env.reset(seed=SEED)
        rng = np.random.default_rng(SEED)
        batches = [rng.integers(0, 2, num_envs).astype(env.actions.dtype) for _ in range(action_batches(num_envs))]
        per_cpu, per_wall = measure(lambda i: env.step(batches[i % len(batches)]), seconds)
        env.close()
        return per_cpu * num_envs, per_wall * num_envs, 1e6 / per_cpu


class Gymnax(Library):
    """Compiled: many steps in one `lax.scan`, as its users run it. A single call is a compiled `env.step`."""

    package = "gymnax"

    def version(self):
        return f"{super().version()[:-1]}, JAX {importlib.metadata.version('jax')})"

    def bench(self, num_envs, seconds):
        import gymnax
        import jax

        env, params = gymnax.make(self.env_id)
        space = env.action_space(params)
        key = jax.random.PRNGKey(SEED)
        _, state = jax.vmap(env.reset, (0, None))(jax.random.split(key, num_envs), params)
        scanned = max(16, min(2000, 200_000 // num_envs))
        keys = jax.random.split(key, scanned * num_envs).reshape(scanned, num_envs, -1)
        actions = jax.vmap(jax.vmap(space.sample))(keys)

        def step_all(carry, batch):
            key, state, total = carry
            key, now = jax.random.split(key)
            stepped = jax.vmap(env.step, (0, 0, 0, None))(jax.random.split(now, num_envs), state, batch, params)
            observations, state, rewards = stepped[:3]
            # The sum keeps the compiler from dropping observations and rewards.
            return (key, state, total + observations.sum() + rewards.sum()), None

        rollout = jax.jit(lambda carry: jax.lax.scan(step_all, carry, actions)[0])
        carry = (key, state, 0.0)

        def call(_):
            nonlocal carry
            carry = jax.block_until_ready(rollout(carry))

        call(0)
        per_cpu, per_wall = measure(call, seconds)
        steps = scanned * num_envs
        return per_cpu * steps, per_wall * steps, self.single_call(env, params, seconds) if num_envs == 1 else 0.0

    def single_call(self, env, params, seconds):
        import jax

        step = jax.jit(env.step)
        key = jax.random.PRNGKey(SEED)
        _, state = env.reset(key, params)
        action = env.action_space(params).sample(key)

        def call(_):
            nonlocal state
            state = jax.block_until_ready(step(key, state, action, params))[1]

        call(0)
        return 1e6 / measure(call, seconds)[0]


LIBRARIES = {
    "operant-py": Operant,
    "pufferlib": PufferLib,
    "gymnasium-vector": GymnasiumVector,
    "gymnasium-sync": GymnasiumSync,
    "envpool": EnvPool,
    "gymnax": Gymnax,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", choices=LIBRARIES)
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--envs", default="1,64,1024,8192")
    parser.add_argument("--seconds", type=float, default=0.5)
    args = parser.parse_args()
    library = LIBRARIES[args.library](TASKS[args.task])
    print("version", library.version(), sep="\t")
    if not library.has_task():
        return
    for num_envs in map(int, args.envs.split(",")):
        try:
            row = library.bench(num_envs, args.seconds)
        except Exception as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            print("fail", num_envs, reason, sep="\t", flush=True)
        else:
            print("row", num_envs, *row, sep="\t", flush=True)


if __name__ == "__main__":
    main()
