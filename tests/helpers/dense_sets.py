"""Small sets in the layouts of Cityscapes and COCO, made of seeded noise."""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fixnorm.data import Batch, DataError, DetectionBatch

CITY = "aachen"
SIZE = (12, 16)


def image_path(root: Path, split: str, number: int) -> Path:
    return root / "leftImg8bit" / split / CITY / f"{CITY}_{number:06}_000019_leftImg8bit.png"


def label_path(root: Path, split: str, number: int) -> Path:
    return root / "gtFine" / split / CITY / f"{CITY}_{number:06}_000019_gtFine_labelIds.png"


def make_cityscapes(
    root: Path,
    *,
    train: int = 7,
    val: int = 5,
    val_sizes: Sequence[tuple[int, int]] | None = None,
) -> Path:
    """Label ids 0 … 33, noise of one seed; no two images are alike."""
    rng = np.random.default_rng(0)
    for split, sizes in (("train", [SIZE] * train), ("val", val_sizes or [SIZE] * val)):
        for folder in (image_path(root, split, 0).parent, label_path(root, split, 0).parent):
            folder.mkdir(parents=True)
        for number, (height, width) in enumerate(sizes):
            pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(image_path(root, split, number))
            ids = rng.integers(0, 34, (height, width), dtype=np.uint8)
            Image.fromarray(ids).save(label_path(root, split, number))
    return root


def annotation_path(root: Path, split: str) -> Path:
    return root / "annotations" / f"instances_{split}2017.json"


def coco_image_path(root: Path, split: str, image_id: int) -> Path:
    return root / f"{split}2017" / f"{image_id:012}.png"


def write_annotations(root: Path, split: str, content: Any) -> None:
    path = annotation_path(root, split)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def box(image_id: int, bbox: list[float], *, category: int = 3, **fields: Any) -> dict[str, Any]:
    return {"id": 50, "image_id": image_id, "category_id": category, "bbox": bbox, **fields}


def make_coco(
    root: Path,
    *,
    train: int = 7,
    val: int = 5,
    boxes: Sequence[dict[str, Any]] | None = None,
    val_boxes: Sequence[dict[str, Any]] | None = None,
) -> Path:
    """Images 10, 11, …, PNG so that no pixel is lost; by default two boxes each.

    Categories: 3 (cat) and 7 (dog), listed in the other order.
    """
    rng = np.random.default_rng(0)
    height, width = SIZE
    for split, count, given in (("train", train, boxes), ("val", val, val_boxes)):
        ids = range(10, 10 + count)
        (root / f"{split}2017").mkdir(parents=True)
        images = []
        for one in ids:
            path = coco_image_path(root, split, one)
            Image.fromarray(rng.integers(0, 256, (*SIZE, 3), dtype=np.uint8)).save(path)
            images.append({"id": one, "file_name": path.name, "height": height, "width": width})
        if given is None:
            given = [box(one, [1.0, 2.0, 3.0 + one - 10, 4.0]) for one in ids]
            given += [box(one, [0.5, 0.5, 8.0, 5.0], category=7) for one in ids]
        content = {
            "images": images[::-1],
            "annotations": list(given),
            "categories": [{"id": 7, "name": "dog"}, {"id": 3, "name": "cat"}],
        }
        write_annotations(root, split, content)
    return root


def samples(batches: Iterable[Batch | DetectionBatch]) -> list[list[torch.Tensor]]:
    """The samples of batches of either kind, one after the other, as lists of tensors."""
    found: list[list[torch.Tensor]] = []
    for batch in batches:
        if isinstance(batch, DetectionBatch):
            for image, target in zip(batch.images, batch.targets, strict=True):
                number = torch.tensor(target["image_id"])
                found.append([image, target["boxes"], target["labels"], number])
        else:
            found += [list(pair) for pair in zip(batch.images, batch.labels, strict=True)]
    return found


def assert_same(
    left: Iterable[Batch | DetectionBatch], right: Iterable[Batch | DetectionBatch]
) -> None:
    ours, theirs = samples(left), samples(right)
    assert len(ours) == len(theirs) > 0
    for a, b in zip(ours, theirs, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def assert_told_when_met(open_set: Callable[..., Any], message: str, *, workers: int) -> None:
    """A set in memory refuses a broken training image at once, a streaming one in its epoch."""
    line = rf"^{message}[^\n]*$"
    with pytest.raises(DataError, match=line):
        open_set(in_memory=True)
    data = open_set(in_memory=False, workers=workers)
    with pytest.raises(DataError, match=line):
        list(data.train.batches(epoch=0, batch_size=7))
    data.close()
