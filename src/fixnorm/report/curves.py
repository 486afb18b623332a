"""The curves of every run, from its ``metrics.csv`` whatever state that is in, drawn by round."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, to_hex
from matplotlib.ticker import MaxNLocator

from fixnorm.report.drawing import Drawing, Panel
from fixnorm.report.style import (
    LEAST_SPAN,
    MUTED,
    RAMP,
    EndLabel,
    breadth,
    colour_bar,
    dress,
    end_labels,
    ramp,
    room,
)
from fixnorm.report.words import slug
from fixnorm.system import read_regular
from fixnorm.system.run_paths import RunPaths
from fixnorm.tuning.trial import StudyRecord, Trial

__all__ = [
    "COLUMNS",
    "Curve",
    "Curves",
    "Runs",
    "curve_figures",
    "read_curves",
    "read_runs",
    "thinned",
]

Curve = tuple[tuple[float, float], ...]
"""Points (epoch, value)."""
Curves = Mapping[str, Curve]
"""By the name of the column."""
Runs = Mapping[Path, Curves]
"""The curves of runs by folder."""

COLUMNS = {
    "train_loss": "training loss",
    "val_accuracy": "validation accuracy (%)",
    "val_miou": "validation mIoU (%)",
    "val_ap": "validation AP (%)",
    "head_scale": "scale of the head, g",
    "conv_norm": "norm of the conv weights, ‖W‖",
    "mcbr_val": "MCBR, validation",
}
BESIDE = ("cap", "lr", "angular_update")
"""Columns that are drawn beside others, or of some trainings alone."""
PAGE_POINTS = 60_000
"""Points of all curves of a page together: about a megabyte."""
MOST_POINTS = 200
"""Of one curve: more cannot be seen in a small panel."""
_LABELLED = 8
_WIDTH, _HEIGHT = 235.0, 160.0


def read_curves(folder: Path) -> Curves:
    """The columns of a run over its epochs; empty where there is nothing to read yet.

    Cells that are empty or no finite number are left out.
    """
    try:
        text = read_regular(RunPaths(folder).metrics).decode(errors="replace")
        # A line without its end is still being written: its last number may be cut short.
        lines = text[: text.rfind("\n") + 1].replace("\0", "").splitlines()
        rows = list(csv.DictReader(lines))
    except (OSError, csv.Error):
        return {}
    curves: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        epoch = _number(row.get("epoch"))
        if epoch is None:
            continue
        for name, cell in row.items():
            value = _number(cell)
            if name is not None and value is not None:
                curves.setdefault(name, []).append((epoch, value))
    return {name: tuple(points) for name, points in curves.items()}


def thinned(curve: Sequence[tuple[float, float]], most: int) -> Curve:
    """At most so many points (two at least), evenly taken, the first and the last among them."""
    count = len(curve)
    most = max(most, 2)
    if count <= most:
        return tuple(curve)
    return tuple(curve[round(k * (count - 1) / (most - 1))] for k in range(most))


def _number(cell: object) -> float | None:
    try:
        value = float(cell)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) else None


def read_runs(studies: Sequence[StudyRecord]) -> Runs:
    """All curves that can be drawn, thinned out so that the page stays small."""
    folders = {trial.folder for study in studies for trial in study.trials if trial.folder}
    read = {folder: read_curves(folder) for folder in sorted(folders)}
    most = min(MOST_POINTS, PAGE_POINTS // max(len(read) * len(COLUMNS), 1))
    return {
        folder: {
            name: thinned(curve, most)
            for name, curve in curves.items()
            if name in COLUMNS or name in BESIDE
        }
        for folder, curves in read.items()
    }


def curve_figures(study: StudyRecord, runs: Runs) -> tuple[Drawing, ...]:
    """A drawing for each round with at least one curve."""
    rounds: dict[str, list[_Line]] = {}
    for trial in sorted(study.trials, key=lambda trial: trial.number):
        curves = runs.get(trial.folder, {}) if trial.folder is not None else {}
        if any(name in COLUMNS for name in curves):
            branches = trial.round.kind == "trunk" or trial.trunk is not None
            title = "trunk and branches" if branches else trial.round
            rounds.setdefault(title, []).append(_Line(trial, curves))
    drawings = []
    for title, lines in rounds.items():
        key = _Key.of(lines, study)
        there = [c for c in COLUMNS if any(c in line.curves for line in lines)]
        panels = tuple(
            Panel(
                f"{title}: {COLUMNS[column]}",
                partial(_draw_curves, lines=lines, column=column, key=key),
                width=_WIDTH,
                height=_HEIGHT,
                left=30,
                right=key.room,
            )
            for column in there
        )
        caption = f"{len(lines)} trainings, coloured by {key.name}." + (
            " Dotted: the cap alpha·√C of the head's scale."
            if any("cap" in line.curves for line in lines)
            else ""
        )
        if any(line.lost for line in lines):
            caption += " ×: diverged or failed."
        name = f"curves-{slug(title)}"
        drawings.append(Drawing(name, f"Curves of {title}", caption, panels, columns=3))
    return tuple(drawings)


@dataclass(frozen=True)
class _Line:
    trial: Trial
    curves: Curves

    @property
    def lost(self) -> bool:
        return self.trial.state in ("diverged", "failed")


@dataclass(frozen=True)
class _Key:
    """What colours mean: one for each value if they are few, else a scale."""

    name: str
    values: tuple[float | None, ...]
    """Of each line."""
    colours: Mapping[float, str]

    @classmethod
    def of(cls, lines: Sequence[_Line], study: StudyRecord) -> _Key:
        kind = lines[-1].trial.round.kind.replace("trunk", "alpha")
        name, field = (kind, kind) if kind in ("lr", "alpha") else (study.metric, "accuracy")
        values = tuple(getattr(line.trial, field) for line in lines)
        known = sorted({value for value in values if value is not None})
        if len(known) <= _LABELLED and name in ("lr", "alpha"):
            return cls(name, values, dict(zip(known, ramp(max(len(known), 1)), strict=False)))
        scale = _normalised(known)
        return cls(name, values, {value: to_hex(RAMP(scale(value))) for value in known})

    @property
    def labelled(self) -> bool:
        """Whether every line has its name beside it."""
        return self.name in ("lr", "alpha") and len(self.colours) <= _LABELLED

    @property
    def room(self) -> float:
        """For names or the scale, in points."""
        names = [breadth(self.label(value, lost=True)) for value in self.colours]
        return max(names, default=0.0) if self.labelled else 52.0

    def label(self, value: float, *, lost: bool) -> str:
        return f"{self.name} {value:.3g}{' ×' if lost else ''}"

    def colour(self, value: float | None) -> str:
        """Grey for what has no value."""
        return MUTED if value is None else self.colours[value]


def _draw_curves(ax: Axes, *, lines: Sequence[_Line], column: str, key: _Key) -> None:
    # Trainings that went well set the limits: a diverged one may leave them.
    well = [line for line in lines if not line.lost]
    seen = [y for line in well or lines for _, y in line.curves.get(column, ())]
    if column == "head_scale":
        top = max(seen, default=0)
        seen += [c for line in lines for _, c in line.curves.get("cap", ()) if c < 1.6 * top]
    size = max((abs(value) for value in seen), default=1)
    room(ax, seen, below=0.06, above=0.08, least=0.02 * size)
    seeds = len({line.trial.seed for line in lines})
    crowded = seeds > 1 or len(lines) > _LABELLED
    ends: dict[float, list[float]] = {}
    for line, value in zip(lines, key.values, strict=True):
        curve: Curve = line.curves.get(column, ())
        if not curve:
            continue
        colour = key.colour(value)
        width, alpha = (0.8, 0.75) if crowded else (1.2, 1)
        marker = "o" if len(curve) == 1 else None
        ax.plot(
            [x for x, _ in curve], [y for _, y in curve], color=colour, lw=width, alpha=alpha,
            marker=marker, ms=3, solid_capstyle="round",
        )  # fmt: skip
        low, high = ax.get_ylim()
        if value is not None and low <= curve[-1][1] <= high:
            ends.setdefault(value, []).append(curve[-1][1])
        cap: Curve = line.curves.get("cap", ())
        if column == "head_scale" and cap and cap[-1][1] <= ax.get_ylim()[1]:
            ax.axhline(cap[-1][1], color=colour, lw=0.9, ls=(0, (1, 1.8)), alpha=0.9)
    dress(ax, title=COLUMNS[column], x="epoch")
    ax.xaxis.set_major_locator(MaxNLocator(4, integer=True, steps=[1, 2, 5, 10]))
    if key.labelled:
        lost = {value for line, value in zip(lines, key.values, strict=True) if line.lost}
        names = [
            EndLabel(sum(y) / len(y), key.label(value, lost=value in lost), key.colours[value])
            for value, y in ends.items()
        ]
        end_labels(ax, names, height=_HEIGHT - 52)
    elif key.colours:
        colours = ScalarMappable(_normalised(sorted(key.colours)), RAMP)
        colour_bar(ax, colours, key.name, ticks=3)


def _normalised(known: Sequence[float]) -> Normalize:
    """The lowest tenth shares one colour: trainings that went wrong do not take the others'."""
    high = known[-1] if known else 1.0
    low = known[len(known) // 10] if known else 0.0
    return Normalize(min(low, high - LEAST_SPAN), high, clip=True)
