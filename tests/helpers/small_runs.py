"""Trainings of a second: 80 digits in two batches, three epochs."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from fixnorm import recipes
from fixnorm.data import Data, open_data
from fixnorm.methods import MethodName
from fixnorm.training import Recipe, RunOptions, changed, train
from fixnorm.training.view import View

NO_BATCH_STATISTICS = "timm/test_efficientnet_gn"
"""GroupNorm alone: a batch may be split and the gradients still add up."""


def small(**changes: Any) -> Recipe:
    """Six steps."""
    method: MethodName = changes.pop("method", "fixnorm")
    fields: dict[str, Any] = {
        "epochs": 3,
        "warmup_epochs": 1,
        "train_per_class": 8,
        "val_per_class": 9,
        "batch_size": 40,
        "mcbr_every": 1,
    }
    return changed(recipes.get("digits", method), **(fields | changes))


def digits(recipe: Recipe) -> Data:
    return open_data("digits", None, settings=recipe.data_settings(), seed=recipe.seed)


def trained(recipe: Recipe, out: Path, view: View | None = None) -> dict[str, Any]:
    """With a checkpoint of every step."""
    quiet = RunOptions(checkpoint_steps=1, keep=100, tensorboard=False)
    return train(recipe, data=None, out=out, options=quiet, view=view)


def weights_of(out: Path) -> dict[str, Tensor]:
    return load_file(out / "weights.safetensors")


class Steps(View):
    """Notes what every step shows."""

    def __init__(self) -> None:
        self.lr: list[float] = []
        self.loss: list[float] = []

    def wants_numbers(self) -> bool:
        return True

    def step(self, step: int, numbers: Mapping[str, float] | None) -> None:
        assert numbers is not None
        self.lr.append(numbers["lr"])
        self.loss.append(numbers["loss"])


def rows_of(out: Path) -> list[dict[str, str]]:
    with (out / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def assert_close(found: Mapping[str, Tensor], expected: Mapping[str, Tensor], tol: float) -> None:
    assert found.keys() == expected.keys()
    for name in expected:
        torch.testing.assert_close(
            found[name], expected[name], rtol=tol, atol=tol, msg=lambda m, n=name: f"{n}: {m}"
        )


@torch.no_grad()
def accuracy(model: nn.Module, data: Data) -> float:
    """Percent, all images in one batch."""
    (batch,) = data.val.eval_batches(batch_size=len(data.val))
    return 100 * (model(batch.images).argmax(1) == batch.labels).double().mean().item()
