"""Steps of torch.optim and values of torch.distributions, for tests/optim.rs and tests/dist.rs.

`cargo xtask golden nn` runs it, with torch 2.9 or later; writes optim.safetensors and dist.safetensors beside this file.
Inputs are f32 numbers; the reference computes with them in f64.
"""

from pathlib import Path

import torch
import torch.optim._muon as muon_module
from safetensors.torch import save_file

HERE = Path(__file__).parent
STEPS = 10
LEARNING_RATE = 0.01
SHAPES = {
    "wide.weight": (6, 20),
    "wide.bias": (6,),
    "tall.weight": (33, 9),
    "tall.bias": (33,),
    "conv.weight": (4, 3, 2, 2),
    "log_std": (),
}


class InDouble:
    """torch, but Newton–Schulz in f64 instead of bf16: the formula, without the rounding of the reference."""

    bfloat16 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


def draw(generator, shape, scale=1.0):
    return (torch.randn(shape, generator=generator, dtype=torch.float64) * scale).float()


def split(parameters):
    """Weights and the rest, as weight decay tells them apart."""
    weights = [p for p in parameters.values() if p.dim() >= 2]
    return weights, [p for p in parameters.values() if p.dim() < 2]


def groups(parameters, weight_decay):
    weights, rest = split(parameters)
    return [{"params": weights, "weight_decay": weight_decay}, {"params": rest, "weight_decay": 0.0}]


class Muon:
    """torch.optim.Muon for weights, as [shape[0], rest] matrices, and AdamW for the rest."""

    def __init__(self, parameters, adjust):
        self.weights, rest = split(parameters)
        self.flat = [torch.nn.Parameter(p.data.view(p.shape[0], -1)) for p in self.weights]
        self.muon = torch.optim.Muon(
            self.flat, lr=LEARNING_RATE, weight_decay=0.1, momentum=0.95, nesterov=True, adjust_lr_fn=adjust
        )
        self.adamw = torch.optim.AdamW(rest, lr=LEARNING_RATE, weight_decay=0.0)

    def step(self):
        for flat, weight in zip(self.flat, self.weights):
            flat.grad = weight.grad.view(weight.shape[0], -1)
        self.muon.step()
        self.adamw.step()


METHODS = {
    "sgd": lambda p: torch.optim.SGD(list(p.values()), lr=LEARNING_RATE),
    "momentum": lambda p: torch.optim.SGD(groups(p, 0.05), lr=LEARNING_RATE, momentum=0.9),
    "nesterov": lambda p: torch.optim.SGD(groups(p, 0.05), lr=LEARNING_RATE, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(list(p.values()), lr=LEARNING_RATE),
    "adam_large_eps": lambda p: torch.optim.Adam(list(p.values()), lr=LEARNING_RATE, betas=(0.8, 0.95), eps=0.1),
    "adam_clipped": lambda p: torch.optim.Adam(list(p.values()), lr=LEARNING_RATE, eps=1e-3),
    "adamw": lambda p: torch.optim.AdamW(groups(p, 0.1), lr=LEARNING_RATE),
    "muon_original": lambda p: Muon(p, "original"),
    "muon_match_adamw": lambda p: Muon(p, "match_rms_adamw"),
}


def run(name, start, grads):
    """Values after the first and the last step, and the norm of the gradient in each."""
    parameters = {key: torch.nn.Parameter(value.double()) for key, value in start.items()}
    optimizer = METHODS[name](parameters)
    norms, snapshots = [], []
    for step in range(STEPS):
        for key, parameter in parameters.items():
            parameter.grad = grads[key][step].double()
        limit = 0.5 if name == "adam_clipped" else float("inf")
        norms.append(torch.nn.utils.clip_grad_norm_(parameters.values(), limit))
        optimizer.step()
        snapshots.append({key: parameter.detach().clone() for key, parameter in parameters.items()})
    return snapshots, torch.stack(norms)


def optim():
    generator = torch.Generator().manual_seed(1)
    start = {key: draw(generator, shape, 0.3) for key, shape in SHAPES.items()}
    # With a limit of 0.5 some steps are clipped and some are not.
    sizes = torch.tensor([1.0, 0.5, 2.0, 0.1, 0.01, 1.0, 0.02, 1.0, 3.0, 0.7]).double()
    grads = {
        key: torch.stack([draw(generator, shape, float(size) * 0.1) for size in sizes])
        for key, shape in SHAPES.items()
    }
    tensors = {f"start.{key}": value for key, value in start.items()}
    tensors |= {f"grad.{key}": value for key, value in grads.items()}
    for name in METHODS:
        rounded = None
        if name.startswith("muon"):
            rounded, _ = run(name, start, grads)
            muon_module.torch = InDouble()
        snapshots, norms = run(name, start, grads)
        muon_module.torch = torch
        if rounded is not None:
            # The same rule as PyTorch's own up to bf16 (8 bits): a step differs by 3 % of itself.
            for key in ("wide.weight", "tall.weight"):
                moved = (snapshots[0][key] - start[key]).norm()
                assert (rounded[0][key] - snapshots[0][key]).norm() < 0.03 * moved, name
        tensors[f"{name}.norms"] = norms
        for key in SHAPES:
            tensors[f"{name}.first.{key}"] = snapshots[0][key]
            tensors[f"{name}.last.{key}"] = snapshots[-1][key]
    save_file({key: value.contiguous() for key, value in tensors.items()}, HERE / "optim.safetensors")


def categorical(tensors, generator):
    """Rows that do not fill the lanes, heads of three sizes side by side, with and without a mask."""
    rows, heads = 37, (3, 7, 2)
    logits, others = (draw(generator, (rows, sum(heads)), 2.0) for _ in range(2))
    legal = torch.rand(logits.shape, generator=generator) < 0.6
    for start in (0, 3, 10):
        legal[:, start] |= ~legal[:, start : start + 2].any(1)
    actions = torch.stack([torch.randint(size, (rows,), generator=generator) for size in heads], 1)
    tensors |= {"logits": logits, "others": others, "legal": legal.float(), "actions": actions.float()}
    for name in ("plain", "masked"):
        mask = legal if name == "masked" else torch.ones_like(legal)
        parts = {key: [] for key in ("log_prob", "entropy", "kl")}
        for head, (p, q, m) in enumerate(zip(*(x.split(heads, 1) for x in (logits, others, mask)))):
            p, q = (torch.distributions.Categorical(logits=x.double().masked_fill(~m, -torch.inf)) for x in (p, q))
            parts["log_prob"].append(p.log_prob(actions[:, head]))
            parts["entropy"].append(p.entropy())
            parts["kl"].append(torch.distributions.kl_divergence(p, q))
        tensors |= {f"{name}.{key}": torch.stack(value, 1) for key, value in parts.items()}


def gaussian(tensors, generator):
    rows, dims = 37, 3
    tensors["mean"], tensors["other_mean"] = (draw(generator, (rows, dims)) for _ in range(2))
    for name, shape in (("shared", (dims,)), ("per_row", (rows, dims))):
        tensors[f"{name}.log_std"], tensors[f"{name}.other_log_std"] = (draw(generator, shape, 0.7) for _ in range(2))
    # Raw actions far out, where 1 - tanh^2 is 0 in floats.
    raw = draw(generator, (rows, dims), 1.5)
    raw[:3] *= 8
    tensors["raw"] = raw
    for name in ("shared", "per_row"):
        p, q = (
            torch.distributions.Normal(
                tensors[f"{other}mean"].double(), tensors[f"{name}.{other}log_std"].double().exp().expand(rows, dims)
            )
            for other in ("", "other_")
        )
        tensors[f"{name}.log_prob"] = p.log_prob(raw.double()).sum(1)
        tensors[f"{name}.entropy"] = p.entropy().sum(1)
        tensors[f"{name}.kl"] = torch.distributions.kl_divergence(p, q).sum(1)
        tanh = torch.distributions.TanhTransform()
        slope = tanh.log_abs_det_jacobian(raw.double(), raw.double().tanh())
        tensors[f"{name}.squashed_log_prob"] = (p.log_prob(raw.double()) - slope).sum(1)


def dist():
    generator = torch.Generator().manual_seed(2)
    tensors = {}
    categorical(tensors, generator)
    gaussian(tensors, generator)
    save_file({key: value.contiguous() for key, value in tensors.items()}, HERE / "dist.safetensors")


if __name__ == "__main__":
    optim()
    dist()
