"""Tasks whose batches are two tensors: images, and a class of each image or pixel."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from fixnorm.data import Batch
from fixnorm.training.recipe import R
from fixnorm.training.tasks.task import D, Part, Task

__all__ = ["TensorTask"]


class TensorTask(Task[R, D]):
    """Batches move and split as tensors do."""

    def part(self, batch: Batch, device: torch.device, memory_format: torch.memory_format) -> Part:
        """Images and their labels."""
        images = batch.images.to(device, memory_format=memory_format, non_blocking=True)
        return Part((images,), batch.labels.to(device, non_blocking=True), len(images))

    def split(self, part: Part, parts: int) -> Iterator[Part]:
        """Equal parts of the tensors."""
        (images,) = part.inputs
        for x, y in zip(images.chunk(parts), part.labels.chunk(parts), strict=True):
            yield Part((x,), y, len(x))
