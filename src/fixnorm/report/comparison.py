"""What trainings anew say of a search's answer and its rival: in words, and in two pictures."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from fixnorm.report.curves import COLUMNS, Curve, Runs
from fixnorm.report.drawing import Drawing, Panel
from fixnorm.report.statistics import Mean, mean_of, paired
from fixnorm.report.style import MUTED, SERIES, EndLabel, breadth, dress, end_labels, room, write
from fixnorm.report.words import bare, choice, metric_name, valued
from fixnorm.tuning.comparison import COMPARISON
from fixnorm.tuning.trial import StudyRecord, Trial

__all__ = ["Compared", "comparison_figures", "is_comparison"]

_NAMES = ("FixNorm", "weight decay")
_HEIGHT = 215.0


def is_comparison(study: StudyRecord) -> bool:
    """Whether the study compares, and searches for nothing."""
    return study.method == COMPARISON


@dataclass(frozen=True)
class Compared:
    """Two sides, trained with the same seeds."""

    study: StudyRecord

    @property
    def sides(self) -> tuple[tuple[Trial, ...], tuple[Trial, ...]]:
        """FixNorm's trials and the rival's, by seed, of seeds that have a number for both."""
        ours, rival = ({t.seed: t for t in self.study.trials if t.index == i} for i in (0, 1))
        seeds = sorted(
            seed
            for seed in ours.keys() & rival.keys()
            if all(t.result is not None and t.result.finite for t in (ours[seed], rival[seed]))
        )
        return tuple(ours[s] for s in seeds), tuple(rival[s] for s in seeds)

    @property
    def values(self) -> tuple[list[float], list[float]]:
        """Their accuracies."""
        ours, rival = ([t.accuracy or 0.0 for t in side] for side in self.sides)
        return ours, rival

    @property
    def means(self) -> tuple[Mean, Mean]:
        """Of each side."""
        ours, rival = map(mean_of, self.values)
        return ours, rival

    @property
    def difference(self) -> Mean:
        """FixNorm's − the rival's, seed by seed."""
        return paired(*self.values)

    @property
    def verdict(self) -> str:
        """Who is better, if that can be told."""
        difference = self.difference
        if difference.half_width is None:
            return "one pair cannot tell more than chance"
        if not difference.clear:
            return f"level, as far as {difference.count} pairs can tell"
        return f"{_NAMES[0 if difference.mean > 0 else 1]} is better"

    def told(self) -> str:
        """All of it in one line; empty before the first pair has ended."""
        if not self.values[0]:
            return ""
        metric = self.study.metric
        named = (
            f"{name} {mean.spread()} ({choice(side[0])})"
            for name, mean, side in zip(_NAMES, self.means, self.sides, strict=True)
        )
        count = self.difference.count
        return (
            f"trained anew with {count} fresh seed{'s' if count > 1 else ''}, {metric}:"
            f" {', '.join(named)}: {self.difference.interval()}, {self.verdict}"
        )

    def to_dict(self) -> dict[str, object]:
        """For ``result.json``."""
        ours, rival = self.values
        low_high = self.difference.half_width
        return {
            "fixnorm": ours,
            "weight_decay": rival,
            "difference": round(self.difference.mean, 4) if ours else None,
            "half_width": None if not ours or low_high is None else round(low_high, 4),
        }


def comparison_figures(compared: Compared, runs: Runs) -> tuple[Drawing, ...]:
    """The accuracy as the trainings go on, and where each pair ends."""
    if not compared.values[0]:
        return ()
    lines = [
        [runs.get(t.folder, {}) if t.folder is not None else {} for t in side]
        for side in compared.sides
    ]
    score = next((c for c in COLUMNS if c.startswith("val_") and any(c in r for r in lines[0])), "")
    curves = [[run[score] for run in side if score in run] for side in lines]
    metric = compared.study.metric
    panels = []
    if all(curves):
        title = COLUMNS[score]
        panels.append(
            Panel(
                title,
                partial(_draw_curves, curves=curves, title=title),
                height=_HEIGHT,
                right=max(map(breadth, _NAMES)),
            )
        )
    title = f"Final {metric_name(metric)}, pair by pair"
    panels.append(
        Panel(title, partial(_draw_pairs, compared=compared, title=title), height=_HEIGHT)
    )
    return (
        Drawing(
            "anew",
            "Trained anew",
            "Left: every training, thick the mean of its side. Right: a line joins two trainings"
            " with the same start and the same batches; the bars are the means.",
            tuple(panels),
        ),
    )


def _draw_curves(ax: Axes, *, curves: Sequence[Sequence[Curve]], title: str) -> None:
    ends = []
    for side, name, colour in zip(curves, _NAMES, SERIES, strict=False):
        for curve in side:
            ax.plot(*zip(*curve, strict=True), color=colour, lw=0.7, alpha=0.4)
        epochs = sorted(set.intersection(*({x for x, _ in curve} for curve in side)))
        means = [statistics.fmean(dict(curve)[x] for curve in side) for x in epochs]
        ax.plot(epochs, means, color=colour, lw=2)
        if means:
            ends.append(EndLabel(means[-1], name, colour))
    last = [y for side in curves for curve in side for _, y in curve[len(curve) // 4 :]]
    room(ax, last, below=0.1, above=0.1, least=1.0)
    dress(ax, title=title, x="epoch")
    ax.xaxis.set_major_locator(MaxNLocator(4, integer=True, steps=[1, 2, 5, 10]))
    end_labels(ax, ends, height=_HEIGHT - 52)


def _draw_pairs(ax: Axes, *, compared: Compared, title: str) -> None:
    ours, rival = compared.values
    metric = compared.study.metric
    for pair in zip(rival, ours, strict=True):
        ax.plot((0, 1), pair, color=MUTED, lw=0.8, alpha=0.6, zorder=2)
    for x, values, mean, colour in (
        (0, rival, compared.means[1], SERIES[1]),
        (1, ours, compared.means[0], SERIES[0]),
    ):
        ax.plot([x] * len(values), values, ls="none", marker="o", ms=4.5, color=colour, zorder=3)
        side = -1 if x == 0 else 1
        ax.plot([x + 0.06 * side, x + 0.26 * side], [mean.mean] * 2, color=colour, lw=2.5)
        write(
            ax, bare(mean.mean, metric), (x + 0.16 * side, mean.mean), offset=(0, 8),
            colour=colour, bold=True,
        )  # fmt: skip
    room(ax, [*ours, *rival], below=0.15, above=0.35, least=1.0)
    ax.set_xlim(-0.45, 1.45)
    dress(ax, title=title, y=metric)
    ax.set_xticks((0, 1), (_NAMES[1], _NAMES[0]))
    unit = "\N{NO-BREAK SPACE}%" if "%" in metric else ""
    write(
        ax, f"{compared.difference.interval()}{unit}", (0.5, 0.95), on="foot", bold=True,
    )  # fmt: skip


def sentence(compared: Compared) -> str:
    """For the page: what came out, and of what."""
    metric = compared.study.metric
    ours, rival = compared.means
    left, right = (choice(side[0]) for side in compared.sides)
    return (
        f"FixNorm as found ({left}): {valued(ours.mean, metric)}. Weight decay as the recipe has"
        f" it, not tuned ({right}): {valued(rival.mean, metric)}. Difference:"
        f" {compared.difference.interval()}, {compared.verdict}."
    )
