"""Several Python threads, and children of the process."""

from __future__ import annotations

import os
import sys
import threading
import time

import numpy as np
import operant
import pytest


def test_two_threads_never_step_at_once() -> None:
    num_envs = 65536
    env = operant.make_vec("Acrobot-v1", num_envs, seed=0, threads=1)
    env.reset()
    actions = np.zeros(num_envs, dtype=np.int64)
    done, refused, others = [0, 0], [0, 0], []
    stop = time.monotonic() + 20

    def work(me: int) -> None:
        while done[me] < 30 or (not sum(refused) and time.monotonic() < stop):
            try:
                env.step(actions)
                done[me] += 1
            except RuntimeError as error:
                refused[me] += 1
                others.append(str(error))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(others) == {"Acrobot-v1 is being stepped by another thread"}
    alone = operant.make_vec("Acrobot-v1", num_envs, seed=0, threads=1)
    alone.reset()
    for _ in range(sum(done)):
        alone.step(actions)
    assert env.save() == alone.save()


def test_a_long_step_lets_other_threads_run() -> None:
    num_envs = 1 << 20
    env = operant.make_vec("Acrobot-v1", num_envs, seed=0, threads=1)
    env.reset()
    actions = np.zeros(num_envs, dtype=np.int64)
    ticks = 0
    running = True

    def count() -> None:
        nonlocal ticks
        while running:
            ticks += 1
            time.sleep(0.0005)

    thread = threading.Thread(target=count)
    # With this interval the interpreter changes threads only where a call releases it.
    interval = sys.getswitchinterval()
    sys.setswitchinterval(10)
    try:
        thread.start()
        before = ticks
        for _ in range(5):
            env.step(actions)
        during = ticks - before
    finally:
        running = False
        sys.setswitchinterval(interval)
        thread.join()
    assert during > 5


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_can_step_and_drop_the_env() -> None:
    env = operant.make_vec("Acrobot-v1", 8192, seed=0, threads=2)
    env.reset()
    actions = np.zeros(8192, dtype=np.int64)
    for _ in range(20):
        env.step(actions)
    expected = env.save()
    child = os.fork()
    if child == 0:
        try:
            same = env.save() == expected
            env.step(actions)
            env.close()
            del env
            os._exit(0 if same else 1)
        finally:
            os._exit(2)
    deadline = time.monotonic() + 20
    while (status := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
        time.sleep(0.01)
    if status == (0, 0):
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert status == (child, 0)
