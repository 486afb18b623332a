"""What the training loop costs: images/s, the data path's share of a step, memory over epochs.

    python benchmarks/throughput.py --data CIFAR10        # or FIXNORM_DATA=DIR with DIR/cifar10
    python benchmarks/throughput.py --layouts             # channels-last, compile: layouts.py

One process, one thread, the recipe ``cifar10-small``. Our loop (FixNorm, all figures, checkpoints
by the clock) is alternated with the plainest one: SGD with weight decay on the same model, batches
and augmentation, label smoothing, nothing written down.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import nn

import fixnorm
from fixnorm import recipes
from fixnorm.data import Batch, Data, open_data
from fixnorm.models import create
from fixnorm.system.interrupt import Interrupt
from fixnorm.training import ClassificationRecipe, RunOptions, changed, train
from fixnorm.training.folder import RunFolder
from fixnorm.training.loop import Run
from fixnorm.training.setup import build
from fixnorm.training.tasks import Metric
from fixnorm.training.view import View
from layouts import ALONE, SMALL, compare_layouts
from timing import alternate, ratio, report


def endless(data: Data, recipe: ClassificationRecipe) -> Iterator[Batch]:
    """The batches of epoch after epoch."""
    epoch = 0
    while True:
        yield from data.train.batches(epoch=epoch, batch_size=recipe.batch_size)
        epoch += 1


def plain_loop(data: Data, recipe: ClassificationRecipe, steps: int) -> Callable[[], None]:
    model = create(recipe.model, num_classes=len(data.classes), in_chans=data.channels)
    model = model.to(memory_format=torch.channels_last)
    groups = fixnorm.param_groups(model, method="weight-decay", weight_decay=1e-3)
    optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9, nesterov=True)
    loss = nn.CrossEntropyLoss(label_smoothing=recipe.label_smoothing)
    batches = endless(data, recipe)

    def run() -> None:
        for _ in range(steps):
            images, labels = next(batches)
            optimizer.zero_grad()
            loss(model(images.to(memory_format=torch.channels_last)), labels).backward()
            optimizer.step()

    return run


def our_loop(data: Data, recipe: ClassificationRecipe, steps: int, out: Path) -> Callable[[], None]:
    trainee = build(recipe, data, ALONE)
    options = RunOptions(checkpoint_minutes=60)
    run = Run(trainee, data, RunFolder(out), options=options, view=View(), interrupt=Interrupt())
    batches = endless(data, recipe)

    def steps_of_ours() -> None:
        for _ in range(steps):
            run.step(next(batches))
            run.pause()

    return steps_of_ours


def data_path(data: Data, recipe: ClassificationRecipe, steps: int) -> Callable[[], None]:
    batches = endless(data, recipe)

    def run() -> None:
        for _ in range(steps):
            next(batches)

    return run


def speed(data: Data, recipe: ClassificationRecipe, steps: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        runs = {
            "plain": plain_loop(data, recipe, steps),
            "ours": our_loop(data, recipe, steps, Path(folder)),
            "data": data_path(data, recipe, steps),
        }
        seconds = alternate(runs, rounds=rounds)
    for name, taken in seconds.items():
        images = steps * recipe.batch_size / statistics.median(taken)
        print(f"{name:<6} {images:10,.0f} images/s   (median of {rounds} rounds of {steps} steps)")
    report(
        f"{recipe.name}: a step of ours by the plainest (1.031: 0.97 of its images/s)",
        ratio(seconds, "ours", "plain"),
        1 / 0.97,
    )
    report(
        f"{recipe.name}: share of the data path in a step",
        100 * ratio(seconds, "data", "ours"),
        5.0,
        "%",
    )


def resident_megabytes() -> float:
    """Resident memory of this process, as Linux tells it.

    Freed memory that the C library keeps for reuse comes and goes by 20 MB from epoch to epoch:
    it is given back first.
    """
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


class MemoryOfEpochs(View):
    """Notes the resident memory at the end of each epoch."""

    def __init__(self) -> None:
        self.megabytes: list[float] = []

    def row(self, row: Mapping[str, Any], place: tuple[str, int, int], metric: Metric) -> None:
        """An epoch is done."""
        self.megabytes.append(resident_megabytes())


def memory(
    recipe: ClassificationRecipe, folder: Path | None, *, epochs: int = 20, settled: int = 5
) -> None:
    view = MemoryOfEpochs()
    recipe = changed(recipe, epochs=epochs)
    with tempfile.TemporaryDirectory() as out:
        train(recipe, data=folder, out=Path(out) / "run", view=view)
    print(f"{recipe.name}: MB resident after each epoch:", *(f"{m:.1f}" for m in view.megabytes))
    growth = view.megabytes[-1] - view.megabytes[settled - 1]
    # A page more or less is the allocator's; a batch kept an epoch would be 1.5 MB.
    report(f"{recipe.name}: growth over the last {epochs - settled} epochs", growth, 1.0, "MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="CIFAR-10 [default: $FIXNORM_DATA/cifar10]")
    parser.add_argument("--steps", type=int, default=50, help="steps of a round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--layouts",
        nargs="*",
        metavar="RECIPE",
        help="compare memory layouts [default: small ones]",
    )
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.layouts is not None:
        print(f"torch {torch.__version__}, {options.threads} thread(s), fp32")
        compare_layouts(options.layouts or SMALL, steps=options.steps, rounds=options.rounds)
        return
    if options.data is None and "FIXNORM_DATA" not in os.environ:
        sys.exit("give --data, the folder of CIFAR-10, or set FIXNORM_DATA")
    folder = options.data or Path(os.environ["FIXNORM_DATA"]) / "cifar10"
    torch.manual_seed(0)
    recipe = recipes.get("cifar10-small")
    assert isinstance(recipe, ClassificationRecipe)
    print(f"torch {torch.__version__}, {options.threads} thread(s), {recipe.model}, fp32")

    small = changed(recipe, train_per_class=64, val_per_class=50, mcbr_every=2)
    memory(small, folder)
    with ExitStack() as stack:
        data = open_data(recipe.data, folder, settings=recipe.data_settings(), seed=0)
        stack.callback(data.close)
        speed(data, recipe, options.steps, options.rounds)


if __name__ == "__main__":
    main()
