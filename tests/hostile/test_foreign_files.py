"""Files of others, names as paths, and what is no regular file: left alone, or refused at once."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fixnorm.data import DataError
from fixnorm.data.coco import read_coco_file
from fixnorm.models.backbones import load_backbone
from fixnorm.report.curves import read_curves
from helpers.mutations import damaged_bytes, damaged_json, fuzz
from helpers.promise import answered, refused
from helpers.spoilt import COMMANDS, REPLAY, REPORT, REPRODUCE, TRAIN, one_line, search

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("drawn_not_rendered")]


OVER: dict[str, tuple[list[str], str]] = {
    "tune, a result": (["tune", "--out", "out"], "out/result.json"),
    "tune, a page": (["tune", "--out", "out"], "out/report.html"),
    "tune, pictures": (["tune", "--out", "out"], "out/figures/lr.png"),
    "report, a page": (REPORT, "out/report.html"),
    "report, pictures": (REPORT, "out/figures/my.png"),
    "replay, numbers": (REPLAY, "out/replay.json"),
    "replay, a table": (REPLAY, "out/table.md"),
    "replay, a figure": (REPLAY, "out/regret.png"),
    "reproduce, numbers": (REPRODUCE["table3.json"], "out/table3.json"),
    "reproduce, a page": (REPRODUCE["table3.json"], "out/table3.html"),
    "reproduce, a table": (REPRODUCE["table3.json"], "out/table3.md"),
    "reproduce, a figure": (REPRODUCE["table3.json"], "out/table3.png"),
    "train": (["train", "digits", "--out", "out"], "out/notes.txt"),
    "train, a lock": (["train", "digits", "--out", "out"], "out/.lock"),
    "tune, a lock": (["tune", "--out", "out"], "out/study.db.lock"),
    "export": (["export", "run", "--out", "out/m.safetensors"], "out/m.safetensors"),
}


@pytest.mark.parametrize("content", [b"mine", b"{}", b"<!doctype html><title>x</title>"])
@pytest.mark.parametrize(("arguments", "file"), OVER.values(), ids=list(OVER))
def test_files_of_others_are_not_written_over(
    arguments: list[str], file: str, content: bytes, place: Path
) -> None:
    (place / file).parent.mkdir(parents=True)
    (place / file).write_bytes(content)
    assert str(Path(file).parent.parts[0]) in refused(arguments, place)


def test_a_search_does_not_go_into_the_folder_of_a_training(place: Path) -> None:
    assert "the folder of a training" in refused(["tune", "--out", "run"], place)


@pytest.mark.parametrize("arguments", [REPORT, REPRODUCE["table3.json"], REPLAY])
def test_our_own_files_are_updated(arguments: list[str], place: Path) -> None:
    first = answered(arguments, place)
    again = answered(arguments, place)
    assert (first.code, again.code) == (0, 0), again
    assert first.after.keys() == again.after.keys()


def test_a_page_of_before_is_ours(place: Path) -> None:
    """Pages of version 0.1 did not say whose they are."""
    assert answered(REPORT, place).code == 0
    page = place / "out" / "report.html"
    text = page.read_text()
    mark = '<meta name="generator" content="fixnorm">'
    assert mark in text
    page.write_text(text.replace(mark, ""))
    assert answered(REPORT, place).code == 0
    assert mark in page.read_text()


# -- names as paths --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["../../escape", "/tmp/escape", "a/b", "", ".", "..", "-x", "a b"])
@pytest.mark.parametrize("command", ["train", "tune"])
def test_a_name_does_not_leave_its_folder(command: str, name: str, tmp_path: Path) -> None:
    assert "name: " in refused([command, "digits", f"--set=name={name}"], tmp_path)


@pytest.mark.parametrize("name", ["what?", "a%20b", "{x}", "[bold]", "a b#c&d=e", "ü", ":memory:"])
def test_a_study_lies_where_it_was_asked_for(name: str, tmp_path: Path) -> None:
    search(tmp_path / name)
    assert sorted(os.listdir(tmp_path)) == [name]
    assert (tmp_path / name / "study.db").stat().st_size
    done = answered(["report", name], tmp_path)
    assert done.code == 0, done
    assert sorted(os.listdir(tmp_path)) == [name]


def test_markup_in_a_path_is_text(place: Path) -> None:
    (place / "run").rename(place / "[bold")
    (place / "[").mkdir()
    for name in ("[/x].safetensors", "[red].safetensors"):
        done = answered(["export", "[bold", "--out", name], place)
        assert done.code == 0, done
        assert (place / name).exists()
        assert name in done.out
    assert "[/x]" in refused(["export", "[/x]"], place)


COCO = {
    "images": [{"id": 1, "file_name": "1.jpg", "height": 8, "width": 8}],
    "annotations": [
        {"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 4, 4], "area": 16, "iscrowd": 0}
    ],
    "categories": [{"id": 1, "name": "cell"}],
}


@pytest.mark.parametrize("name", ["../1.jpg", "/etc/passwd", "a/../../b.jpg", "", "..", "a\0b"])
def test_a_data_set_does_not_point_outside_itself(name: str, tmp_path: Path) -> None:
    path = tmp_path / "instances.json"
    content = json.loads(json.dumps(COCO))
    content["images"][0]["file_name"] = name
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match="leads out of the images' folder"):
        read_coco_file(path)


def test_damaged_annotations(tmp_path: Path) -> None:
    path = tmp_path / "instances.json"
    path.write_text(json.dumps(COCO))
    assert read_coco_file(path).images

    def check(damage: bytes) -> None:
        path.write_bytes(damage)
        one_line(lambda: read_coco_file(path))

    fuzz(damaged_json(COCO) | damaged_bytes(path.read_bytes()), check)


# -- special files ---------------------------------------------------------------------------------


SPECIAL = ["study/study.db", "landscape.json", "table3.json", "run/recipe.json", "run/result.json"]
SPECIAL += ["run/weights.safetensors", "run/classes.json"]


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _circle(path: Path) -> None:
    path.symlink_to(path)


def _folder(path: Path) -> None:
    path.mkdir()


def _endless(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**40)


@pytest.mark.parametrize("make", [_pipe, _device, _circle, _folder, _endless])
@pytest.mark.parametrize("name", SPECIAL)
def test_what_is_no_file_is_refused_at_once(
    name: str, make: Callable[[Path], None], place: Path
) -> None:
    commands = {
        "study/study.db": [REPORT, ["tune", "--out", "study"]],
        "run/weights.safetensors": [["export", "run", "--out", "out.safetensors"]],
    }
    (place / name).unlink()
    make(place / name)
    for arguments in commands.get(name) or COMMANDS[name]:
        refused(arguments, place, seconds=20)


def test_curves_that_are_no_file_are_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "metrics.csv")
    assert read_curves(tmp_path) == {}


@pytest.fixture
def images(tmp_path: Path) -> Path:
    from PIL import Image

    for split in ("train", "val"):
        for name in ("ant", "bee"):
            folder = tmp_path / "images" / split / name
            folder.mkdir(parents=True)
            for k in range(3):
                Image.new("RGB", (8, 8), (k, 0, 0)).save(folder / f"{k}.png")
    return tmp_path / "images"


def opened(images: Path) -> Any:
    from fixnorm.data import DataSettings, open_data

    settings = DataSettings(image_size=8, train_crop="none", eval_crop="none")
    return open_data("imagefolder", images, settings=settings, seed=0)


def test_special_files_and_circles_among_images_are_left_out_and_counted(images: Path) -> None:
    os.mkfifo(images / "train" / "ant" / "pipe.png")
    (images / "train" / "ant" / "zero.png").symlink_to("/dev/zero")
    (images / "train" / "ant" / "circle.png").symlink_to("circle.png")
    (images / "train" / "ant" / "up").symlink_to("..")
    (images / "train" / "ant" / "other").symlink_to("../bee")
    (images / "train" / "ant" / "root").symlink_to(images)
    (images / "train" / "again").symlink_to(".")
    elsewhere = images.parent / "elsewhere"
    elsewhere.mkdir()
    shutil.copy(images / "val" / "ant" / "0.png", elsewhere)
    (elsewhere / "self").symlink_to(elsewhere)
    (images / "train" / "ant" / "more").symlink_to(elsewhere)
    data = opened(images)
    assert data.classes == ("ant", "bee")
    assert len(data.train) == 7  # the folder elsewhere is one of the class's own
    assert data.left_out == 8
    assert "8 left out that are no regular files" in data.describe()


def test_a_folder_that_cannot_be_read_is_not_called_empty(
    images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scandir = os.scandir

    def refusing(path: Any) -> Any:
        if str(path).endswith("bee"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr("os.scandir", refusing)
    with pytest.raises(DataError, match=r"cannot read the folder .*bee: Permission denied"):
        opened(images)


# -- weights of others, and our own ----------------------------------------------------------------


class _Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.getenv, ("HOME",)


def _pickled(path: Path) -> None:
    torch.save({"a": _Evil()}, path)


def _text(path: Path) -> None:
    path.write_text("no weights")


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
@pytest.mark.parametrize("make", [_pickled, _text, _pipe, _folder])
def test_refused_weights_give_no_unsafe_advice(
    make: Callable[[Path], None], suffix: str, tmp_path: Path
) -> None:
    path = tmp_path / f"weights{suffix}"
    make(path)
    with pytest.raises(ValueError, match="weights") as caught:
        load_backbone(torch.nn.Identity(), "x", str(path))
    assert "weights_only" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_equal_runs_write_equal_bytes(originals: Path, tmp_path: Path) -> None:
    """The library keeps metadata in a hash map, whose order differs from file to file."""
    done = answered(TRAIN, tmp_path)
    assert done.code == 0, done
    for command in (["export", "run"], ["export", "run", "--out", "again.safetensors"]):
        assert answered(command, tmp_path).code == 0
    digests = {
        hashlib.sha256((place / "run" / "weights.safetensors").read_bytes()).hexdigest()
        for place in (originals, tmp_path)
    }
    assert len(digests) == 1
    exported = (tmp_path / "run" / "model.safetensors").read_bytes()
    assert (tmp_path / "again.safetensors").read_bytes() == exported
