"""A search without one for lr: where every alpha leaves the trunk, and the lr of the answer."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, NullLocator

from fixnorm.report.curves import COLUMNS, Curve, Runs
from fixnorm.report.drawing import Drawing, Panel
from fixnorm.report.style import (
    ACCENT,
    MUTED,
    PAPER,
    EndLabel,
    breadth,
    dress,
    end_labels,
    ramp,
    room,
    write,
)
from fixnorm.report.summary import answer
from fixnorm.report.words import length
from fixnorm.tuning.trial import StudyRecord, Trial

__all__ = ["branch_figure", "rule_figure"]

_HEIGHT = 235.0


@dataclass(frozen=True)
class _Line:
    """A training of some alpha, from where it leaves the trunk on."""

    trial: Trial
    alpha: float
    curves: Mapping[str, Curve]
    left: float | None
    """The epoch in which it left; none of the trunk, and of one that began at zero."""
    colour: str

    @property
    def label(self) -> str:
        if self.trial.result is None:
            return f"alpha {self.alpha:g}: running"
        lost = " ×" if self.trial.state in ("diverged", "failed") else ""
        return f"alpha {self.alpha:g}{lost}: {length(float(f'{self.trial.cost:.2g}'))} T_max"

    def own(self, curve: Curve) -> Curve:
        """Of a curve, what is this training's alone, and the point before it."""
        if self.left is None:
            return curve
        before = [point for point in curve if point[0] <= self.left + 1e-9]
        return (*before[-1:], *curve[len(before) :])


def branch_figure(study: StudyRecord, runs: Runs) -> Drawing | None:
    """The head's scale and the accuracy over the epochs, one line for each alpha of seed 0."""
    lines = _lines(study, runs)
    scores = [name for name in COLUMNS if name.startswith("val_")]
    score = next((s for s in scores if any(s in line.curves for line in lines)), None)
    if score is None:
        return None
    wide = {"height": _HEIGHT, "right": max(breadth(line.label) for line in lines)}
    drawn = (
        ("scale of the head, min(g/√C, alpha)", _draw_scales),
        (COLUMNS[score], partial(_draw_scores, score)),
    )
    panels = tuple(
        Panel(title, partial(draw, lines=lines, title=title), **wide) for title, draw in drawn
    )
    seeds = " Of the first seed." if study.seeds > 1 else ""
    return Drawing(
        "branches",
        "Branches of the trunk",
        "The largest alpha is trained from the start to the end: the trunk. Until g meets its cap"
        " (dotted) a smaller alpha is that very training; a dot marks the line of numbers from"
        " which it goes on by itself. Beside every line: alpha, and what its training cost."
        + seeds,
        panels,
    )


def rule_figure(study: StudyRecord, runs: Runs) -> Drawing | None:
    """The learning rate that the rule gave the answer, and how far the weights turned by it."""
    best = answer(study)
    if best is None or not any(trial.round.kind == "trunk" for trial in study.trials):
        return None
    behind = [t for t in study.trials if t.key in best.trainings and t.folder is not None]
    curves = [runs.get(trial.folder, {}) for trial in behind if trial.folder is not None]
    panels = []
    for column, title in (("lr", "lr"), ("angular_update", "angle of a step (°)")):
        scale = math.degrees(1) if column == "angular_update" else 1.0
        found = [
            tuple((x, scale * y) for x, y in drawn[column]) for drawn in curves if column in drawn
        ]
        if found:
            panels.append(Panel(title, partial(_draw_rule, curves=found, title=title), height=160))
    if not panels:
        return None
    return Drawing(
        "auto-lr",
        "The learning rate of the answer",
        "lr is what the rule of the sphere made of the gradients so far, times the schedule; the"
        " angle is how far the weights turned in the last step of every line of numbers.",
        tuple(panels),
    )


def _lines(study: StudyRecord, runs: Runs) -> list[_Line]:
    """The trunk first."""
    trunk = next((t for t in study.trials if t.round.kind == "trunk" and t.seed == 0), None)
    if trunk is None:
        return []
    there = [trunk, *(t for t in study.trials if t.trunk == trunk.key)]
    drawn = [
        (trial, trial.alpha, curves)
        for trial in there
        if trial.folder is not None and trial.alpha and (curves := runs.get(trial.folder))
    ]
    whole = max((_last(curves) for _, _, curves in drawn), default=0.0)
    colours = dict(zip(sorted(alpha for _, alpha, _ in drawn), ramp(len(drawn)), strict=True))
    return [
        _Line(trial, alpha, curves, _left(trial, curves, whole), colours[alpha])
        for trial, alpha, curves in drawn
    ]


def _left(trial: Trial, curves: Mapping[str, Curve], whole: float) -> float | None:
    """Its share of the whole length, back from where it ended; one that diverged ended early."""
    if trial.trunk is None or trial.result is None or trial.result.share >= 1:
        return None
    left = _last(curves) - trial.result.share * whole
    return left if left > 1e-9 else None


def _last(curves: Mapping[str, Curve]) -> float:
    """The epoch of the last line."""
    return max((points[-1][0] for points in curves.values() if points), default=0.0)


def _draw_scales(ax: Axes, *, lines: Sequence[_Line], title: str) -> None:
    """In units of √C: the cap of an alpha is at alpha."""
    ax.set_yscale("log", base=2)
    scales: dict[float, Curve] = {}
    for line in lines:
        root = next((cap / line.alpha for _, cap in line.curves.get("cap", ())), None)
        if root:
            points = line.own(line.curves.get("head_scale", ()))
            # What counts is min(g, α√C): above its cap g has no gradient, and momentum may lift it.
            scales[line.alpha] = tuple((x, min(abs(g) / root, line.alpha)) for x, g in points if g)
    seen = [g for curve in scales.values() for _, g in curve]
    low, high = min(seen, default=0.5), max(seen, default=2.0)
    caps = sorted({line.alpha for line in lines})
    shown = [cap for cap in caps if low / 1.2 < cap < 1.3 * high]
    ax.set_ylim(min(low, *shown, math.inf) / 1.25, max(high, *shown, 0.0) * 1.25)
    for line in lines:
        if line.alpha in shown:
            ax.axhline(line.alpha, color=line.colour, lw=0.9, ls=(0, (1, 1.8)), alpha=0.9)
        _draw_line(ax, line, scales.get(line.alpha, ()))
    _dressed(ax, title)
    ax.yaxis.set_minor_locator(NullLocator())
    ticks = shown or [2.0 ** round(math.log2(high))]
    ax.set_yticks(ticks, [f"{cap:g}" for cap in ticks])
    ends = [
        EndLabel(math.log2(curve[-1][1]), line.label, line.colour)
        for line in lines
        if (curve := scales.get(line.alpha, ()))
    ]
    limits = [math.log2(end) for end in ax.get_ylim()]
    end_labels(ax, ends, height=_HEIGHT - 52, limits=(limits[0], limits[1]))


def _draw_scores(column: str, ax: Axes, *, lines: Sequence[_Line], title: str) -> None:
    """The first epochs may be far below: the end is what people compare."""
    curves = {line.alpha: line.own(line.curves.get(column, ())) for line in lines}
    seen = [y for curve in curves.values() for _, y in curve]
    ends = [curve[-1][1] for curve in curves.values() if curve]
    high, middle = max(seen, default=1.0), statistics.median(seen) if seen else 0.0
    low = max(min(seen, default=0.0), min(*ends, high - 3 * (high - middle), high - 0.5))
    room(ax, [low, high], below=0.08, above=0.12, least=0.5)
    for line in lines:
        _draw_line(ax, line, curves[line.alpha])
    _dressed(ax, title)
    labels = [
        EndLabel(curves[line.alpha][-1][1], line.label, line.colour)
        for line in lines
        if curves[line.alpha]
    ]
    end_labels(ax, labels, height=_HEIGHT - 52)


def _draw_line(ax: Axes, line: _Line, curve: Curve) -> None:
    trunk = line.trial.trunk is None
    xs, ys = [x for x, _ in curve], [y for _, y in curve]
    ax.plot(
        xs, ys, color=line.colour, lw=2.2 if trunk else 1.2, solid_capstyle="round",
        marker="o" if len(curve) == 1 else None, ms=3, zorder=2.5 if trunk else 3,
    )  # fmt: skip
    if line.left is not None and curve:
        ax.plot(*curve[0], marker="o", ms=4.5, mfc=line.colour, mec=PAPER, mew=0.8, zorder=4)


def _draw_rule(ax: Axes, *, curves: Iterable[Curve], title: str) -> None:
    every = list(curves)
    room(ax, [y for curve in every for _, y in curve] + [0.0], below=0.02, above=0.22)
    for curve in every:
        ax.plot(
            [x for x, _ in curve], [y for _, y in curve], color=MUTED if len(every) > 1 else ACCENT,
            lw=1.4, solid_capstyle="round", marker="o" if len(curve) == 1 else None, ms=3,
        )  # fmt: skip
    x, y = max((point for curve in every for point in curve), key=lambda point: point[1])
    ax.plot(x, y, marker="o", ms=3.5, color=ACCENT, zorder=4)
    write(ax, f"{y:.3g}", (x, y), offset=(0, 8), colour=ACCENT, bold=True)
    _dressed(ax, title)


def _dressed(ax: Axes, title: str) -> None:
    dress(ax, title=title, x="epoch")
    ax.xaxis.set_major_locator(MaxNLocator(5, integer=True, steps=[1, 2, 5, 10]))
