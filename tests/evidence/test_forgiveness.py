"""What a wrong number costs: around the best, and by one default; all of it worked out by hand."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fixnorm.commands import run
from fixnorm.evidence.experiments import EXPERIMENTS
from fixnorm.evidence.experiments.forgiveness import Forgiveness
from fixnorm.evidence.forgiveness.centred import Reach, lost_around, lost_on_grid, reach_of
from fixnorm.evidence.forgiveness.one_default import crossed, every_half, judged
from fixnorm.evidence.landscapes import Landscape
from fixnorm.evidence.record import record_of
from fixnorm.evidence.recorded import read_recorded
from fixnorm.evidence.reproducing import plan, unrecorded
from fixnorm.evidence.scales import SMALL
from fixnorm.evidence.trainings import IMAGINED, Training, Trainings
from helpers.outcomes import OUTCOMES

LANDSCAPES = Path(__file__).parents[2] / "results" / "landscapes"


@pytest.fixture
def outcome() -> dict[str, Any]:
    return copy.deepcopy(OUTCOMES["forgiveness"])


# -- around the best -------------------------------------------------------------------------------


def test_a_reach_is_what_all_have_on_both_sides(write: Callable[..., Path]) -> None:
    def at(lr: float, level: float) -> Landscape:
        def value(x: float, y: float, _: int) -> float:
            return 50.0 if (x, y) == (lr, level) else 40.0

        lrs, levels = (0.25, 0.5, 1.0, 2.0, 8.0), (1e-4, 1e-3, 1e-2)
        return Landscape.read(write(value, lrs=lrs, levels=levels, name=f"{lr}"))

    middle, lower, edge = at(1.0, 1e-3), at(0.5, 1e-3), at(8.0, 1e-3)

    assert reach_of([middle]) == Reach(lr=4.0, level=pytest.approx(10.0))
    assert reach_of([middle, lower]).lr == 2.0
    assert not reach_of([middle, edge]).open


def test_what_is_lost_around_the_best(outcome: dict[str, Any]) -> None:
    recording = Forgiveness.of(outcome).landscapes[0]
    ours, theirs = (recording.around(side) for side in ("fixnorm", "weight-decay"))

    assert recording.reach == Reach(lr=4.0, level=2.0)
    # Nine places of each axis: the mean of |log₂| is 10/9 of those in lr, 5/9 of the others.
    assert ours.mean == pytest.approx(2 * 10 / 9 + 0.5 * 5 / 9)
    assert ours.worst == pytest.approx(4.5)
    assert theirs.mean == pytest.approx(4 * 10 / 9 + 4 * 5 / 9)
    assert theirs.worst == pytest.approx(12.0)
    # lr at its best and alpha anywhere, or lr half a doubling off and alpha at its best.
    assert ours.share(1.0) == pytest.approx((9 + 2) / 81)
    grid = lost_on_grid(recording.landscapes["fixnorm"], recording.top)
    assert grid.mean == pytest.approx((6 * 2 + 0.5 * 2 * 5 / 3) / 5)


def test_a_dense_part_of_a_grid_counts_for_its_size_alone(write: Callable[..., Path]) -> None:
    def value(lr: float, level: float, seed: int) -> float:
        return 50.0 - (lr < 1) * 3

    coarse, dense = (
        Landscape.read(write(value, lrs=lrs, levels=(0.1, 1.0, 10.0), name=name))
        for name, lrs in (("coarse", (0.25, 1.0, 4.0)), ("dense", (0.25, 1.0, 2.0, 3.0, 4.0)))
    )
    reach = Reach(lr=4.0, level=1.0)

    assert lost_around(dense, reach, 50.0).mean == lost_around(coarse, reach, 50.0).mean
    assert lost_on_grid(dense, 50.0).mean < lost_on_grid(coarse, 50.0).mean


def test_the_claim_needs_more_than_noise(outcome: dict[str, Any]) -> None:
    assert Forgiveness.of(outcome).show().claims[0].verdict == "holds"

    for grid in outcome["landscapes"][0]["grids"]:
        for k, cell in enumerate(grid["cells"]):
            cell["scores"] = [score + 9 * (-1) ** (j + k) for j, score in enumerate(cell["scores"])]
    claim = Forgiveness.of(outcome).show().claims[0]
    assert claim.verdict == "cannot be told"


def test_a_best_at_an_end_is_said_and_nothing_claimed(outcome: dict[str, Any]) -> None:
    cells = outcome["landscapes"][0]["grids"][0]["cells"]
    cells[0]["scores"] = [70.0, 70.0]

    shown = Forgiveness.of(outcome).show()

    assert "A best lies at an end" in shown.tables[0].notes[-1]
    assert shown.claims[0].verdict == "cannot be told"


# -- one default -----------------------------------------------------------------------------------


def test_defaults_are_chosen_on_the_one_half_and_judged_on_the_other(
    outcome: dict[str, Any],
) -> None:
    """The best lr of the settings: ½ and 1 in the one half, 1 and 2 in the other."""
    tables = [setting.table for setting in Forgiveness.of(outcome).settings]
    found = {
        side: judged(tables, crossed((0, 2), 4), side, rivals=("fixnorm", "weight-decay"))
        for side in ("fixnorm", "auto", "weight-decay")
    }

    assert found["fixnorm"].defaults == ((0.5, 1.0),) * 2 + ((1.0, 1.0),) * 2  # the first of equals
    assert found["fixnorm"].regrets == pytest.approx((2.0, 2.0, 0.0, 4.0))
    assert found["weight-decay"].regrets == pytest.approx((4.0, 4.0, 0.0, 8.0))
    assert found["auto"].regrets == pytest.approx((0.5,) * 4)
    assert found["fixnorm"].tuned == pytest.approx((0.0,) * 4)
    assert found["auto"].tuned == pytest.approx((0.5,) * 4)


def test_a_lucky_seed_chooses_and_does_not_judge() -> None:
    lucky, steady = (0.1, 1.0), (0.2, 1.0)
    table = {"a": {lucky: (60.0, 40.0), steady: (50.0, 50.0)}, "b": {steady: (0.0, 0.0)}}
    ways = crossed((0,), 2)
    found = judged([table, table], ways, "a", rivals=("a", "b"))

    assert found.defaults == (lucky, steady) * 2
    # Seed 0 chooses the lucky one for default and aim alike; seed 1 the steady one.
    assert found.regrets == (0.0, 0.0)
    far = {"a": {lucky: (40.0, 40.0), steady: (50.0, 50.0)}, "b": {steady: (0.0, 0.0)}}
    assert judged([table, far], ways, "a", rivals=("a", "b")).regrets == (-5.0, 5.0)


def test_every_half_once() -> None:
    assert list(every_half(4)) == [(0, 1), (0, 2), (0, 3)]
    assert len(list(every_half(5))) == 10


def test_what_is_shown(outcome: dict[str, Any]) -> None:
    outcome["settings"][0]["grids"][2]["cells"][0]["scores"][0] = None  # diverged: 0, never chosen
    shown = Forgiveness.of(outcome).show()
    sides, by_setting = shown.tables[1:]

    assert sides.rows[0][:4] == (
        "FixNorm",
        "lr 0.5, alpha 1 (2); lr 1, alpha 1 (2)",
        "2.00",
        "4.00",
    )
    assert sides.rows[0][6:] == ("1.00", "0.00")  # lr 1 for all, and the best of each
    assert sides.rows[1][1] == "alpha 1 (4)"
    assert by_setting.rows[3] == ("setting 3", "60.00", "4.00", "0.50", "8.00", "0.14")
    assert shown.claims[1].measured.startswith("+2.00 [")
    assert shown.claims[2].measured.startswith("+3.50 [")
    assert shown.claims[3].measured.startswith("+0.00 [")


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (lambda o: o["settings"][0]["grids"].pop(), "grids should be of fixnorm, auto, weight"),
        (lambda o: o["settings"][0]["grids"][0]["cells"].pop(), "cells should have every level"),
        (
            lambda o: [
                c.update(level=c["level"] * 2) for c in o["settings"][0]["grids"][0]["cells"]
            ],
            "cells of fixnorm should be the same in all settings",
        ),
        (lambda o: o["landscapes"][0]["grids"].reverse(), "grids should be of fixnorm and weight"),
        (lambda o: o["settings"].clear(), "settings"),
    ],
)
def test_an_outcome_that_breaks_a_rule(
    break_it: Callable[[Any], Any], said: str, outcome: dict[str, Any]
) -> None:
    break_it(outcome)
    with pytest.raises(ValueError, match=said):
        Forgiveness.of(outcome)


# -- recordings ------------------------------------------------------------------------------------


def test_the_stored_recordings_are_those_trainings() -> None:
    """The recipes of today are those that were recorded: the grids need no training."""
    known = read_recorded([LANDSCAPES])
    whole = plan("forgiveness", SMALL)
    left = unrecorded("forgiveness", whole, known)

    assert len(whole) - len(left) == 2 * 2 * 48 * 2  # settings, methods, points, seeds
    assert {training.changes[0][0] for training in left} >= {"model"}
    assert unrecorded("fig1", whole, known) == whole  # it needs norms, not scores alone
    assert unrecorded("landscapes", plan("landscapes", SMALL), known) == []  # the short ones, too


def test_a_record_says_that_recordings_were_taken() -> None:
    training = SMALL.fig4[0].training("weight-decay", seed=0, lr=0.1, weight_decay=1e-4)
    found = read_recorded([LANDSCAPES])[training.recipe]

    assert found.score == 50.75
    assert len(found.commits) > 1
    used: dict[Training, Any] = {training: found}
    record = record_of("forgiveness", "small", Forgiveness.of(OUTCOMES["forgiveness"]), used)
    assert record.command.endswith("--data DATA --recorded LANDSCAPES")
    assert record.trained_at == tuple(sorted(found.commits))


def test_the_plan_asks_for_both_parts_and_counts_free_alphas_as_trained() -> None:
    trainings = Trainings(lambda _: IMAGINED, dry=True)
    outcome = trainings.attempt(EXPERIMENTS["forgiveness"].at(SMALL))

    assert outcome is not None
    assert len(trainings.used) == 2 * (2 * 2 * 48) + 8 * 2 * (25 + 5 + 25)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--recorded", "nowhere.json"], "nowhere.json does not exist: give the JSON file of fixn"),
        (["--recorded", "empty.json"], "empty.json is not a recorded landscape"),
        (["--from", "x.json", "--recorded", "y.json"], "--recorded means nothing with --from"),
    ],
)
def test_mistakes_are_one_line(
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.json").write_text(json.dumps({"name": "x", "points": []}))
    with pytest.raises(SystemExit) as stopped:
        run(["reproduce", "forgiveness", *words])

    assert stopped.value.code == 2
    assert capsys.readouterr().err.startswith(f"fixnorm: {said}")
