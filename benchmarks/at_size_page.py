"""What the trainings of ``at_size.py`` say, as the tables and the picture of docs/at-size.md.

    python benchmarks/at_size_page.py

``results_page.py`` puts them into the page. They are made of whatever rows are there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from at_size import ALPHA, AUTO, HINDSIGHT, MORE, SEEDS, SETTINGS, TUNED, side_of
from at_size_search import LARGE, SMALL, Tried, accuracy
from auto_lr import UNCAPPED, Ledger, Side
from auto_lr_settings import Setting
from fixnorm.evidence.experiment import Claim, as_good
from fixnorm.report.drawing import Drawing, Panel
from fixnorm.report.statistics import mean_of, paired
from fixnorm.report.style import MUTED, SERIES, EndLabel, dress, end_labels, room
from fixnorm.report.tables import TextTable

STORED = Path(__file__).parents[1] / "results" / "at_size.jsonl"
_MODELS = {
    "resnet8-w32-s2": "ResNet-8, 32 wide, stride 2 in the stem",
    "resnet20-s2": "ResNet-20, 16 wide, stride 2 in the stem",
}
_TITLES = {
    AUTO.name: "FixNorm, lr auto",
    ALPHA: "FixNorm, lr auto, alpha by branches",
    "weight-decay": "SGD, weight decay 5e-4, lr 0.1",
    TUNED: f"SGD, lr and weight decay searched for, {SMALL.cost:g} T_max",
    MORE: f"… {LARGE.cost:g} T_max",
    "schedule-free-lr5": "schedule-free SGD, lr 5",
    "prodigy": "Prodigy",
    "dog": "DoG, averaged",
    **{side.name: f"hindsight: lr auto, {side.lr:g} times its lr" for side in HINDSIGHT},
}
_SHORT = {
    AUTO.name: "lr auto",
    ALPHA: "alpha by branches",
    "weight-decay": "weight decay",
    TUNED: "tuned, 8 T_max",
    MORE: "tuned, 25 T_max",
    "schedule-free-lr5": "schedule-free",
    "prodigy": "Prodigy",
    "dog": "DoG",
}
"""Beside the curves; the others have none."""
_COLOURS = {
    AUTO.name: SERIES[0],
    ALPHA: SERIES[0],
    "weight-decay": SERIES[4],
    TUNED: SERIES[1],
    MORE: SERIES[1],
    "schedule-free-lr5": SERIES[2],
    "prodigy": SERIES[3],
    "dog": MUTED,
}
_DASHED = (ALPHA, MORE)
_LATE = 0.4
"""The first part of a training, whose curves are not shown: all are far from their ends."""
Row = dict[str, Any]


class Missing(Exception):
    """A training that is not there."""


class Stored(Ledger):
    """Rows that are there, and nothing else; it remembers what it was asked for."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, path)
        self.asked: dict[str, Row] = {}

    def get(self, setting: Setting, side: Side, seed: int) -> Row:
        row = super().get(setting, side, seed)
        self.asked[row["side"]] = row
        return row

    def trained(self, setting: Setting, side: Side, seed: int) -> Row:
        raise Missing(f"{side.name} of {setting.name}")


@dataclass(frozen=True)
class Found:
    """One side of a setting."""

    name: str
    what: str = ""
    """Of a search: what it found."""
    cost: float | None = 1.0
    """In T_max; none while a search is under way."""
    rows: dict[int, Row] = field(default_factory=dict)
    """By seed."""

    @property
    def values(self) -> dict[int, float]:
        return {seed: accuracy(row) for seed, row in self.rows.items()}


def _no_more(known: Tried) -> tuple[float, float]:
    raise Missing(f"short training {len(known)}")


def found(path: Path, setting: Setting, name: str) -> Found:
    """A side as far as it is trained."""
    ledger = Stored(path)
    try:
        side = side_of(ledger, setting, name, suggest=_no_more)
    except Missing:
        return Found(name, what="not over" if ledger.asked else "", cost=None)
    what, cost = "", 1.0
    if ledger.asked:
        cost = sum(row["share"] for row in ledger.asked.values())
        what = f"lr {side.lr:g}, weight decay {side.decay:g}"
        if name == ALPHA:
            what = "no cap" if side.alpha == UNCAPPED else f"alpha {side.alpha:g}"
    keys = ((setting.name, side.name, seed) for seed in SEEDS)
    return Found(name, what, cost, {k[2]: ledger.known[k] for k in keys if k in ledger.known})


def everything(path: Path) -> dict[Setting, dict[str, Found]]:
    """The settings of which there is a training."""
    there = {setting for setting, _, _ in Stored(path).known}
    return {
        setting: {name: found(path, setting, name) for name in _TITLES}
        for setting in SETTINGS
        if setting.name in there
    }


# -- tables --------------------------------------------------------------------------------------


def tables(results: dict[Setting, dict[str, Found]]) -> str:
    """One for each setting."""
    parts = []
    for setting, sides in results.items():
        parts += [f"**{_MODELS[setting.name]}** (`{setting.name}`)", "", _table(sides)]
    return "\n".join(parts)


def _table(sides: dict[str, Found]) -> str:
    ours, rows = sides[AUTO.name].values, []
    for name, side in sides.items():
        values = side.values
        shared = sorted(ours.keys() & values.keys())
        difference = (
            paired([ours[s] for s in shared], [values[s] for s in shared]).interval()
            if (shared and name != AUTO.name)
            else "–"
        )
        rows.append(
            (
                _TITLES[name],
                side.what or "–",
                "–" if side.cost is None else f"{side.cost:.3g}",
                f"{len(values)}",
                mean_of(list(values.values())).spread() if values else "–",
                difference,
            )
        )
    columns = ("", "found", "T_max", "seeds", "accuracy (%)", "lr auto − it (%)")
    return TextTable("", columns, tuple(rows), words=2).markdown(title=False)


def claims(results: dict[Setting, dict[str, Found]]) -> str:
    """lr auto, and the alpha of its branches, beside weight decay that was searched for."""
    rows = []
    for setting, sides in results.items():
        for mine in (AUTO.name, ALPHA):
            for theirs in (TUNED, MORE):
                one, other = sides[mine], sides[theirs]
                claim = _claim(one, other)
                if claim is None:
                    verdict, measured, seeds = "not yet", "–", "0"
                else:
                    verdict, measured = f"**{claim.verdict}**", claim.measured
                    seeds = f"{len(one.values.keys() & other.values.keys())}"
                cost = "" if one.cost is None else f" ({one.cost:.2g} T_max)"
                text = f"{_SHORT[mine]}{cost} is not worse than weight decay {_SHORT[theirs]}"
                rows.append((f"`{setting.name}`", text, verdict, measured, seeds))
    columns = ("model", "claim", "here", "measured", "seeds")
    return TextTable("", columns, tuple(rows), words=4).markdown(title=False)


def _claim(one: Found, other: Found) -> Claim | None:
    seeds = sorted(one.values.keys() & other.values.keys())
    if not seeds:
        return None
    pair = ([side.values[seed] for seed in seeds] for side in (one, other))
    return as_good("", paired(*pair))


def state(path: Path) -> str:
    """What is there."""
    rows = Stored(path).known.values()
    hours = sum(row["seconds"] for row in rows) / 3600
    return f"Trainings so far: {len(rows)}, {hours:.1f} hours of one core.\n"


# -- the picture ---------------------------------------------------------------------------------


def drawing(path: Path = STORED) -> Drawing | None:
    """Loss and accuracy of all sides over the epochs, if there is any."""
    panels = []
    for setting, sides in everything(path).items():
        model = _MODELS[setting.name].partition(",")[0]
        for what, words in (("accuracy", "test accuracy (%)"), ("loss", "training loss")):
            title = f"{model}: {words}"
            draw = partial(_draw, sides=list(sides.values()), what=what, title=title)
            panels.append(Panel(title, draw, height=_HEIGHT, right=84))
    if not panels:
        return None
    return Drawing("at-size", "Curves", "", tuple(panels))


_HEIGHT = 215.0


def mean_curve(rows: Iterable[Row], what: str) -> list[tuple[int, float]]:
    """Over the seeds: the epochs that all of them have a value of."""
    curves = [{p["epoch"]: p[what] for p in row["curve"] if what in p} for row in rows]
    shared = set.intersection(*map(set, curves)) if curves else set()
    return [(epoch, fmean(curve[epoch] for curve in curves)) for epoch in sorted(shared)]


def _draw(ax: Axes, *, sides: Sequence[Found], what: str, title: str) -> None:
    drawn = (side for side in sides if side.name in _SHORT)
    curves = {side.name: mean_curve(side.rows.values(), what) for side in drawn}
    curves = {name: curve for name, curve in curves.items() if curve}
    last = max((curve[-1][0] for curve in curves.values()), default=0)
    late = [y for curve in curves.values() for epoch, y in curve if epoch >= _LATE * last]
    room(ax, late, below=0.05, above=0.05)
    labels = []
    for name, curve in curves.items():
        dashed = (0, (3, 2)) if name in _DASHED else "-"
        ax.plot(*zip(*curve, strict=True), color=_COLOURS[name], lw=1.2, ls=dashed)
        labels.append(EndLabel(curve[-1][1], _SHORT[name], _COLOURS[name]))
    dress(ax, title=title, x="epoch")
    ax.set_xlim(_LATE * last, max(last, 1))
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=[1, 2, 5, 10]))
    end_labels(ax, labels, height=_HEIGHT - 52)


def blocks(path: Path = STORED) -> dict[str, str]:
    """What results_page.py fills in, by the name of the block."""
    results = everything(path)
    return {
        "at-size": tables(results),
        "at-size-claims": claims(results),
        "at-size-state": state(path),
    }


if __name__ == "__main__":
    for name, text in blocks().items():
        print(f"{name}\n\n{text}")
