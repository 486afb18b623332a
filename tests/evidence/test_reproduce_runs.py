"""``fixnorm reproduce`` with real trainings, killed for real."""

from __future__ import annotations

import json
import signal
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from helpers.runs import Life, Nursery, nursery, until

__all__ = ["nursery"]  # a fixture, which pytest looks up by name

TINY = Path(__file__).parents[1] / "helpers" / "tiny.py"


@dataclass(frozen=True)
class Reproduces:
    """``fixnorm reproduce`` at a scale of seconds."""

    nursery: Nursery

    def start(self, out: Path, *names: str) -> Life:
        """It prints into the log, and says what it does beside it."""
        printed = self.nursery.place / f"{uuid.uuid4()}.log"
        words = ["reproduce", *names, "--out", str(out), "--workers", "2"]
        said = printed.with_suffix(".said")
        return self.nursery.start(words, program=TINY, log=printed, errors=said)

    def finish(self, out: Path, *names: str) -> tuple[str, str]:
        """What it prints, and says."""
        life = self.start(out, *names)
        assert life.wait() == 0, said(life)
        return life.said(), said(life)


def said(life: Life) -> str:
    return life.log.with_suffix(".said").read_text()


@pytest.fixture
def reproduces(nursery: Nursery) -> Reproduces:
    return Reproduces(nursery)


def outcome(out: Path, name: str) -> Any:
    content = json.loads((out / f"{name}.json").read_text())
    return without_times(content["outcome"])


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if k != "seconds"}
    return [without_times(v) for v in value] if isinstance(value, list) else value


def trainings(out: Path) -> list[Path]:
    return sorted((out / "trainings").glob("digits-*/result.json"))


@pytest.mark.slow
def test_an_experiment_that_is_killed_goes_on_and_finds_the_same(
    reproduces: Reproduces, tmp_path: Path
) -> None:
    reproduces.finish(tmp_path / "whole", "fig2")

    out = tmp_path / "killed"
    driver = reproduces.start(out, "fig2")
    assert until(lambda: trainings(out), driver), said(driver)
    driver.send(signal.SIGSTOP)  # it starts no more trainings, however long the next takes
    second = reproduces.start(out, "fig2")
    assert second.wait() == 2
    assert f"fixnorm: {out} is in use by" in said(second)
    driver.kill()
    before = {path: path.stat().st_mtime_ns for path in trainings(out)}
    assert len(before) < 6

    _, told = reproduces.finish(out, "fig2")

    assert f"at most 6 trainings, {len(before)} are there" in told
    assert {path: path.stat().st_mtime_ns for path in before} == before  # not trained again
    assert len(trainings(out)) == 6
    assert outcome(out, "fig2") == outcome(tmp_path / "whole", "fig2")


@pytest.mark.slow
def test_searches_of_an_experiment(reproduces: Reproduces, tmp_path: Path) -> None:
    """Two repetitions of each search; a second call finds all of it."""
    printed, _ = reproduces.finish(tmp_path, "table1")

    content = outcome(tmp_path, "table1")["settings"][0]
    ways = [(search["method"], search.get("plan", "paper")) for search in content["searches"]]
    ours = [("fixnorm", plan) for plan in ("paper", "auto") for _ in range(2)]
    assert ways == [("weight-decay", "paper")] * 2 + ours
    assert all(len(search["scores"]) == 2 for search in content["searches"])
    assert [search["cost"] for search in content["searches"]][:2] == [3, 3]
    assert all(search["cost"] <= 2 * 0.5 + 2 + 1 for search in content["searches"][2:4])
    assert all(search["lr"] == "auto" for search in content["searches"][4:])
    assert "FixNorm, Algorithm 4" in printed
    assert "FixNorm, plan auto" in printed
    for name in ("table1.html", "table1.md", "fig5-digits.png", "fig5-digits-details.png"):
        assert (tmp_path / name).exists()
    # A second call has nothing to train.
    _, told = reproduces.finish(tmp_path, "fig5")
    assert "are there" in told
    assert "digits-" not in told


WRONG = """
import sys
from dataclasses import replace

from fixnorm.commands import run
from fixnorm.evidence import scales
from helpers.tiny import TINY, setting

scales.SCALES["small"] = replace(TINY, fig2=setting(model="nonsense"))
run(sys.argv[1:])
"""


def test_a_training_that_cannot_run_stops_the_whole_with_one_line(
    nursery: Nursery, tmp_path: Path
) -> None:
    (tmp_path / "trainings" / "logs").mkdir(parents=True)
    program = tmp_path / "wrong.py"
    program.write_text(WRONG)
    life = nursery.start(["reproduce", "fig2", "--out", str(tmp_path)], program=program)
    assert life.wait() == 2
    assert life.said().splitlines()[-1].startswith("fixnorm: ")
    assert "Traceback" not in life.said()
