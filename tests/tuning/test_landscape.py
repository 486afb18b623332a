"""Replays on recorded trainings: interpolation by hand, and what the faster plan promises."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path

import pytest

from fixnorm.tuning.landscape import Landscape, replay
from fixnorm.tuning.plan import PAPER, Outcome, SearchSpace, Slot, paper
from fixnorm.tuning.unimodal import unimodal

FOLDER = Path(__file__).parents[2] / "results" / "landscapes" / "fixnorm"
RECORDED = sorted(FOLDER.glob("*.json"))


def recorded(tmp_path: Path, points: list[tuple[float, float, float, int, float, float]]) -> Path:
    names = ("fraction", "alpha", "lr", "seed", "accuracy", "largest_scale")
    file = tmp_path / "landscape.json"
    listed = [dict(zip(names, point, strict=True)) for point in points]
    file.write_text(json.dumps({"name": "small", "points": listed}))
    return file


def test_between_two_learning_rates(tmp_path: Path) -> None:
    file = recorded(tmp_path, [(1, 2, 0.5, 0, 60, 1.0), (1, 2, 2.0, 0, 70, 3.0)])
    landscape = Landscape.read(file)
    middle = landscape.outcome(Slot(0, 0, 1.0, 2.0, 1.0), 0)  # half way in log lr
    assert middle.accuracy == pytest.approx(65)
    assert middle.largest_scale == pytest.approx(2.0)
    assert landscape.outcome(Slot(0, 0, 0.5, 2.0, 1.0), 0) == Outcome(60, 1.0)
    assert landscape.outcome(Slot(0, 0, 3.0, 2.0, 1.0), 0) == Outcome(70, 3.0)  # beyond: the edge


def test_seeds_with_holes_are_left_out(tmp_path: Path) -> None:
    points = [(1, 2, lr, seed, 60, 1.0) for lr in (0.5, 2.0) for seed in (0, 1)]
    assert Landscape.read(recorded(tmp_path, points[:3])).seeds == (0,)
    assert Landscape.read(recorded(tmp_path, points)).seeds == (0, 1)
    with pytest.raises(ValueError, match="holds no seed with every point"):
        Landscape.read(recorded(tmp_path, [points[0], (1, 4, 2.0, 0, 60, 1.0)]))


def test_a_replay(tmp_path: Path) -> None:
    """Accuracy is 60 − |log2 lr| in full, whatever alpha; g stays under a scale of 1."""
    points = [
        (fraction, alpha, lr, seed, 60 - abs(math.log2(lr)) - 20 * (fraction < 1) + seed, 0.9)
        for fraction in (0.2, 1.0)
        for alpha in (0.5, 1.0, 4.0)
        for lr in (0.25, 1.0, 4.0)
        for seed in (0, 1)
    ]
    landscape = Landscape.read(recorded(tmp_path, points))
    space = SearchSpace(lr_min=0.25, lr_max=4.0, splits=5, alphas=(0.5, 1.0, 4.0))
    for draw in range(5):
        found = replay(paper, space, landscape, draw=draw)
        assert found == replay(paper, space, landscape, draw=draw)
        assert found.cost == 7.0  # 1 + 5, and one alpha of two
        assert found.accuracy <= 60.5


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: file.stem)
def test_recordings_are_whole_and_small(file: Path) -> None:
    landscape = Landscape.read(file)
    assert len(landscape.seeds) >= 2
    assert landscape.alphas == PAPER.alphas
    assert {len(curve) for curve in landscape.points.values()} >= {8}
    assert file.stat().st_size <= 1_000_000


def test_the_faster_plan_on_recorded_trainings() -> None:
    """Within 0.3 % of the full plan in 95 % of the replays, at 6.5 T_max on average."""
    assert len(RECORDED) >= 2
    costs, near = [], []
    for file in RECORDED:
        landscape = Landscape.read(file)
        for draw in range(200):
            full = replay(paper, PAPER, landscape, draw=draw)
            fast = replay(unimodal, PAPER, landscape, draw=draw)
            costs.append(fast.cost)
            near.append(fast.accuracy >= full.accuracy - 0.3)
    assert statistics.fmean(near) >= 0.95
    assert statistics.fmean(costs) <= 6.5
