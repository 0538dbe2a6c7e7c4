"""Layers of torch.nn on images, for tests/golden/image.rs.

`cargo xtask golden nn` runs it; writes image.safetensors beside this file. Images are [B, H, W, C]
in the file; tests/torch/mod.rs says what the names mean.
"""

from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

HERE = Path(__file__).parent
DATA = {}


def nchw(x):
    return x.permute(0, 3, 1, 2)


def nhwc(x):
    return x.permute(0, 2, 3, 1)


def case(name, shape, run, modules=None, train=True):
    """Runs `run` on a random [B, ...] tensor and keeps inputs, parameters, the output and gradients of a weighted sum."""
    generator = torch.Generator().manual_seed(sum(name.encode()))
    x = torch.randn(shape, generator=generator).requires_grad_(True)
    modules = modules or {}
    for prefix, module in modules.items():
        module.train(train)
        for key, value in module.state_dict().items():
            if key == "num_batches_tracked":
                continue
            drawn = torch.randn(value.shape, generator=generator) * 0.5
            value.copy_(drawn.abs() + 0.5 if key == "running_var" else drawn)
            DATA[f"{name}/p.{prefix}.{key}"] = value.clone()
    y = run(x)
    DATA[f"{name}/x0"] = x.detach()
    DATA[f"{name}/y0"] = y.detach()
    if not train:
        return
    w = torch.randn(y.shape, generator=generator)
    (y * w).sum().backward()
    DATA[f"{name}/w0"] = w
    DATA[f"{name}/dx0"] = x.grad
    for prefix, module in modules.items():
        for key, value in module.named_parameters():
            DATA[f"{name}/dp.{prefix}.{key}"] = value.grad
        for key, value in module.named_buffers():
            if key != "num_batches_tracked":
                DATA[f"{name}/after.{prefix}.{key}"] = value.clone()


def image_case(name, shape, module, train=True, act=None):
    def run(x):
        y = module(nchw(x))
        return nhwc(act(y) if act else y)

    case(name, shape, run, {"layer": module}, train)


def main():
    torch.manual_seed(0)
    image_case("conv", (3, 6, 5, 3), nn.Conv2d(3, 5, 3, padding=1))
    image_case("conv_relu", (2, 7, 6, 4), nn.Conv2d(4, 18, 3, stride=2, padding=1), act=F.relu)
    image_case("conv_five", (2, 7, 8, 2), nn.Conv2d(2, 3, 5, stride=1, padding=2))
    image_case("conv_seven", (2, 9, 9, 2), nn.Conv2d(2, 3, 7, stride=3, padding=3))
    image_case("conv_one", (2, 3, 4, 6), nn.Conv2d(6, 4, 1, bias=False))
    image_case("conv_circular", (2, 5, 6, 3), nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"))
    image_case("conv_circular_stride", (2, 6, 6, 3), nn.Conv2d(3, 4, 5, stride=2, padding=2, padding_mode="circular"))
    image_case("conv_groups", (2, 5, 5, 6), nn.Conv2d(6, 9, 3, padding=1, groups=3))
    image_case("conv_depthwise", (2, 5, 6, 20), nn.Conv2d(20, 20, 3, stride=2, padding=1, groups=20))
    image_case("conv_even", (2, 6, 6, 2), nn.Conv2d(2, 3, 4, stride=2))
    for kernel, stride, padding in [(2, 2, 0), (3, 2, 1)]:
        size = f"{kernel}{stride}{padding}"
        case(f"max_pool_{size}", (2, 6, 7, 5), lambda x: nhwc(F.max_pool2d(nchw(x), kernel, stride, padding)))
        case(f"average_pool_{size}", (2, 6, 7, 5), lambda x: nhwc(F.avg_pool2d(nchw(x), kernel, stride, padding)))
        inside = {"count_include_pad": False}
        case(
            f"average_pool_inside_{size}",
            (2, 6, 7, 5),
            lambda x: nhwc(F.avg_pool2d(nchw(x), kernel, stride, padding, **inside)),
        )
    case("global_average_pool", (3, 4, 5, 7), lambda x: x.mean((1, 2)))
    case("global_max_pool", (3, 4, 5, 7), lambda x: x.amax((1, 2)))
    case("upsample_nearest", (2, 3, 4, 5), lambda x: nhwc(F.interpolate(nchw(x), scale_factor=2)))
    bilinear = {"mode": "bilinear", "align_corners": False}
    case("upsample_bilinear", (2, 3, 4, 5), lambda x: nhwc(F.interpolate(nchw(x), scale_factor=3, **bilinear)))
    plain, before_relu = nn.LayerNorm(21), nn.LayerNorm(21)
    case("layer_norm", (4, 3, 21), plain, {"layer": plain})
    case("layer_norm_relu", (4, 21), lambda x: F.relu(before_relu(x)), {"layer": before_relu})
    image_case("instance_norm", (3, 4, 5, 6), nn.InstanceNorm2d(6, affine=True))
    image_case("instance_norm_relu", (3, 4, 5, 6), nn.InstanceNorm2d(6), act=F.relu)
    image_case("group_norm", (3, 4, 5, 6), nn.GroupNorm(2, 6))
    image_case("group_norm_gelu", (3, 4, 5, 6), nn.GroupNorm(3, 6), act=F.gelu)
    image_case("batch_norm", (4, 3, 5, 6), nn.BatchNorm2d(6))
    image_case("batch_norm_relu", (4, 3, 5, 6), nn.BatchNorm2d(6), act=F.relu)
    image_case("batch_norm_eval", (4, 3, 5, 6), nn.BatchNorm2d(6), train=False)
    norm = nn.BatchNorm1d(9)
    case("batch_norm_features", (12, 9), norm, {"layer": norm})
    fc1, fc2 = nn.Linear(8, 3), nn.Linear(3, 8)

    def squeeze_excite(x):
        return x * fc2(fc1(x.mean((1, 2))).relu()).sigmoid()[:, None, None, :]

    case("squeeze_excite", (3, 4, 5, 8), squeeze_excite, {"layer.fc1": fc1, "layer.fc2": fc2})
    save_file({name: value.detach().contiguous().float() for name, value in DATA.items()}, HERE / "image.safetensors")


if __name__ == "__main__":
    main()
