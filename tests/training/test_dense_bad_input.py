"""Mistakes in sets with pixel labels or boxes, as ``fixnorm train`` answers them.

One line, exit code 2, nothing written; or a skip that is counted and told.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fixnorm.commands import run
from fixnorm.training import Recipe
from helpers.dense_runs import as_options, boxes_on_noise, detector, segmenter, striped_streets

LABELS = "gtFine/train/town/town_000001_000000_gtFine_labelIds.png"


def command(recipe: Recipe, data: Path, out: Path, *extra: str) -> list[str]:
    arguments = ["train", recipe.name, "--data", str(data), "--out", str(out), "--no-tensorboard"]
    own = {setting.partition("=")[0] for setting in extra}  # a setting is given once
    return [*arguments, *as_options(recipe, without=own), *extra]


def answered(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> tuple[int, str]:
    """Exit code and what was said on stderr."""
    with pytest.raises(SystemExit) as stopped:
        run(arguments)
    code = stopped.value.code
    assert isinstance(code, int)
    return code, capsys.readouterr().err


def refused(
    capsys: pytest.CaptureFixture[str], recipe: Recipe, data: Path, out: Path, *extra: str
) -> str:
    code, said = answered(capsys, command(recipe, data, out, *extra))
    assert code == 2, said
    assert not out.exists()
    lines = [line for line in said.splitlines() if line.strip()]
    assert len(lines) == 1, said
    return lines[0]


# -- Cityscapes ------------------------------------------------------------------------------------


def remove_labels(root: Path) -> None:
    (root / LABELS).unlink()


def unknown_id(root: Path) -> None:
    ids = np.array(Image.open(root / LABELS))
    ids[3, 4] = 77
    Image.fromarray(ids).save(root / LABELS)


def other_size(root: Path) -> None:
    Image.fromarray(np.full((16, 16), 7, dtype=np.uint8)).save(root / LABELS)


@pytest.mark.parametrize(
    ("breaks", "message"),
    [
        (remove_labels, "town_000001_000000_gtFine_labelIds.png"),
        (unknown_id, "77"),
        (other_size, "16×16"),
    ],
    ids=["missing gtFine file", "label id out of range", "image and label of different size"],
)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_bad_segmentation_set(
    breaks: Callable[[Path], None],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = striped_streets(tmp_path / "streets")
    breaks(data)
    line = refused(capsys, segmenter(), data, tmp_path / "run")
    assert line.startswith("fixnorm: ")
    assert message in line
    code, said = answered(capsys, command(segmenter(), data, tmp_path / "run", "--skip-broken"))
    assert code == 0, said
    assert "5 train and 3 val images" in said
    assert "1 broken left out" in said


# -- COCO ------------------------------------------------------------------------------------------


def annotations(root: Path) -> Path:
    return root / "annotations" / "instances_train2017.json"


def edited(root: Path, change: Callable[[dict[str, Any]], None]) -> None:
    content = json.loads(annotations(root).read_text())
    change(content)
    annotations(root).write_text(json.dumps(content))


def truncate(root: Path) -> None:
    annotations(root).write_text(annotations(root).read_text()[:200])


def unknown_category(root: Path) -> None:
    edited(root, lambda content: content["annotations"][0].update(category_id=99))


@pytest.mark.parametrize(
    ("breaks", "message"),
    [(truncate, "instances_train2017.json"), (unknown_category, "99")],
    ids=["truncated JSON", "unknown category id"],
)
def test_a_bad_detection_set(
    breaks: Callable[[Path], None],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = boxes_on_noise(tmp_path / "boxes")
    breaks(data)
    line = refused(capsys, detector(), data, tmp_path / "run")
    assert line.startswith("fixnorm: ")
    assert message in line


def no_area(content: dict[str, Any]) -> None:
    content["annotations"][0]["bbox"][2] = 0


def without_boxes(content: dict[str, Any]) -> None:
    gone = content["images"][0]["id"]
    content["annotations"] = [a for a in content["annotations"] if a["image_id"] != gone]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "images", "told"),
    [(no_area, 6, "1 box"), (without_boxes, 5, "1 image")],
    ids=["a box of zero area", "an image without boxes"],
)
def test_what_cannot_be_learnt_is_left_out_and_counted(
    change: Callable[[dict[str, Any]], None],
    images: int,
    told: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = boxes_on_noise(tmp_path / "boxes")
    edited(data, change)
    code, said = answered(capsys, command(detector(), data, tmp_path / "run"))
    assert code == 0, said
    assert f"{images} train and 3 val images" in said
    assert f"left out of train: {told}" in said


# -- settings --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recipe", "setting", "message"),
    [
        (segmenter(), "crop=0,32", "crop"),
        (segmenter(), "epochs=3", "a recipe has no field 'epochs'; did you mean"),
        (segmenter(), "model=base-oc/resnet1O1", "base-oc/resnet101"),
        (segmenter(), "schedule=stairs", "schedule: Input should be 'cosine', 'poly' or 'step'"),
        (detector(), "head=cls_logit", "the model has no layer 'cls_logit'"),
        (detector(), "model=fasterrcnn/resnet50", "unknown detector"),
        (detector(), "warmup_iterations=9", "warmup_iterations: 9 is more than iterations=4"),
        (detector(), "backbone_weights=nowhere.pth", "nowhere.pth does not exist"),
    ],
    ids=lambda value: value if isinstance(value, str) and "=" in value else "",
)
def test_wrong_settings(
    recipe: Recipe,
    setting: str,
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make = striped_streets if recipe.task == "segmentation" else boxes_on_noise
    data = make(tmp_path / "set")
    line = refused(capsys, recipe, data, tmp_path / "run", "--set", setting)
    assert message in line


def test_a_set_of_another_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = boxes_on_noise(tmp_path / "boxes")
    assert "leftImg8bit" in refused(capsys, segmenter(), data, tmp_path / "run")


def test_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = answered(capsys, ["train", "coco-small", "--out", str(tmp_path / "run")])
    assert code == 2
    assert "coco needs a folder" in said
