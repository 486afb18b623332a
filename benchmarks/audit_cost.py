"""What the audit costs, against one float64 forward and backward pass at the same input.

python benchmarks/audit_cost.py            # seconds of one model, then the memory of three
python benchmarks/audit_cost.py --memory   # memory alone

Memory is the peak of the resident set (VmHWM) over what was resident before the model was built, so
that its weights count, the copy's too; each case in a process of its own, on one thread, and malloc
told to give freed blocks back to the system at once: what is resident is what is alive. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import timm
import torch
import torchvision
from torch import Tensor, nn

import fixnorm
from timing import alternate, ratio, report


class CifarDenseNet121(nn.Module):
    """DenseNet121 as CIFAR scripts have it: no stem pooling, and it insists on 32×32 images."""

    def __init__(self) -> None:
        super().__init__()
        net = torchvision.models.densenet121(num_classes=10)
        net.features.conv0 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
        net.features.pool0 = nn.Identity()
        self.features, self.classifier = net.features, net.classifier

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        x = nn.functional.avg_pool2d(torch.relu(self.features(x)), 4)
        output: Tensor = self.classifier(x.flatten(1))
        return output


MODELS: dict[str, Callable[[], nn.Module]] = {
    "densenet121 (CIFAR)": CifarDenseNet121,
    "resnet50d": lambda: timm.create_model("resnet50d"),
    "efficientnet_b0": lambda: timm.create_model("efficientnet_b0"),
}


def forward_and_backward(double: nn.Module, x64: Tensor) -> None:
    double.zero_grad()
    double(x64).sum().backward()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="resnet50d")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--memory", action="store_true", help="memory alone")
    parser.add_argument("--one", nargs="+", help=argparse.SUPPRESS)  # a case in its own process
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    if options.one:
        name, kind, *side = options.one
        print(json.dumps(one_case(name, kind, int(side[0]) if side else 0)))
        return
    if not options.memory:
        seconds_of(options)
    for name in MODELS:
        memory_of(name)


def seconds_of(options: argparse.Namespace) -> None:
    model = timm.create_model(options.model)
    double = timm.create_model(options.model).double().train()
    x = torch.randn(options.batch, 3, options.size, options.size)
    runs = {
        "audit": lambda: fixnorm.audit(model, x),
        "pass": lambda: forward_and_backward(double, x.double()),
    }
    seconds = alternate(runs, rounds=options.rounds)
    what = f"{options.model}: audit against one float64 forward+backward, {tuple(x.shape)}"
    report(what, ratio(seconds, "audit", "pass"), 4.0)


class Case(NamedTuple):
    """What one process measured."""

    gb: float
    side: int
    """Of the last images that the model was given."""
    largest: int


def memory_of(name: str) -> None:
    """The audit as users call it, then audit and one pass at the size that it chose."""
    guessed = in_own_process(name, "guessing")
    audit, one_pass = (in_own_process(name, kind, guessed.side).gb for kind in ("audit", "pass"))
    print(
        f"{name}: audit(model) {guessed.gb:.2f} GB, largest image {guessed.largest} px; "
        f"at {guessed.side} px audit {audit:.2f} GB, one float64 forward+backward {one_pass:.2f} GB"
    )
    report(f"{name}: memory of the audit against that of one pass", audit / one_pass, 2.0)


def in_own_process(name: str, kind: str, side: int = 0) -> Case:
    returning = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    command = [sys.executable, __file__, "--one", name, kind, *([str(side)] if side else [])]
    done = subprocess.run(
        command, env=os.environ | returning, check=True, stdout=subprocess.PIPE, text=True
    )
    return Case(*json.loads(done.stdout.splitlines()[-1]))


def one_case(name: str, kind: str, side: int) -> Case:
    layer = nn.Conv2d(3, 4, 3).double()
    layer(torch.randn(4, 3, 8, 8).double()).sum().backward()  # what torch loads on first use
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts from here
    before = resident("VmRSS")
    model = MODELS[name]()
    sides: list[int] = []
    if kind == "pass":
        forward_and_backward(model.double().train(), torch.randn(4, 3, side, side).double())
    else:  # the audit's copy has the hook, too
        model.register_forward_pre_hook(lambda _, args: sides.append(args[0].shape[-1]))
        fixnorm.audit(model, torch.randn(4, 3, side, side) if side else None)
    gb = (resident("VmHWM") - before) / 2**30
    return Case(gb, sides[-1] if sides else side, max(sides, default=side))


def resident(field: str) -> int:
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) * 1024


if __name__ == "__main__":
    main()
