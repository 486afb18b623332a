"""Recorded landscapes: reading them, interpolation by hand, and those of the repository."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from fixnorm.evidence.landscapes import Landscape, Peak
from fixnorm.tuning.plan import PAPER

FOLDER = Path(__file__).parents[2] / "results" / "landscapes" / "fixnorm"
RECORDED = sorted(FOLDER.glob("*.json"))


def recorded(tmp_path: Path, points: list[dict[str, Any]]) -> Path:
    file = tmp_path / "landscape.json"
    file.write_text(json.dumps({"name": "small", "points": points}))
    return file


def point(lr: float, decay: float, accuracy: float | None, **more: Any) -> dict[str, Any]:
    return {
        "fraction": 1,
        "lr": lr,
        "weight_decay": decay,
        "seed": 0,
        "accuracy": accuracy,
    } | more


def square(tmp_path: Path) -> Landscape:
    values = {(0.5, 1e-4): 60, (2.0, 1e-4): 70, (0.5, 1e-2): 80, (2.0, 1e-2): 100}
    return Landscape.read(recorded(tmp_path, [point(*at, value) for at, value in values.items()]))


def test_bilinear_in_both_logarithms(tmp_path: Path) -> None:
    landscape = square(tmp_path)
    assert landscape.axis == "weight_decay"
    assert landscape.mean(1.0, 1e-3) == pytest.approx((60 + 70 + 80 + 100) / 4)
    assert landscape.mean(1.0, 1e-4) == pytest.approx(65)
    assert landscape.mean(2.0, 1e-3) == pytest.approx(85)
    # a quarter of the way in log lr, half way in log decay
    at = 0.5 * 4**0.25
    assert landscape.mean(at, 1e-3) == pytest.approx((0.75 * (60 + 80) + 0.25 * (70 + 100)) / 2)


def test_points_of_the_grid_are_themselves_and_beyond_is_the_edge(tmp_path: Path) -> None:
    landscape = square(tmp_path)
    assert landscape.mean(0.5, 1e-2) == 80
    assert landscape.mean(0.1, 1.0) == 80
    assert landscape.mean(9.0, 1e-5) == 70
    assert [corner.weight for corner in landscape.corners(2.0, 1e-4)] == [1.0]


def test_the_best_is_of_the_mean_over_the_seeds(tmp_path: Path) -> None:
    values = {(0.5, 0): 50, (0.5, 1): 60, (2.0, 0): 54, (2.0, 1): 58}
    points = [point(lr, 1e-4, value, seed=seed) for (lr, seed), value in values.items()]
    landscape = Landscape.read(recorded(tmp_path, points))
    assert landscape.best == Peak(2.0, 1e-4, 56.0)  # the best single training is at the other
    # variances 50 and 8, each with one degree of freedom
    assert landscape.noise == pytest.approx(math.sqrt((50 + 8) / 2))


def test_one_seed_has_no_noise(tmp_path: Path) -> None:
    assert square(tmp_path).noise == 0


def test_a_diverged_training_stays_where_it_was(tmp_path: Path) -> None:
    points = [
        point(0.5, 1e-4, 30.0, curve=[10.0, 20.0, 30.0]),
        point(2.0, 1e-4, 7.0, curve=[9.0, 7.0]),
        point(4.0, 1e-4, None, curve=[]),
        point(8.0, 1e-4, math.nan, curve=[math.nan]),
    ]
    landscape = Landscape.read(recorded(tmp_path, points))
    assert landscape.epochs == 3
    curves = {lr: mean.curve for (_, _, lr), mean in landscape.means.items()}
    assert curves == {0.5: (10, 20, 30), 2.0: (9, 7, 7), 4.0: (0, 0, 0), 8.0: (0, 0, 0)}


def test_seeds_with_holes_are_left_out(tmp_path: Path) -> None:
    points = [point(lr, 1e-4, 60, seed=seed) for lr in (0.5, 2.0) for seed in (0, 1)]
    assert Landscape.read(recorded(tmp_path, points[:3])).seeds == (0,)
    assert Landscape.read(recorded(tmp_path, points)).seeds == (0, 1)
    with pytest.raises(ValueError, match="holds no seed with every point"):
        Landscape.read(recorded(tmp_path, [points[0], point(2.0, 1e-3, 60)]))


def test_what_is_no_landscape(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"missing\.json does not exist: give the JSON"):
        Landscape.read(tmp_path / "missing.json")
    for content in ("[]", "{", '{"name": "x"}', '{"points": 3, "name": "x"}'):
        (tmp_path / "other.json").write_text(content)
        with pytest.raises(ValueError, match="is not a recorded landscape: "):
            Landscape.read(tmp_path / "other.json")
    with pytest.raises(ValueError, match="over alpha or over weight decay but has neither"):
        Landscape.read(recorded(tmp_path, []))
    with pytest.raises(ValueError, match="over alpha or over weight decay but has both"):
        Landscape.read(recorded(tmp_path, [point(1.0, 1e-4, 60, alpha=1.0)]))


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: file.stem)
def test_recordings_are_whole_and_small(file: Path) -> None:
    landscape = Landscape.read(file)
    assert len(landscape.seeds) >= 2
    assert len(landscape.lrs) >= 8
    assert landscape.levels == PAPER.alphas
    assert landscape.fractions == PAPER.fractions
    assert file.stat().st_size <= 1_000_000
