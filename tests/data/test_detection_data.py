"""COCO: boxes by hand, what is left out, and what an evaluator is given."""

import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fixnorm.data import DataError, DetectionData, DetectionSettings, Skipped, open_detection
from fixnorm.data.coco import Boxes, clip
from fixnorm.data.detection import mirrored, scaled, seen_size
from fixnorm.data.draws import uniforms
from helpers.dense_sets import assert_told_when_met, box, coco_image_path, make_coco, samples


def _open(root: Path, **options: Any) -> DetectionData:
    return open_detection(root, settings=DetectionSettings(**options), seed=0)


def _boxes(*corners: list[float]) -> Boxes:
    return np.array(corners, dtype=np.float32)


def test_boxes_by_hand() -> None:
    boxes = _boxes([1, 2, 4, 8])
    # 10×20 to 5×40: y halves, x doubles
    assert scaled(boxes, (10, 20), (5, 40)).tolist() == [[2, 1, 8, 4]]
    assert mirrored(boxes, 20).tolist() == [[16, 2, 19, 8]]
    assert mirrored(mirrored(boxes, 20), 20).tolist() == boxes.tolist()


def test_clipping_by_hand() -> None:
    xywh = np.array(
        [
            [1.0, 2, 3, 4],  # inside
            [-2.0, 8, 5, 5],  # over two edges
            [20.0, 0, 5, 5],  # beside the image
            [3.0, 3, 0, 4],  # no width
            [3.0, 3, 4, -1],  # less than none
            [19.995, 3, 4, 4],  # a sliver inside
        ]
    )
    corners, no_area, outside = clip(xywh, np.array([[10, 20]] * 6))
    assert corners[:2].tolist() == [[1, 2, 4, 6], [0, 8, 3, 10]]
    assert no_area.tolist() == [False, False, False, True, True, False]
    assert outside.tolist() == [False, False, True, False, False, True]


@pytest.mark.parametrize(
    ("short", "longest", "expected"),
    [
        (None, None, (240, 320)),
        (120, None, (120, 160)),
        (160, None, (160, 213)),  # 320 · 160/240 = 213.3
        (160, 200, (150, 200)),  # the long side decides: 200/320
        (None, 160, (120, 160)),
        (None, 400, (240, 320)),  # a limit enlarges nothing
        (480, 640, (480, 640)),
    ],
)
def test_sizes_by_hand(short: int | None, longest: int | None, expected: tuple[int, int]) -> None:
    settings = DetectionSettings(short_side=short, max_side=longest)
    assert seen_size((240, 320), settings) == expected


def test_targets_are_torchvisions(tmp_path: Path) -> None:
    root = make_coco(tmp_path / "set", val_boxes=[box(11, [1, 2, 3, 4]), box(11, [5, 6, 7, 6.5])])
    data = _open(root)
    assert data.classes == ("cat", "dog")
    assert data.category_ids == (3, 7)
    images, targets = next(data.train.batches(epoch=0, batch_size=2))
    for image, target in zip(images, targets, strict=True):
        assert (image.shape, image.dtype) == ((3, 12, 16), torch.float32)
        assert image.is_contiguous()
        assert 0 <= image.min() < image.max() <= 1
        assert target["boxes"].dtype == torch.float32
        assert target["labels"].tolist() == [0, 1]
        assert target["labels"].dtype == torch.int64
    found = next(data.val.eval_batches(batch_size=5)).targets
    assert [target["image_id"] for target in found] == [10, 11, 12, 13, 14]
    assert found[0]["boxes"].shape == (0, 4)
    assert found[1]["boxes"].tolist() == [[1, 2, 4, 6], [5, 6, 12, 12]]  # clipped at 12
    pixels = np.asarray(Image.open(coco_image_path(root, "val", 11)))
    expected = torch.from_numpy(pixels.copy()).permute(2, 0, 1) / 255
    assert torch.equal(samples(data.val.eval_batches(batch_size=1))[1][0], expected)


def test_boxes_follow_their_image(tmp_path: Path) -> None:
    # a white rectangle on black, halved in size: its box must frame it in every epoch
    root = make_coco(tmp_path / "set", train=1, boxes=[box(10, [2, 4, 8, 6])])
    pixels = np.zeros((12, 16, 3), dtype=np.uint8)
    pixels[4:10, 2:10] = 255
    Image.fromarray(pixels).save(coco_image_path(root, "train", 10))
    data = _open(root, short_side=6)
    seen = set()
    for epoch in range(12):
        ((image,), (target,)) = next(data.train.batches(epoch=epoch, batch_size=1))
        assert image.shape == (3, 6, 8)
        (corners,) = target["boxes"].tolist()
        rows, columns = torch.nonzero(image[0] > 0.5, as_tuple=True)
        framed = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
        assert corners == [int(side) for side in framed]
        seen.add(tuple(corners))
    assert seen == {(1, 2, 5, 5), (3, 2, 7, 5)}  # x ↦ 8 − x


def test_each_image_has_its_own_draws(tmp_path: Path) -> None:
    root = make_coco(tmp_path / "set")
    plain, data = _open(root, flip=False), _open(root)
    for epoch in (0, 1):
        mirrored = uniforms(7, 4, seed=0, epoch=epoch)[:, 0] < 0.5
        pairs = zip(
            samples(plain.train.batches(epoch=epoch, batch_size=7)),
            samples(data.train.batches(epoch=epoch, batch_size=7)),
            strict=True,
        )
        for (before, *_), (after, _, _, image_id) in pairs:
            expected = before.flip(2) if mirrored[int(image_id) - 10] else before
            assert torch.equal(after, expected)


def test_flip_can_be_turned_off(tmp_path: Path) -> None:
    data = _open(make_coco(tmp_path / "set", train=1), flip=False)
    first, *others = (samples(data.train.batches(epoch=e, batch_size=1))[0] for e in range(8))
    assert all(torch.equal(first[0], other[0]) for other in others)


ODD = [
    box(10, [1, 1, 4, 4]),
    box(10, [2, 2, 8, 8], iscrowd=1),
    box(11, [3, 3, 0, 4]),
    box(12, [40, 3, 5, 5]),
    box(13, [12, 8, 40, 40], category=7),
]


def test_training_leaves_out_and_counts_what_cannot_be_learnt(tmp_path: Path) -> None:
    data = _open(make_coco(tmp_path / "set", train=5, boxes=ODD))
    assert data.train_skipped == Skipped(crowds=1, no_area=1, outside=1, images=3)
    assert data.describe().endswith(
        "; left out of train: 1 crowd boxes, 1 boxes of no area, 1 boxes outside their image,"
        " 3 images without boxes"
    )
    found = samples(data.val.eval_batches(batch_size=1))
    assert len(found) == 5
    trained = _open(tmp_path / "set", flip=False).train.batches(epoch=0, batch_size=2)
    targets = {t["image_id"]: t["boxes"].tolist() for t in next(trained).targets}
    assert targets == {10: [[1, 1, 5, 5]], 13: [[12, 8, 16, 12]]}


def test_ground_truth_is_the_files_own(tmp_path: Path) -> None:
    given = [*ODD, box(14, [0, 0, 2, 3], area=5.5)]
    data = _open(make_coco(tmp_path / "set", val_boxes=given), val_images=4)
    truth = data.ground_truth
    assert truth["categories"] == [{"id": 3, "name": "cat"}, {"id": 7, "name": "dog"}]
    assert [image["id"] for image in truth["images"]] == [10, 11, 12, 13]
    assert truth["images"][0] == {
        "id": 10,
        "file_name": "000000000010.png",
        "height": 12,
        "width": 16,
    }
    # image 14 is beyond val_images; ids count from 1
    assert [one["id"] for one in truth["annotations"]] == [1, 2, 3, 4, 5]
    assert [one["bbox"] for one in truth["annotations"]] == [one["bbox"] for one in ODD]
    assert [one["iscrowd"] for one in truth["annotations"]] == [0, 1, 0, 0, 0]
    assert [one["area"] for one in truth["annotations"]] == [16, 64, 0, 25, 1600]
    assert data.val_skipped == Skipped(crowds=1, no_area=1, outside=1, images=0)
    full = _open(tmp_path / "set").ground_truth["annotations"][-1]
    assert full == {
        "id": 6,
        "image_id": 14,
        "category_id": 3,
        "bbox": [0, 0, 2, 3],
        "area": 5.5,
        "iscrowd": 0,
    }


def test_results_speak_of_the_file(tmp_path: Path) -> None:
    data = _open(make_coco(tmp_path / "set"), short_side=6)  # 12×16 seen as 6×8
    images, targets = next(data.val.eval_batches(batch_size=1))
    found = data.results(
        targets[0],
        images[0],
        boxes=torch.tensor([[1.0, 2.0, 3.0, 5.0]]),
        scores=torch.tensor([0.5]),
        labels=torch.tensor([1]),
    )
    expected = {"image_id": 10, "category_id": 7, "bbox": [2.0, 4.0, 4.0, 6.0], "score": 0.5}
    assert found == [expected]


def test_describe(tmp_path: Path) -> None:
    root = make_coco(tmp_path / "set")
    expected = "coco: 7 train and 5 val images, 2 classes, images of their own size, streaming"
    assert _open(root, in_memory=False).describe() == expected
    resized = _open(root, in_memory=False, short_side=8, max_side=10).describe()
    assert "2 classes, short side 8, long side at most 10, streaming" in resized


def _missing(root: Path) -> str:
    path = coco_image_path(root, "train", 12)
    path.unlink()
    return rf"no image {path}: the annotations list it as id 12; unpack the images wholly"


def _another_size(root: Path) -> str:
    path = coco_image_path(root, "train", 12)
    Image.new("RGB", (16, 11)).save(path)
    return rf"broken image {path}: it has 11×16 pixels but its annotations say 12×16; repair"


def _truncated(root: Path) -> str:
    path = coco_image_path(root, "train", 12)
    path.write_bytes(path.read_bytes()[:-200])
    return rf"broken image {path}: "


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_missing_image_is_told_before_training(tmp_path: Path, in_memory: bool) -> None:
    root = make_coco(tmp_path / "set")
    with pytest.raises(DataError, match=rf"^{_missing(root)}[^\n]*$"):
        _open(root, in_memory=in_memory)


@pytest.mark.parametrize("breaks", [_another_size, _truncated])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_broken_image_is_told_when_it_is_met(tmp_path: Path, breaks: Any, workers: int) -> None:
    root = make_coco(tmp_path / "set")
    assert_told_when_met(partial(_open, root), breaks(root), workers=workers)


@pytest.mark.parametrize("breaks", [_missing, _another_size, _truncated])
@pytest.mark.parametrize("in_memory", [True, False])
def test_broken_images_are_skipped_and_counted(
    tmp_path: Path, breaks: Any, in_memory: bool
) -> None:
    root = make_coco(tmp_path / "set")
    breaks(root)
    data = _open(root, in_memory=in_memory, skip_broken=True, flip=False)
    targets = [b.targets[0] for b in data.train.batches(epoch=0, batch_size=1)]
    assert data.broken == [coco_image_path(root, "train", 12)]
    # what only fails when it is decoded is replaced by its neighbour while streaming
    expected = [10, 11, 13, 14, 15, 16]
    if not in_memory and breaks is _truncated:
        expected.insert(3, 13)
    assert sorted(target["image_id"] for target in targets) == sorted(expected)
    for target in targets:  # make_coco: the first box of image 10 + i is 3 + i wide
        x0, _, x1, _ = target["boxes"][0].tolist()
        assert x1 - x0 == 3 + target["image_id"] - 10


def test_ground_truth_forgets_what_is_broken(tmp_path: Path) -> None:
    root = make_coco(tmp_path / "set")
    coco_image_path(root, "val", 12).write_text("no image")
    data = _open(root, skip_broken=True)
    assert [image["id"] for image in data.ground_truth["images"]] == [10, 11, 13, 14]
    assert {one["image_id"] for one in data.ground_truth["annotations"]} == {10, 11, 13, 14}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"short_side": 0}, "short_side must be at least 1 but got 0"),
        ({"max_side": 0}, "max_side must be at least 1 but got 0"),
        (
            {"short_side": 200, "max_side": 160},
            "max_side must be at least short_side 200 but got 160",
        ),
    ],
)
def test_wrong_settings(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        DetectionSettings(**options)
