"""Vector environments on a GPU, beside PyTorch."""

import copy
import gc
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import operant

if not operant.doctor()["usable"]:
    pytest.skip("needs a GPU", allow_module_level=True)
torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs PyTorch with CUDA", allow_module_level=True)

N = 1000


def both(env_id, **options):
    return (operant.make_vec(env_id, num_envs=N, seed=3, device=device, **options) for device in ("cuda", "cpu"))


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0"])
def test_rows_are_those_of_the_cpu(env_id):
    gpu, cpu = both(env_id)
    seen, _ = gpu.reset()
    wanted, _ = cpu.reset()
    assert np.array_equal(torch.from_dlpack(seen).cpu().numpy(), wanted)
    generator = torch.Generator(device="cuda").manual_seed(1)
    for _ in range(60):
        if env_id == "Pendulum-v1":
            actions = 4 * torch.rand(N, 1, device="cuda", generator=generator) - 2
        else:
            choices = gpu.single_action_space.n
            actions = torch.randint(0, int(choices), (N,), device="cuda", generator=generator)
        got = [torch.from_dlpack(row).cpu().numpy() for row in gpu.step(actions)[:4]]
        wanted = cpu.step(actions.cpu().numpy())[:4]
        assert all(np.array_equal(a, b) for a, b in zip(got, wanted, strict=True))
    assert gpu.save() == cpu.save()


@pytest.mark.parametrize("output", ["dlpack", "torch"])
def test_copies_go_on(output):
    gpu = operant.make_vec("CartPole-v1", num_envs=N, seed=3, device="cuda", output=output, gravity=5.0)
    before = pickle.loads(pickle.dumps(gpu))
    seen, wanted = before.reset()[0], gpu.reset()[0]
    assert torch.equal(torch.from_dlpack(seen), torch.from_dlpack(wanted))
    actions = torch.randint(0, 2, (N,), device="cuda")
    for _ in range(20):
        gpu.step(actions)
    for other in (pickle.loads(pickle.dumps(gpu)), copy.deepcopy(gpu)):
        assert other.save() == gpu.save()
        other.step(actions)
        gpu.step(actions)
        assert other.save() == gpu.save()


def test_rows_as_tensors_of_torch():
    gpu, cpu = both("CartPole-v1")
    gpu.close()
    gpu = operant.make_vec("CartPole-v1", num_envs=N, seed=3, device="cuda", output="torch")
    assert np.array_equal(gpu.reset()[0].cpu().numpy(), cpu.reset()[0])
    for _ in range(60):
        actions = torch.randint(0, 2, (N,), device="cuda")
        *got, infos = gpu.step(actions)
        wanted = cpu.step(actions.cpu().numpy())
        assert all(np.array_equal(a.cpu().numpy(), b) for a, b in zip(got, wanted[:4], strict=True))
        ended = (wanted[2] | wanted[3]).nonzero()[0]
        if len(ended):
            assert np.array_equal(infos["final_obs"].cpu().numpy()[ended], wanted[4]["final_obs"][ended])
            assert np.array_equal(infos["episode_return"].cpu().numpy()[ended], wanted[4]["episode"]["r"][ended])


def rollout_rows(steps):
    obs = torch.empty(steps + 1, N, 4, device="cuda")
    rewards = torch.empty(steps, N, device="cuda")
    flags = torch.empty(2, steps, N, dtype=torch.bool, device="cuda")
    return obs, rewards, flags


def test_rows_into_tensors_of_the_caller():
    gpu, cpu = both("CartPole-v1")
    gpu.close()
    gpu = operant.make_vec("CartPole-v1", num_envs=N, seed=3, device="cuda", output="torch")
    obs, rewards, flags = rollout_rows(60)
    obs[0] = gpu.reset()[0]
    cpu.reset()
    actions = torch.randint(0, 2, (60, N), device="cuda")
    for t in range(60):
        out = (obs[t + 1], rewards[t], flags[0, t], flags[1, t])
        *got, infos = gpu.step(actions[t], out=out)
        assert all(a is b for a, b in zip(got, out, strict=True))
        wanted = cpu.step(actions[t].cpu().numpy())
        assert all(np.array_equal(a.cpu().numpy(), b) for a, b in zip(got, wanted[:4], strict=True))
        ended = (wanted[2] | wanted[3]).nonzero()[0]
        if len(ended):
            assert np.array_equal(infos["episode_return"].cpu().numpy()[ended], wanted[4]["episode"]["r"][ended])
    good = (obs[0], rewards[0], flags[0, 0], flags[1, 0])
    for wrong in (
        (obs[0, :, :2], *good[1:]),
        (obs[0].double(), *good[1:]),
        (obs[0].cpu(), *good[1:]),
        (*good[:2], rewards[0], good[3]),
        good[:3],
    ):
        with pytest.raises(ValueError):
            gpu.step(actions[0], out=wrong)
    with pytest.raises(TypeError, match="contiguous tensor"):
        gpu.step(np.zeros(N, dtype=np.int64), out=good)
    with pytest.raises(ValueError, match="output"):
        operant.make_vec("CartPole-v1", num_envs=N, device="cuda").step(actions[0], out=good)


def test_steps_recorded_in_a_graph_of_torch():
    gpu, cpu = both("CartPole-v1")
    gpu.close()
    gpu = operant.make_vec("CartPole-v1", num_envs=N, seed=3, device="cuda", output="torch")
    obs, rewards, flags = rollout_rows(8)
    actions = torch.randint(0, 2, (8, N), device="cuda")
    gpu.reset()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for t in range(8):
            gpu.step(actions[t], out=(obs[t + 1], rewards[t], flags[0, t], flags[1, t]))
    cpu.reset()
    for _ in range(5):
        graph.replay()
        for t in range(8):
            wanted = cpu.step(actions[t].cpu().numpy())
            got = (obs[t + 1], rewards[t], flags[0, t], flags[1, t])
            assert all(np.array_equal(a.cpu().numpy(), b) for a, b in zip(got, wanted[:4], strict=True))


def test_rows_and_actions_of_jax(monkeypatch):
    # JAX takes three quarters of the memory otherwise.
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("JAX has no GPU here")
    gpu, cpu = both("CartPole-v1")
    row = gpu.reset()[0]
    seen = jax.dlpack.from_dlpack(row)
    assert seen.unsafe_buffer_pointer() == row.__cuda_array_interface__["data"][0], "the same memory"
    assert np.array_equal(np.asarray(seen), cpu.reset()[0])
    key = jax.random.key(1)
    for step in range(40):
        actions = jax.random.randint(jax.random.fold_in(key, step), (N,), 0, 2)
        got = [np.asarray(jax.dlpack.from_dlpack(row)) for row in gpu.step(actions)[:4]]
        wanted = cpu.step(np.asarray(actions))
        assert all(np.array_equal(a, b) for a, b in zip(got, wanted[:4], strict=True))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_actions_of_every_kind(dtype):
    gpu, cpu = both("CartPole-v1")
    gpu.reset(), cpu.reset()
    choices = torch.randint(0, 2, (N,), device="cuda")
    got = gpu.step(choices.to(dtype))
    wanted = cpu.step(choices.cpu().numpy())
    assert np.array_equal(got[0].numpy(), wanted[0])
    got, wanted = gpu.step(choices.cpu().numpy()), cpu.step(choices.cpu().numpy())
    assert np.array_equal(got[0].numpy(), wanted[0])
    assert got[2].dtype == np.bool_ and got[1].shape == (N,) and got[0].__dlpack_device__() == (2, 0)


def test_mistakes_are_named():
    gpu = operant.make_vec("CartPole-v1", num_envs=N, device="cuda")
    with pytest.raises(Exception, match="call reset"):
        gpu.step(torch.zeros(N, dtype=torch.int64, device="cuda"))
    gpu.reset()
    with pytest.raises(ValueError, match="shape"):
        gpu.step(torch.zeros(N + 1, dtype=torch.int64, device="cuda"))
    with pytest.raises(TypeError, match="dtype"):
        gpu.step(torch.zeros(N, device="cuda"))
    with pytest.raises(BufferError, match="contiguous"):
        gpu.step(torch.zeros(2 * N, dtype=torch.int64, device="cuda")[::2])


def test_tensors_outlive_the_env():
    gpu = operant.make_vec("CartPole-v1", num_envs=N, seed=5, device="cuda")
    seen = torch.from_dlpack(gpu.reset()[0])
    wanted = seen.cpu().clone()
    gpu.close()
    del gpu
    gc.collect()
    torch.empty(1 << 20, device="cuda").fill_(7)
    assert torch.equal(seen.cpu(), wanted)
    array = operant.make_vec("CartPole-v1", num_envs=N, seed=5, device="cuda").reset()[0]
    gc.collect()
    assert np.array_equal(array.numpy(), wanted.numpy())


def test_two_streams_are_kept_in_order():
    gpu, cpu = both("CartPole-v1")
    wanted, _ = cpu.reset()
    choices = [torch.randint(0, 2, (N,)) for _ in range(200)]
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    seen = torch.from_dlpack(gpu.reset()[0])
    total = torch.zeros(N, device="cuda")
    wanted_total = np.zeros(N, np.float32)
    for step, choice in enumerate(choices):
        # Each step on the other stream, behind work that takes its time.
        with torch.cuda.stream(streams[step % 2]):
            streams[step % 2].wait_stream(streams[1 - step % 2])
            busy = torch.rand(512, 512, device="cuda")
            for _ in range(4):
                busy = busy @ busy
            actions = choice.to("cuda", non_blocking=False)
            obs, reward, *_ = gpu.step(actions)
            total += torch.from_dlpack(reward)
            seen = torch.from_dlpack(obs).clone()
        wanted, reward, *_ = cpu.step(choice.numpy())
        wanted_total += reward
    torch.cuda.synchronize()
    assert np.array_equal(seen.cpu().numpy(), wanted)
    assert np.array_equal(total.cpu().numpy(), wanted_total)


def test_the_cuda_array_interface():
    gpu = operant.make_vec("Pendulum-v1", num_envs=N, seed=1, device="cuda")
    array, _ = gpu.reset()
    interface = array.__cuda_array_interface__
    assert interface["shape"] == (N, 3) and interface["typestr"] == "<f4" and interface["version"] == 3
    assert torch.equal(torch.as_tensor(array, device="cuda").cpu(), torch.from_dlpack(array).cpu())

    class Actions:
        def __init__(self, tensor):
            self.tensor = tensor
            self.__cuda_array_interface__ = tensor.__cuda_array_interface__

    cpu = operant.make_vec("Pendulum-v1", num_envs=N, seed=1)
    cpu.reset()
    torques = torch.rand(N, 1, device="cuda")
    torch.cuda.synchronize()
    assert np.array_equal(gpu.step(Actions(torques))[0].numpy(), cpu.step(torques.cpu().numpy())[0])


def test_ppo_trains_on_a_gpu():
    model = operant.PPO("CartPole-v1", device="cuda", seed=1, until="solved").learn()
    assert model.settings["device"] == "cuda" and model.metrics["return"] >= 475
    assert operant.PPO("CartPole-v1", device="auto", seed=1).settings["device"] == "cuda"


def test_a_refused_call_changes_nothing():
    gpu = operant.make_vec("CartPole-v1", num_envs=N, seed=5, device="cuda", output="torch")
    seen, _ = gpu.reset()
    before = seen.clone()
    for wrong in (torch.zeros(N + 1, dtype=torch.int64, device="cuda"), torch.zeros(N, device="cuda"), np.zeros(N + 1)):
        with pytest.raises((ValueError, TypeError)):
            gpu.step(wrong)
    gpu.step(torch.zeros(N, dtype=torch.int64, device="cuda"))
    assert torch.equal(seen, before), "rows stay until the second next call"


@pytest.mark.parametrize("named", [True, False])
def test_a_slow_reader_is_waited_for(named):
    options = {"output": "torch"} if named else {}
    gpu = operant.make_vec("CartPole-v1", num_envs=N, seed=3, device="cuda", **options)
    cpu = operant.make_vec("CartPole-v1", num_envs=N, seed=3)
    choices = np.zeros(N, dtype=np.int64)
    with torch.cuda.stream(torch.cuda.Stream()):
        for again in (lambda: gpu.reset()[0], lambda: gpu.step(choices)[0]):
            seen, wanted = gpu.reset(seed=1)[0], cpu.reset(seed=1)[0]
            seen = seen if named else torch.from_dlpack(seen)
            torch.cuda._sleep(500_000_000)
            copy = seen.clone()
            again()
            again()
            assert np.array_equal(copy.cpu().numpy(), wanted)


@pytest.mark.parametrize("output", ["dlpack", "torch"])
def test_load_gives_what_reset_does(output):
    gpu = operant.make_vec("operant/ProbeMasked-v0", num_envs=N, seed=5, device="cuda", output=output)
    gpu.reset()
    gpu.step(np.zeros(N, dtype=np.int64))
    saved = gpu.save()
    numbers = (lambda row: row.cpu().numpy().copy()) if output == "torch" else (lambda row: row.numpy())
    obs, _, _, _, infos = gpu.step(np.ones(N, dtype=np.int64))
    wanted, mask = numbers(obs), numbers(infos["action_mask"])
    seen, shown = gpu.load(saved)
    assert type(seen) is type(obs) and type(shown["action_mask"]) is type(infos["action_mask"])
    assert numbers(shown["action_mask"]).any(axis=1).all()
    again, _, _, _, told = gpu.step(np.ones(N, dtype=np.int64))
    assert np.array_equal(numbers(again), wanted) and np.array_equal(numbers(told["action_mask"]), mask)


def test_the_example_learns():
    example = Path(__file__).parents[1] / "examples" / "torch_on_gpu.py"
    words = [sys.executable, str(example), "--num-envs", "8192", "--num-steps", "16", "--iterations", "60"]
    told = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert told.returncode == 0, told.stderr
    assert float(re.search(r"mean return ([\d.]+)", told.stdout)[1]) > 100, told.stdout
