"""Mistakes a new user makes with ``fixnorm train``: one line, exit code 2, nothing written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fixnorm.commands import run

SETTINGS = {
    "model": "resnet8",
    "image_size": "8",
    "train_crop": "none",
    "epochs": "1",
    "warmup_epochs": "0",
    "batch_size": "4",
    "workers": "0",
}


def picture(path: Path, seed: int, mode: str = "RGB") -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (8, 8, 4), dtype=np.uint8)
    if mode == "I;16":
        Image.fromarray(pixels[..., 0].astype(np.uint16) * 257).save(path)
    elif mode == "CMYK":
        Image.fromarray(pixels, "CMYK").save(path)
    else:
        Image.fromarray(pixels[..., :3]).save(path)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Two classes, six training and two validation images each."""
    for split, count in (("train", 6), ("val", 2)):
        for c, name in enumerate(("ant", "bee")):
            folder = tmp_path / "images" / split / name
            folder.mkdir(parents=True)
            for i in range(count):
                picture(folder / f"{i}.png", seed=100 * c + i)
    return tmp_path / "images"


def train(images: Path | None, out: Path, *extra: str, **changes: str) -> list[str]:
    arguments = ["train", "tiny-imagenet-lr", "--out", str(out), "--no-tensorboard", *extra]
    settings = SETTINGS | {"classes": "none", "train_per_class": "none"} | changes
    arguments += [f"--set={key}={value}" for key, value in settings.items()]
    return arguments + ([] if images is None else ["--data", str(images)])


def refuse(capsys: pytest.CaptureFixture[str], arguments: list[str], out: Path) -> str:
    with pytest.raises(SystemExit) as stopped:
        run(arguments)
    printed, error = capsys.readouterr()
    assert stopped.value.code == 2, error
    assert printed == ""
    lines = [line for line in error.splitlines() if line.startswith("fixnorm: ")]
    assert len(lines) == 1
    assert "Traceback" not in error
    assert not out.exists() or list(out.iterdir()) == []
    return lines[0]


def no_val(images: Path) -> None:
    (images / "val").rename(images / "validation")


def empty_class(images: Path) -> None:
    (images / "train" / "cat").mkdir()


def unknown_label(images: Path) -> None:
    (images / "val" / "cat").mkdir()
    picture(images / "val" / "cat" / "0.png", 1)


def text_as_image(images: Path) -> None:
    (images / "train" / "ant" / "0.jpg").write_text("not an image")


def truncated(images: Path) -> None:
    path = images / "train" / "bee" / "9.jpg"
    picture(path, 3)
    path.write_bytes(path.read_bytes()[:200])


def one_class(images: Path) -> None:
    for split in ("train", "val"):
        for path in (images / split / "bee").iterdir():
            path.unlink()
        (images / split / "bee").rmdir()


def nothing(images: Path) -> None:
    for path in sorted(images.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (no_val, "val"),
        (empty_class, "cat"),
        (unknown_label, "cat"),
        (text_as_image, "0.jpg"),
        (truncated, "9.jpg"),
        (one_class, "one class"),
        (nothing, "train"),
    ],
)
def test_spoilt_folders_are_refused_by_name(
    images: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    spoil: Callable[[Path], None],
    message: str,
) -> None:
    spoil(images)
    out = tmp_path / "run"
    assert message in refuse(capsys, train(images, out), out)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"alpha": "0"}, "alpha: Input should be greater than 0 but got '0'"),
        ({"alpha": "-2"}, "alpha: Input should be greater than 0"),
        ({"lr": "nan"}, "lr: Input should be a finite number or 'auto' but got 'nan'"),
        ({"lr": "fast"}, "lr: Input should be a valid number or 'auto' but got 'fast'"),
        ({"epochs": "1.5"}, "epochs: Input should be a valid integer"),
        ({"batch_size": "400"}, "batch larger than the set: batch_size 400, 12 training images"),
        ({"epoch": "3"}, "a recipe has no field 'epoch'; did you mean epochs?"),
        ({"method": "fixnrom"}, "method must be one of fixnorm, wn-fc, algorithm1, weight-decay"),
        ({"optimizer": "adamww"}, "no optimizer 'adamww'; near: adamw"),
        ({"model": "resnet9"}, "unknown model 'resnet9'"),
        ({"weight_decay": "0.1"}, "method 'fixnorm' has none but got 0.1"),
        ({"warmup_epochs": "3"}, "warmup_epochs: 3 is more than epochs=1"),
    ],
)
def test_wrong_values_are_refused_with_the_rule(
    images: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, str],
    message: str,
) -> None:
    out = tmp_path / "run"
    assert message in refuse(capsys, train(images, out, **changes), out)


def test_wrong_path_unknown_recipe_and_malformed_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    missing = tmp_path / "nowhere"
    assert str(missing) in refuse(capsys, train(missing, out), out)
    assert "nearest are digits" in refuse(capsys, ["train", "digit", "--out", str(out)], out)
    said = refuse(capsys, ["train", "digits", "--out", str(out), "--set", "lr"], out)
    assert "--set needs key=value but got 'lr'" in said


def finish(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        run(arguments)
    assert stopped.value.code == 0


def test_broken_images_are_skipped_when_asked(images: Path, tmp_path: Path) -> None:
    text_as_image(images)
    truncated(images)
    finish(train(images, tmp_path / "run", "--skip-broken"))
    assert (tmp_path / "run" / "result.json").exists()


def test_cmyk_and_16_bit_images_train(images: Path, tmp_path: Path) -> None:
    picture(images / "train" / "ant" / "c.jpg", 5, "CMYK")
    picture(images / "train" / "bee" / "g.png", 6, "I;16")
    finish(train(images, tmp_path / "run"))
    assert (tmp_path / "run" / "weights.safetensors").exists()
