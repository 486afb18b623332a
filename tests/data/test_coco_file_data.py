"""A wrong annotation file ends in one line that names the file and the id."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fixnorm.data import DataError, DetectionSettings, open_detection
from helpers.dense_sets import annotation_path, box, make_coco, write_annotations

Content = dict[str, Any]


def _open(root: Path) -> None:
    open_detection(root, settings=DetectionSettings(), seed=0)


def _changed(root: Path, change: Callable[[Content], object], split: str = "train") -> Path:
    path = annotation_path(root, split)
    content = json.loads(path.read_text())
    change(content)
    write_annotations(root, split, content)
    return path


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data folder .*nowhere does not exist: give the folder"):
        _open(tmp_path / "nowhere")
    root = make_coco(tmp_path / "set")
    annotation_path(root, "val").unlink()
    with pytest.raises(DataError, match=r"no annotations: .*instances_val2017.json is missing; un"):
        _open(root)
    (root / "train2017").rename(root / "elsewhere")
    with pytest.raises(DataError, match=r"no train split: .*train2017 is missing; lay the set out"):
        _open(root)


def test_a_folder_in_place_of_the_file(tmp_path: Path) -> None:
    root = make_coco(tmp_path / "set")
    annotation_path(root, "val").unlink()
    annotation_path(root, "val").mkdir()
    with pytest.raises(DataError, match=r"cannot read .*instances_val2017.json: it is a folder"):
        _open(root)


@pytest.mark.parametrize("keep", [0, 1, 150])
def test_a_truncated_file(tmp_path: Path, keep: int) -> None:
    root = make_coco(tmp_path / "set")
    path = annotation_path(root, "train")
    path.write_text(path.read_text()[:keep])
    with pytest.raises(DataError, match=rf"^{path} is no whole JSON: [^\n]*; fetch it again$"):
        _open(root)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    root = make_coco(tmp_path / "set")
    annotation_path(root, "train").write_bytes(b'{"images": "\xff"}')
    with pytest.raises(DataError, match=r"instances_train2017.json is no whole JSON: .*decode"):
        _open(root)


@pytest.mark.parametrize("key", ["images", "annotations", "categories"])
@pytest.mark.parametrize("split", ["train", "val"])
def test_a_missing_key(tmp_path: Path, key: str, split: str) -> None:
    root = make_coco(tmp_path / "set")
    path = _changed(root, lambda content: content.pop(key), split)
    with pytest.raises(DataError, match=rf"^{path} has no list '{key}': an instances file holds"):
        _open(root)


def test_a_file_that_is_a_list(tmp_path: Path) -> None:
    root = make_coco(tmp_path / "set")
    write_annotations(root, "train", [])
    with pytest.raises(DataError, match=r"instances_train2017.json has no list 'images'"):
        _open(root)


BAD_ENTRIES: list[tuple[str, Any, str]] = [
    ("images", 5, "images hold 5, which is no object; remove it"),
    ("images", {"id": 10}, "image 10 needs file_name as str but has None; repair or"),
    (
        "images",
        {"id": 10, "file_name": "a.png", "height": 2, "width": 2},
        "duplicate image id 10; give each image its own",
    ),
    (
        "images",
        {"id": 90, "file_name": "a.png", "height": 0, "width": 2},
        "image 90 has 0×2 pixels; repair or remove it",
    ),
    ("categories", {"id": 3, "name": "cow"}, "duplicate category id 3; give each"),
    ("categories", {"id": 4}, "category 4 needs name as str but has None"),
    (
        "annotations",
        box(99, [1, 1, 2, 2]),
        "annotation 50 is of the unknown image id 99; list the image or remove it",
    ),
    (
        "annotations",
        box(10, [1, 1, 2, 2], category=8),
        "annotation 50 has the unknown category id 8: the file's are 3, 7",
    ),
    ("annotations", {"id": 51, "image_id": 10, "category_id": 3}, "annotation 51 needs bbox as li"),
    (
        "annotations",
        box(10, [1, 1, 2]),
        "annotation 50 needs a bbox of 4 finite numbers (x, y, width, height) but has [1, 1, 2]",
    ),
    ("annotations", box(10, [1, 1, float("nan"), 2]), "annotation 50 needs a bbox of 4 finite"),
    ("annotations", box(10, [1, 1, "2", 2]), "annotation 50 needs a bbox of 4 finite"),  # type: ignore[list-item]
]


@pytest.mark.parametrize(("key", "entry", "message"), BAD_ENTRIES)
def test_a_bad_entry(tmp_path: Path, key: str, entry: Any, message: str) -> None:
    root = make_coco(tmp_path / "set")
    path = _changed(root, lambda content: content[key].append(entry))
    with pytest.raises(DataError, match=rf"^{re.escape(f'{path}: {message}')}[^\n]*$"):
        _open(root)


def test_nothing_to_learn(tmp_path: Path) -> None:
    root = make_coco(tmp_path / "set")
    path = _changed(root, lambda content: content["annotations"].clear())
    with pytest.raises(DataError, match=rf"no images: {path} has no box that a detector can learn"):
        _open(root)
    _changed(root, lambda content: content["categories"].clear())
    with pytest.raises(DataError, match=rf"{path} lists no categories: a detector needs at least"):
        _open(root)
    _changed(root, lambda content: content["images"].clear())
    with pytest.raises(DataError, match=rf"no images: {path} lists none"):
        _open(root)


def test_a_validation_without_boxes_is_kept(tmp_path: Path) -> None:
    root = make_coco(tmp_path / "set", val_boxes=[])
    data = open_detection(root, settings=DetectionSettings(), seed=0)
    assert len(data.val) == 5
    assert data.ground_truth["annotations"] == []


def test_train_and_val_must_agree_on_categories(tmp_path: Path) -> None:
    root = make_coco(tmp_path / "set")
    _changed(root, lambda content: content["categories"].append({"id": 9, "name": "owl"}), "val")
    with pytest.raises(
        DataError, match=r"categories of train and val differ: id 9 \(owl\) is not the same in"
    ):
        _open(root)


def test_outlines_are_not_kept(tmp_path: Path) -> None:
    root = make_coco(tmp_path / "set", val_boxes=[box(10, [1, 1, 2, 2], segmentation=[[1, 1, 2]])])
    data = open_detection(root, settings=DetectionSettings(), seed=0)
    assert "segmentation" not in data.ground_truth["annotations"][0]
