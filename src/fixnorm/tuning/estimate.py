"""How long trainings of a recipe take on this machine, measured on a few batches."""

from __future__ import annotations

import time
from pathlib import Path

import torch
from torch import nn

from fixnorm.data import count_training_images
from fixnorm.models import create
from fixnorm.training.recipe import Recipe

__all__ = ["seconds_of_training", "training_images"]

_SIZES = {"cifar10": 50_000, "fashion-mnist": 60_000, "imagefolder": 1_281_167}
"""Training images of the sets themselves; an image folder not given is taken for ImageNet."""
_GREY = ("digits", "fashion-mnist")
_CLASSES = {"imagefolder": 1000}
_MEASURED = 2.0


def training_images(recipe: Recipe, data: Path | None) -> int:
    """Images of an epoch: counted, or where no folder is given by what the set is known to hold."""
    if data is not None or recipe.data not in _SIZES:
        return count_training_images(recipe.data, data, settings=recipe.data_settings())
    images, classes = _SIZES[recipe.data], _CLASSES.get(recipe.data, 10)
    per_class = min(images // classes, recipe.train_per_class or images)
    if recipe.classes is None and recipe.train_per_class is None:
        return images
    return per_class * min(recipe.classes or classes, classes)


def seconds_of_training(recipe: Recipe, data: Path | None) -> float:
    """One training in full, by one process of this machine: forward and backward passes alone."""
    return training_images(recipe, data) * recipe.epochs / _speed(recipe)


def _speed(recipe: Recipe) -> float:
    """Images/s on random images; on the CPU with one thread, as trials run side by side."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        channels = 1 if recipe.data in _GREY else 3
        classes = recipe.classes or _CLASSES.get(recipe.data, 10)
        model = create(recipe.model, num_classes=classes, in_chans=channels).to(device).train()
        batch = min(recipe.batch_size, 256 if device.type == "cuda" else 16)
        images = torch.randn(batch, channels, recipe.image_size, recipe.image_size, device=device)
        labels = torch.arange(batch, device=device) % classes
        loss = nn.CrossEntropyLoss()

        def step() -> None:
            loss(model(images), labels).backward()
            if device.type == "cuda":
                torch.cuda.synchronize()

        step()
        steps, started = 0, time.perf_counter()
        while (passed := time.perf_counter() - started) < _MEASURED:
            step()
            steps += 1
        return steps * batch / passed
    finally:
        torch.set_num_threads(threads)
