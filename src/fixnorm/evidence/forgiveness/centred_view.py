"""What is lost around the best: a table, a claim and a picture for each recording."""

from __future__ import annotations

import math
from functools import partial

from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.ticker import FuncFormatter, NullLocator

from fixnorm.evidence.experiment import NEAR, Claim, Verdict
from fixnorm.evidence.forgiveness.cells import NAMES, RIVALS, SECOND, SEEDS, Recording, Side
from fixnorm.evidence.forgiveness.centred import Loss, Reach, around, lost_on_grid
from fixnorm.evidence.landscapes import Landscape
from fixnorm.report.drawing import Panel
from fixnorm.report.style import RAMP, colour_bar, dress, write
from fixnorm.report.tables import TextTable

__all__ = ["claim", "maps", "table"]

SHADES = 8.0
"""Percent of regret that the colours cover: more is all one colour."""
_LIGHT, _DARK = "#ffffff", "#202428"
"""On the colours of the picture, which a dark page leaves as they are."""
_FINE = 65
"""Places of each axis of a picture."""
_TICKS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)


def table(recording: Recording) -> TextTable:
    """Of the whole grids, and of what is centred alike."""
    reach = recording.reach
    whole = {side: lost_on_grid(one, recording.top) for side, one in recording.landscapes.items()}
    rows = [
        *(_row(recording, side, whole[side], None) for side in RIVALS),
        *(_row(recording, side, recording.around(side), reach) for side in RIVALS),
    ]
    notes = [
        f"Regret to the best of both, {recording.top:.2f} %. Centred alike: lr up to"
        f" {reach.lr:.2g} times below and above the method's own best, the second number up to"
        f" {reach.level:.2g} times, the largest factors that were recorded on both sides of both;"
        " places evenly spaced in the logarithm, interpolated. Of equals the best is that of the"
        " lower second number, then of the lower lr.",
        "±: standard error of the mean by the noise of the trainings; noise: standard error of a"
        f" point, the mean of {SEEDS} seeds, pooled over the whole grid.",
    ]
    if not reach.open:
        notes.append("A best lies at an end of what was recorded: nothing is centred on it.")
    return TextTable(
        f"{recording.name}: what is lost around the best",
        (
            *("method", "where", "mean regret (%)", "worst (%)"),
            *(f"within {NEAR:g} %", "noise (%)"),
        ),
        tuple(rows),
        tuple(notes),
        words=2,
    )


def _row(recording: Recording, side: Side, lost: Loss, reach: Reach | None) -> tuple[str, ...]:
    landscape = recording.landscapes[side]
    return (
        NAMES[side],
        _where(landscape, SECOND[side], reach),
        f"{lost.mean:.2f} ± {lost.error:.2f}",
        f"{lost.worst:.1f}",
        _share(lost),
        f"{landscape.noise / SEEDS**0.5:.2f}",
    )


def _where(landscape: Landscape, second: str, reach: Reach | None) -> str:
    if reach is None:
        lrs, levels = landscape.lrs, landscape.levels
        return f"all: lr {lrs[0]:g} to {lrs[-1]:g}, {second} {levels[0]:g} to {levels[-1]:g}"
    best = landscape.best
    return (
        f"centred alike: lr {best.lr:g} ×÷ {reach.lr:.2g}, {second} {best.level:g} ×÷"
        f" {reach.level:.2g}"
    )


def _share(lost: Loss) -> str:
    return f"{100 * lost.share(NEAR):.0f} %"


def claim(recording: Recording) -> Claim:
    """Told by twice the standard error of the difference."""
    ours, theirs = (recording.around(side) for side in RIVALS)
    less, reach = theirs.mean - ours.mean, 2 * math.hypot(ours.error, theirs.error)
    verdict: Verdict = "cannot be told"
    if recording.reach.open and abs(less) > reach:
        verdict = "holds" if less > 0 else "does not hold"
    return Claim(
        f"Wrong numbers cost FixNorm less than weight decay, around the best ({recording.name})",
        verdict,
        f"mean regret {ours.mean:.2f} against {theirs.mean:.2f} %: less by {less:.2f} ± {reach:.2f}"
        f" (two standard errors); worst {ours.worst:.1f} against {theirs.worst:.1f} %; within"
        f" {NEAR:g} % {_share(ours)} against {_share(theirs)} of the places",
    )


def maps(recording: Recording) -> list[Panel]:
    """One for each method, on the same axes and colours."""
    panels = []
    for side in RIVALS:
        title = f"{NAMES[side]}, {recording.name}"
        draw = partial(_draw, recording=recording, side=side, title=title)
        panels.append(Panel(title, draw, width=375, height=240, left=44, right=50))
    return panels


def _draw(ax: Axes, *, recording: Recording, side: Side, title: str) -> None:
    landscape, reach, top = recording.landscapes[side], recording.reach, recording.top
    steps = [2 * k / (_FINE - 1) - 1 for k in range(_FINE)]
    x, y = [reach.lr**a for a in steps], [reach.level**b for b in steps]
    regrets = [
        [top - landscape.mean_of(corners) for corners in row]
        for row in around(landscape, reach, places=_FINE)
    ]
    shades = Normalize(0, SHADES)
    colours = ScalarMappable(shades, RAMP.reversed())
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.pcolormesh(x, y, regrets, cmap=colours.cmap, norm=shades, shading="nearest", rasterized=True)
    ax.set_xlim(x[0], x[-1])
    ax.set_ylim(y[0], y[-1])
    ax.contour(x, y, regrets, levels=[NEAR], colors=[_DARK], linewidths=0.7)
    best = landscape.best
    for (_, level, lr), mean in landscape.means.items():
        at = lr / best.lr, level / best.level
        if _within(at[0], reach.lr) and _within(at[1], reach.level):
            write(
                ax,
                f"{top - mean.accuracy:.1f}",
                at,
                offset=(-8 * _side(at[0], reach.lr), -7 * _side(at[1], reach.level)),
                colour=_LIGHT,
                bold=at == (1.0, 1.0),
            )
    dress(ax, title=title, x=f"lr / {best.lr:g}", y=f"{SECOND[side]} / {best.level:g}")
    ax.grid(visible=False)
    for axis, far in ((ax.xaxis, reach.lr), (ax.yaxis, reach.level)):
        axis.set_minor_locator(NullLocator())
        axis.set_ticks([factor for factor in _TICKS if _within(factor, far)])
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    colour_bar(ax, colours, "regret (%)", extend="max")


def _within(factor: float, reach: float) -> bool:
    return abs(math.log(factor)) <= math.log(reach) + 1e-9


def _side(factor: float, reach: float) -> int:
    """1 at the upper end, −1 at the lower, 0 between."""
    if abs(math.log(factor)) < math.log(reach) - 1e-9:
        return 0
    return 1 if factor > 1 else -1
