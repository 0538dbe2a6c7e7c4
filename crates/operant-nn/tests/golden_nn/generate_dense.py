"""Outputs and gradients of PyTorch for tests/golden/dense.rs.

`cargo xtask golden nn` runs it; writes dense.safetensors beside this file. The format is that of
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


def basics():
    """What layers are made of, each op alone."""

    def linear(x, layer_weight, layer_bias=None):
        return F.linear(x, layer_weight, layer_bias)

    case("linear", linear, [normal(3, 7)], {"layer.weight": normal(7, rows=5), "layer.bias": normal(rows=5)})
    case("linear_wide", linear, [normal(20)], {"layer.weight": normal(20, rows=17)})

    def tower(x, **layers):
        for i in (0, 2):
            x = linear(x, layers[f"layer_{i}_weight"], layers[f"layer_{i}_bias"]).tanh()
        return linear(x, layers["layer_4_weight"], layers["layer_4_bias"])

    layers = {}
    for i, (inputs, outputs) in zip((0, 2, 4), [(7, 32), (32, 32), (32, 3)]):
        layers[f"layer.{i}.weight"] = normal(inputs, rows=outputs) / inputs**0.5
        layers[f"layer.{i}.bias"] = normal(rows=outputs)
    case("tower", tower, [normal(7)], layers)
    pair = [normal(3, 5), normal(3, 5)]
    case("add", torch.add, pair)
    case("sub", torch.sub, pair)
    case("mul", torch.mul, pair)
    case("add_relu", lambda a, b: (a + b).relu(), pair)
    case("scale", lambda x: x * -0.75, [normal(19)])
    for name, function in {
        "relu": F.relu,
        "tanh": torch.tanh,
        "sigmoid": torch.sigmoid,
        "gelu": F.gelu,
        "silu": F.silu,
    }.items():
        case(name, function, [normal(19) * 2])
    for name, function in {"sum": torch.sum, "mean": torch.mean, "max": torch.amax}.items():
        case(name, lambda x: function(x, (2,)), [normal(2, 20)])
        case(f"{name}_axes", lambda x: function(x, (2, 3)), [normal(2, 3, 5)])
        case(f"{name}_all", lambda x: function(x, (1, 2))[:, None], [normal(3, 5)])
    case("detach", lambda a, b: a.detach() * b, [normal(5), normal(5)], fixed=[0])
    table = {"emb.weight": normal(18, rows=5), "emb.bias": normal(rows=18)}

    def embedding_sum(i, emb_weight, emb_bias):
        return F.embedding_bag(i.long(), emb_weight, mode="sum") + emb_bias

    case("embedding_sum", embedding_sum, [below(5, 4)], table)
    case("embedding_sum_real", embedding_sum, [below(5, 4).float()], table, fixed=[0])


def floors():
    """A policy's least probabilities, and what its entropy lacks, by torch.distributions."""
    heads, legal = [3, 4, 2], heads_mask([3, 4, 2])

    def per_head(logits, legal):
        parts = zip(logits.split(heads, -1), legal.split(heads, -1))
        return [(x, m, m.sum(1, keepdim=True), Categorical(logits=masked_logits(x, m).clamp(min=-1e30))) for x, m in parts]

    def probability_floor(logits, legal):
        mixed = []
        for (x, m, n, policy), floor in zip(per_head(logits, legal), [0.05, 0.0, 0.9]):
            least = torch.clamp(0.5 / n, max=floor)
            raised = (m > 0) & (least > 0)
            # The inner choice keeps the logarithm of 0 out of gradients.
            raised_x = torch.where(raised, (1 - n * least) * policy.probs + least, 1.0).log()
            mixed.append(torch.where(raised, raised_x, x))
        return torch.cat(mixed, -1)

    def entropy_floor(logits, legal):
        lacking = 0.0
        for (_, _, n, policy), floor in zip(per_head(logits, legal), [0.7, 0.0, 0.9]):
            lacking = lacking + (floor * n.log() - policy.entropy()[:, None]).clamp(min=0)
        return lacking

    logits = normal(9) * 1.5
    case("probability_floor", probability_floor, [logits, legal], fixed=[1])
    case("entropy_floor", entropy_floor, [logits, legal], fixed=[1])


def pass_through(x):
    """0, with the gradient of x."""
    return x - x.detach()


def growth():
    """Seeds in hosts: at an alpha of 0 a seed is not heard, and learns as if alpha were 1."""
    blends = {
        "add": lambda h, s, x, g, a: h + a * (s - h),
        "multiply": lambda h, s, x, g, a: h * (1 + a * torch.tanh(s - x)),
        "gate": lambda h, s, x, g, a: h + a * g * (s - h),
    }
    host, seed, before, gate = normal(2, 4, 3), normal(2, 4, 3), normal(2, 4, 3), unit(1)
    for alpha, name in [(0.3, "blend"), (0.0, "blend_silent")]:
        numbers = {"alpha": torch.tensor([alpha])}

        def heard(how, h, s, x, g, a):
            if alpha > 0:
                return blends[how](h, s, x, g, a)
            # At alpha 1, without the host's own gradient.
            return h + pass_through(blends[how](h.detach(), s, x, g, 1.0))

        case(f"{name}_add", lambda h, s, alpha: heard("add", h, s, None, None, alpha.detach()), [host, seed], numbers)
        case(
            f"{name}_multiply",
            lambda h, s, x, alpha: heard("multiply", h, s, x, None, alpha.detach()),
            [host, seed, before],
            numbers,
        )
        case(
            f"{name}_gate",
            lambda h, s, g, alpha: heard("gate", h, s, None, g[..., None, None], alpha.detach()),
            [host, seed, gate],
            numbers,
        )
    # The second of two seeds by a gate, in the engine's encoding (`Graft::control`).
    control = {"control": torch.tensor([0.3, (1 + 2 + 4 * 1 + 0.5) / 64])}
    other = normal(2, 4, 3)

    def graft(h, x, g, first, second, control):
        y = blends["gate"](h, second, x, g[..., None, None], control.detach()[0])
        return F.max_pool2d(y.permute(0, 3, 1, 2), 2).permute(0, 2, 3, 1) + 0 * (x + first).sum()

    case("graft_pooled", graft, [host, before, gate, other, seed], control)
    for name, open_ in [("valve_open", 1.0), ("valve_closed", 0.0)]:
        case(name, lambda x, open: (x if open > 0 else x.detach()) * x, [normal(5)], {"open": torch.tensor([open_])})


if __name__ == "__main__":
    shapes()
    functions()
    losses()
    distributions()
    ppo_losses()
    basics()
    floors()
    growth()
    save_file({key: value.contiguous().clone() for key, value in tensors.items()}, HERE / "dense.safetensors")
