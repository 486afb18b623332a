"""What a new user gets wrong ends in one line that names the path and the next move."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fixnorm.data import DataError, DataSettings, open_data

MakeFolder = Callable[..., Path]

SMALL = DataSettings(image_size=12)


def _open(root: Path | None, name: str = "imagefolder") -> None:
    open_data(name, root, settings=SMALL, seed=0)


def test_errors_are_one_line_value_errors(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not exist") as caught:
        _open(tmp_path / "nowhere")
    assert type(caught.value) is DataError
    assert "\n" not in str(caught.value)


def test_wrong_roots(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"data folder .*nowhere does not exist: give the folder"):
        _open(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"data folder .*file is not a folder: give"):
        _open(tmp_path / "file")
    with pytest.raises(DataError, match="imagefolder needs a folder"):
        _open(None)
    with pytest.raises(DataError, match="digits is embedded and takes no folder"):
        _open(tmp_path, "digits")


def test_wrong_names() -> None:
    with pytest.raises(DataError, match=r"'cifar-10': did you mean cifar10\?"):
        _open(None, "cifar-10")
    with pytest.raises(DataError, match="'xyz': take one of digits, few-digits, imagefolder"):
        _open(None, "xyz")


@pytest.mark.parametrize("split", ["train", "val"])
def test_a_missing_split(make_folder: MakeFolder, split: str) -> None:
    root = make_folder()
    (root / split).rename(root / "elsewhere")
    with pytest.raises(DataError, match=rf"no {split} split: .*{split} is missing; lay the images"):
        _open(root)


@pytest.mark.parametrize("split", ["train", "val"])
def test_an_empty_class_folder(make_folder: MakeFolder, split: str) -> None:
    root = make_folder()
    for file in (root / split / "bee").iterdir():
        file.rename(file.with_suffix(".txt"))
    with pytest.raises(DataError, match=rf"empty class folder: .*{split}/bee holds no image; fill"):
        _open(root)


def test_val_labels_not_in_train(make_folder: MakeFolder) -> None:
    root = make_folder()
    (root / "val" / "bee").rename(root / "val" / "wasp")
    with pytest.raises(DataError, match=r"labels of val not in train: .*val/wasp has no folder"):
        _open(root)


def test_no_images(make_folder: MakeFolder, tmp_path: Path) -> None:
    (tmp_path / "flat" / "train").mkdir(parents=True)
    with pytest.raises(DataError, match=r"no images: .*train has no class folders; sort"):
        _open(tmp_path / "flat")
    root = make_folder()
    for file in (root / "val").rglob("*.png"):
        file.unlink()
    with pytest.raises(DataError, match=r"no images: nothing below .*val ends in \.jpg, "):
        _open(root)


def test_too_many_classes_asked_for(make_folder: MakeFolder) -> None:
    options = DataSettings(image_size=12, classes=4)
    with pytest.raises(DataError, match=r"classes=4 but .*set has 3: take at most that"):
        open_data("imagefolder", make_folder(), settings=options, seed=0)


def test_a_val_without_the_chosen_classes(make_folder: MakeFolder) -> None:
    root = make_folder()
    (root / "val" / "ant").rename(root / "ant")
    options = DataSettings(image_size=12, classes=1)
    with pytest.raises(DataError, match=r"val of .*set has none of the first 1 classes"):
        open_data("imagefolder", root, settings=options, seed=0)


def test_a_batch_larger_than_the_set(make_folder: MakeFolder) -> None:
    data = open_data("imagefolder", make_folder(), settings=SMALL, seed=0)
    message = "batch larger than the set: batch_size 22, 21 training images; take at most 21"
    with pytest.raises(DataError, match=message):
        data.train.steps_per_epoch(22)
    with pytest.raises(DataError, match=message):
        data.train.batches(epoch=0, batch_size=22)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 6, "world_size": 4}, "must divide by the .* got 6 on 4: take 4"),
        ({"batch_size": 2, "world_size": 4}, "must divide by the .* got 2 on 4: take 4"),
        ({"batch_size": 0}, "batch_size must be at least 1 but got 0"),
        ({"batch_size": 4, "rank": 2, "world_size": 2}, r"rank must be in 0\.\.1 but got 2"),
        ({"batch_size": 4, "start": 6}, r"start must be in 0\.\.5 batches but got 6"),
        ({"batch_size": 4, "start": -1}, r"start must be in 0\.\.5 batches but got -1"),
        ({"batch_size": 4, "epoch": -1}, "epoch must be at least 0 but got -1"),
    ],
)
def test_wrong_batches(make_folder: MakeFolder, arguments: dict[str, int], message: str) -> None:
    data = open_data("imagefolder", make_folder(), settings=SMALL, seed=0)
    with pytest.raises(ValueError, match=message):
        data.train.batches(**{"epoch": 0, **arguments})


def test_eval_batches_must_divide_too(make_folder: MakeFolder) -> None:
    data = open_data("imagefolder", make_folder(), settings=SMALL, seed=0)
    with pytest.raises(ValueError, match="must divide by the number of processes but got 3 on 2"):
        data.val.eval_batches(batch_size=3, world_size=2)


def test_a_negative_seed() -> None:
    with pytest.raises(ValueError, match="seed must be at least 0 but got -1"):
        open_data("digits", None, settings=DataSettings(image_size=8), seed=-1)


@pytest.mark.parametrize("option", ["mean", "std"])
def test_mean_and_std_must_match_the_channels(option: str) -> None:
    options = DataSettings(image_size=8, **{option: (0.5, 0.5, 0.5)})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"{option} must hold 1 or 1 values for digits but got"):
        open_data("digits", None, settings=options, seed=0)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("image_size", 0, "image_size must be at least 1 but got 0"),
        ("padding", -1, "padding must be at least 0 but got -1"),
        ("workers", -1, "workers must be at least 0 but got -1"),
        ("classes", 0, "classes must be at least 1 but got 0"),
        (
            "train_crop",
            "five",
            "train_crop must be one of none, pad, random-resized but got 'five'",
        ),
        ("eval_crop", "vgg", "eval_crop must be one of none, resnet, efficientnet but got 'vgg'"),
        ("train_interpolation", "box", "must be one of bilinear, bicubic but got 'box'"),
        ("min_scale", 0.0, r"min_scale must be in \(0, 1\] but got 0.0"),
        ("min_scale", float("nan"), r"min_scale must be in \(0, 1\] but got nan"),
        ("mean", (float("nan"),), "mean must be finite"),
        ("std", (0.0,), "std must be positive and finite"),
    ],
)
def test_wrong_settings(option: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DataSettings(**{"image_size": 8, option: value})


def test_a_policy_does_not_work_on_whole_batches() -> None:
    with pytest.raises(ValueError, match="auto_augment='v0' works on single images and in_memory"):
        DataSettings(image_size=8, auto_augment="v0", in_memory=True)


@pytest.mark.parametrize("name", ["nonsense", "rand-x9", "v9", "augmix-q1"])
def test_an_unknown_policy(name: str) -> None:
    options = DataSettings(image_size=8, auto_augment=name)
    with pytest.raises(ValueError, match=f"auto_augment='{name}' is no policy: try imagenet"):
        open_data("digits", None, settings=options, seed=0)
