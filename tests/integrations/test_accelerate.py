"""``fixnorm.attach`` under Accelerate, with the optimizer before ``prepare`` and after it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import fixnorm
import fixnorm.integrations.accelerate
from fixnorm.hook import handle_of
from helpers.frameworks import Rescales, assert_goes_on, fixed_of, net, run, true_norm

pytest.importorskip("accelerate")
from accelerate import Accelerator
from accelerate.tracking import GeneralTracker

from helpers.accelerate_run import prepared, train

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
STEPS = 4  # 32 images, 8 a batch


@pytest.mark.tried(
    "Trainers", "Accelerate: before and after `prepare`", "works", "bf16, accumulation"
)
@pytest.mark.parametrize("precision", ["no", "bf16"])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_prepared_optimizer(seen: Rescales, precision: str, accumulate: int) -> None:
    accelerator = Accelerator(
        cpu=True, mixed_precision=precision, gradient_accumulation_steps=accumulate
    )
    made = prepared(accelerator)
    start = true_norm(fixed_of(made[1])[1])
    fixnorm.attach(made[1])
    train(accelerator, made)
    assert seen.count == STEPS / accumulate
    target, weights = fixed_of(made[1])
    assert target == pytest.approx(start, rel=1e-6)
    assert true_norm(weights) == pytest.approx(target, rel=1e-6)


def test_attached_before_prepare_and_told_so_after(seen: Rescales) -> None:
    accelerator, model = Accelerator(cpu=True), net()
    optimizer = torch.optim.SGD(fixnorm.param_groups(model), lr=0.3, momentum=0.9)
    handle = fixnorm.attach(optimizer)
    loader = prepared(accelerator)[2]
    made = (*accelerator.prepare(model, optimizer), loader)
    assert made[1] is not optimizer
    assert handle_of(made[1]) is handle
    with pytest.raises(ValueError, match="attached already; keep the first handle"):
        fixnorm.attach(made[1])
    train(accelerator, made)
    assert seen.count == STEPS


def test_figures_reach_the_trackers() -> None:
    class Kept(GeneralTracker):  # type: ignore[misc]
        name, requires_logging_directory = "kept", False

        def __init__(self) -> None:
            super().__init__()
            self.rows: dict[int, dict[str, float]] = {}

        @property
        def tracker(self) -> dict[int, dict[str, float]]:
            return self.rows

        def store_init_configuration(self, values: Any) -> None: ...

        def log(self, values: dict[str, float], step: int | None, **kwargs: Any) -> None:
            assert step is not None
            self.rows[step] = values

    kept = Kept()
    accelerator = Accelerator(cpu=True, log_with=kept)
    accelerator.init_trackers("fixnorm")
    made = prepared(accelerator)
    handle = fixnorm.attach(made[1])
    train(accelerator, made)
    fixnorm.integrations.accelerate.log(accelerator, handle, step=4)
    assert kept.rows[4]["fixnorm/norm"] == handle.figures().groups[0].norm
    assert kept.rows[4]["fixnorm/cap/8"] == 2.0  # α = 1, four classes


def test_lr_auto_counts_the_steps_that_are_made() -> None:
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    made = prepared(accelerator, lr=1.0)
    handle = fixnorm.attach(made[1], lr="auto", steps=STEPS // 2)
    train(accelerator, made)
    rule = handle.figures().rule
    assert rule is not None
    assert rule.seen == STEPS // 2


@pytest.mark.slow
def test_killed_and_resumed(tmp_path: Path) -> None:
    """The process dies after three steps; another goes on from the state of the second."""
    killed, whole_run = tmp_path / "killed", tmp_path / "whole"
    for folder in (killed, whole_run):
        folder.mkdir()
    run("accelerate_run.py", killed, 3, expect=-9)
    run("accelerate_run.py", killed, -1)
    run("accelerate_run.py", whole_run, -1)
    assert_goes_on(killed / "end.pt", whole_run / "end.pt", steps=4, left=2)
