"""Before a search begins: how long its trainings take here, and a range of learning rates.

The range is that of a weight-decay recipe. In equilibrium weight decay turns the weights by about
√(2·lr·λ / (1 + μ)) in a step. FixNorm's rescale stands in for a decay λ_t of its own, so it turns
them by the same amount when lr_t·λ_t = lr·λ. λ_t grows in proportion to lr_t: one short training
measures c = λ_t / lr_t, and √(lr·λ / c) is the learning rate that turns the weights as the recipe
does.
"""

from __future__ import annotations

import math
import statistics
import time
from pathlib import Path

import torch

from fixnorm.training.folder import read_table
from fixnorm.training.recipe import Recipe
from fixnorm.training.tasks import estimates_of, task_of
from fixnorm.tuning.engine import Died, Engine
from fixnorm.tuning.plan import SearchSpace
from fixnorm.tuning.trial import Round, Trial

__all__ = [
    "decay_slope",
    "equivalent_lr",
    "probe",
    "range_around",
    "seconds_of_training",
    "train_probe",
    "training_images",
]

_MEASURED = 2.0
_CPU_BATCH = 16
_SPAN = 4.0
"""The paper's range [0.2, 3.2] reaches this far to both sides of its middle, 0.8."""


def training_images(recipe: Recipe, data: Path | None) -> int:
    """Images that one training in full sees.

    Those of an epoch are counted, or where no folder is given what the set is known to hold.
    """
    if recipe.unit == "iterations":
        return recipe.length * recipe.batch_size
    if data is None:
        return estimates_of(recipe).expected().images * recipe.length
    return task_of(recipe).training_images(data) * recipe.length


def seconds_of_training(recipe: Recipe, data: Path | None, *, share: float = 1.0) -> float:
    """One training in full, by one process of this machine: forward and backward passes alone.

    ``share``: of the time that is taken to measure it; less where there are many.
    """
    return training_images(recipe, data) / _speed(recipe, share * _MEASURED)


def _speed(recipe: Recipe, seconds: float) -> float:
    """Images/s on random images; on the CPU with one thread, as trials run side by side."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        task, estimates = task_of(recipe), estimates_of(recipe)
        expected = estimates.expected()
        model = task.network(expected.classes, expected.size[0]).to(device).train()
        most = 256 if device.type == "cuda" else _CPU_BATCH
        part = estimates.example(min(recipe.batch_size, most), device)

        def step() -> None:
            task.loss(model(*part.inputs), part).backward()
            if device.type == "cuda":
                torch.cuda.synchronize()

        step()
        steps, started = 0, time.perf_counter()
        while (passed := time.perf_counter() - started) < seconds:
            step()
            steps += 1
        return steps * part.images / passed
    finally:
        torch.set_num_threads(threads)


def probe(space: SearchSpace) -> Trial:
    """The short training in the middle of a range that measures the decay it stands in for."""
    return Trial(
        key="probe",
        round=Round("probe"),
        index=0,
        lr=float(f"{math.sqrt(space.lr_min * space.lr_max):.3g}"),
        alpha=space.alphas[0],
        fraction=space.fractions[0],
    )


def train_probe(trial: Trial, engine: Engine) -> None:
    """To its end, whose files have the rest."""
    engine.start(trial)
    while not (over := engine.wait(1.0)):
        pass
    _, end = over[0]
    if isinstance(end, Died):
        raise ValueError(f"the probe ended by {end.reason}; the same command tries again")


def decay_slope(metrics: Path) -> float:
    """c = λ_t / lr_t, the median over the epochs of a training."""
    advice = "give --lr-min and --lr-max instead of --from-weight-decay"
    table = read_table(metrics, advice=advice)
    pairs = zip(table.get("implied_decay", ()), table.get("lr", ()), strict=False)
    slopes = [decay / lr for decay, lr in pairs if decay is not None and lr is not None and lr > 0]
    slope = statistics.median(slopes) if slopes else math.nan
    if not (math.isfinite(slope) and slope > 0):
        raise ValueError(f"{metrics} shows no implied decay: {advice}")
    return slope


def equivalent_lr(lr: float, weight_decay: float, slope: float) -> float:
    """The FixNorm learning rate that turns the weights as (lr, weight decay) does."""
    return math.sqrt(lr * weight_decay / slope)


def range_around(lr: float) -> tuple[float, float]:
    """A range as wide as the paper's with this lr in its middle."""
    return float(f"{lr / _SPAN:.2g}"), float(f"{lr * _SPAN:.2g}")
