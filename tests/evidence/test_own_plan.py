"""A plan that somebody else wrote in one file: searched with, replayed and drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import fixnorm
from fixnorm.evidence.landscapes import Landscape
from fixnorm.evidence.replay.options import known
from fixnorm.evidence.replay.strategies import Entry, run
from fixnorm.report import write_report
from fixnorm.tuning.plans import PLANS, TITLES, register
from fixnorm.tuning.storage import Storage
from fixnorm.tuning.strategies import PlanStrategy
from fixnorm.tuning.study import read_studies
from helpers.toy_plan import ENDS


@pytest.fixture
def ends() -> Iterator[str]:
    register(ENDS)
    yield ENDS.name
    del PLANS[ENDS.name], TITLES[ENDS.name]


def hill(lr: float, alpha: float, steps: int) -> float:
    return 70 - abs(math.log(lr / 0.2)) + math.log2(alpha)


def test_a_plan_in_one_file_runs_everywhere(
    tmp_path: Path, ends: str, write: Callable[..., Path]
) -> None:
    tuned = fixnorm.tune(hill, steps=10, plan=ends, out=tmp_path, progress=False)
    assert (tuned.lr, tuned.alpha, tuned.trials) == (0.2, 16.0, 5)
    (record,) = read_studies(Storage.in_folder(tmp_path), tmp_path)
    assert (record.settings["reach"], record.over) == (1.0, True)
    assert ENDS.title in write_report([record], tmp_path).read_text()
    assert PlanStrategy(plan=ends).outline()[-1] == "slots within 1 of an end"

    landscape = Landscape.read(
        write(lambda lr, level, seed: 50 - lr + level, axis="alpha", levels=(0.5, 1.0), short=0.2)
    )
    assert known((ends,)) == (ends,)
    trace = run(Entry(ends, landscape), replay=0, seed=0, budget=5, noise="full")
    assert (trace.trainings, trace.end.lr, trace.end.level) == (5, 0.25, 1.0)


def test_the_plan_that_contributing_shows() -> None:
    text = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
    shown = text.partition("## A search plan")[2].partition("```python\n")[2].partition("```")[0]
    try:
        exec(shown, {})
        tuned = fixnorm.tune(hill, steps=10, plan="edges", progress=False)
        assert (tuned.lr, tuned.alpha, tuned.trials) == (0.2, 0.5, 4)
    finally:
        del PLANS["edges"], TITLES["edges"]


def test_an_unknown_plan_is_refused_everywhere(tmp_path: Path, write: Callable[..., Path]) -> None:
    with pytest.raises(ValueError, match=r"plan must be one of paper, .* but got 'ends'"):
        fixnorm.tune(hill, steps=10, plan="ends", progress=False)
    landscape = Landscape.read(write(lambda lr, level, seed: 50 - lr, axis="alpha"))
    with pytest.raises(ValueError, match="unknown strategy 'ends': known are paper, unimodal"):
        run(Entry("ends", landscape), replay=0, seed=0, budget=5, noise="full")
    with pytest.raises(ValueError, match="plan auto cannot be replayed: its lr follows from grad"):
        known(("paper", "auto"))
    register(ENDS)
    try:
        with pytest.raises(ValueError, match="called 'ends' already"):
            register(ENDS)
        fixnorm.tune(hill, steps=10, plan="ends", out=tmp_path, progress=False)
    finally:
        del PLANS["ends"], TITLES["ends"]
    with pytest.raises(ValueError, match="strategy: no plan is called 'ends'"):
        read_studies(Storage.in_folder(tmp_path), tmp_path)
