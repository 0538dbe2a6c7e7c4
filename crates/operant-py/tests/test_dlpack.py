"""Memory given out and taken in as DLPack capsules, on any machine."""

import gc
import weakref

import numpy as np
import pytest

import operant
from operant._operant import Relay


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64, np.uint8])
@pytest.mark.parametrize("shape", [(7,), (3, 5), (1, 4)])
def test_a_capsule_is_the_same_memory(dtype, shape):
    numbers = np.arange(np.prod(shape)).astype(dtype).reshape(shape)
    relay = Relay(numbers)
    seen = np.from_dlpack(relay)
    assert seen.dtype == numbers.dtype and seen.shape == shape
    assert (seen == numbers).all() and np.shares_memory(seen, numbers)
    numbers.flat[0] = 42
    assert seen.flat[0] == 42
    assert relay.__dlpack_device__() == (1, 0)


def test_memory_outlives_its_owner():
    class Owner(np.ndarray):
        pass

    numbers = np.arange(6, dtype=np.float32).view(Owner)
    gone = weakref.ref(numbers)
    relay = Relay(numbers)
    seen = np.from_dlpack(relay)
    del numbers, relay
    gc.collect()
    assert gone() is not None and seen.tolist() == [0, 1, 2, 3, 4, 5]
    del seen
    gc.collect()
    assert gone() is None, "what nobody shows any more is given back"


def test_a_capsule_that_nobody_takes_is_given_back():
    class Owner(np.ndarray):
        pass

    numbers = np.zeros(3, np.float32).view(Owner)
    gone = weakref.ref(numbers)
    relay = Relay(numbers)
    capsules = [relay.__dlpack__(stream=None, max_version=(1, 0)) for _ in range(3)]
    del numbers, relay
    gc.collect()
    assert gone() is not None
    del capsules
    gc.collect()
    assert gone() is None


def test_what_is_not_dense_is_refused():
    with pytest.raises(BufferError, match="contiguous"):
        Relay(np.arange(12).reshape(3, 4)[:, ::2])
    with pytest.raises(AttributeError):
        Relay([1, 2, 3])


def test_without_a_gpu_it_says_what_is_missing():
    if operant.doctor()["usable"]:
        pytest.skip("a GPU is here")
    with pytest.raises(RuntimeError, match="operant doctor"):
        operant.make_vec("CartPole-v1", num_envs=4, device="cuda")
    with pytest.raises(ValueError, match="unknown device"):
        operant.make_vec("CartPole-v1", num_envs=4, device="gpu")
