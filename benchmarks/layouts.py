"""What channels-last and torch.compile make of a training step of the small models.

    python benchmarks/throughput.py --layouts              # needs no data

One process, one thread, random images in the shape of the recipe's, the recipe's own optimizer
and hook. The layouts are alternated. All is processor time, that of the C++ compiler included, and
nothing compiled before is used: a busy machine shows less so.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch

from fixnorm import recipes
from fixnorm.data import Batch
from fixnorm.training import Recipe, changed
from fixnorm.training.compiling import check_compiles
from fixnorm.training.distributed import World
from fixnorm.training.setup import build
from fixnorm.training.tasks import estimates_of
from timing import alternate, ratio

ALONE = World(rank=0, size=1, device=torch.device("cpu"))
SMALL = (
    "digits",
    "cifar10-small",
    "cifar10-quick",
    "cifar10-resnet20",
    "cifar10-mobilenetv2",
    "cifar10-se",
    "fashion-mnist-small",
)
"""One recipe for each model and size of images; Tiny-ImageNet's are as CIFAR-10's."""
LAYOUTS = {
    "contiguous": {"channels_last": False, "compile": False},
    "channels-last": {"channels_last": True, "compile": False},
    "both": {"channels_last": True, "compile": True},
    "compiled": {"channels_last": False, "compile": True},
}


def training_steps(recipe: Recipe, steps: int) -> Callable[[], None]:
    _, classes, (channels, size, _) = estimates_of(recipe).expected()
    shape: Any = SimpleNamespace(classes=range(classes), channels=channels, image_size=size)
    trainee = build(recipe, shape, ALONE)
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(recipe.batch_size, channels, size, size, generator=generator)
    batch = Batch(images, torch.arange(recipe.batch_size) % classes)

    def run() -> None:
        for _ in range(steps):
            part = trainee.passes.part(batch)
            trainee.optimizer.zero_grad()
            trainee.passes.task.loss(trainee.forward(*part.inputs), part).backward()
            trainee.optimizer.step()

    return run


def processor_seconds(run: Callable[[], None]) -> float:
    """Of this process and of those that it started and waited for."""
    before = os.times()
    run()
    after = os.times()
    return sum(after[:4]) - sum(before[:4])


def compare_layouts(names: Iterable[str], *, steps: int, rounds: int) -> None:
    """A table, a line for each recipe: speeds by that of contiguous images, and what pays when."""
    with tempfile.TemporaryDirectory() as cache, patch.dict(os.environ):
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # so that its time is this process's
        own = processor_seconds(lambda: check_compiles(ALONE.device))
        print(f"loading the compiler takes {own:.1f} s; compiling, beside that:")
        faster = [name for name in LAYOUTS if name != "contiguous"]
        titles = " ".join(f"{name:>14}" for name in faster)
        print(f"{'recipe':<20} {'images/s':>9} {titles} {'compile':>9} {'both pays after':>18}")
        for name in names:
            recipe = recipes.get(name)
            runs = {key: training_steps(changed(recipe, **x), steps) for key, x in LAYOUTS.items()}
            firsts = {key: processor_seconds(run) for key, run in runs.items()}
            seconds = alternate(runs, rounds=rounds, clock=time.process_time)
            a_step = {key: statistics.median(taken) / steps for key, taken in seconds.items()}
            start = firsts["both"] - firsts["channels-last"]
            saved = 1 - ratio(seconds, "both", "channels-last")
            pays = (own + start) / (saved * a_step["channels-last"]) * recipe.batch_size
            when = f"{pays:,.0f} images" if saved > 0.01 else "never"
            print(
                f"{name:<20} {recipe.batch_size / a_step['contiguous']:9,.0f} "
                + " ".join(f"{ratio(seconds, 'contiguous', key):13.2f}×" for key in faster)
                + f" {start:7.1f} s {when:>18}",
                flush=True,
            )
            torch.compiler.reset()
