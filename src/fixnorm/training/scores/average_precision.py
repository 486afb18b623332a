"""COCO's average precision of a detector, by its own evaluator."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping, Sequence
from typing import Any

import torch.distributed as dist
from torch import Tensor

from fixnorm.data import DetectionBatch, DetectionData, GroundTruth, Result
from fixnorm.training.distributed import World
from fixnorm.training.scores.scorer import Score, Scorer

__all__ = ["AveragePrecision", "average_precision"]


class AveragePrecision(Scorer):
    """AP at IoU 0.5 to 0.95, and what COCO reports beside it."""

    def __init__(self, data: DetectionData) -> None:
        self._data = data
        self._results: list[Result] = []
        self._seen: list[int] = []

    def update(self, outputs: Sequence[Mapping[str, Tensor]], labels: DetectionBatch) -> None:
        """What torchvision's detectors find on a batch."""
        for found, image, target in zip(outputs, labels.images, labels.targets, strict=True):
            self._results += self._data.results(
                target,
                image,
                boxes=found["boxes"],
                scores=found["scores"],
                labels=found["labels"],
            )
            self._seen.append(target["image_id"])

    def compute(self, world: World) -> Score:
        """Over the images of all processes."""
        found = average_precision(self._data.ground_truth, self._results, self._seen, world)
        return Score(found["ap"], found)


def average_precision(
    ground_truth: GroundTruth, results: Sequence[Result], seen: Sequence[int], world: World
) -> dict[str, float]:
    """AP in percent: ``ap`` (IoU 0.5 to 0.95), ``ap50``, ``ap75``, and of each size of objects.

    Args:
        ground_truth: of the whole validation set.
        results: what this process found on its images.
        seen: ids of the images that this process looked at.
        world: all processes; each gets the figures of all of them.
    """
    from faster_coco_eval import COCO, COCOeval_faster

    everything = _gathered(list(results), world)
    images = sorted(set(_gathered(list(seen), world)))
    names = ("ap", "ap50", "ap75", "small", "medium", "large")
    if not everything or not ground_truth["annotations"]:
        return dict.fromkeys(names, 0.0)
    with contextlib.redirect_stdout(io.StringIO()):  # it prints its progress
        truth = COCO()
        truth.dataset = ground_truth
        truth.createIndex()
        evaluator = COCOeval_faster(truth, truth.loadRes(everything), iouType="bbox")
        evaluator.params.imgIds = images
        evaluator.evaluate()
        evaluator.accumulate()
        evaluator.summarize()
    # −1 stands for "no object of that size in the set"
    return {name: 100 * max(float(v), 0.0) for name, v in zip(names, evaluator.stats, strict=False)}


def _gathered(values: list[Any], world: World) -> list[Any]:
    if world.size == 1:
        return values
    parts: list[list[Any]] = [[] for _ in range(world.size)]
    dist.all_gather_object(parts, values)
    return [value for part in parts for value in part]
