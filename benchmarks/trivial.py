"""What a predictor scores that does not look at the image: the floor under any result."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from fixnorm.data import DetectionBatch
from fixnorm.training import Recipe
from fixnorm.training.distributed import World
from fixnorm.training.tasks import task_of

ALONE = World(rank=0, size=1, device=torch.device("cpu"))
TRIED = 5


def trivial(recipe: Recipe, folder: Path | None) -> float:
    """The metric of the task, in percent.

    Classes of images or pixels: always the commonest of the training set. Boxes: those of a
    training image, on every image; the mean over the first few of them.
    """
    task = task_of(recipe)
    data = task.open(folder)
    try:
        if recipe.task == "detection":
            shown = first_targets(data)
            return statistics.fmean(copied_boxes(task, data, target) for target in shown)
        return commonest_class(task, data)
    finally:
        data.close()


def commonest_class(task: Any, data: Any) -> float:
    classes = len(data.classes)
    counts = torch.zeros(classes, dtype=torch.int64)
    for batch in data.train.batches(epoch=0, batch_size=1):
        labels = batch.labels[batch.labels < classes]
        counts += torch.bincount(labels, minlength=classes)
    scorer = task.scorer(data, ALONE.device)
    for batch in data.val.eval_batches(batch_size=1):
        always = torch.full_like(batch.labels, int(counts.argmax()))
        logits = F.one_hot(always, classes).movedim(-1, 1).float()
        scorer.update({"out": logits} if logits.ndim == 4 else logits, batch.labels)
    return float(scorer.compute(ALONE).value)


def first_targets(data: Any) -> list[Any]:
    found: list[Any] = []
    for batch in data.train.batches(epoch=0, batch_size=1):
        found += batch.targets
        if len(found) == TRIED:
            break
    return found


def copied_boxes(task: Any, data: Any, target: Any) -> float:
    scorer = task.scorer(data, ALONE.device)
    guess = {
        "boxes": target["boxes"],
        "labels": target["labels"],
        "scores": torch.ones(len(target["labels"])),
    }
    for batch in data.val.eval_batches(batch_size=1):
        scorer.update([guess], DetectionBatch(batch.images, batch.targets))
    return float(scorer.compute(ALONE).value)
