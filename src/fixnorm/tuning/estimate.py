"""How long trainings of a recipe take on this machine, measured on a few batches."""

from __future__ import annotations

import time
from pathlib import Path

import torch

from fixnorm.training.recipe import Recipe
from fixnorm.training.tasks import estimates_of, task_of

__all__ = ["seconds_of_training", "training_images"]

_MEASURED = 2.0
_CPU_BATCH = 16


def training_images(recipe: Recipe, data: Path | None) -> int:
    """Images that one training in full sees.

    Those of an epoch are counted, or where no folder is given what the set is known to hold.
    """
    if recipe.unit == "iterations":
        return recipe.length * recipe.batch_size
    if data is None:
        return estimates_of(recipe).expected().images * recipe.length
    return task_of(recipe).training_images(data) * recipe.length


def seconds_of_training(recipe: Recipe, data: Path | None) -> float:
    """One training in full, by one process of this machine: forward and backward passes alone."""
    return training_images(recipe, data) / _speed(recipe)


def _speed(recipe: Recipe) -> float:
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
        while (passed := time.perf_counter() - started) < _MEASURED:
            step()
            steps += 1
        return steps * part.images / passed
    finally:
        torch.set_num_threads(threads)
