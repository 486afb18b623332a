"""Trainings of a second: 80 digits in two batches, three epochs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor

from fixnorm import recipes
from fixnorm.data import Data, open_data
from fixnorm.groups import Method
from fixnorm.training import Recipe, RunOptions, changed, train
from fixnorm.training.view import View


def small(**changes: Any) -> Recipe:
    """Six steps."""
    method: Method = changes.pop("method", "fixnorm")
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
