"""A batch depends on (seed, epoch, position), not on workers, ranks, resumes or memory."""

import multiprocessing
import os
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fixnorm.data import Batch, Data, DataError, DataSettings, classification, open_data

MakeFolder = Callable[..., Path]

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")

LOADERS = [pytest.param(True, id="memory"), pytest.param(False, id="stream")]
STRONG: dict[str, Any] = {"train_crop": "random-resized", "flip": True, "min_scale": 0.3}


def _open(root: Path, *, seed: int = 0, **options: Any) -> Data:
    settings = DataSettings(**{"image_size": 10, "flip": True, "train_crop": "pad", **options})
    return open_data("imagefolder", root, settings=settings, seed=seed)


def _same(left: Iterable[Batch], right: Iterable[Batch]) -> None:
    left, right = list(left), list(right)
    assert len(left) == len(right) > 0
    for a, b in zip(left, right, strict=True):
        assert torch.equal(a.images, b.images)
        assert torch.equal(a.labels, b.labels)


def _joined(batches: Iterable[Batch]) -> Batch:
    batches = list(batches)
    return Batch(torch.cat([b.images for b in batches]), torch.cat([b.labels for b in batches]))


def _distinct(images: torch.Tensor) -> int:
    return len({image.numpy().tobytes() for image in images})


@pytest.mark.parametrize("in_memory", LOADERS)
def test_shapes_types_and_counts(make_folder: MakeFolder, in_memory: bool) -> None:
    data = _open(make_folder(), in_memory=in_memory)
    batches = list(data.train.batches(epoch=0, batch_size=4))
    assert data.train.steps_per_epoch(4) == len(batches) == 5  # 21 images, the last dropped
    for images, labels in batches:
        assert images.shape == (4, 3, 10, 10)
        assert images.dtype == torch.float32
        assert images.is_contiguous()
        assert labels.shape == (4,)
        assert labels.dtype == torch.int64
    assert ("in memory" in data.describe()) == in_memory


@pytest.mark.parametrize("in_memory", LOADERS)
def test_an_epoch_visits_each_image_once(make_folder: MakeFolder, in_memory: bool) -> None:
    data = _open(make_folder(), image_size=12, train_crop="none", flip=False, in_memory=in_memory)
    images, labels = _joined(data.train.batches(epoch=0, batch_size=7))
    assert _distinct(images) == 21
    assert torch.bincount(labels).tolist() == [7, 7, 7]


@pytest.mark.parametrize("in_memory", LOADERS)
def test_epochs_and_seeds_differ_and_repeat(make_folder: MakeFolder, in_memory: bool) -> None:
    root = make_folder()
    data = _open(root, in_memory=in_memory)
    first = _joined(data.train.batches(epoch=0, batch_size=7))
    second = _joined(data.train.batches(epoch=1, batch_size=7))
    assert not torch.equal(first.images, second.images)
    assert not torch.equal(first.labels, second.labels)
    _same([first], [_joined(data.train.batches(epoch=0, batch_size=7))])
    other = _joined(_open(root, seed=1, in_memory=in_memory).train.batches(epoch=0, batch_size=7))
    assert not torch.equal(first.labels, other.labels)


def test_augmentation_moves_from_epoch_to_epoch(make_folder: MakeFolder) -> None:
    # one image, so that the order cannot differ
    root = make_folder(classes=("ant",), train=1)
    for options in ({"train_crop": "pad"}, STRONG, {"train_crop": "none", "auto_augment": "v0"}):
        data = _open(root, **options)
        seen = [_joined(data.train.batches(epoch=e, batch_size=1)).images for e in range(12)]
        assert _distinct(torch.stack(seen)) > 1


def test_without_augmentation_epochs_differ_only_in_order(make_folder: MakeFolder) -> None:
    data = _open(make_folder(classes=("ant",), train=1), train_crop="none", flip=False)
    _same(
        data.train.batches(epoch=0, batch_size=1),
        data.train.batches(epoch=1, batch_size=1),
    )


@pytest.mark.parametrize(
    "options",
    [
        {"train_crop": "none"},
        {"train_crop": "none", "flip": False},
        {"train_crop": "pad", "padding": 3},
        STRONG,
        {**STRONG, "train_interpolation": "bicubic", "image_size": 7},
    ],
)
@pytest.mark.parametrize("eval_crop", ["none", "resnet", "efficientnet"])
def test_memory_and_stream_give_the_same_bits(
    make_folder: MakeFolder, options: dict[str, Any], eval_crop: str
) -> None:
    root = make_folder(size=(15, 13))
    memory, stream = (
        _open(root, **options, eval_crop=eval_crop, in_memory=where) for where in (True, False)
    )
    _same(
        memory.train.batches(epoch=3, batch_size=6),
        stream.train.batches(epoch=3, batch_size=6),
    )
    _same(memory.val.eval_batches(batch_size=4), stream.val.eval_batches(batch_size=4))


def test_digits_memory_and_stream_give_the_same_bits() -> None:
    options = {"image_size": 8, "train_crop": "pad", "padding": 1, "train_per_class": 5}
    memory, stream = (
        open_data("digits", None, settings=DataSettings(**options, in_memory=where), seed=4)  # type: ignore[arg-type]
        for where in (True, False)
    )
    _same(memory.train.batches(epoch=0, batch_size=9), stream.train.batches(epoch=0, batch_size=9))


@pytest.mark.parametrize("policy", ["v0", "rand-m9-mstd0.5", "augmix-m3", "imagenet"])
def test_any_number_of_workers_gives_the_same_bits(make_folder: MakeFolder, policy: str) -> None:
    root = make_folder()
    expected: list[Batch] = []
    for workers in (0, 1, 2):
        data = _open(root, **STRONG, auto_augment=policy, workers=workers)
        batches = [b for e in (0, 1) for b in data.train.batches(epoch=e, batch_size=4)]
        batches += data.val.eval_batches(batch_size=4)
        data.close()
        expected = expected or batches
        _same(batches, expected)


@pytest.mark.parametrize("workers", [0, 1])
def test_either_memory_layout_has_the_same_bits(make_folder: MakeFolder, workers: int) -> None:
    root = make_folder(size=(12, 17))
    options: dict[str, Any] = {"in_memory": False, "mean": (0.4, 0.5, 0.6), "std": (0.2, 0.3, 0.4)}
    plain, last = (
        _open(root, **STRONG, **options, channels_last=wanted, workers=workers)
        for wanted in (False, True)
    )
    _same(plain.val.eval_batches(batch_size=4), last.val.eval_batches(batch_size=4))
    contiguous, channels_last = (
        next(d.train.batches(epoch=0, batch_size=5)) for d in (plain, last)
    )
    _same([contiguous], [channels_last])
    assert contiguous.images.is_contiguous()
    assert channels_last.images.stride() == (300, 1, 30, 3)
    assert contiguous.images.is_shared() == channels_last.images.is_shared() == bool(workers)
    plain.close()
    last.close()


@pytest.mark.parametrize("in_memory", LOADERS)
@pytest.mark.parametrize("world_size", [2, 3])
@pytest.mark.parametrize("options", [{"train_crop": "pad"}, STRONG], ids=["pad", "resized"])
def test_ranks_in_order_make_the_whole_batch(
    make_folder: MakeFolder, in_memory: bool, world_size: int, options: dict[str, Any]
) -> None:
    data = _open(make_folder(), in_memory=in_memory, **options)
    whole = list(data.train.batches(epoch=2, batch_size=6))
    parts = [
        list(data.train.batches(epoch=2, batch_size=6, rank=rank, world_size=world_size))
        for rank in range(world_size)
    ]
    _same([_joined(step) for step in zip(*parts, strict=True)], whole)


@pytest.mark.parametrize("in_memory", LOADERS)
@pytest.mark.parametrize("start", [0, 2, 5])
def test_start_gives_the_tail(make_folder: MakeFolder, in_memory: bool, start: int) -> None:
    data = _open(make_folder(), in_memory=in_memory)
    whole = list(data.train.batches(epoch=1, batch_size=4))
    tail = list(data.train.batches(epoch=1, batch_size=4, start=start))
    assert len(tail) == 5 - start
    if tail:
        _same(tail, whole[start:])


def test_start_does_not_read_what_it_skips(make_folder: MakeFolder) -> None:
    root = make_folder(classes=("ant",), train=6)
    data = _open(root, in_memory=False)
    refused = 0
    for path in sorted((root / "train" / "ant").iterdir()):
        content = path.read_bytes()
        path.write_text("broken")
        try:
            next(data.train.batches(epoch=0, batch_size=3))
        except DataError:
            # a file of the first batch: the second must not need it
            refused += 1
            assert len(list(data.train.batches(epoch=0, batch_size=3, start=1))) == 1
        path.write_bytes(content)
    assert refused == 3


@pytest.mark.parametrize("in_memory", LOADERS)
@pytest.mark.parametrize("world_size", [1, 2, 4, 20])
def test_validation_sees_each_image_once(
    make_folder: MakeFolder, in_memory: bool, world_size: int
) -> None:
    data = _open(make_folder(), image_size=12, in_memory=in_memory)
    whole = _joined(data.val.eval_batches(batch_size=4))
    assert _distinct(whole.images) == len(data.val) == 15
    parts = [
        batch
        for rank in range(world_size)
        for batch in data.val.eval_batches(batch_size=20, rank=rank, world_size=world_size)
    ]
    _same([_joined(parts)], [whole])


@pytest.mark.parametrize("workers", [0, 1])
def test_the_users_generators_are_untouched(make_folder: MakeFolder, workers: int) -> None:
    data = _open(make_folder(), auto_augment="v0", workers=workers)
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()
    expected = _joined(data.train.batches(epoch=0, batch_size=7))
    list(data.val.eval_batches(batch_size=5))
    assert random.getstate() == before[0]
    assert str(np.random.get_state()) == str(before[1])
    assert torch.equal(torch.get_rng_state(), before[2])
    try:
        random.seed(99)
        np.random.seed(99)
        torch.default_generator.manual_seed(99)
        _same([_joined(data.train.batches(epoch=0, batch_size=7))], [expected])
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])
        torch.set_rng_state(before[2])
    data.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_an_abandoned_epoch_leaves_no_trace(make_folder: MakeFolder, workers: int) -> None:
    root = make_folder()
    data = _open(root, in_memory=False, workers=workers)
    abandoned = data.train.batches(epoch=0, batch_size=3)
    next(abandoned)
    fresh = _open(root, in_memory=False)
    _same(
        data.train.batches(epoch=1, batch_size=3),
        fresh.train.batches(epoch=1, batch_size=3),
    )
    with pytest.raises(RuntimeError, match="read by one iterator at a time"):
        next(abandoned)
    data.close()


def test_workers_stay_out_of_the_trainers_process_group(make_folder: MakeFolder) -> None:
    root = make_folder()
    data = _open(root, in_memory=False, workers=1)
    before = set(multiprocessing.active_children())
    batches = data.train.batches(epoch=0, batch_size=3)
    next(batches)
    (worker,) = set(multiprocessing.active_children()) - before
    assert worker.pid is not None
    assert os.getpgid(worker.pid) != os.getpgid(0)  # Ctrl-C and torchrun signal a whole group
    del batches
    data.close()
    worker.join(timeout=600)
    assert not worker.is_alive()


@pytest.mark.parametrize("policy", ["v0", "cifar10"])
def test_policies_work_on_grey_images(policy: str) -> None:
    options = DataSettings(image_size=8, auto_augment=policy, train_per_class=1)
    data = open_data("digits", None, settings=options, seed=0)
    assert next(data.train.batches(epoch=0, batch_size=10)).images.shape == (10, 1, 8, 8)


def test_large_sets_stream(make_folder: MakeFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_folder()
    # 21 train and 15 val images of 3×10×10 bytes
    monkeypatch.setattr(classification, "MEMORY_LIMIT", 36 * 300)
    assert _open(root).memory_bytes == 36 * 300
    # random-resized keeps the original 12×12
    resized = 21 * 432 + 15 * 300
    assert _open(root, **STRONG).memory_bytes is None
    monkeypatch.setattr(classification, "MEMORY_LIMIT", resized)
    assert _open(root, **STRONG).memory_bytes == resized
    monkeypatch.setattr(classification, "MEMORY_LIMIT", 36 * 300 - 1)
    assert _open(root).memory_bytes is None
    assert _open(root, in_memory=True).memory_bytes == 36 * 300


def test_images_of_several_sizes(make_folder: MakeFolder) -> None:
    root = make_folder()
    Image.new("RGB", (20, 14)).save(root / "train" / "cat" / "03.png")
    assert _open(root).memory_bytes is not None  # pad brings all to one size first
    assert _open(root, **STRONG).memory_bytes is None
    with pytest.raises(
        DataError, match=r"cat/03\.png has 14×20 pixels, .*ant/00\.png 12×12; leave"
    ):
        _open(root, **STRONG, in_memory=True)
