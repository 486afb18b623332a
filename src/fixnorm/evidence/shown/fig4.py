"""Figure 4."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import Normalize

from fixnorm.evidence.shown.shown import NEAR, Claim, Shown, Verdict
from fixnorm.evidence.shown.stored import Fig4, GridPoint
from fixnorm.report.drawing import Drawing, Panel
from fixnorm.report.style import INK, PAPER, RAMP, dress, write
from fixnorm.report.tables import TextTable

__all__ = ["show"]

_SHADES = 8.0
"""Percent of accuracy that the colours cover: below the best by more is all one colour."""
Grid = dict[tuple[float, float], float]


def show(content: Mapping[str, Any]) -> Shown:
    """A heat map for each setting, and the best of one number at each value of the other."""
    outcome = Fig4.of(content)
    panels, tables, claims = [], [], []
    for landscape in outcome.landscapes:
        grid = _means(landscape.points)
        if not grid:
            continue
        name = landscape.name
        seeds = len({point.seed for point in landscape.points})
        panels.append(_panel(name, grid))
        tables.append(_table(name, grid, seeds))
        claims.append(_claim(name, grid, landscape.points))
    drawing = Drawing(
        "fig4",
        "Figure 4",
        "Mean accuracy (%) over the seeds. Bold: the best lr of each alpha. The frame is the best"
        " of all.",
        tuple(panels),
        columns=1 if len(panels) == 1 else 2,
    )
    return Shown((drawing,), tuple(tables), tuple(claims))


def _means(points: Sequence[GridPoint]) -> Grid:
    scores: dict[tuple[float, float], list[float]] = {}
    for point in points:
        if point.whole:
            scores.setdefault(point.place, []).append(point.accuracy or 0.0)
    return {place: statistics.fmean(found) for place, found in scores.items()}


def _panel(name: str, grid: Grid) -> Panel:
    title = f"{name}: accuracy over lr and alpha"
    return Panel(
        title, partial(_draw, grid=grid, title=title), width=400, height=250, left=40, right=12
    )


def _draw(ax: Axes, *, grid: Grid, title: str) -> None:
    lrs, alphas = _axes(grid)
    best = best_place(grid)
    shade = Normalize(grid[best] - _SHADES, grid[best])
    ax.pcolormesh(
        range(len(lrs) + 1),
        range(len(alphas) + 1),
        [[grid[lr, alpha] for lr in lrs] for alpha in alphas],
        cmap=RAMP,
        norm=shade,
        edgecolor=PAPER,
        lw=1,
    )
    for y, alpha in enumerate(alphas):
        top = best_lr(grid, alpha)
        for x, lr in enumerate(lrs):
            text = f"{grid[lr, alpha]:.1f}"
            write(ax, text, (x + 0.5, y + 0.5), colour="#ffffff", bold=lr == top)
    x, y = lrs.index(best[0]), alphas.index(best[1])
    ax.plot([x, x + 1, x + 1, x, x], [y, y, y + 1, y + 1, y], color=INK, lw=1.6, clip_on=False)
    dress(ax, title=title, x="learning rate", y="alpha")
    ax.grid(visible=False)
    ax.set_xticks([k + 0.5 for k in range(len(lrs))], [f"{lr:g}" for lr in lrs])
    ax.set_yticks([k + 0.5 for k in range(len(alphas))], [f"{alpha:g}" for alpha in alphas])


def _table(name: str, grid: Grid, seeds: int) -> TextTable:
    lrs, alphas = _axes(grid)
    rows = [("best lr", *(f"{best_lr(grid, alpha):g}" for alpha in alphas))]
    rows += [("its accuracy", *(f"{grid[best_lr(grid, a), a]:.2f}" for a in alphas))]
    first = best_lr(grid, alphas[0])
    rows += [(f"at lr {first:g}", *(f"{grid[first, a]:.2f}" for a in alphas))]
    best = ", ".join(f"{best_alpha(grid, lr):g} at lr {lr:g}" for lr in lrs)
    return TextTable(
        f"{name}: the best lr of each alpha",
        ("alpha", *(f"{alpha:g}" for alpha in alphas)),
        tuple(rows),
        (f"Best alpha of each lr: {best}.", f"Means of {seeds} seeds."),
        words=1,
    )


def _claim(name: str, grid: Grid, points: Sequence[GridPoint]) -> Claim:
    """Algorithm 4's way through the grid, without its noise, against the best of the grid."""
    _, alphas = _axes(grid)
    lr = best_lr(grid, alphas[0])
    found = grid[lr, best_alpha(grid, lr)]
    best = best_place(grid)
    loss, noise = grid[best] - found, _noise(points, grid)
    reach = 2 * math.sqrt(2) * noise  # two standard errors of a difference of two means
    verdict: Verdict = "holds" if loss + reach <= NEAR else "not contradicted"
    return Claim(
        f"lr and alpha can be tuned one after the other ({name})",
        "does not hold" if loss > reach else verdict,
        f"lr {lr:g} is best at alpha {alphas[0]:g}; with its best alpha, {best_alpha(grid, lr):g},"
        f" it has {found:.2f} %; the best of all {grid[best]:.2f} % (lr {best[0]:g}, alpha"
        f" {best[1]:g}). Lost: {loss:.2f} %; the standard error of a mean is {noise:.2f} %",
    )


def _noise(points: Sequence[GridPoint], grid: Grid) -> float:
    """The standard error of a cell's mean, pooled over the grid."""
    full = [p for p in points if p.whole]
    seeds = len({p.seed for p in full})
    if seeds < 2:
        return 0.0
    squares = [((p.accuracy or 0.0) - grid[p.place]) ** 2 for p in full]
    return float((sum(squares) / (len(squares) * (1 - 1 / seeds)) / seeds) ** 0.5)


def best_place(grid: Grid) -> tuple[float, float]:
    """lr and alpha of the best; of equals that of the smaller alpha, then of the lower lr."""
    ordered = sorted(grid, key=lambda place: (place[1], place[0]))
    return max(ordered, key=lambda place: grid[place])


def best_lr(grid: Grid, alpha: float) -> float:
    """The lower of equals."""
    lrs, _ = _axes(grid)
    return max(lrs, key=lambda lr: grid[lr, alpha])


def best_alpha(grid: Grid, lr: float) -> float:
    """The smaller of equals."""
    _, alphas = _axes(grid)
    return max(alphas, key=lambda alpha: grid[lr, alpha])


def _axes(grid: Grid) -> tuple[list[float], list[float]]:
    return sorted({lr for lr, _ in grid}), sorted({alpha for _, alpha in grid})
