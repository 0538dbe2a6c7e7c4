"""Outputs and gradients of torch.nn.LSTM, GRU, their cells, MultiheadAttention and of a spectral convolution, for
tests/golden/sequence.rs.

`cargo xtask golden nn` runs it; writes sequence.safetensors beside this file. Resets are a loop over steps here;
images are NHWC in the file.
"""

from pathlib import Path

import torch
from safetensors.torch import save_file

HERE = Path(__file__).parent
tensors = {}


def draw(*shape):
    return torch.randn(*shape)


def record(case, inputs, fixed, params, outputs):
    """Inputs with gradients, inputs without (after them), parameters by name, outputs."""
    weights = [draw(*y.shape) for y in outputs]
    loss = sum((y * w).sum() for y, w in zip(outputs, weights))
    names = list(params)
    gradients = torch.autograd.grad(loss, list(inputs) + [params[name] for name in names])
    for i, x in enumerate(list(inputs) + list(fixed)):
        tensors[f"{case}/x{i}"] = x.detach()
    for i, gradient in enumerate(gradients[: len(inputs)]):
        tensors[f"{case}/dx{i}"] = gradient
    for name, gradient in zip(names, gradients[len(inputs) :]):
        tensors[f"{case}/p.{name}"] = params[name].detach()
        tensors[f"{case}/dp.{name}"] = gradient
    for i, (y, w) in enumerate(zip(outputs, weights)):
        tensors[f"{case}/y{i}"] = y.detach()
        tensors[f"{case}/w{i}"] = w


def unroll(module, x, h, c, resets):
    """One layer, state zeroed before steps whose flag is 1."""
    steps = []
    for t in range(x.shape[1]):
        keep = (1 - resets[:, t])[None, :, None]
        if c is None:
            y, h = module(x[:, t : t + 1], h * keep)
        else:
            y, (h, c) = module(x[:, t : t + 1], (h * keep, c * keep))
        steps.append(y)
    return torch.cat(steps, 1), h, c


def recurrent():
    rows, steps, features, hidden = 5, 7, 6, 17
    for name, kind in [("lstm", torch.nn.LSTM), ("gru", torch.nn.GRU)]:
        both = name == "lstm"
        for layers in [1, 2]:
            module = kind(features, hidden, layers, batch_first=True)
            params = {f"rnn.{n}": p for n, p in module.named_parameters()}
            x = draw(rows, steps, features).requires_grad_()
            y, last = module(x)
            last = [part for state in (last if both else [last]) for part in state]
            record(f"{name}_{layers}", [x], [], params, [y, *last])
        module = kind(features, hidden, batch_first=True)
        params = {f"rnn.{n}": p for n, p in module.named_parameters()}
        x = draw(rows, steps, features).requires_grad_()
        h = draw(1, rows, hidden).requires_grad_()
        c = draw(1, rows, hidden).requires_grad_() if both else None
        resets = (torch.rand(rows, steps) < 0.3).float()
        y, last, last_c = unroll(module, x, h, c, resets)
        states = [h, c] if both else [h]
        outputs = [y, last[0], last_c[0]] if both else [y, last[0]]
        record(f"{name}_resets", [x, *states], [resets], params, outputs)
        for i in range(len(states)):
            for key in [f"{name}_resets/x{i + 1}", f"{name}_resets/dx{i + 1}"]:
                tensors[key] = tensors[key][0].contiguous()


def cells():
    """One step: torch.nn.LSTMCell and GRUCell, whose parameters have the names of a layer without its number."""
    rows, features, hidden = 5, 6, 17
    for name, kind in [("lstm", torch.nn.LSTMCell), ("gru", torch.nn.GRUCell)]:
        cell = kind(features, hidden)
        params = {f"rnn.{n}_l0": p for n, p in cell.named_parameters()}
        x = draw(rows, features).requires_grad_()
        states = [draw(rows, hidden).requires_grad_() for _ in range(2 if name == "lstm" else 1)]
        after = list(cell(x, tuple(states))) if name == "lstm" else [cell(x, states[0])]
        record(f"{name}_cell", [x, *states], [], params, [after[0], *after])


def min_gru():
    """The sequential form of Feng et al., with the candidate g of their appendix."""
    rows, steps, features, hidden = 4, 6, 5, 18
    for positive in [False, True]:
        x = draw(rows, steps, features).requires_grad_()
        h = first = draw(rows, hidden).requires_grad_()
        weight = (draw(2 * hidden, features) * 0.5).requires_grad_()
        resets = (torch.rand(rows, steps) < 0.3).float()
        steps_of_h = []
        for t in range(steps):
            v, gate = (x[:, t] @ weight.T).chunk(2, -1)
            if positive:
                v = torch.where(v >= 0, v + 0.5, v.sigmoid())
            h = torch.lerp(h * (1 - resets[:, t : t + 1]), v, gate.sigmoid())
            steps_of_h.append(h)
        params = {"rnn.to_hidden_and_gate.weight": weight}
        record(f"min_gru_{positive}", [x, first], [resets], params, [torch.stack(steps_of_h, 1), h])


def attention():
    rows, steps, features, heads = 3, 9, 24, 4
    for causal in [False, True]:
        for masked in [False, True]:
            module = torch.nn.MultiheadAttention(features, heads, batch_first=True)
            with torch.no_grad():
                module.in_proj_bias.normal_()
                module.out_proj.bias.normal_()
            params = {f"attention.{n}": p for n, p in module.named_parameters()}
            x = draw(rows, steps, features).requires_grad_()
            mask = (torch.rand(rows, steps) < 0.6).float()
            # PyTorch gives NaN where a query has no key at all.
            mask[:, 0] = 1
            padding = (mask == 0) if masked else None
            later = torch.ones(steps, steps, dtype=torch.bool).triu(1) if causal else None
            y, _ = module(x, x, x, key_padding_mask=padding, attn_mask=later, need_weights=False)
            name = f"attention_{'causal' if causal else 'all'}_{'masked' if masked else 'open'}"
            record(name, [x], [mask] if masked else [], params, [y])


def spectral():
    """SpectralConv2d of the Fourier neural operator's reference code."""
    for height, width, m1, m2, channels, outputs in [(8, 10, 3, 4, 3, 4), (6, 7, 3, 4, 2, 2), (4, 4, 2, 3, 2, 3)]:
        x = draw(5, height, width, channels).requires_grad_()
        weights = [draw(channels, outputs, m1, m2, 2).requires_grad_() for _ in range(2)]
        spectrum = torch.fft.rfft2(x.permute(0, 3, 1, 2))
        mixed = torch.zeros(5, outputs, height, width // 2 + 1, dtype=torch.cfloat)
        for rows, weight in [(slice(None, m1), weights[0]), (slice(-m1, None), weights[1])]:
            product = torch.einsum("bixy,ioxy->boxy", spectrum[:, :, rows, :m2], torch.view_as_complex(weight))
            mixed[:, :, rows, :m2] = product
        y = torch.fft.irfft2(mixed, s=(height, width)).permute(0, 2, 3, 1)
        params = {f"spectral.weights{i + 1}": weight for i, weight in enumerate(weights)}
        record(f"spectral_{height}x{width}", [x], [], params, [y])


torch.manual_seed(0)
recurrent()
min_gru()
attention()
spectral()
cells()
save_file({name: tensor.contiguous().clone() for name, tensor in tensors.items()}, HERE / "sequence.safetensors")
