"""Regret by hand, and ``fixnorm replay`` as a user meets it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fixnorm.commands import run
from fixnorm.evidence.landscapes import Landscape
from fixnorm.evidence.replay.options import Options
from fixnorm.evidence.replay.output import table_of
from fixnorm.evidence.replay.replays import replay_all
from fixnorm.evidence.replay.strategies import Entry, Step, Trace
from fixnorm.evidence.replay.summary import Spread, Summary, WorkloadResult, quantile

Write = Callable[..., Path]
CHEAP = "paper,unimodal,tpe,random,successive-halving"


def rising(lr: float, level: float, seed: int) -> float:
    """60 at lr 0.25, 70 at 1, 80 at 4."""
    return 70 + 10 * math.log(lr, 4) + seed


def lower(lr: float, level: float, seed: int) -> float:
    return rising(lr, level, seed) - 5


@pytest.fixture
def files(write: Write) -> list[str]:
    """Both landscapes of one setting."""
    alpha = write(rising, axis="alpha", levels=(0.5, 1.0, 4.0), seeds=2, short=0.25, scale=0.9)
    return [str(alpha), str(write(lower, seeds=2))]


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as stopped:
        run(["replay", *arguments])
    captured = capsys.readouterr()
    return stopped.value.code, captured.out, captured.err


def spread(of: Spread) -> tuple[float, float, float]:
    return of.mean, of.median, of.q90


def test_quantiles() -> None:
    assert quantile([3, 1, 2], 0.5) == 2
    assert quantile([0, 10], 0.9) == 9
    assert quantile([7], 0.9) == 7
    assert spread(Spread.of([0, 1, 2, 3, 10])) == pytest.approx((3.2, 2, 7.2))


def trace(*steps: tuple[float, float], cost: float) -> Trace:
    """(cost, accuracy) of each step."""
    made = tuple(Step(spent, 1.0, 1e-4, 0.0, accuracy) for spent, accuracy in steps)
    return Trace(made, cost, 3)


def test_regret_by_hand(write: Write) -> None:
    landscape = Landscape.read(write(rising))  # its best is 80
    traces = (
        trace((1, 60), (2, 78), cost=4),
        trace((2, 70), (3, 80), cost=3),
    )
    summary = Summary(Entry("random", landscape), traces)
    assert (summary.end.cost, summary.end.accuracy) == (3.5, 79)
    assert spread(summary.end.regret) == pytest.approx((1, 1, 1.8))
    assert summary.at(1) is None  # the second replay has no answer yet
    at_two = summary.at(2)
    assert at_two is not None
    assert (at_two.accuracy, at_two.regret.mean) == (74, 6)
    assert [moment.cost for moment in summary.curve][:2] == [2.0, 2.2]
    assert summary.curve[-1].cost == 4.0
    assert summary.curve[-1].regret == summary.end.regret


def test_against_the_papers_plan_by_hand(write: Write) -> None:
    alpha, decay = Landscape.read(write(rising, axis="alpha")), Landscape.read(write(lower))
    paper = Summary(Entry("paper", alpha), (trace((1, 79), cost=7.6), trace((1, 70), cost=8.6)))
    other = Summary(Entry("gp", decay), (trace((1, 75), cost=9), trace((1, 69.7), cost=9)))
    result = WorkloadResult("small", (alpha, decay), (paper, other))
    assert result.best == 80
    assert result.plan_costs == {"paper": 8}
    assert result.near_paper(other) == 0.5  # 4 below, 0.3 below
    assert result.near_paper(paper) == 1
    gp = result.to_dict()["strategies"][1]
    assert gp["regret"]["mean"] == pytest.approx(75 - (75 + 69.7) / 2)  # its own landscape's best
    assert gp["below_best_of_both"] == pytest.approx(80 - (75 + 69.7) / 2)
    assert gp["at_cost_of"]["paper"]["cost"] == 8
    # −4 and −0.3: mean −2.15, and 12.706 · 3.7/√2 / √2 to either side
    assert gp["over_paper"]["mean"] == pytest.approx(-2.15)
    assert gp["over_paper"]["half_width"] == pytest.approx(12.706 * 3.7 / 2, rel=1e-4)
    assert gp["over_paper_at_its_cost"] == gp["over_paper"]  # its answers are there at 1 T_max
    late = Summary(other.entry, (trace((1, 72), (9, 75), cost=9), other.traces[1]))
    before = result.over_paper(late, cost=8)
    assert before is not None
    assert before.mean == pytest.approx((72 - 79 + 69.7 - 70) / 2)
    slow = Summary(other.entry, (trace((9, 75), cost=9), other.traces[1]))
    assert result.over_paper(slow, cost=8) is None
    alone = WorkloadResult("small", (decay,), (other,))
    assert alone.near_paper(other) is None
    assert alone.over_paper(other) is None
    table = table_of(result, replays=2)
    assert table.columns[-4:-2] == ("at 8 T_max", "near paper's")
    assert table.columns[-2:] == ("− paper's, at 8 T_max", "− paper's, at the end")
    assert table.rows[0][-3:] == ("–", "–", "–")
    assert table.rows[1][-3:] == ("50 %", *["−2.15 [−25.66, +21.36]"] * 2)
    assert table.rows[1][:5] == ("Bayesian (GP)", "lr × weight decay", "9.0", "72.35", "2.65")
    assert "best of both: 80.00 %" in table.notes
    assert "1 seed, so without noise" in table.notes[0]


def test_the_command(capsys: pytest.CaptureFixture[str], files: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = [*files, "--strategies", CHEAP, "--replays", "7", "--budget", "6"]
    code, printed, said = call(capsys, *arguments, "--out", str(out))
    assert code == 0
    assert "small: TPE, lr × weight decay is done" in said
    assert "successive" in printed  # the second word may be under it
    assert sorted(path.name for path in out.iterdir()) == ["regret.png", "replay.json", "table.md"]
    assert (out / "regret.png").read_bytes().startswith(b"\x89PNG")
    assert (out / "table.md").read_text().startswith("## small\n\n| search | over | cost |")
    content: dict[str, Any] = json.loads((out / "replay.json").read_text())
    assert content["options"]["replays"] == 7
    (setting,) = content["settings"]
    # means over seeds 0 and 1
    assert [found["best"]["accuracy"] for found in setting["landscapes"]] == [80.5, 75.5]
    rows = {row["strategy"]: row for row in setting["strategies"]}
    assert rows["paper"]["cost"]["mean"] == 7.25  # 5·0.25 + 5, and one alpha of two
    assert rows["random"]["cost"]["mean"] == 6.0
    assert rows["successive-halving"]["cost"]["mean"] == 6.0  # three brackets of 2
    for row in rows.values():
        assert len(row["replays"]["lr"]) == 7
        best = 80.5 if row["axis"] == "alpha" else 75.5
        mean = sum(row["replays"]["accuracy"]) / 7
        assert row["regret"]["mean"] == pytest.approx(best - mean, abs=1e-3)
        assert row["curve"]["regret_mean"][-1] == row["regret"]["mean"]
    again, printed, _ = call(capsys, *arguments, "--out", str(tmp_path / "again"), "--json")
    assert again == 0
    assert json.loads(printed) == content


@pytest.mark.slow
def test_more_processes_give_the_same(files: list[str]) -> None:
    landscapes = [Landscape.read(Path(file)) for file in files]
    options = Options(strategies=("paper", "random"), replays=7, budget=3, both=True)
    told: list[int] = []
    one = replay_all(landscapes, options)
    two = replay_all(landscapes, options, workers=2, progress=lambda _, count: told.append(count))
    assert [len(result.summaries) for result in one] == [3]
    assert [s.traces for s in one[0].summaries] == [s.traces for s in two[0].summaries]
    assert sum(told) == 3 * 7


def test_folders_and_single_landscapes(
    capsys: pytest.CaptureFixture[str], write: Write, tmp_path: Path
) -> None:
    folder = write(rising, name="a").parent
    write(lower, name="b", axis="alpha", short=0.25, levels=(0.5, 1.0))
    code, printed, _ = call(
        capsys,
        str(folder),
        "--strategies",
        "unimodal,random",
        "--replays",
        "2",
        "--budget",
        "2",
        "--out",
        str(tmp_path / "out"),
        "--json",
    )
    assert code == 0
    ran = {
        setting["name"]: [(row["strategy"], row["axis"]) for row in setting["strategies"]]
        for setting in json.loads(printed)["settings"]
    }
    assert ran == {
        "a": [("random", "weight_decay")],
        "b": [("unimodal", "alpha"), ("random", "alpha")],
    }


def test_mistakes_are_one_line(
    capsys: pytest.CaptureFixture[str],
    files: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alpha, decay = files
    empty = tmp_path / "empty"
    empty.mkdir()
    note = tmp_path / "note.txt"
    note.write_text("x")
    monkeypatch.chdir(empty)
    for arguments, message in {
        ("missing.json",): "missing.json does not exist: give the JSON file of a recording",
        (): "results/landscapes does not exist: give the JSON file of a recording",
        (str(empty),): f"no landscape in {empty}: give the JSON file of a recording",
        (str(note),): f"{note} is not a recorded landscape: it is no whole JSON (expected"
        " value at line 1 column 1); give the JSON file of a recording",
        (alpha, alpha): "two landscapes of small are over lr × alpha: give one",
        (decay, "--strategies", "papr"): "unknown strategy 'papr': did you mean paper?",
        (decay, "--strategies", "paper"): "paper needs a landscape over lr × alpha but none is"
        " given",
        (decay, "--strategies", ","): "--strategies names none: give some of paper, unimodal,"
        " uncapped, gp, tpe, random, successive-halving",
        (decay, "--replays", "0"): "replays must be at least 1 but got 0",
        (decay, "--budget", "0"): "budget must be at least 1 but got 0",
        (decay, "--noise", "none"): "noise must be full or recorded but got 'none'",
        (decay, "--out", str(note)): f"{note} is a file: give another --out",
        (decay, "--strategies", "successive-halving", "--budget", "1"): "successive-halving needs"
        " a budget of at least 2 T_max but got 1",
    }.items():
        code, printed, said = call(capsys, *arguments)
        assert (code, printed, said) == (2, "", f"fixnorm: {message}\n")
    assert not (empty / "runs").exists()
