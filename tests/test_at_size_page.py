"""What is trained at size, in which order, and what the page makes of the part that is there."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import optuna
import pytest

from fixnorm.report.drawing import png
from helpers.benchmarks import load

__all__ = ["load"]  # a fixture, which pytest looks up by name


@pytest.fixture(scope="module")
def at_size(load: Any) -> Any:
    return load("at_size")


@pytest.fixture(scope="module")
def page(load: Any) -> Any:
    return load("at_size_page")


def guess(known: Any) -> tuple[float, float]:
    """A suggestion that takes no time."""
    if not known:
        return 0.1, 5e-4
    chance = random.Random(len(known))
    return round(10 ** chance.uniform(-2, 0.3), 4), round(10 ** chance.uniform(-5, -2.3), 7)


def accuracy_of(side: Any, seed: int) -> float:
    """Best at lr 0.3 and weight decay 3e-4; an alpha of 1 costs, one of 2 does not."""
    far = math.log10(side.lr / 0.3) ** 2 + math.log10(side.decay / 3e-4) ** 2
    of_kind = {"auto": 84.0, "decay": 84.5 - far, "weight-decay": 83.0}.get(side.kind, 82.0)
    return of_kind + seed / 10 + {2.0: 0.5, 1.0: -3.0}.get(side.alpha, 0.0)


@pytest.fixture
def ledger(at_size: Any, tmp_path: Path) -> Any:
    """One whose trainings take no time."""

    class Quick(at_size.AtSize):  # type: ignore[misc]
        def trained(self, setting: Any, side: Any, seed: int) -> dict[str, Any]:
            branch = side.kind == "auto" and side != at_size.AUTO
            points = [{"epoch": n, "loss": 2 - n / 30} for n in range(1, 31)]
            for point in points[4::5]:
                point["accuracy"] = accuracy_of(side, seed)
            return {
                "setting": setting.name,
                "side": side.name,
                "seed": seed,
                "accuracy": accuracy_of(side, seed),
                "lr": side.lr if side.kind == "decay" else None,
                "decay": side.decay if side.kind == "decay" else None,
                "largest_scale": 2.5,
                "share": side.fraction * (0.4 if branch else 1.0),
                "curve": points,
                "seconds": 36.0,
            }

    return Quick(tmp_path / "rows.jsonl", None, tmp_path / "checkpoints")


def train(at_size: Any, ledger: Any, most: int = 10**6) -> list[dict[str, Any]]:
    """The loop, until there are so many rows; all of them, in their order."""

    class Enough(Exception):
        pass

    trained = ledger.trained

    def counted(*given: Any) -> Any:
        if len(ledger.known) == most:
            raise Enough
        return trained(*given)

    ledger.trained = counted
    try:
        for setting, seed, name in at_size.order(at_size.SETTINGS, at_size.SIDES):
            ledger.get(setting, at_size.side_of(ledger, setting, name, guess), seed)
    except Enough:
        pass
    ledger.trained = trained
    return [json.loads(line) for line in ledger.path.read_text().splitlines()]


# -- the order -------------------------------------------------------------------------------------


def test_a_partial_file_says_something(at_size: Any, ledger: Any) -> None:
    rows = train(at_size, ledger)
    first = [(row["side"], row["seed"]) for row in rows[:8]]
    assert first == [
        *(("auto", 1), ("weight-decay", 1), ("schedule-free-lr5", 1), ("prodigy", 1), ("dog", 1)),
        *(("auto", 0), ("auto-alpha2", 0), ("auto-alpha1", 0)),
    ]
    short, full = rows[9:24], rows[24:29]
    assert {row["share"] for row in short} == {0.2}
    assert (short[0]["lr"], short[0]["decay"]) == (0.1, 5e-4)
    best = sorted(short, key=lambda row: -row["accuracy"])[:5]
    assert [(row["lr"], row["decay"]) for row in full] == [(r["lr"], r["decay"]) for r in best]
    assert [(row["lr"], row["seed"]) for row in rows[29:30]] == [(best[0]["lr"], 1)]
    assert [row["setting"] for row in rows[:44]] == ["resnet8-w32-s2"] * 44
    assert rows[44]["setting"] == "resnet20-s2"
    assert {row["side"] for row in rows if row["seed"] == 3} >= {"auto-alpha2", "dog"}
    assert len({(row["setting"], row["side"], row["seed"]) for row in rows}) == len(rows)


def test_parts_have_files_of_their_own_and_read_each_other(at_size: Any, ledger: Any) -> None:
    kind, path = type(ledger), ledger.path
    other = kind(path, None, path.parent, 1)
    row = other.get(at_size.SETTINGS[0], at_size.AUTO, 1)
    assert other.path == path.with_name("rows.jsonl.1")
    assert not path.exists()
    ledger.trained = None  # it has no need to train
    assert ledger.get(at_size.SETTINGS[0], at_size.AUTO, 1) == row


# -- suggestions -----------------------------------------------------------------------------------


def test_a_suggestion_follows_from_what_is_known(load: Any) -> None:
    search = load("at_size_search")
    assert search.suggestion([]) == (0.1, 5e-4)
    known = [(*guess([None] * n), 80.0 + n) for n in range(11)]
    lr, decay = search.suggestion(known)
    assert search.LR[0] <= lr <= search.LR[1]
    assert search.DECAY[0] <= decay <= search.DECAY[1]
    assert search.suggestion(known) == (lr, decay)
    assert search.suggestion(known[:-1]) != (lr, decay)


def test_a_suggestion_is_new(load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def corner(seed: int) -> Any:
        others = optuna.samplers.RandomSampler(seed=seed)
        return optuna.samplers.PartialFixedSampler({"lr": 2.0, "decay": 5e-3}, others)

    monkeypatch.setattr(optuna.samplers, "GPSampler", corner)
    suggestion = load("at_size_search").suggestion
    assert suggestion([(0.1, 5e-4, 80.0)]) == (2.0, 5e-3)
    assert suggestion([(0.1, 5e-4, 80.0), (2.0, 5e-3, 85.0)]) != (2.0, 5e-3)


# -- the page --------------------------------------------------------------------------------------


def cells(text: str) -> list[list[str]]:
    rows = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_the_page_has_what_is_there(at_size: Any, page: Any, ledger: Any) -> None:
    train(at_size, ledger)
    table = {row[0]: row[1:] for row in cells(page.blocks(ledger.path)["at-size"])[2:10]}
    spread = "84.20 ± 0.10"
    assert table["FixNorm, lr auto"] == ["–", "1", "3", spread, "–"]
    assert table["FixNorm, lr auto, alpha by branches"] == [
        *("alpha 2", "1.8", "3", "84.70 ± 0.10", "−0.50 [−0.50, −0.50]")
    ]
    assert table["DoG, averaged"][1:] == ["1", "3", "82.20 ± 0.10", "+2.00 [+2.00, +2.00]"]
    searched = [row for name, row in table.items() if "T_max" in name]
    assert [row[1] for row in searched] == ["8", "25"]
    assert all(row[0].startswith("lr 0.") for row in searched)
    rows = cells(page.blocks(ledger.path)["at-size-claims"])[2:]
    assert len(rows) == 8
    assert rows[0][1] == "lr auto (1 T_max) is not worse than weight decay tuned, 8 T_max"
    assert rows[2][1].startswith("alpha by branches (1.8 T_max) is not worse")
    assert {row[-1] for row in rows} == {"3"}
    assert rows[2][2:4] == ["**holds**", table_difference(ledger, at_size)]


def table_difference(ledger: Any, at_size: Any) -> str:
    """Of the alpha of branches to the tuned weight decay: the same for every seed."""
    side = at_size.side_of(ledger, at_size.SETTINGS[0], at_size.TUNED, guess)
    text = f"{84.7 - accuracy_of(side, 2):+.2f}"
    return f"{text} [{text}, {text}] %"


@pytest.mark.parametrize("most", [1, 6, 8, 12, 27, 29, 30, 31, 50])
def test_any_part_of_the_file_makes_a_page(at_size: Any, page: Any, ledger: Any, most: int) -> None:
    rows = train(at_size, ledger, most)
    assert len(rows) == most
    blocks = page.blocks(ledger.path)
    assert (
        blocks["at-size-state"]
        == f"Trainings so far: {most}, {most / 100:.1f} hours of one core.\n"
    )
    table = {row[0]: row[1:] for row in cells(blocks["at-size"])[2:10]}
    judged = [row for row in rows if row["setting"] == "resnet8-w32-s2" and row["seed"] > 0]
    assert table["FixNorm, lr auto"][2] == str(sum(row["side"] == "auto" for row in judged))
    tuned = next(row for name, row in table.items() if "8 T_max" in name)
    if most < 29:  # its search is not over
        assert tuned == ["not over" if most > 9 else "–", "–", "0", "–", "–"]
    else:
        assert tuned[1:3] == ["8", {29: "0", 50: "3"}.get(most, "1")]
    assert page.drawing(ledger.path) is not None


def test_a_single_seed_decides_nothing(at_size: Any, page: Any, ledger: Any) -> None:
    train(at_size, ledger, 30)
    first, second, *_ = cells(page.blocks(ledger.path)["at-size-claims"])[2:]
    assert first[2] == "**cannot be told**"
    assert first[-1] == "1"
    assert second[2:] == ["not yet", "–", "0"]


def test_there_is_a_picture_of_what_is_there(at_size: Any, page: Any, ledger: Any) -> None:
    assert page.drawing(ledger.path) is None
    train(at_size, ledger, 6)
    drawing = page.drawing(ledger.path)
    assert [panel.title for panel in drawing.panels] == [
        "ResNet-8: test accuracy (%)", "ResNet-8: training loss"
    ]  # fmt: skip
    assert png(drawing).startswith(b"\x89PNG")
    rows = [{"curve": [{"epoch": 1, "loss": 2.0}, {"epoch": 2, "loss": 1.0, "accuracy": 5.0}]}]
    rows += [{"curve": [{"epoch": 1, "loss": 3.0}]}]  # it diverged in its second epoch
    assert page.mean_curve(rows, "loss") == [(1, 2.5)]
    assert page.mean_curve(rows, "accuracy") == []
