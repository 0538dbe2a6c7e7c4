"""Outputs and gradients of PyTorch for tests/golden_dense.rs.

Run with a Python that has torch, numpy and safetensors; writes dense.safetensors beside this file. The format is that of
tests/torch/mod.rs. Inputs are f32 numbers; the reference computes with them in f64.
"""

from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch.distributions import Categorical, Normal, TanhTransform, TransformedDistribution

HERE = Path(__file__).parent
ROWS = 6
tensors = {}
generator = torch.Generator().manual_seed(7)


def normal(*shape, rows=ROWS):
    return torch.randn((rows, *shape), generator=generator)


def unit(*shape):
    return torch.rand((ROWS, *shape), generator=generator)


def below(limit, *shape):
    return torch.randint(limit, (ROWS, *shape), generator=generator, dtype=torch.int32)


def mask(*shape):
    """0 or 1, and the first place always 1."""
    out = (unit(*shape) < 0.6).float()
    out[..., 0] = 1.0
    return out


def case(name, function, inputs, params=None, fixed=(), weigh=None, weights=None):
    """Runs `function(*inputs, **params)`; inputs whose number is in `fixed` take no gradient. Only the outputs whose numbers
    are in `weigh` (all, if it is None) take part in the loss."""
    params = params or {}
    leaves = [
        x.double().requires_grad_(i not in fixed) if x.is_floating_point() else x.long() for i, x in enumerate(inputs)
    ]
    values = {key: x.double().requires_grad_() for key, x in params.items()}
    outputs = function(*leaves, **{key.replace(".", "_"): x for key, x in values.items()})
    outputs = outputs if isinstance(outputs, (tuple, list)) else [outputs]
    loss = 0.0
    for i, y in enumerate(outputs):
        tensors[f"{name}/y{i}"] = y.detach().float()
        if weigh is None or i in weigh:
            w = normal(*y.shape[1:]) if weights is None else weights
            tensors[f"{name}/w{i}"] = w
            loss = loss + torch.where(w == 0, 0.0, y * w.double()).sum()
    for i, x in enumerate(inputs):
        tensors[f"{name}/x{i}"] = x
    for key, x in params.items():
        tensors[f"{name}/p.{key}"] = x
    if isinstance(loss, float):
        return
    loss.backward()
    for i, x in enumerate(leaves):
        if x.is_floating_point() and x.grad is not None:
            tensors[f"{name}/dx{i}"] = x.grad.float()
    for key, x in values.items():
        if x.grad is not None:
            tensors[f"{name}/dp.{key}"] = x.grad.float()


def masked_logits(x, legal):
    return torch.where(legal > 0, x, float("-inf"))


def shapes():
    case("bias", lambda x, layer_bias: x + layer_bias, [normal(3, 5)], {"layer.bias": normal(rows=5)})
    case("expand", lambda x, token: x + token, [normal(2, 3)], {"token": normal(3, rows=2)})
    case("concat", lambda a, b: torch.cat([a, b, a], -1), [normal(3, 4), normal(3, 2)])
    case("concat_axis", lambda a, b: torch.cat([a, b], 1), [normal(3, 4), normal(2, 4)])
    case("slice", lambda x: x[..., 2:5], [normal(3, 7)])
    case("slice_axis", lambda x: x[:, 1:3], [normal(4, 5)])
    case("split", lambda x: x.split([1, 4, 2], -1), [normal(7)])
    case("reshape", lambda x: (x * x).reshape(ROWS, 4, 3), [normal(2, 6)])
    case("gather", lambda x, i: x.gather(1, i[:, None]), [normal(9), below(9)])
    case("gather_many", lambda x, i: x.gather(1, i), [normal(9), below(9, 3)])
    case(
        "embedding",
        lambda i, emb_weight: F.embedding(i, emb_weight),
        [below(5, 4)],
        {"emb.weight": normal(18, rows=5)},
    )
    case("broadcast_add", lambda x, v: x + v[:, None, None], [normal(2, 3, 5), normal(5)])
    case("broadcast_mul", lambda x, v: x * v[:, None, None], [normal(2, 3, 5), normal(5)])
    case("dueling", lambda v, a: v + a - a.mean(1, keepdim=True), [normal(1), normal(6)])
    case("dueling_atoms", lambda v, a: v[:, None] + a - a.mean(1, keepdim=True), [normal(21), normal(4, 21)])


def functions():
    case("clip", lambda x: x.clamp(-0.7, 0.5), [normal(40)])
    for name, function in {
        "exp": torch.exp,
        "square": torch.square,
        "abs": torch.abs,
        "neg": torch.neg,
        "softplus": F.softplus,
    }.items():
        case(name, function, [normal(19)])
    case("log", torch.log, [unit(19) + 0.1])
    case("sqrt", torch.sqrt, [unit(19) + 0.1])
    case("softmax", lambda x: x.softmax(-1), [normal(3, 20)])
    case("log_softmax", lambda x: x.log_softmax(-1), [normal(3, 20)])
    legal = mask(3, 20)
    case("softmax_masked", lambda x, m: masked_logits(x, m).softmax(-1), [normal(3, 20), legal], fixed=[1])
    case(
        "log_softmax_masked",
        lambda x, m: masked_logits(x, m).log_softmax(-1),
        [normal(3, 20), legal],
        fixed=[1],
        weights=normal(3, 20) * legal,
    )
    case("dropout_off", lambda x: x, [normal(5)], weigh=[])


def row_mean(x):
    return x.flatten(1).mean(1, keepdim=True)


def quantile(theta, target, levels, kappa):
    delta = target[:, None, :] - theta[:, :, None]
    huber = F.huber_loss(theta[:, :, None].expand_as(delta), target[:, None, :].expand_as(delta), "none", kappa)
    return ((levels[:, :, None] - (delta < 0).double()).abs() * huber / kappa).mean(2).sum(1, keepdim=True)


def losses():
    pair = [normal(2, 10), normal(2, 10)]
    case("mse", lambda x, t: row_mean(F.mse_loss(x, t, reduction="none")), pair, fixed=[1])
    case("mse_one", lambda x, t: F.mse_loss(x, t, reduction="none"), [normal(1), normal(1)], fixed=[1])
    case("huber", lambda x, t: row_mean(F.huber_loss(x, t, "none", 0.8)), pair, fixed=[1])
    bce = F.binary_cross_entropy_with_logits
    case("bce", lambda x, t: row_mean(bce(x, t, reduction="none")), [normal(19), unit(19)], fixed=[1])
    case(
        "bce_weighted",
        lambda x, t, w: row_mean(bce(x, t, w, reduction="none")),
        [normal(19), unit(19), unit(19)],
        fixed=[1, 2],
    )
    ce = F.cross_entropy
    case("cross_entropy", lambda x, t: ce(x, t, reduction="none")[:, None], [normal(20) * 3, below(20)])
    case(
        "cross_entropy_smooth",
        lambda x, t: ce(x.transpose(1, 2), t, reduction="none", label_smoothing=0.1),
        [normal(3, 20), below(20, 3)],
    )
    legal = mask(20)
    case(
        "cross_entropy_masked",
        lambda x, t, m: ce(masked_logits(x, m), t, reduction="none")[:, None],
        [normal(20), torch.zeros(ROWS, dtype=torch.int32), legal],
        fixed=[2],
    )
    case(
        "soft_cross_entropy",
        lambda x, t: ce(x, t, reduction="none")[:, None],
        [normal(51), normal(51).softmax(-1)],
        fixed=[1],
    )
    case(
        "kl",
        lambda p, q: F.kl_div(q.log_softmax(-1), p.log_softmax(-1), reduction="none", log_target=True).sum(1, True),
        [normal(20), normal(20)],
    )
    levels = ((torch.arange(25) + 0.5) / 25).expand(ROWS, 25)
    case("quantile", lambda x, t: quantile(x, t, levels, 1.0), [normal(25), normal(11)], fixed=[1])
    case(
        "quantile_levels",
        lambda x, t, tau: quantile(x, t, tau, 0.5),
        [normal(8), normal(8), unit(8)],
        fixed=[1, 2],
    )


def categorical(logits, actions, heads, legal=None):
    logits = logits if legal is None else masked_logits(logits, legal)
    log_prob, entropy = 0.0, 0.0
    for i, part in enumerate(logits.split(heads, -1)):
        # Categorical.entropy clamps −inf to the lowest number, and so does the mask of torch's own users.
        policy = Categorical(logits=part.clamp(min=-1e30))
        log_prob = log_prob + policy.log_prob(actions[:, i])
        entropy = entropy + policy.entropy()
    return log_prob[:, None], entropy[:, None]


def gaussian(mean, log_std, action):
    policy = Normal(mean, log_std.exp().expand_as(mean))
    return policy.log_prob(action).sum(1, True), policy.entropy().sum(1, True)


def squashed(mean, log_std, noise):
    base = Normal(mean, log_std.exp().expand_as(mean))
    policy = TransformedDistribution(base, [TanhTransform(cache_size=1)])
    action = torch.tanh(mean + log_std.exp() * noise)
    # Through the cache-free inverse a sample close to ±1 would lose digits: the formula is written out and compared.
    u = mean + log_std.exp() * noise
    log_prob = (base.log_prob(u) - torch.log(1 - torch.tanh(u) ** 2)).sum(1, True)
    assert torch.allclose(policy.log_prob(action.detach()).sum(1, True), log_prob.detach(), atol=1e-5)
    return action, log_prob


def heads_mask(heads):
    return torch.cat([mask(n) for n in heads], -1)


def distributions():
    first = torch.zeros(ROWS, 3, dtype=torch.int32)
    heads = [3, 5, 2]
    case("categorical", lambda x, a: categorical(x, a, [7]), [normal(7) * 2, below(7, 1)])
    case("categorical_heads", lambda x, a: categorical(x, a, heads), [normal(10), below(2, 3)])
    case(
        "categorical_masked",
        lambda x, a, m: categorical(x, a, heads, m),
        [normal(10), first, heads_mask(heads)],
        fixed=[2],
    )
    case(
        "gaussian",
        lambda mean, action, log_std: gaussian(mean, log_std, action),
        [normal(3), normal(3)],
        {"log_std": normal(rows=3) * 0.5},
    )
    case("gaussian_rows", gaussian, [normal(17), normal(17) * 0.5, normal(17)])
    case("squashed", squashed, [normal(5), normal(5) * 0.5, normal(5)], fixed=[2])


def ppo(log_prob, entropy, value, old_log_prob, advantage, returns, old_value, clip, vf, ent, clip_vloss):
    """CleanRL's ppo.py, without means over the batch."""
    logratio = log_prob - old_log_prob
    ratio = logratio.exp()
    pg_loss = torch.max(-advantage * ratio, -advantage * torch.clamp(ratio, 1 - clip, 1 + clip))
    v_loss = (value - returns) ** 2
    if clip_vloss:
        v_clipped = old_value + torch.clamp(value - old_value, -clip, clip)
        v_loss = torch.max(v_loss, (v_clipped - returns) ** 2)
    v_loss = 0.5 * v_loss
    loss = pg_loss - ent * entropy + v_loss * vf
    clipped = ((ratio - 1.0).abs() > clip).double()
    statistics = [pg_loss, v_loss, entropy, -logratio, (ratio - 1) - logratio, clipped]
    return loss, torch.cat(statistics, 1)


def near(log_prob):
    """An old log-probability that leaves some ratios within the limits and some beyond."""
    return log_prob.float() + normal(1) * 0.2


def ppo_losses():
    heads = [2, 4]
    for name, clip_vloss in (("ppo", True), ("ppo_free_value", False)):
        logits, actions = normal(2, rows=ROWS), below(2, 1)
        old = near(categorical(logits, actions.long(), [2])[0])
        value = normal(1)
        case(
            name,
            lambda x, v, a, *rest: ppo(*categorical(x, a, [2]), v, *rest, 0.2, 0.5, 0.01, clip_vloss),
            [logits, value, actions, old, normal(1), normal(1), value + normal(1) * 0.3],
            fixed=[3, 4, 5, 6],
            weigh=[0],
        )
    logits, actions, legal = normal(6), torch.zeros(ROWS, 2, dtype=torch.int32), heads_mask(heads)
    old = near(categorical(logits, actions.long(), heads, legal)[0])
    case(
        "ppo_heads",
        lambda x, v, a, o, d, r, w, m: ppo(*categorical(x, a, heads, m), v, o, d, r, w, 0.1, 1.0, 0.05, True),
        [logits, normal(1), actions, old, normal(1), normal(1), normal(1), legal],
        fixed=[3, 4, 5, 6, 7],
        weigh=[0],
    )
    mean, action, log_std = normal(3), normal(3), normal(rows=3) * 0.5
    old = near(gaussian(mean, log_std, action)[0])
    value = normal(1)
    case(
        "ppo_gaussian",
        lambda mean, v, a, *rest, log_std: ppo(*gaussian(mean, log_std, a), v, *rest, 0.2, 0.5, 0.01, True),
        [mean, value, action, old, normal(1), normal(1), value + normal(1) * 0.3],
        {"log_std": log_std},
        fixed=[2, 3, 4, 5, 6],
        weigh=[0],
    )


if __name__ == "__main__":
    shapes()
    functions()
    losses()
    distributions()
    ppo_losses()
    save_file({key: value.contiguous().clone() for key, value in tensors.items()}, HERE / "dense.safetensors")
