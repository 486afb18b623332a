"""Cityscapes: ids, windows by hand, and what can be wrong with a set."""

import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fixnorm.data import DataError, SegmentationData, SegmentationSettings, open_segmentation
from fixnorm.data.crops import ScaledCrop, scaled_crop
from fixnorm.data.segmentation import CLASSES, to_train_ids
from fixnorm.data.transforms import completed, image_crop, label_crop, resized
from helpers.dense_sets import (
    assert_told_when_met,
    image_path,
    label_path,
    make_cityscapes,
    samples,
)

LABELS = np.arange(16, dtype=np.uint8).reshape(4, 4)
FLIP, STAY = 0.2, 0.8


def _open(root: Path, **options: Any) -> SegmentationData:
    settings = SegmentationSettings(**{"crop": 8, **options})
    return open_segmentation(root, settings=settings, seed=0)


def _window(draws: list[float], **options: Any) -> ScaledCrop:
    settings = SegmentationSettings(**{"crop": 2, **options})
    return scaled_crop((4, 4), np.array([draws]), settings)


def test_label_ids_become_the_official_train_ids() -> None:
    # id: train id, from cityscapesscripts/helpers/labels.py
    official = {7: 0, 8: 1, 11: 2, 12: 3, 13: 4, 17: 5, 19: 6, 20: 7, 21: 8, 22: 9, 23: 10}
    official |= {24: 11, 25: 12, 26: 13, 27: 14, 28: 15, 31: 16, 32: 17, 33: 18}
    ids = np.array([*range(34), 255], dtype=np.uint8)
    expected = [official.get(one, 255) for one in ids.tolist()]
    assert to_train_ids(ids).tolist() == expected
    names = tuple(CLASSES)
    assert (names[0], names[6], names[13], names[18]) == ("road", "traffic light", "car", "bicycle")


@pytest.mark.parametrize("unknown", [34, 100, 254])
def test_other_ids_are_refused(unknown: int) -> None:
    with pytest.raises(ValueError, match=rf"in 0\.\.33 or 255 but it holds {unknown}"):
        to_train_ids(np.array([7, unknown, 255], dtype=np.uint8))


def test_a_window_at_scale_one() -> None:
    # room 4 − 2 = 2: top floor(0.5 · 3) = 1, left floor(0.9 · 3) = 2
    at = _window([STAY, 0.5, 0.9, 0.0], scale=(1.0, 1.0))
    assert at == ScaledCrop(height=4, width=4, top=1, left=2, rows=2, columns=2, flip=False)
    assert label_crop(LABELS, at).tolist() == [[6, 7], [10, 11]]
    image = np.repeat(LABELS[:, :, None], 3, axis=2)
    assert image_crop(image, at)[1].tolist() == [[6, 7], [10, 11]]


def test_a_window_at_scale_two() -> None:
    # 4×4 becomes 8×8, room 5: top floor(0.5 · 6) = 3, left 0; scaled row 3 is row 1, 4 and 5 row 2
    at = _window([STAY, 0.5, 0.0, 1.0 - 2**-53], crop=3, scale=(0.5, 2.0))
    assert at == ScaledCrop(height=8, width=8, top=3, left=0, rows=3, columns=3, flip=False)
    assert label_crop(LABELS, at).tolist() == [[4, 4, 5], [8, 8, 9], [8, 8, 9]]


def test_a_window_at_scale_one_half() -> None:
    # 2×2: the centre of scaled pixel i lies at 2i + 1, the edge of pixel 2i + 1
    at = _window([STAY, 0.0, 0.0, 0.0], scale=(0.5, 2.0))
    assert at == ScaledCrop(height=2, width=2, top=0, left=0, rows=2, columns=2, flip=False)
    assert label_crop(LABELS, at).tolist() == [[5, 7], [13, 15]]
    # bilinear by 2: weights 1 3 3 1 over 8, and 3 3 1 over 7 at the border, where one falls away
    row = np.repeat(np.array([[0, 70, 140, 210]], dtype=np.uint8), 4, axis=0)
    image = np.repeat(row[:, :, None], 3, axis=2)
    assert image_crop(image, at)[0].tolist() == [[50, 160]] * 2


@pytest.mark.parametrize("factor", [0.0, 0.3, 1.0])
def test_a_window_is_a_crop_of_the_resized_image(factor: float) -> None:
    image = np.random.default_rng(0).integers(0, 256, (21, 34, 3), dtype=np.uint8)
    settings = SegmentationSettings(crop=(9, 15))
    at = scaled_crop((21, 34), np.array([[STAY, 0.4, 0.7, factor]]), settings)
    whole = torch.from_numpy(np.array(resized(Image.fromarray(image), at.height, at.width)))
    expected = whole[at.top : at.top + 9, at.left : at.left + 15].permute(2, 0, 1)
    assert torch.equal(image_crop(image, at), expected)


def test_the_scale_is_uniform_between_its_ends() -> None:
    # 0.5 + 1.5 · 0.5 = 1.25: 5 pixels
    assert _window([STAY, 0.0, 0.0, 0.5]).height == 5
    assert _window([STAY, 0.0, 0.0, 0.0], scale=(0.01, 1.0)).height == 1  # never none


def test_small_images_are_padded_below_and_on_the_right_then_mirrored() -> None:
    settings = SegmentationSettings(crop=(3, 4), scale=(0.5, 0.5))
    stay = scaled_crop((4, 4), np.array([[STAY, 0.9, 0.9, 0.0]]), settings)
    assert (stay.top, stay.left, stay.rows, stay.columns) == (0, 0, 2, 2)
    labels = label_crop(LABELS, stay)
    padded = [[5, 7, 255, 255], [13, 15, 255, 255], [255] * 4]
    assert completed(labels, stay, settings, fill=255).tolist() == padded
    flip = scaled_crop((4, 4), np.array([[FLIP, 0.9, 0.9, 0.0]]), settings)
    mirrored = [row[::-1] for row in padded]
    assert completed(labels, flip, settings, fill=255).tolist() == mirrored


def test_flip_can_be_turned_off() -> None:
    assert _window([FLIP, 0.0, 0.0, 0.0]).flip
    assert not _window([FLIP, 0.0, 0.0, 0.0], flip=False).flip


def test_image_and_labels_stay_together(tmp_path: Path) -> None:
    # a picture whose red is its label id times 7: blocks of 6×8 survive any scale
    root = make_cityscapes(tmp_path / "set", train=1, val=1)
    ids = np.repeat(np.repeat(np.array([[7, 8], [11, 33]], dtype=np.uint8), 6, 0), 8, 1)
    Image.fromarray(ids).save(label_path(root, "train", 0))
    Image.fromarray(np.repeat(ids[:, :, None] * 7, 3, 2)).save(image_path(root, "train", 0))
    data = _open(root, crop=(10, 14), mean=(0.0,), std=(1.0,))
    of_label = {0: 49, 1: 56, 2: 77, 18: 231, 255: 0}
    for epoch in range(20):
        images, labels = next(data.train.batches(epoch=epoch, batch_size=1))
        red = (images[0, 0] * 255).round().long()
        expected = torch.tensor([of_label[one] for one in labels.flatten().tolist()]).view(10, 14)
        # pixels on the edges between blocks are blends: at most one row and two columns of each
        assert (red == expected).float().mean() > 0.6
        assert torch.equal(red[labels[0] == 255], expected[labels[0] == 255])


def test_shapes_types_and_normalisation(tmp_path: Path) -> None:
    root = make_cityscapes(tmp_path / "set")
    options = {"mean": (0.5,), "std": (0.25,), "scale": (0.5, 0.5), "crop": (8, 9)}
    data = _open(root, **options)
    images, labels = next(data.train.batches(epoch=0, batch_size=3))
    assert (images.shape, images.dtype) == ((3, 3, 8, 9), torch.float32)
    assert (labels.shape, labels.dtype) == ((3, 8, 9), torch.int64)
    assert images.is_contiguous()
    # 12×16 halved is 6×8: two rows and a column of padding, the mean in the image
    padding = labels == 255
    assert padding[:, 6:].all()
    assert (images[:, :, 6:] == 0).all()
    whole, truth = next(data.val.eval_batches(batch_size=5))
    assert whole.is_contiguous()
    pixels = np.asarray(Image.open(image_path(root, "val", 2)))
    expected = (torch.from_numpy(pixels.copy()).permute(2, 0, 1) / 255 - 0.5) / 0.25
    assert torch.equal(whole[2], expected)
    ids = np.asarray(Image.open(label_path(root, "val", 2)))
    assert truth[2].tolist() == to_train_ids(ids).tolist()


def test_validation_batches_hold_images_of_one_size(tmp_path: Path) -> None:
    sizes = [(12, 16), (12, 16), (12, 16), (10, 16), (12, 16), (12, 16)]
    data = _open(make_cityscapes(tmp_path / "set", val_sizes=sizes))
    shapes = [tuple(b.labels.shape) for b in data.val.eval_batches(batch_size=2)]
    assert shapes == [(2, 12, 16), (1, 12, 16), (1, 10, 16), (2, 12, 16)]
    parts = [
        tuple(b.labels.shape)
        for rank in (0, 1)
        for b in data.val.eval_batches(batch_size=4, rank=rank, world_size=2)
    ]
    assert parts == [(2, 12, 16), (1, 12, 16), (1, 10, 16), (2, 12, 16)]


def test_describe(tmp_path: Path) -> None:
    data = _open(make_cityscapes(tmp_path / "set"), in_memory=False)
    expected = "cityscapes: 7 train and 5 val images, 19 classes, crops of 8×8, streaming"
    assert data.describe() == expected
    assert len(data.classes) == 19
    assert data.ignored == 255


# What can be wrong


@pytest.mark.parametrize("split", ["train", "val"])
@pytest.mark.parametrize("kind", ["leftImg8bit", "gtFine"])
def test_a_missing_split(tmp_path: Path, split: str, kind: str) -> None:
    root = make_cityscapes(tmp_path / "set")
    (root / kind / split).rename(root / "elsewhere")
    with pytest.raises(DataError, match=rf"no {split} split: .*{kind}/{split} is missing; unpack"):
        _open(root)


def test_wrong_roots_and_no_images(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data folder .*nowhere does not exist: give the folder"):
        _open(tmp_path / "nowhere")
    root = make_cityscapes(tmp_path / "set")
    for file in (root / "leftImg8bit" / "val").rglob("*.png"):
        file.unlink()
    with pytest.raises(DataError, match=r"no images: .*leftImg8bit/val holds no CITY/\*_left"):
        _open(root)


def _without_labels(root: Path) -> str:
    label_path(root, "train", 3).unlink()
    return rf"no labels for {image_path(root, 'train', 3)}: .*_labelIds.png is missing; unpack"


def _labels_of_another_size(root: Path) -> str:
    Image.new("L", (16, 11)).save(label_path(root, "train", 3))
    return (
        rf"broken image {image_path(root, 'train', 3)}: it has 12×16 pixels but"
        rf" {label_path(root, 'train', 3)} has 11×16"
    )


def _unknown_id(root: Path) -> str:
    Image.new("L", (16, 12), 34).save(label_path(root, "train", 3))
    return rf"broken image {label_path(root, 'train', 3)}: label ids must be in .* holds 34; repair"


def _labels_in_colour(root: Path) -> str:
    Image.new("RGB", (16, 12)).save(label_path(root, "train", 3))
    return rf"broken image {label_path(root, 'train', 3)}: labels must be 8-bit .* but are RGB"


def _truncated_image(root: Path) -> str:
    path = image_path(root, "train", 3)
    path.write_bytes(path.read_bytes()[:-200])
    return rf"broken image {path}: "


def _no_image(root: Path) -> str:
    image_path(root, "train", 3).write_text("no image")
    return rf"broken image {image_path(root, 'train', 3)}: not an image; repair"


SEEN_IN_HEADERS = [_without_labels, _labels_of_another_size, _no_image]
SEEN_IN_PIXELS = [_unknown_id, _labels_in_colour, _truncated_image]


@pytest.mark.parametrize("breaks", SEEN_IN_HEADERS)
@pytest.mark.parametrize("in_memory", [True, False])
def test_headers_are_checked_before_training(tmp_path: Path, breaks: Any, in_memory: bool) -> None:
    root = make_cityscapes(tmp_path / "set")
    with pytest.raises(DataError, match=rf"^{breaks(root)}[^\n]*$"):
        _open(root, in_memory=in_memory)


@pytest.mark.parametrize("breaks", SEEN_IN_PIXELS)
@pytest.mark.parametrize("workers", [0, 1])
def test_pixels_are_checked_when_they_are_met(tmp_path: Path, breaks: Any, workers: int) -> None:
    root = make_cityscapes(tmp_path / "set")
    assert_told_when_met(partial(_open, root), breaks(root), workers=workers)


@pytest.mark.parametrize("breaks", SEEN_IN_HEADERS + SEEN_IN_PIXELS)
@pytest.mark.parametrize("in_memory", [True, False])
def test_broken_pairs_are_skipped_and_counted(tmp_path: Path, breaks: Any, in_memory: bool) -> None:
    root = make_cityscapes(tmp_path / "set")
    breaks(root)
    data = _open(root, in_memory=in_memory, skip_broken=True)
    batches = list(data.train.batches(epoch=0, batch_size=1))
    assert data.broken == [image_path(root, "train", 3)]
    assert data.describe().endswith("; 1 broken left out")
    # what only fails when it is decoded is replaced by its neighbour while streaming
    replaced = not in_memory and breaks in SEEN_IN_PIXELS
    assert len(batches) == len(data.train) == (7 if replaced else 6)


def test_a_streaming_validation_leaves_a_broken_image_out(tmp_path: Path) -> None:
    root = make_cityscapes(tmp_path / "set")
    Image.new("L", (16, 12), 99).save(label_path(root, "val", 1))
    data = _open(root, in_memory=False, skip_broken=True)
    assert len(samples(data.val.eval_batches(batch_size=2))) == 4
    assert data.broken == [image_path(root, "val", 1)]


@pytest.mark.parametrize("split", ["train", "val"])
def test_a_split_without_a_good_pair(tmp_path: Path, split: str) -> None:
    root = make_cityscapes(tmp_path / "set", train=2, val=2)
    for number in (0, 1):
        label_path(root, split, number).unlink()
    kind = {"train": "training", "val": "validation"}[split]
    with pytest.raises(DataError, match=rf"every {kind} image in {root} is broken: replace them"):
        _open(root, skip_broken=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"crop": 0}, "crop must be a side or (height, width) of at least 1 but got 0"),
        ({"crop": (8, 0)}, "crop must be a side or (height, width) of at least 1 but got (8, 0)"),
        ({"crop": (8, 8, 8)}, "crop must be a side or (height, width)"),
        ({"scale": (0.0, 1.0)}, "scale must be (lowest, highest) above 0 but got (0.0, 1.0)"),
        ({"scale": (2.0, 1.0)}, "scale must be (lowest, highest) above 0 but got (2.0, 1.0)"),
        ({"scale": (1.0, float("nan"))}, "scale must be (lowest, highest) above 0"),
        ({"mean": (0.5, 0.5)}, "mean must hold 1 or 3 values for segmentation"),
        ({"std": (0.0,)}, "std must be positive and finite"),
    ],
)
def test_wrong_settings(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        SegmentationSettings(**options)
