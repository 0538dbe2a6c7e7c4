"""Write golden transitions of Gymnasium's own classic-control envs as safetensors.

`one.*`: 1,000 independent steps, each from an injected float32 state (400 visited by a policy, the rest random
and at the edges of the state space). `traj.*` (CartPole and the mountain cars): 1,000 consecutive open-loop
steps, with a state injected only where `start` is 1. No row is a close call: a nudge of about 1e-6 to its state
leaves `terminated` alone and crosses no discontinuity (wall, angle wrap), so a float32 engine has to agree.
"""
import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium.envs.classic_control import acrobot, cartpole, continuous_mountain_car, mountain_car, pendulum

ROWS, VISITED, MIN_PER_BRANCH = 1000, 400, 5
RANDOM_EPISODE, RANDOM_STEPS = 2, 300  # the trajectory's stretch of random actions (mountain cars)
ACROBOT_TOP = np.array([np.pi, np.pi, 4 * np.pi, 9 * np.pi])
Array, Rng, Rows = np.ndarray, np.random.Generator, dict[str, np.ndarray]


@dataclass(frozen=True)
class Spec:
    """How to drive one environment and what its step must be seen to do."""
    env_id: str
    make: Callable[[], gymnasium.Env]
    columns: tuple[str, ...]
    start: Callable[[Rng], Array | list[float]]  # an episode's first state
    policy: Callable[[Rng, Array], float]  # an action for a state
    sample: Callable[[Rng, int], tuple[Array | list[float], float]]  # the i-th random state and action
    branches: Callable[[Rows], dict[str, Array]]  # mask of the rows that take each branch
    jump: float  # a nudge that moves next_state by more than this crossed a discontinuity
    limit: int  # time limit in steps
    action_dtype: str = "int32"
    state_dtype: str = "float64"  # what Gymnasium keeps between steps
    traj: bool = False


def cartpole_sample(r: Rng, i: int) -> tuple[Array, float]:
    s, side = r.uniform([-2.4, -3, -0.2, -3.5], [2.4, 3, 0.2, 3.5]), 1 - 2 * (i % 2)
    if i % 10 < 4:  # about to leave on one side, by the cart or by the pole
        k = 0 if i % 10 < 2 else 2
        s[k], s[k + 1] = side * (2.4, 0, 0.209)[k] * r.uniform(0.97, 1), side * r.uniform(1, 3)
    return s, r.integers(2)


def cartpole_branches(d: Rows) -> dict[str, Array]:
    x, th, lim = d["next_state"][:, 0], d["next_state"][:, 2], 12 * 2 * np.pi / 360
    return {"push_left": d["action"] == 0, "push_right": d["action"] == 1, "x_low": x < -2.4, "x_high": x > 2.4,
            "theta_low": th < -lim, "theta_high": th > lim, "alive": d["terminated"] == 0}


def car_state(r: Rng, i: int) -> list[float]:
    """A random mountain-car state, cycling through the wall, both speed limits and the goal."""
    p, v = r.uniform(-1.2, 0.6), r.uniform(-0.07, 0.07)
    edges = [(-1.2, -abs(v)), (-1.2 + 0.05 * r.random(), -abs(v)), (r.uniform(0.4, 0.6), v), (0.6, abs(v)),
             (r.uniform(-1.0, 0.3), 0.07), (r.uniform(-1.0, 0.3), -0.07)]
    return list(edges[i % 12]) if i % 12 < len(edges) else [p, v]


def car_branches(goal: float, d: Rows) -> dict[str, Array]:
    (p, v), a, t = d["next_state"].T, d["action"], d["terminated"] == 1
    top, wall, right = (np.isclose(c, lim, rtol=1e-7, atol=0) for c, lim in ((abs(v), 0.07), (p, -1.2), (p, 0.6)))
    acts = ({f"action_{k}": a == k for k in range(3)} if a.ndim == 1 else
            {"action_low": a[:, 0] < -1, "action_high": a[:, 0] > 1, "action_inside": abs(a[:, 0]) < 1})
    return acts | {"speed_high": top & (v > 0), "speed_low": top & (v < 0), "wall_stop": wall & (v == 0),
                   "right_edge": right, "goal": t, "past_goal_backwards": ~t & (p >= goal) & (v < 0),
                   "plain": ~(t | top | wall | right)}


def pendulum_policy(r: Rng, s: Array) -> float:
    """Pumps energy below, then a PD rule near the top; noise leaves some actions out of range."""
    th = (s[0] + np.pi) % (2 * np.pi) - np.pi
    pump = 1.9 * np.sign((15 - s[1] ** 2 / 2 - 15 * np.cos(th)) * s[1] + 1e-9)
    return (-10 * th - 3 * s[1] if abs(th) < 0.3 else pump) + r.normal(0, 0.2)


def pendulum_branches(d: Rows) -> dict[str, Array]:
    th, u, v = d["state"][:, 0], d["action"][:, 0], d["next_state"][:, 1]
    return {"torque_low": u < -2, "torque_high": u > 2, "torque_inside": abs(u) < 2, "speed_low": v == -8,
            "speed_high": v == 8, "speed_inside": abs(v) < 8, "theta_below": th < -np.pi, "theta_above": th > np.pi,
            "theta_inside": abs(th) < np.pi}


def acrobot_branches(d: Rows) -> dict[str, Array]:
    env, top = acrobot.AcrobotEnv(), ACROBOT_TOP
    raw = np.array([acrobot.rk4(env._dsdt, np.append(s, a - 1.0), [0, env.dt])
                    for s, a in zip(d["state"].astype(np.float64), d["action"], strict=True)])  # before wrap and bound
    out = {"unwrapped": (abs(raw) < top).all(1), "goal": d["terminated"] == 1, "below": d["terminated"] == 0}
    out |= {f"action_{k}": d["action"] == k for k in range(3)}
    for k, n in enumerate(("wrap_theta1", "wrap_theta2", "bound_theta1_dot", "bound_theta2_dot")):
        out |= {f"{n}_low": raw[:, k] < -top[k], f"{n}_high": raw[:, k] > top[k]}
    return out


CAR = {"columns": ("position", "velocity"), "start": lambda r: [r.uniform(-0.6, -0.4), 0.0], "jump": 1e-5, "traj": True}
SPECS: dict[str, Spec] = {
    "cartpole": Spec(
        "CartPole-v1", cartpole.CartPoleEnv, ("x", "x_dot", "theta", "theta_dot"), lambda r: r.uniform(-0.05, 0.05, 4),
        lambda r, s: 0.1 * s[0] + 0.3 * s[1] + 3 * s[2] + s[3] > 0 if r.random() < 0.9 else r.integers(2),
        cartpole_sample, cartpole_branches, jump=1e-3, limit=500, traj=True),
    "mountaincar": Spec(
        "MountainCar-v0", mountain_car.MountainCarEnv, policy=lambda r, s: 2 if s[1] >= 0 else 0,
        sample=lambda r, i: (car_state(r, i), r.integers(3)), branches=partial(car_branches, 0.5), limit=200, **CAR),
    "mountaincar_continuous": Spec(
        "MountainCarContinuous-v0", continuous_mountain_car.Continuous_MountainCarEnv,
        policy=lambda r, s: r.uniform(0.5, 1.1) * (1 if s[1] >= 0 else -1),
        sample=lambda r, i: (car_state(r, i), r.uniform(-2, 2) if i % 5 == 0 else r.uniform(-1, 1)),
        branches=partial(car_branches, 0.45), limit=999, action_dtype="float32", state_dtype="float32", **CAR),
    "pendulum": Spec(
        "Pendulum-v1", pendulum.PendulumEnv, ("theta", "theta_dot"), lambda r: r.uniform([-np.pi, -1], [np.pi, 1]),
        pendulum_policy,
        lambda r, i: ([r.uniform(-1, 1) * (80 if i % 3 else np.pi), (8, -8, r.uniform(-8, 8))[min(i % 8, 2)]],
                      r.uniform(-2, 2) if i % 5 else r.uniform(-3, 3)),
        pendulum_branches, jump=1e-2, limit=200, action_dtype="float32"),
    "acrobot": Spec(
        "Acrobot-v1", acrobot.AcrobotEnv, ("theta1", "theta2", "theta1_dot", "theta2_dot"),
        lambda r: r.uniform(-0.1, 0.1, 4), lambda r, s: 2 if s[3] >= 0 else 0,
        lambda r, i: (r.uniform(-1, 1, 4) * ACROBOT_TOP * ((1, 1, 0.3, 0.15) if i % 4 else 1), r.integers(3)),
        acrobot_branches, jump=1e-1, limit=500)}


def step(spec: Spec, env: gymnasium.Env, state: Array, a: float | Array, check: bool = True) -> Rows:
    """One Gymnasium step from `state`, checked to take the same branches from about 1e-6 away in each column."""
    action = np.array(a, np.int32) if spec.action_dtype == "int32" else np.array(a, np.float32).reshape(1)
    env.state, env.steps_beyond_terminated = np.array(state, dtype=spec.state_dtype), None  # a live episode
    obs, reward, terminated, _, _ = env.step(int(action) if spec.action_dtype == "int32" else action)
    row = {"action": action, "next_state": np.array(env.state, np.float64), "obs": np.array(obs, np.float32),
           "reward": np.float64(reward), "terminated": np.uint8(terminated)}
    for nudge in np.vstack([np.eye(len(state)), -np.eye(len(state))]) * 1e-6 if check else ():
        near = step(spec, env, state + nudge * (1 + abs(state)), a, check=False)
        assert abs(near["next_state"] - row["next_state"]).max() < spec.jump, (spec.env_id, state, a)
        assert near["terminated"] == terminated, (spec.env_id, state, a)
    return row


def trajectory(spec: Spec, rng: Rng, random_episode: int | None) -> Rows:
    """Consecutive steps, a fresh start after each termination or time limit; None: all actions at random."""
    env, rows, state, t, episode = spec.make(), [], None, 0, -1
    for _ in range(ROWS):
        fresh = state is None
        if fresh:
            state, t, episode = np.array(spec.start(rng), np.float32), 0, episode + 1
        if random_episode is None or (episode == random_episode and t < RANDOM_STEPS):
            a = rng.uniform(-1, 1) if spec.action_dtype == "float32" else rng.integers(env.action_space.n)
        else:
            a = spec.policy(rng, state)
        row, t = step(spec, env, state.astype(np.float64), a), t + 1
        rows.append(row | {"start": np.uint8(fresh), "state": np.where(fresh, state, 0).astype(np.float32)})
        state = None if row["terminated"] or t >= spec.limit else row["next_state"]
    return {k: np.stack([row[k] for row in rows]) for k in rows[0]}


def one_step(spec: Spec, rng: Rng) -> Rows:
    """Independent steps, from states that the policy visits and from random ones."""
    run, env, rows = trajectory(spec, rng, -1), spec.make(), []
    before = np.where(run["start"][:, None], run["state"], np.roll(run["next_state"], 1, axis=0))
    cases = [(before[k], run["action"][k]) for k in np.sort(rng.permutation(ROWS)[:VISITED])]
    cases += [spec.sample(rng, i) for i in range(ROWS - VISITED)]
    for state, a in ((np.array(s, np.float32), a) for s, a in cases):
        rows.append({"state": state} | step(spec, env, state.astype(np.float64), a))
    return {k: np.stack([row[k] for row in rows]) for k in rows[0]}


def write(path: Path, tensors: Rows, metadata: dict[str, str]) -> None:
    """The safetensors format by hand: the library does not promise a metadata order."""
    header, body = {"__metadata__": metadata}, b""
    for name, a in sorted(tensors.items(), key=lambda kv: (-kv[1].dtype.itemsize, kv[0])):  # keeps each one aligned
        kind, span = f"{a.dtype.kind.upper()}{8 * a.dtype.itemsize}", [len(body), len(body) + a.nbytes]  # such as F32
        header[name] = {"dtype": kind, "shape": list(a.shape), "data_offsets": span}
        body += a.tobytes()
    text = json.dumps(header, separators=(",", ":")).encode()
    text = text.ljust(-(-len(text) // 8) * 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    (out := parser.parse_args().out).mkdir(parents=True, exist_ok=True)
    for seed, (name, spec) in enumerate(SPECS.items()):
        one = one_step(spec, np.random.default_rng(seed))
        tensors = {f"one.{k}": x for k, x in one.items()}
        counts = {k: int(np.sum(m)) for k, m in spec.branches(one).items()}
        if spec.traj:
            traj = trajectory(spec, np.random.default_rng(100 + seed), None if name == "cartpole" else RANDOM_EPISODE)
            tensors |= {f"traj.{k}": x for k, x in traj.items()}
            counts |= {"traj_starts": int(traj["start"].sum()), "traj_terminated": int(traj["terminated"].sum())}
        assert min(counts.values()) >= MIN_PER_BRANCH, (name, counts)
        path = out / f"{name}.safetensors"
        about = {"env_id": spec.env_id, "gymnasium": gymnasium.__version__, "state_columns": ",".join(spec.columns)}
        write(path, tensors, about)
        print(f"{path} {path.stat().st_size} bytes; {one['terminated'].sum()} terminated, {counts}")


if __name__ == "__main__":
    main()
