"""LunarLander-v3 until it is solved: operant.PPO on Gymnasium's envs beside Stable-Baselines3's PPO.

Prints wall and CPU seconds until the mean return over the last 100 episodes of training is 200 or more. Both step 16 envs
of the same package one after another on one thread, each run in a process of its own, the libraries in turn, so that what
else the machine does falls on both. Seconds count from before the envs are made, imports left out.

    python xtask/peers/lunar_lander.py --seeds 1 2 3
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from typing import Any

ENV, NUM_ENVS, SOLVED, EPISODES = "LunarLander-v3", 16, 200.0, 100
OPERANT_STEPS, SB3_STEPS = 600_000, 1_000_000
"""Env steps after which a run counts as failed; ours also lowers the learning rate over them."""

OPERANT: dict[str, Any] = {
    "num_steps": 256,
    "minibatch_size": 256,
    "update_epochs": 6,
    "learning_rate": 1e-3,
    "anneal_lr": True,
    "gamma": 0.999,
    "gae_lambda": 0.98,
    "ent_coef": 0.01,
    "normalize_obs": True,
    "normalize_reward": True,
}
"""The settings that README.md shows."""

SB3: dict[str, Any] = {
    "n_steps": 1024,
    "batch_size": 64,
    "gae_lambda": 0.98,
    "gamma": 0.999,
    "n_epochs": 4,
    "ent_coef": 0.01,
}
"""Those of rl-baselines3-zoo (hyperparams/ppo.yml), which also has 16 envs."""


def ours(seed: int) -> tuple[int, float, float, float]:
    import gymnasium
    import operant

    start = time.perf_counter(), time.process_time()
    envs = gymnasium.make_vec(ENV, num_envs=NUM_ENVS, vectorization_mode="sync")
    model = operant.PPO(envs, seed=seed, threads=1, **OPERANT)

    def go_on(_: Any, metrics: dict[str, float]) -> bool:
        return not (metrics["episodes"] >= EPISODES and metrics["return"] >= SOLVED)

    model.learn(OPERANT_STEPS, callback=go_on)
    passed = time.perf_counter() - start[0], time.process_time() - start[1]
    return model.num_timesteps, model.metrics["return"], *passed


def theirs(seed: int) -> tuple[int, float, float, float]:
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env

    torch.set_num_threads(1)
    start = time.perf_counter(), time.process_time()

    class UntilSolved(BaseCallback):
        def _on_step(self) -> bool:
            episodes = self.model.ep_info_buffer
            mean = statistics.fmean(episode["r"] for episode in episodes) if episodes else -float("inf")
            return not (len(episodes) >= EPISODES and mean >= SOLVED)

    model = PPO("MlpPolicy", make_vec_env(ENV, n_envs=NUM_ENVS, seed=seed), seed=seed, device="cpu", **SB3)
    model.learn(SB3_STEPS, callback=UntilSolved())
    passed = time.perf_counter() - start[0], time.process_time() - start[1]
    mean = statistics.fmean(episode["r"] for episode in model.ep_info_buffer)
    return model.num_timesteps, mean, *passed


LIBRARIES = {"operant": ours, "stable-baselines3": theirs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--libraries", nargs="+", choices=LIBRARIES, default=list(LIBRARIES))
    parser.add_argument("--one", nargs=2, metavar=("LIBRARY", "SEED"), help="one run, in this process")
    options = parser.parse_args()
    if options.one:
        library, seed = options.one[0], int(options.one[1])
        steps, mean, wall, cpu = LIBRARIES[library](seed)
        found = {"library": library, "seed": seed, "steps": steps, "mean_return": round(mean, 1)}
        print(json.dumps(found | {"solved": mean >= SOLVED, "wall_s": round(wall, 1), "cpu_s": round(cpu, 1)}))
        return
    runs = []
    for seed in options.seeds:
        for library in options.libraries:
            words = [sys.executable, __file__, "--one", library, str(seed)]
            line = subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()[-1]
            print(line, flush=True)
            runs.append(json.loads(line))
    for library in options.libraries:
        of = [run for run in runs if run["library"] == library]
        solved = [run for run in of if run["solved"]]
        text = f"{library}: solved {len(solved)} of {len(of)}"
        if solved:
            medians = {key: statistics.median(run[key] for run in solved) for key in ("steps", "wall_s", "cpu_s")}
            text += ", median " + ", ".join(f"{key} {value:,}" for key, value in medians.items())
        print(text)


if __name__ == "__main__":
    main()
