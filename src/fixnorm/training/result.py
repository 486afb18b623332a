"""What a run leaves behind: folded numbers in ``result.json``, weights in safetensors."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from fixnorm.conversion import conversion_of
from fixnorm.system.versions import commit, versions
from fixnorm.training.recipe import Recipe
from fixnorm.training.setup import Trainee
from fixnorm.training.tasks import Metric
from fixnorm.training.weights import write_tensors

__all__ = ["result", "write_weights"]


def result(
    recipe: Recipe,
    metric: Metric,
    rows: Sequence[Mapping[str, Any]],
    *,
    detail: Mapping[str, float | None],
    seconds: float,
    images: int,
    largest_scale: float | None,
    processes: int,
    diverged: bool,
) -> dict[str, Any]:
    """The content of ``result.json``."""
    column = f"val_{metric.name}"
    scores = [row[column] for row in rows if row[column] is not None]
    return {
        "metric": metric.name,
        metric.name: scores[-1] if scores else None,
        f"best_{metric.name}": max(scores, default=None),
        "detail": dict(detail),
        "diverged": diverged,
        "method": recipe.method,
        "lr": recipe.lr,
        "alpha": recipe.alpha,
        "weight_decay": recipe.weight_decay,
        "largest_scale": _finite(largest_scale),
        "epochs": rows[-1]["epoch"],
        "steps": rows[-1]["step"],
        "seed": recipe.seed,
        "mcbr_train": _finite(rows[-1]["mcbr_train"]),
        "mcbr_val": _finite(rows[-1]["mcbr_val"]),
        "seconds": round(seconds, 3),
        "images_per_second": round(images / seconds, 1) if seconds else None,
        "processes": processes,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else _processor(),
        "versions": versions(),
        "commit": commit(),
        "recipe": recipe.to_dict(),
    }


def write_weights(
    path: Path, trainee: Trainee, recipe: Recipe, classes: int, channels: int
) -> None:
    """The trained model's state dict, scales ``g`` included."""
    state = {name: t.contiguous().clone() for name, t in trainee.evaluated.state_dict().items()}
    conversion = conversion_of(trainee.model)
    heads = [head.name for head in conversion.heads] if conversion is not None else []
    header = {
        "format": "pt",
        "method": recipe.method,
        "alpha": str(recipe.alpha),
        "classes": str(classes),
        "channels": str(channels),
        "heads": json.dumps(heads),
    }
    write_tensors(path, state, header)


def _finite(figure: float | None) -> float | None:
    """JSON has no number for what a diverged run may end with."""
    return figure if figure is not None and math.isfinite(figure) else None


def _processor() -> str:
    return f"{platform.machine()}, {torch.get_num_threads()} thread(s)"
