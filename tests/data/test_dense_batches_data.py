"""Segmentation and detection keep the promises of all sets: bits, ranks, resume, once each."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fixnorm.data import (
    Batch,
    DetectionBatch,
    DetectionData,
    DetectionSettings,
    SegmentationData,
    SegmentationSettings,
    dense,
    open_detection,
    open_segmentation,
)
from helpers.dense_sets import assert_same, make_cityscapes, make_coco, samples

Dense = SegmentationData | DetectionData
Open = Callable[..., Dense]

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")

LOADERS = [pytest.param(True, id="memory"), pytest.param(False, id="stream")]


@pytest.fixture(params=["segmentation", "detection"])
def open_set(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Opens a set of 7 training and 5 validation images of 12×16 pixels."""
    if request.param == "segmentation":
        root = make_cityscapes(tmp_path / "set")

        def segmentation(*, seed: int = 0, progress: Any = None, **options: Any) -> Dense:
            settings = SegmentationSettings(**{"crop": (10, 14), **options})
            return open_segmentation(root, settings=settings, seed=seed, progress=progress)

        return segmentation
    root = make_coco(tmp_path / "set")

    def detection(*, seed: int = 0, progress: Any = None, **options: Any) -> Dense:
        settings = DetectionSettings(**{"short_side": 9, **options})
        return open_detection(root, settings=settings, seed=seed, progress=progress)

    return detection


def _distinct(found: list[list[torch.Tensor]]) -> int:
    return len({sample[0].numpy().tobytes() for sample in found})


def test_memory_and_stream_give_the_same_bits(open_set: Open) -> None:
    memory, stream = (open_set(in_memory=where) for where in (True, False))
    assert (memory.memory_bytes is None, stream.memory_bytes is None) == (False, True)
    for epoch in range(3):
        assert_same(
            memory.train.batches(epoch=epoch, batch_size=3),
            stream.train.batches(epoch=epoch, batch_size=3),
        )
    assert_same(memory.val.eval_batches(batch_size=2), stream.val.eval_batches(batch_size=2))


@pytest.mark.parametrize("in_memory", LOADERS)
def test_any_number_of_workers_gives_the_same_bits(open_set: Open, in_memory: bool) -> None:
    alone = open_set(in_memory=in_memory)
    expected: list[Batch | DetectionBatch] = [
        b for e in (0, 1) for b in alone.train.batches(epoch=e, batch_size=3)
    ]
    expected += alone.val.eval_batches(batch_size=2)
    for workers in (1, 2):
        data = open_set(in_memory=in_memory, workers=workers)
        batches: list[Batch | DetectionBatch] = [
            b for e in (0, 1) for b in data.train.batches(epoch=e, batch_size=3)
        ]
        batches += data.val.eval_batches(batch_size=2)
        data.close()
        assert_same(batches, expected)


@pytest.mark.parametrize("in_memory", LOADERS)
def test_ranks_in_order_make_the_whole_batch(open_set: Open, in_memory: bool) -> None:
    data = open_set(in_memory=in_memory)
    whole: list[Batch | DetectionBatch] = list(data.train.batches(epoch=2, batch_size=6))
    parts = [
        list(data.train.batches(epoch=2, batch_size=6, rank=rank, world_size=2)) for rank in (0, 1)
    ]
    assert_same([batch for step in zip(*parts, strict=True) for batch in step], whole)


@pytest.mark.parametrize("in_memory", LOADERS)
@pytest.mark.parametrize("start", [1, 2])
def test_start_gives_the_tail(open_set: Open, in_memory: bool, start: int) -> None:
    data = open_set(in_memory=in_memory)
    whole: list[Batch | DetectionBatch] = list(data.train.batches(epoch=1, batch_size=2))
    assert len(whole) == data.train.steps_per_epoch(2) == 3
    assert_same(data.train.batches(epoch=1, batch_size=2, start=start), whole[start:])


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_validation_sees_each_image_once(open_set: Open, world_size: int) -> None:
    data = open_set()
    whole: list[Batch | DetectionBatch] = list(data.val.eval_batches(batch_size=4))
    assert _distinct(samples(whole)) == len(data.val) == 5
    parts = [
        batch
        for rank in range(world_size)
        for batch in data.val.eval_batches(batch_size=4, rank=rank, world_size=world_size)
    ]
    assert_same(parts, whole)


def test_epochs_and_seeds_differ_and_repeat(open_set: Open) -> None:
    data, other = open_set(train_images=1), open_set(train_images=1, seed=1)
    # one image, so that the order cannot differ: 12 epochs of one flip or more
    seen = [samples(data.train.batches(epoch=e, batch_size=1))[0] for e in range(12)]
    assert _distinct(seen) > 1
    theirs = [samples(other.train.batches(epoch=e, batch_size=1))[0] for e in range(12)]
    assert not all(torch.equal(a[0], b[0]) for a, b in zip(seen, theirs, strict=True))
    again = [samples(data.train.batches(epoch=e, batch_size=1))[0] for e in range(12)]
    assert all(torch.equal(a[0], b[0]) for a, b in zip(seen, again, strict=True))


def test_an_epoch_visits_each_image_once(open_set: Open) -> None:
    options: dict[str, Any] = {"flip": False}
    data = open_set(**options)
    if isinstance(data, SegmentationData):
        data = open_set(**options, scale=(1.0, 1.0), crop=(12, 16))
    found = samples(data.train.batches(epoch=0, batch_size=7))
    assert _distinct(found) == 7


def test_limits_keep_the_first_images(open_set: Open) -> None:
    data, full = open_set(train_images=3, val_images=2), open_set()
    assert (len(data.train), len(data.val)) == (3, 2)
    first = samples(full.val.eval_batches(batch_size=1))[:2]
    found = samples(data.val.eval_batches(batch_size=1))
    assert all(torch.equal(a[0], b[0]) for a, b in zip(found, first, strict=True))


@pytest.mark.parametrize("in_memory", LOADERS)
def test_progress_ends_at_its_total(open_set: Open, in_memory: bool) -> None:
    calls: list[tuple[int, int]] = []
    open_set(in_memory=in_memory, progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (24, 24)  # 12 headers, 12 decoded or not needed
    assert calls == sorted(calls)


def test_large_sets_stream(open_set: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    held = open_set().memory_bytes
    assert held in (12 * 192 * 4, 12 * 192 * 3)  # RGB and labels, or RGB, of 12 images of 12×16
    monkeypatch.setattr(dense, "MEMORY_LIMIT", held - 1)
    assert open_set().memory_bytes is None
    assert open_set(in_memory=True).memory_bytes == held


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": -1}, "workers must be at least 0 but got -1"),
        ({"train_images": 0}, "train_images must be at least 1 but got 0"),
        ({"val_images": 0}, "val_images must be at least 1 but got 0"),
    ],
)
def test_wrong_settings(open_set: Open, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        open_set(**options)
