"""Trainings at size: the images, a training that was killed, the searches, and the page."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fixnorm.data.packed import open_cifar10
from fixnorm.training.checkpoint import read
from helpers.benchmarks import load

__all__ = ["load"]  # a fixture, which pytest looks up by name
PEERS = {"prodigy": "prodigyopt", "dog": "dog", "schedule-free-lr5": "schedulefree"}


@pytest.fixture(scope="module")
def at_size(load: Any) -> Any:
    return load("at_size")


# -- the images ------------------------------------------------------------------------------------


def package(folder: Path, *, batch: int = 4) -> tuple[np.ndarray, list[int]]:
    """What npm unpacks, with fewer images: pixels of (n, height, width, colour), and labels."""
    draws = np.random.default_rng(0)
    pixels = draws.integers(0, 256, (6 * batch, 32, 32, 3), dtype=np.uint8)
    labels = draws.integers(0, 10, 6 * batch).tolist()
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    for name, part in zip(names, np.split(pixels, 6), strict=True):
        Image.fromarray(part.reshape(batch, 1024, 3)).save(folder / f"{name}.png")
    (folder / "train_lables.json").write_text(json.dumps(labels[: 5 * batch]))
    (folder / "test_lables.json").write_text(json.dumps(labels[5 * batch :]))
    return pixels, labels


def test_our_loader_reads_what_came_from_npm(load: Any, tmp_path: Path) -> None:
    pixels, labels = package(tmp_path)
    load("cifar10_from_npm").converted(tmp_path, tmp_path / "out")

    source = open_cifar10(tmp_path / "out")
    for part, at in ((source.train, slice(20)), (source.val, slice(20, None))):
        np.testing.assert_array_equal(part.pixels, pixels[at])
        np.testing.assert_array_equal(part.labels, labels[at])


@pytest.mark.parametrize(("kept", "said"), [(19, "ends before data_batch_5"), (21, "1 labels too")])
def test_labels_that_do_not_fit_are_refused(
    load: Any, tmp_path: Path, kept: int, said: str
) -> None:
    _, labels = package(tmp_path)
    (tmp_path / "train_lables.json").write_text(json.dumps(labels[:kept]))
    with pytest.raises(SystemExit, match=said):
        load("cifar10_from_npm").converted(tmp_path, tmp_path)


def test_a_batch_is_what_the_images_are(load: Any) -> None:
    """Each image is of one shade, darker on its left half: what crops leave tells a flip."""
    labels = np.arange(1, 33, dtype=np.int64)
    train = np.tile(6 * labels[:, None, None, None].astype(np.uint8), (1, 24, 24, 3))
    train[:, :, :12] //= 2
    images = load("at_size_images").Packed.of(train, labels, train, labels)

    batches = list(images.epoch(8, seed=3, epoch=0))
    x, y = (torch.cat(parts) for parts in zip(*batches, strict=True))
    assert batches[0][0].is_contiguous(memory_format=torch.channels_last)
    assert sorted(y.tolist()) == labels.tolist()
    seen = (x * images.std + images.mean).round().long()
    left, right = seen[:, 0, 12, 7], seen[:, 0, 12, 16]
    flipped = left > right
    assert torch.equal(torch.where(flipped, left, right), 6 * y)
    assert torch.equal(torch.where(flipped, right, left), 3 * y)
    assert 0 < flipped.sum() < 32

    def order(seed: int, epoch: int) -> list[int]:
        return [k for _, y in images.epoch(8, seed=seed, epoch=epoch) for k in y.tolist()]

    assert order(3, 0) == y.tolist()
    assert y.tolist() not in (order(3, 1), order(4, 0))
    ((whole, _),) = images.test()
    shown = (whole * images.std + images.mean).round().byte()
    np.testing.assert_array_equal(shown.permute(0, 2, 3, 1), train)


# -- a training ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def setting(at_size: Any) -> Any:
    return replace(at_size.SETTINGS[0], name="tiny", net="resnet8-w8", epochs=6, batch=16)


@pytest.fixture(scope="module")
def images(load: Any) -> Any:
    """Classes that can be learnt: each has a pattern of its own under some noise."""
    draws = np.random.default_rng(0)
    patterns = draws.integers(64, 192, (10, 12, 12, 3))
    labels = np.arange(320, dtype=np.int64) % 10
    pixels = (patterns[labels] + draws.integers(-10, 10, (320, 12, 12, 3))).astype(np.uint8)
    return load("at_size_images").Packed.of(pixels[:256], labels[:256], pixels[256:], labels[256:])


class Killed(Exception):
    pass


def outcome(training: Any) -> tuple[dict[str, Any], list[torch.Tensor]]:
    row = training.row()
    del row["seconds"], row["share"]
    averager = training.run.averager
    models = [training.run.model, *([] if averager is None else [averager.averaged_model])]
    return row, [value for model in models for value in model.state_dict().values()]


def assert_equal(one: Any, other: Any) -> None:
    (first, weights), (second, others) = outcome(one), outcome(other)
    assert first == second
    assert all(torch.equal(a, b) for a, b in zip(weights, others, strict=True))


@pytest.mark.parametrize("name", ["auto", "weight-decay", *PEERS])
def test_a_killed_training_goes_on_as_if_it_had_not_been(
    at_size: Any, setting: Any, images: Any, name: str, tmp_path: Path
) -> None:
    if name in PEERS:
        pytest.importorskip(PEERS[name])
    side = next(s for s in (at_size.AUTO, *at_size.PEERS) if s.name == name)
    whole = at_size.trained(setting, side, images, 1, tmp_path / "whole")

    with pytest.MonkeyPatch.context() as patch:
        step, left, labels = at_size.Trained.step, iter(range(5 * 16 + 3)), []

        def killed(*given: Any) -> Any:
            if next(left, None) is None:
                raise Killed
            labels.append(given[-1].tolist())
            return step(*given)

        patch.setattr(at_size.Trained, "step", killed)
        with pytest.raises(Killed):
            at_size.trained(setting, side, images, 1, tmp_path / "killed")
    rest = at_size.trained(setting, side, images, 1, tmp_path / "killed")

    assert labels[:16] != labels[16:32], "every epoch has an order of its own"
    assert [point["epoch"] for point in rest.curve] == [1, 2, 3, 4, 5, 6]
    assert [point["epoch"] for point in rest.curve if "accuracy" in point] == [5, 6]
    assert rest.row()["share"] == 1.0
    assert_equal(rest, whole)


def test_a_branch_is_the_training_from_the_start(
    at_size: Any, setting: Any, images: Any, tmp_path: Path
) -> None:
    trunk = at_size.trained(setting, at_size.AUTO, images, 1, tmp_path / "trunk")
    folder = at_size.place(tmp_path / "trunk", setting, at_size.AUTO, 1).folder
    scales = [read(folder / f"step-{epoch:09d}.ckpt")["largest"] for epoch in (3, 4)]
    assert scales[0] < scales[1], "the head's scale must grow for there to be a branch"
    alpha = sum(scales) / 2
    side = at_size.Side(kind="auto", alpha=alpha)
    branch = at_size.trained(setting, side, images, 1, tmp_path / "trunk")
    alone = at_size.trained(setting, side, images, 1, tmp_path / "alone")

    assert (branch.row()["share"], alone.row()["share"]) == (0.5, 1.0)
    assert_equal(branch, alone)
    assert outcome(branch)[0]["curve"] != outcome(trunk)[0]["curve"]
