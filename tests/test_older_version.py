"""A study and a run that version 0.1 left unfinished: opened, drawn and ended by this one.

``fixtures/0.1`` was written by the commands below, which were stopped on their way; the study's
database is kept as text, weights and TensorBoard files are left out.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from fixnorm.training.checkpoint import Checkpoints
from helpers.runs import Nursery, nursery

__all__ = ["nursery"]  # a fixture, which pytest looks up by name

LEFT = Path(__file__).parent / "fixtures/0.1"
NET = ("--set", "model=resnet8-w2")
RUN = (
    *("train", "digits", *NET, "--set", "epochs=12", "--set", "warmup_epochs=1"),
    *("--set", "train_per_class=100", "--set", "batch_size=20"),
)
SEARCH = (
    *("tune", "digits", *NET, "--set", "epochs=8", "--set", "warmup_epochs=0"),
    *("--set", "train_per_class=30", "--splits", "2", "--fractions", "0.5,1", "--alphas", "0.5,16"),
)


@pytest.fixture
def study(tmp_path: Path) -> Path:
    folder = shutil.copytree(LEFT / "study", tmp_path / "study")
    script = (folder / "study.sql").read_text()
    (folder / "study.sql").unlink()
    with closing(sqlite3.connect(folder / "study.db")) as database:
        database.executescript(script)
    return folder


@pytest.mark.slow
def test_a_study_opens_and_goes_on(nursery: Nursery, study: Path, tmp_path: Path) -> None:
    nursery.run(["report", str(study)])
    page = (study / "report.html").read_text()
    assert "12.39" in page  # the first two trials, which had ended
    assert "15.21" in page

    again = [*SEARCH, "--out", str(study), "--json"]
    found = json.loads(nursery.run(again, errors=tmp_path / "errors").said())
    assert found["study"] == "digits-fixnorm-paper"
    assert (found["trials"], found["cost"]) == (5, 4.0)
    assert found["lr"] in (0.2, 3.2)  # 3.2 had won the short round: the bound of the full one
    kept = study / "fixnorm-paper/lr1-0-seed0/metrics.csv"
    assert kept.read_text() == (LEFT / "study/fixnorm-paper/lr1-0-seed0/metrics.csv").read_text()


@pytest.mark.slow
def test_a_run_opens_and_goes_on(nursery: Nursery, tmp_path: Path) -> None:
    run = shutil.copytree(LEFT / "run", tmp_path / "run")
    latest = Checkpoints(run / "checkpoints").latest()
    assert latest is not None
    assert latest[0].name == "step-000000250.ckpt"

    nursery.run([*RUN, "--out", str(run)])
    result = json.loads((run / "result.json").read_text())
    assert result["steps"] == 600
    assert result["accuracy"] == pytest.approx(80.0, abs=5)  # that of version 0.1 where it was left
    before = (LEFT / "run/metrics.csv").read_text().splitlines()
    assert (run / "metrics.csv").read_text().splitlines()[: len(before)] == before
