"""Scores of several seeds in rows: a dot each, the mean, and its interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, NullLocator

from fixnorm.report.drawing import Panel
from fixnorm.report.statistics import mean_of
from fixnorm.report.style import FONT_SIZE, INK, PAPER, breadth, dress

__all__ = ["Row", "dots"]

_ROW = 20.0


@dataclass(frozen=True)
class Row:
    """One row."""

    name: str
    values: Sequence[float]
    colour: str


def dots(title: str, rows: Sequence[Row], *, x: str, width: float = 420.0) -> Panel:
    """A panel as high as its rows."""
    left = max(breadth(row.name) for row in rows) + 4
    return Panel(
        title,
        partial(_draw, rows=rows, title=title, x=x),
        width=width,
        height=_ROW * len(rows) + 62,
        left=left,
        right=92.0,
    )


def _draw(ax: Axes, *, rows: Sequence[Row], title: str, x: str) -> None:
    for place, row in enumerate(reversed(rows)):
        if not row.values:
            continue
        found = mean_of(row.values)
        if found.half_width is not None:
            ends = [found.mean - found.half_width, found.mean + found.half_width]
            ax.plot(ends, [place, place], color=row.colour, lw=5, alpha=0.22, solid_capstyle="butt")
        ax.plot(
            row.values,
            [place - 0.22] * len(row.values),
            ls="none",
            marker="o",
            ms=2.6,
            color=row.colour,
            alpha=0.7,
        )
        ax.plot(found.mean, place, marker="o", ms=6, mfc=row.colour, mec=PAPER, mew=1, zorder=5)
        ax.text(
            1.02,
            place,
            found.spread(),
            transform=ax.get_yaxis_transform(),
            ha="left",
            va="center",
            fontsize=FONT_SIZE,
            color=INK,
            parse_math=False,
        )
    values = [value for row in rows for value in row.values]
    if values:
        span = max(max(values) - min(values), 0.5)
        ax.set_xlim(min(values) - 0.12 * span, max(values) + 0.12 * span)
    ax.set_ylim(-0.6, len(rows) - 0.4)
    dress(ax, title=title, x=x)
    ax.grid(visible=False, axis="y")
    ax.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.set_yticks(range(len(rows)), [row.name for row in reversed(rows)])
    ax.tick_params(axis="y", length=0, labelcolor=INK)
