"""Curves over training or over a learning rate: each seed faint, their mean with its name."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from matplotlib.axes import Axes

from fixnorm.report.drawing import Panel
from fixnorm.report.style import EndLabel, breadth, dress, end_labels, log_ticks, room

__all__ = ["Line", "lines"]

_WIDTH, _HEIGHT = 330.0, 225.0


@dataclass(frozen=True)
class Line:
    """One method: values of each seed at the same places."""

    name: str
    colour: str
    x: Sequence[float]
    seeds: Sequence[Sequence[float | None]]
    style: str = "-"
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
    labels = max(breadth(line.name) for line in curves)
    draw = partial(_draw, curves=curves, title=title, x=x, y=y, log=log, extra=extra)
    return Panel(title, draw, width=_WIDTH, height=_HEIGHT, left=42.0, right=labels)


def _draw(
    ax: Axes,
    *,
    curves: Sequence[Line],
    title: str,
    x: str,
    y: str,
    log: bool,
    extra: Callable[[Axes], None] | None,
) -> None:
    if log:
        ax.set_xscale("log")
    values: list[float] = []
    ends: list[EndLabel] = []
    for line in curves:
        for seed in line.seeds:
            places = [(a, b) for a, b in zip(line.x, seed, strict=False) if b is not None]
            values += [b for _, b in places]
            if line.dots:
                ax.plot(
                    *_columns(places), ls="none", marker="o", ms=2.4, color=line.colour, alpha=0.6
                )
            else:
                ax.plot(*_columns(places), lw=0.6, ls=line.style, color=line.colour, alpha=0.45)
        means = line.means()
        ax.plot(*_columns(means), lw=1.8, ls=line.style, color=line.colour, zorder=4)
        if means and line.named:
            ends.append(EndLabel(means[-1][1], line.name, line.colour))
    room(ax, values, below=0.06, above=0.08)
    if extra is not None:
        extra(ax)
    dress(ax, title=title, x=x, y=y)
    if log:
        log_ticks(ax, "x")
    end_labels(ax, ends, height=_HEIGHT - 52)


def _columns(places: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [a for a, _ in places], [b for _, b in places]
