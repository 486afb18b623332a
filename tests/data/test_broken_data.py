"""Broken image files are named, or counted and left out."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from PIL import Image

from fixnorm.data import Data, DataError, DataSettings, open_data

MakeFolder = Callable[..., Path]


def _text(path: Path) -> Path:
    path.write_text("this is no image")
    return path


def _truncated(path: Path) -> Path:
    with Image.open(path) as image:
        content = path.with_suffix(".jpg")
        image.convert("RGB").resize((64, 64)).save(content, quality=95)
    path.unlink()
    content.write_bytes(content.read_bytes()[:-1500])
    return content


def _open(root: Path, *, in_memory: bool, skip: bool = False, workers: int = 0) -> Data:
    options = DataSettings(
        image_size=12,
        train_crop="pad",
        flip=True,
        in_memory=in_memory,
        skip_broken=skip,
        workers=workers,
    )
    return open_data("imagefolder", root, settings=options, seed=0)


def _epoch(data: Data) -> list[torch.Tensor]:
    return [batch.images for batch in data.train.batches(epoch=0, batch_size=3)]


@pytest.mark.parametrize("breaks", [_text, _truncated])
def test_memory_names_the_file_before_training(make_folder: MakeFolder, breaks) -> None:  # type: ignore[no-untyped-def]
    path = breaks(make_folder() / "train" / "bee" / "03.png")
    with pytest.raises(DataError, match=rf"broken image {path}: .*; repair or remove it, or set"):
        _open(path.parents[2], in_memory=True)


@pytest.mark.parametrize("breaks", [_text, _truncated])
@pytest.mark.parametrize("workers", [0, 1])
def test_streaming_names_the_file_when_it_is_met(  # type: ignore[no-untyped-def]
    make_folder: MakeFolder, breaks, workers: int
) -> None:
    path = breaks(make_folder() / "train" / "bee" / "03.png")
    data = _open(path.parents[2], in_memory=False, workers=workers)
    with pytest.raises(DataError, match=rf"^broken image {path}: [^\n]*$"):
        _epoch(data)
    data.close()


def test_memory_skips_and_counts(make_folder: MakeFolder) -> None:
    root = make_folder()
    broken = [
        _text(root / "train" / "ant" / "01.png"),
        _truncated(root / "train" / "cat" / "02.png"),
        _text(root / "val" / "bee" / "00.png"),
    ]
    data = _open(root, in_memory=True, skip=True)
    assert data.broken == broken
    assert (len(data.train), len(data.val)) == (19, 14)
    assert data.describe().endswith("; 3 broken left out")
    labels = torch.cat([b.labels for b in data.train.batches(epoch=0, batch_size=1)])
    assert torch.bincount(labels).tolist() == [6, 7, 6]


def test_streaming_leaves_out_what_the_header_shows(make_folder: MakeFolder) -> None:
    root = make_folder()
    broken = [_text(root / "train" / "ant" / "01.png"), _text(root / "val" / "bee" / "00.png")]
    data = _open(root, in_memory=False, skip=True)
    assert data.broken == broken
    assert (len(data.train), len(data.val)) == (20, 14)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
def test_streaming_replaces_what_fails_to_decode(make_folder: MakeFolder, workers: int) -> None:
    root = make_folder()
    good = _open(root, in_memory=False)
    order = torch.cat([b.labels for b in good.train.batches(epoch=0, batch_size=1)]).tolist()
    # the last of bee is followed by the first of cat
    path = _truncated(root / "train" / "bee" / "06.png")
    data = _open(root, in_memory=False, skip=True, workers=workers)
    assert data.broken == []
    assert len(data.train) == 21
    batches = list(data.train.batches(epoch=0, batch_size=1))
    data.close()
    labels = torch.cat([b.labels for b in batches]).tolist()
    changed = [(a, b) for a, b in zip(order, labels, strict=True) if a != b]
    assert changed == [(1, 2)]
    assert data.broken == [path]


def test_streaming_leaves_a_validation_image_out_of_its_batch(make_folder: MakeFolder) -> None:
    root = make_folder()
    path = _truncated(root / "val" / "ant" / "01.png")
    data = _open(root, in_memory=False, skip=True)
    sizes = [len(batch.labels) for batch in data.val.eval_batches(batch_size=5)]
    assert sizes == [4, 5, 5]
    assert [len(b.labels) for b in data.val.eval_batches(batch_size=1)] == [1] * 14
    assert data.broken == [path]


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_class_or_a_split_without_a_good_image(make_folder: MakeFolder, in_memory: bool) -> None:
    root = make_folder(val=1)
    for path in sorted((root / "train" / "bee").iterdir()):
        _text(path)
    with pytest.raises(DataError, match=r"every training image of class bee in .*set is broken"):
        _open(root, in_memory=in_memory, skip=True)
    for path in sorted((root / "train" / "bee").iterdir()):
        Image.new("RGB", (12, 12)).save(path)
    for path in sorted((root / "val").rglob("*.png")):
        _text(path)
    with pytest.raises(DataError, match=r"every validation image in .*set is broken"):
        _open(root, in_memory=in_memory, skip=True)


def test_every_training_image_broken_inside(make_folder: MakeFolder) -> None:
    root = make_folder(classes=("ant",), train=2)
    for path in sorted((root / "train").rglob("*.png")):
        _truncated(path)
    data = _open(root, in_memory=False, skip=True)
    with pytest.raises(DataError, match="no images: every training image is broken"):
        next(data.train.batches(epoch=0, batch_size=1))


@pytest.mark.parametrize("in_memory", [True, False])
def test_an_unreadable_file_is_never_skipped(make_folder: MakeFolder, in_memory: bool) -> None:
    root = make_folder()
    path = root / "train" / "ant" / "00.png"
    path.unlink()
    path.symlink_to(root / "gone.png")
    with pytest.raises(DataError, match=rf"cannot read {path}: No such file"):
        _open(root, in_memory=in_memory, skip=True)
