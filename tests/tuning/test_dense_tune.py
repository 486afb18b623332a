"""``fixnorm tune`` on a segmenter and a detector: their range, their metric, their report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fixnorm.commands import run
from fixnorm.training import Recipe
from fixnorm.tuning.storage import Storage
from fixnorm.tuning.study import read_studies
from helpers.dense_runs import as_options, boxes_on_noise, detector, segmenter, striped_streets
from helpers.runs import Nursery, nursery

__all__ = ["nursery"]  # a fixture, which pytest looks up by name


def arguments(recipe: Recipe, data: Path | None, out: Path, *extra: str) -> list[str]:
    words = ["tune", recipe.name, "--out", str(out)]
    words += [] if data is None else ["--data", str(data)]
    tuned = ("lr", "alpha", "weight_decay", "method")
    return [*words, *as_options(recipe, without=tuned), *extra]


@pytest.mark.parametrize("recipe", [segmenter(), detector()], ids=["segmentation", "detection"])
def test_algorithm_4_on_the_range_of_the_appendix(
    recipe: Recipe, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        run(arguments(recipe, None, tmp_path / "study", "--dry-run"))
    said = capsys.readouterr().out
    assert stopped.value.code == 0
    assert "T_max is 4 iterations" in said
    assert "lr round 1: 0.024 0.043 0.062 0.081 0.1" in said  # 0.005 + k · 0.095 / 5
    assert not (tmp_path / "study").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "name", "label"),
    [(segmenter(), "miou", "mIoU (%)"), (detector(), "ap", "AP (%)")],
    ids=["segmentation", "detection"],
)
def test_a_search_of_real_trainings(
    nursery: Nursery, recipe: Recipe, name: str, label: str, tmp_path: Path
) -> None:
    make = striped_streets if recipe.task == "segmentation" else boxes_on_noise
    data, out = make(tmp_path / "set"), tmp_path / "study"
    short = ("--splits", "2", "--fractions", "0.5,1", "--alphas", "0.5", "--workers", "2")
    nursery.run(arguments(recipe, data, out, *short), drawn=False)
    result = json.loads((out / "result.json").read_text())
    (record,) = read_studies(Storage.in_folder(out), out)
    assert record.metric == label
    best = max(t.accuracy for t in record.trials if t.accuracy is not None)
    assert result[name] == best
    assert label in (out / "report.html").read_text()
    lengths = {
        json.loads((path / "recipe.json").read_text())["iterations"]
        for path in (out / "fixnorm-paper").iterdir()
        if (path / "recipe.json").exists()
    }
    assert lengths == {2, 4}


def test_data_that_is_refused_leaves_no_study(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        run(arguments(segmenter(), tmp_path / "nowhere", tmp_path / "study"))
    assert stopped.value.code == 2
    assert "does not exist" in capsys.readouterr().err
    assert not (tmp_path / "study").exists()
