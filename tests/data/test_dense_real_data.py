"""The packed real sets: FIXNORM_DATA names the folder that holds cityscapes/ and coco/."""

import os
from pathlib import Path

import pytest
import torch

from fixnorm.data import (
    DetectionSettings,
    SegmentationSettings,
    Skipped,
    open_detection,
    open_segmentation,
)
from helpers.dense_sets import assert_same

FOLDER = os.environ.get("FIXNORM_DATA")


def _root(name: str) -> Path:
    if FOLDER is None:
        pytest.skip("FIXNORM_DATA is unset: it names the folder that holds cityscapes/ and coco/")
    root = Path(FOLDER) / name
    if not root.is_dir():
        pytest.skip(f"FIXNORM_DATA has no {name}/")
    return root


def test_camvid_in_cityscapes_layout() -> None:
    root = _root("cityscapes")
    memory, stream = (
        open_segmentation(
            root, settings=SegmentationSettings(crop=(96, 128), in_memory=where), seed=0
        )
        for where in (True, False)
    )
    assert (len(memory.train), len(memory.val)) == (150, 50)
    assert memory.memory_bytes == 200 * 192 * 256 * 4
    assert_same(
        memory.train.batches(epoch=0, batch_size=8), stream.train.batches(epoch=0, batch_size=8)
    )
    pixels = torch.zeros(256, dtype=torch.int64)
    for images, labels in memory.val.eval_batches(batch_size=8):
        assert images.shape[1:] == (3, 192, 256)
        pixels += torch.bincount(labels.flatten(), minlength=256)
    assert pixels.sum() == 50 * 192 * 256
    # CamVid has 11 of the classes; its road is most of a street scene, under 3 % is ignored
    assert torch.count_nonzero(pixels[:19]) == 11
    assert memory.classes[int(pixels.argmax())] == "road"
    assert pixels[255] < 0.03 * pixels.sum()
    assert pixels[19:255].sum() == 0


def test_bccd_in_coco_layout() -> None:
    root = _root("coco")
    memory, stream = (
        open_detection(root, settings=DetectionSettings(short_side=160, in_memory=where), seed=0)
        for where in (True, False)
    )
    assert (len(memory.train), len(memory.val)) == (292, 72)
    assert memory.classes == ("RBC", "WBC", "Platelets")
    assert memory.train_skipped == memory.val_skipped == Skipped()
    assert_same(
        memory.train.batches(epoch=0, batch_size=4), stream.train.batches(epoch=0, batch_size=4)
    )
    seen = 0
    for images, targets in memory.val.eval_batches(batch_size=8):
        for image, target in zip(images, targets, strict=True):
            assert image.shape == (3, 160, 213)
            x0, y0, x1, y1 = target["boxes"].unbind(1)
            assert (x0 >= 0).all()
            assert (y0 >= 0).all()
            assert (x1 <= 213).all()
            assert (y1 <= 160).all()
            assert (x1 > x0).all()
            assert (y1 > y0).all()
            seen += len(target["labels"])
    assert seen == len(memory.ground_truth["annotations"]) == 945
