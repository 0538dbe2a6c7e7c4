"""Microseconds that PyTorch takes for one batch of a network, on one thread.

    python bench_nets.py torch|torch-compile NET --batch 64 --precision f32 --passes forward,train --seconds 0.5

One repeat: the caller interleaves libraries and keeps the best. Every way that PyTorch offers for the same result
(memory layout, autocast or bf16 weights, fused or foreach Adam) is measured, and the fastest counts. Prints
tab-separated lines:

    version  TEXT
    row      PASS  US_PER_BATCH  WAY
    fail     PASS  REASON

PASS is `forward`, or `train`: forward, backward and Adam. The networks are those of `operant bench nn`.
"""

import argparse
import itertools
import os
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

LEARNING_RATE = 1e-4
WARM_UP_CALLS = 3
PARTS = 10
SEED = 0


class Net(nn.Module):
    """A network, its data and its loss. Inputs and targets are made in the first layout."""

    layouts = ("",)
    # Whether training takes the gradient of the inputs too, as `operant bench nn` does for a network in the middle of others.
    input_gradient = False

    def data(self, batch):
        """Inputs, and targets of the loss."""
        raise NotImplementedError

    def loss(self, outputs, targets):
        return sum(F.mse_loss(output, target) for output, target in zip(outputs, targets))

    def use(self, layout, inputs, targets):
        """The data in this layout; the parameters are changed in place."""
        return inputs, targets


def dense(*sizes, act):
    layers = [layer for sizes in itertools.pairwise(sizes) for layer in (nn.Linear(*sizes), act())]
    return nn.Sequential(*layers[:-1])


class Mlp(Net):
    def __init__(self):
        super().__init__()
        self.actor = dense(4, 64, 64, 2, act=nn.Tanh)
        self.critic = dense(4, 64, 64, 1, act=nn.Tanh)

    def data(self, batch):
        return torch.randn(batch, 4), (torch.randn(batch, 2), torch.randn(batch, 1))

    def forward(self, x):
        return self.actor(x), self.critic(x)


class Dueling(Net):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(dense(144, 256, 128, act=nn.ReLU), nn.ReLU())
        self.value = dense(128, 64, 1, act=nn.ReLU)
        self.advantage = dense(128, 64, 12, act=nn.ReLU)

    def data(self, batch):
        return torch.randn(batch, 144), (torch.randint(12, (batch, 1)), torch.randn(batch, 1))

    def forward(self, x):
        h = self.trunk(x)
        advantage = self.advantage(h)
        return self.value(h) + advantage - advantage.mean(1, keepdim=True)

    def loss(self, q, targets):
        action, target = targets
        return F.huber_loss(q.gather(1, action), target)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        return F.relu(x + self.second(F.relu(self.first(x))))


class ResNet(Net):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(198, 128), nn.ReLU(), *(Block(128) for _ in range(3)))
        self.policy = nn.Linear(128, 1156)
        self.value = dense(128, 64, 6, act=nn.ReLU)

    def data(self, batch):
        return torch.randn(batch, 198), (torch.randn(batch, 1156), torch.randn(batch, 6))

    def forward(self, x):
        h = self.trunk(x)
        return self.policy(h), self.value(h)


class Image(Net):
    layouts = ("contiguous", "channels last")

    def use(self, layout, inputs, targets):
        if layout == "contiguous":
            return inputs, targets
        self.to(memory_format=torch.channels_last)
        images = lambda x: x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x
        return images(inputs), tuple(map(images, targets))


class Conv(Image):
    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([
            nn.Conv2d(3, 8, 3, padding=1),
            nn.Conv2d(8, 16, 3, padding=1, stride=2),
            nn.Conv2d(16, 32, 3, padding=1, stride=2),
        ])
        self.head = nn.Linear(32, 10)

    def data(self, batch):
        return torch.randn(batch, 3, 32, 32), (torch.randint(10, (batch,)),)

    def forward(self, x):
        for conv in self.convs:
            x = F.relu(conv(x))
        return self.head(x.mean((2, 3)))

    def loss(self, logits, targets):
        return F.cross_entropy(logits, targets[0])


class Field(Image):
    """One step of a field: a stencil on a torus, a norm, an activation and noise."""

    input_gradient = True

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(64, 64, 3, padding=1, padding_mode="circular")
        self.norm = nn.InstanceNorm2d(64, affine=True)

    def data(self, batch):
        return torch.randn(batch, 64, 128, 128), (torch.randn(batch, 64, 128, 128),)

    def forward(self, x):
        y = F.gelu(self.norm(self.conv(x)))
        return y + 0.1 * torch.randn_like(y)

    def loss(self, y, targets):
        return F.mse_loss(y, targets[0])


class Lstm(Net):
    layouts = ("batch first", "time first")
    steps = 64

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(128, 128, batch_first=True)

    def data(self, batch):
        return torch.randn(batch, self.steps, 128), (torch.randn(batch, self.steps, 128),)

    def use(self, layout, inputs, targets):
        self.lstm.batch_first = layout == "batch first"
        if self.lstm.batch_first:
            return inputs, targets
        return inputs.transpose(0, 1).contiguous(), tuple(t.transpose(0, 1).contiguous() for t in targets)

    def forward(self, x):
        return self.lstm(x)[0]

    def loss(self, y, targets):
        return F.mse_loss(y, targets[0])


class Attention(Net):
    steps = 32

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(64, 4, batch_first=True)

    def data(self, batch):
        return torch.randn(batch, self.steps, 64), (torch.randn(batch, self.steps, 64),)

    def forward(self, x):
        # Without the weights as a second result, PyTorch may take its fused attention.
        return self.attention(x, x, x, need_weights=False)[0]

    def loss(self, y, targets):
        return F.mse_loss(y, targets[0])


NETS = {
    "mlp": Mlp,
    "dueling": Dueling,
    "resnet": ResNet,
    "conv": Conv,
    "field": Field,
    "lstm": Lstm,
    "attention": Attention,
}
# What each precision may be served by.
SERVED = {"f32": ("",), "bf16": ("autocast", "bf16 weights")}
ADAMS = {"fused Adam": {"fused": True}, "foreach Adam": {"foreach": True}}


def measure(call, seconds):
    """CPU microseconds of one call: the best of several parts, as `operant bench nn` takes it on one thread."""
    for _ in range(WARM_UP_CALLS):
        call()
    start = time.process_time()
    call()
    calls = max(1, int(seconds / PARTS / (time.process_time() - start)))
    best = float("inf")
    for _ in range(PARTS):
        start = time.process_time()
        for _ in range(calls):
            call()
        best = min(best, (time.process_time() - start) / calls)
    return best * 1e6


def case(args, layout, served):
    """A network and its data in one layout and precision."""
    torch.manual_seed(SEED)
    net = NETS[args.net]()
    inputs, targets = net.use(layout, *net.data(args.batch))
    if served == "bf16 weights":
        net.bfloat16()
        half = lambda x: x.bfloat16() if x.is_floating_point() else x
        inputs, targets = half(inputs), tuple(map(half, targets))
    return net, inputs, targets


def forward(args, layout, served):
    net, inputs, _ = case(args, layout, served)
    net.eval()
    call = torch.compile(net) if args.library == "torch-compile" else net
    # Compiled networks are guarded against the mode, and inference mode breaks some of them.
    mode = torch.no_grad if args.library == "torch-compile" else torch.inference_mode
    with mode(), torch.autocast("cpu", torch.bfloat16, enabled=served == "autocast"):
        return measure(lambda: call(inputs), args.seconds)


def train(args, layout, served, adam):
    net, inputs, targets = case(args, layout, served)
    inputs.requires_grad_(net.input_gradient)
    optimizer = torch.optim.Adam(net.parameters(), lr=LEARNING_RATE, **ADAMS[adam])

    def loss(inputs, targets):
        # Autocast takes the loss in f32; outside of it, some versions refuse outputs in bf16 beside targets in f32.
        with torch.autocast("cpu", torch.bfloat16, enabled=served == "autocast"):
            return net.loss(net(inputs), targets)

    compiled = torch.compile(loss) if args.library == "torch-compile" else loss

    def step():
        optimizer.zero_grad(set_to_none=True)
        inputs.grad = None
        compiled(inputs, targets).backward()
        optimizer.step()

    return measure(step, args.seconds)


PASSES = {"forward": (forward, ("",)), "train": (train, tuple(ADAMS))}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", choices=["torch", "torch-compile"])
    parser.add_argument("net", choices=NETS)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--precision", choices=SERVED, default="f32")
    parser.add_argument("--passes", default="forward,train")
    parser.add_argument("--seconds", type=float, default=0.5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    print("version", f"torch {torch.__version__}", sep="\t", flush=True)
    for name in args.passes.split(","):
        run, adams = PASSES[name]
        rows = []
        for words in itertools.product(NETS[args.net].layouts, SERVED[args.precision], adams):
            way = ", ".join(filter(None, words)) or "-"
            try:
                rows.append((run(args, *(words if name == "train" else words[:2])), way))
            except Exception as error:
                reason = " ".join(f"{way}: {type(error).__name__}: {error}".split())[:300]
                print("fail", name, reason, sep="\t", flush=True)
        if rows:
            print("row", name, *min(rows), sep="\t", flush=True)


if __name__ == "__main__":
    # Compilers in worker processes would share the CPU that is being measured.
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    sys.exit(main())
