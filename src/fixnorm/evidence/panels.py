"""The panels of experiments: curves of several seeds, and scores of several seeds in rows."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, NullLocator
from matplotlib.typing import LineStyleType

from fixnorm.report.drawing import Panel
from fixnorm.report.statistics import mean_of
from fixnorm.report.style import (
    FONT_SIZE,
    INK,
    MUTED,
    PAPER,
    SERIES,
    EndLabel,
    breadth,
    dress,
    end_labels,
    log_ticks,
    room,
)

__all__ = [
    "COLOURS",
    "NAMES",
    "SEEDS_AS_DOTS",
    "Line",
    "Row",
    "dots",
    "lines",
    "name_rows",
    "write_beside",
]

COLOURS = dict(zip(("fixnorm", "weight-decay", "algorithm1", "wn-fc"), SERIES, strict=False))
NAMES = {
    "fixnorm": "FixNorm",
    "weight-decay": "weight decay",
    "algorithm1": "Algorithm 1",
    "wn-fc": "WN-FC (no cap)",
}
SEEDS_AS_DOTS = "Dots are seeds, the bar is the 95 % interval of the mean."
"""The caption of :func:`dots`."""

_WIDTH, _HEIGHT = 330.0, 225.0
_ROW = 20.0


@dataclass(frozen=True)
class Line:
    """One method: values of each seed at the same places, drawn faint, and their mean."""

    name: str
    colour: str
    x: Sequence[float]
    seeds: Sequence[Sequence[float | None]]
    style: LineStyleType = "-"
    dots: bool = False
    named: bool = True

    def means(self) -> list[tuple[float, float]]:
        """Where all seeds have a value."""
        found = []
        for x, values in zip(self.x, zip(*self.seeds, strict=False), strict=False):
            known = [value for value in values if value is not None]
            if known and len(known) == len(values):
                found.append((x, statistics.fmean(known)))
        return found


def lines(
    title: str,
    curves: Sequence[Line],
    *,
    x: str,
    y: str,
    log: bool = False,
    extra: Callable[[Axes], None] | None = None,
) -> Panel:
    """A panel of curves with their names beside the ends."""

    def draw(ax: Axes) -> None:
        if log:
            ax.set_xscale("log")
        _draw_lines(ax, curves)
        if extra is not None:
            extra(ax)
        dress(ax, title=title, x=x, y=y)
        if log:
            log_ticks(ax, "x")
        ends = [
            EndLabel(means[-1][1], line.name, line.colour)
            for line in curves
            if line.named and (means := line.means())
        ]
        end_labels(ax, ends, height=_HEIGHT - 52)

    labels = max(breadth(line.name) for line in curves)
    return Panel(title, draw, width=_WIDTH, height=_HEIGHT, left=42.0, right=labels)


def _draw_lines(ax: Axes, curves: Sequence[Line]) -> None:
    values: list[float] = []
    for line in curves:
        faint = (
            {"ls": "none", "marker": "o", "ms": 2.4, "alpha": 0.6}
            if line.dots
            else {"lw": 0.6, "ls": line.style, "alpha": 0.45}
        )
        for seed in line.seeds:
            places = [(a, b) for a, b in zip(line.x, seed, strict=False) if b is not None]
            values += [b for _, b in places]
            ax.plot(*_columns(places), color=line.colour, **faint)
        ax.plot(*_columns(line.means()), lw=1.8, ls=line.style, color=line.colour, zorder=4)
    room(ax, values, below=0.06, above=0.08)


def _columns(places: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [a for a, _ in places], [b for _, b in places]


@dataclass(frozen=True)
class Row:
    """The scores of some seeds."""

    name: str
    values: Sequence[float]
    colour: str


def dots(
    title: str,
    rows: Sequence[Row],
    *,
    x: str,
    width: float = 420.0,
    least_height: float = 0.0,
    zero: bool = False,
) -> Panel:
    """A panel as high as its rows: a dot for each seed, the mean, and its interval.

    ``zero``: for differences, with a line where there is none.
    """
    return Panel(
        title,
        partial(_draw_dots, rows=rows, title=title, x=x, zero=zero),
        width=width,
        height=max(_ROW * len(rows) + 62, least_height),
        left=max(breadth(row.name) for row in rows) + 4,
        right=130.0 if zero else 92.0,
    )


def _draw_dots(ax: Axes, *, rows: Sequence[Row], title: str, x: str, zero: bool) -> None:
    values = [value for row in rows for value in row.values]
    for place, row in enumerate(reversed(rows)):
        found = mean_of(row.values)
        if found.half_width is not None:
            ends = [found.mean - found.half_width, found.mean + found.half_width]
            ax.plot(ends, [place, place], color=row.colour, lw=5, alpha=0.22, solid_capstyle="butt")
            values += [*ends, 0.0] if zero else []
        below = [place - 0.22] * len(row.values)
        ax.plot(row.values, below, ls="none", marker="o", ms=2.6, color=row.colour, alpha=0.7)
        ax.plot(found.mean, place, marker="o", ms=6, mfc=row.colour, mec=PAPER, mew=1, zorder=5)
        beside = found.interval() if zero else found.spread()
        write_beside(ax, place, beside, size=FONT_SIZE, colour=INK)
    if zero:
        ax.axvline(0, color=MUTED, lw=0.8, zorder=0)
    span = max(max(values) - min(values), 0.5)
    ax.set_xlim(min(values) - 0.12 * span, max(values) + 0.12 * span)
    dress(ax, title=title, x=x)
    ax.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    name_rows(ax, [row.name for row in reversed(rows)])


def write_beside(ax: Axes, row: float, text: str, *, size: float, colour: str) -> None:
    """Words right of a row."""
    ax.text(
        1.02,
        row,
        text,
        transform=ax.get_yaxis_transform(),
        ha="left",
        va="center",
        fontsize=size,
        color=colour,
        parse_math=False,
    )


def name_rows(ax: Axes, names: Sequence[str]) -> None:
    """Names left of rows, from the lowest up, in axes without other lines across."""
    ax.set_ylim(-0.6, len(names) - 0.4)
    ax.grid(visible=False, axis="y")
    ax.yaxis.set_minor_locator(NullLocator())
    ax.set_yticks(range(len(names)), names)
    ax.tick_params(axis="y", length=0, labelcolor=INK)
