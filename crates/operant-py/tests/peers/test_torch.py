"""Files that Operant saves load into the equivalent torch modules, which give the same outputs; and back."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from operant import nn
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(Path(__file__).parent.parent / "golden"))
import generate

MAKE = {
    "actor_critic": lambda seed: nn.actor_critic(inputs=4, actions=3, hidden=[16, 8], seed=seed),
    "dueling": lambda seed: nn.dueling(inputs=10, actions=5, hidden=[24, 16], stream=8, seed=seed),
    "residual": lambda seed: nn.residual(inputs=7, policy=9, width=16, blocks=2, value_hidden=8, value=2, seed=seed),
}


@pytest.mark.parametrize("name", MAKE)
def test_exported_files_load_into_torch(name: str, tmp_path: Path) -> None:
    net = MAKE[name](5)
    path = tmp_path / "net.safetensors"
    net.save(path)
    module, inputs = generate.NETS[name]
    module.load_state_dict(load_file(path))
    obs = torch.randn(100, inputs)
    with torch.no_grad():
        wanted = module(obs)
    outputs = net(obs.numpy())
    assert outputs.keys() == wanted.keys()
    for key, value in outputs.items():
        np.testing.assert_allclose(value, wanted[key].numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MAKE)
def test_torch_parameters_load_back(name: str, tmp_path: Path) -> None:
    module, inputs = generate.NETS[name]
    net = MAKE[name](6)
    net.load_state_dict(module.state_dict())
    obs = torch.randn(10, inputs)
    with torch.no_grad():
        wanted = module(obs)
    for key, value in net(obs.numpy()).items():
        np.testing.assert_allclose(value, wanted[key].numpy(), rtol=1e-4, atol=1e-5)
    save_file(module.state_dict(), tmp_path / "torch.safetensors")
    with pytest.raises(ValueError, match="does not say which network"):
        nn.load(tmp_path / "torch.safetensors")
