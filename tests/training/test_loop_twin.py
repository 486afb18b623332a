"""The loop, held against a slow twin."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from fixnorm.training import changed
from fixnorm.training.checkpoint import read
from fixnorm.training.weights import rebuild
from helpers.small_runs import (
    NO_BATCH_STATISTICS,
    Steps,
    accuracy,
    assert_close,
    digits,
    rows_of,
    small,
    trained,
    weights_of,
)
from helpers.twin import Twin


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"label_smoothing": 0.0},
        {"label_smoothing": 0.4},
        {"warmup_epochs": 0},
        # at lr 0.05 rounding takes one activation to the other side of zero, on some machines
        {"warmup_epochs": 1.5, "lr": 0.02},
        {"momentum": 0.0},
        {"weight_decay": 0.05},
        {"clip": 0.2},
        {"clip": 1e9},
        {"accumulate": 4},
        {"accumulate": 2, "clip": 0.2},
        {"ema": 0.8},
        {"seed": 3},
        {"model": NO_BATCH_STATISTICS, "image_size": 32},
    ],
    ids=lambda changes: ",".join(f"{k}={v}" for k, v in changes.items()) or "as it is",
)
def test_a_run_is_the_training_written_out(tmp_path: Path, changes: dict[str, Any]) -> None:
    recipe = small(**{"method": "weight-decay", "lr": 0.05, "channels_last": False} | changes)
    seen = Steps()
    result = trained(recipe, tmp_path / "run", seen)
    twin = Twin(recipe)
    assert seen.lr == pytest.approx(twin.lrs, rel=1e-12)
    assert seen.loss == pytest.approx(twin.losses, rel=1e-4)
    evaluated = twin.evaluated()
    assert_close(weights_of(tmp_path / "run"), evaluated.state_dict(), 1e-4)
    assert result["accuracy"] == pytest.approx(accuracy(evaluated, twin.data), abs=1e-9)


def test_the_learning_rate_of_every_step(tmp_path: Path) -> None:
    seen = Steps()
    trained(small(epochs=4, lr=0.8), tmp_path / "run", seen)
    assert seen.lr == pytest.approx(
        [
            0.4,  # half of the warm-up's two steps
            0.8,
            0.8,  # cos 0°
            0.4 * (1 + math.sqrt(3) / 2),  # cos 30°
            0.6,
            0.4,
            0.2,
            0.4 * (1 - math.sqrt(3) / 2),
        ]
    )


def test_the_average_is_what_is_evaluated_and_kept(tmp_path: Path) -> None:
    recipe = small(ema=0.5)
    result = trained(recipe, tmp_path / "run")
    saved = read(tmp_path / "run" / "checkpoints" / "step-000000005.ckpt")
    kept = weights_of(tmp_path / "run")
    assert not torch.equal(kept["fc.weight"], saved["model"]["fc.weight"])
    last = changed(recipe, ema=None)  # the same training, whose last weights are kept
    trained(last, tmp_path / "plain")
    now = weights_of(tmp_path / "plain")
    assert_close(
        {n: t for n, t in kept.items() if t.is_floating_point()},
        {n: 0.5 * (saved["ema"][n] + now[n]) for n, t in kept.items() if t.is_floating_point()},
        1e-6,
    )
    assert result["accuracy"] == pytest.approx(
        accuracy(rebuild(tmp_path / "run"), digits(recipe)), abs=1e-9
    )


def test_parts_of_a_batch_add_up_where_no_batch_statistics_are(tmp_path: Path) -> None:
    found = {}
    for parts in (1, 4):
        recipe = small(model=NO_BATCH_STATISTICS, image_size=32, accumulate=parts)
        trained(recipe, tmp_path / f"{parts}")
        found[parts] = weights_of(tmp_path / f"{parts}")
    assert_close(found[4], found[1], 1e-4)


def test_evaluation_may_be_rare_and_comes_last(tmp_path: Path) -> None:
    result = trained(small(eval_every=2), tmp_path / "run")
    accuracies = [row["val_accuracy"] for row in rows_of(tmp_path / "run")]
    assert accuracies[0] == ""
    assert "" not in accuracies[1:]
    assert result["accuracy"] == float(accuracies[2])


def test_the_angle_of_the_last_step_is_that_of_the_weights(tmp_path: Path) -> None:
    recipe = small(epochs=1)
    trained(recipe, tmp_path / "run")
    start = read(tmp_path / "run" / "checkpoints" / "step-000000001.ckpt")["model"]
    end = weights_of(tmp_path / "run")
    conv = [n for n, w in end.items() if w.ndim == 4]
    angles, norms = [], []
    for name in conv:
        a, b = start[name].double().flatten(), end[name].double().flatten()
        angles.append(math.acos(float(a @ b / (a.norm() * b.norm()))))
        norms.append(b.norm().item())
    mean = sum((a * n) ** 2 for a, n in zip(angles, norms, strict=True)) / sum(n**2 for n in norms)
    row = rows_of(tmp_path / "run")[0]
    assert float(row["angular_update"]) == pytest.approx(math.sqrt(mean), rel=1e-3)
    assert float(row["conv_norm"]) == pytest.approx(math.sqrt(sum(n**2 for n in norms)), rel=1e-6)
