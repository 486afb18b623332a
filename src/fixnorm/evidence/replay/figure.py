"""Accuracy and regret against cost, and the regret at the end: a row of panels a setting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from fixnorm.evidence.landscapes import AXES
from fixnorm.evidence.replay.strategies import STRATEGIES
from fixnorm.evidence.replay.summary import Moment, SettingResult, Summary
from fixnorm.report.drawing import Drawing, Panel
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
    room,
    write,
)
from fixnorm.tuning.plans import PLANS

__all__ = ["regret_figure"]

_COLOURS = dict(zip(STRATEGIES, SERIES, strict=True))
_WIDTH, _HEIGHT = 330.0, 235.0
_SETTLED = 3.0
"""T_max from which on the axes must show everything: first guesses may be anywhere."""


def regret_figure(results: Sequence[SettingResult]) -> Drawing:
    """A row for each setting: accuracy (where two landscapes meet), regret, regret at the end."""
    together = any(len(result.landscapes) > 1 for result in results)
    panels: list[Panel] = []
    for result in results:
        labels = max(breadth(_name(result, summary)) for summary in result.summaries)
        if together:
            panels.append(
                _panel(f"{result.name}: accuracy of the answer", _draw_accuracy, result, labels)
            )
        panels.append(
            _panel(f"{result.name}: regret on its own landscape", _draw_regret, result, labels)
        )
        panels.append(
            _panel(f"{result.name}: regret at the end", _draw_ends, result, 46.0, left=labels + 4)
        )
    return Drawing(
        "regret",
        "Regret against cost",
        "Means over the replays; a dot is the mean end of a plan, which costs what it costs.",
        tuple(panels),
        columns=3 if together else 2,
    )


def _panel(
    title: str,
    draw: Callable[..., None],
    result: SettingResult,
    right: float,
    *,
    left: float = 40.0,
) -> Panel:
    drawn = partial(draw, result=result, title=title)
    return Panel(title, drawn, width=_WIDTH, height=_HEIGHT, left=left, right=right)


def _draw_accuracy(ax: Axes, *, result: SettingResult, title: str) -> None:
    _draw_curves(ax, result, lambda moment: moment.accuracy)
    bests = {landscape.axis: landscape.best.accuracy for landscape in result.landscapes}
    room(ax, [*_settled(result, lambda moment: moment.accuracy), *bests.values()], above=0.12)
    low, high = ax.get_ylim()
    ordered = sorted(bests.items(), key=lambda item: -item[1])
    for place, (axis, best) in enumerate(ordered):
        ax.axhline(best, color=MUTED, lw=0.8, ls=(0, (1, 2)), zorder=1)
        # Above the upper line and below the lower one, so that near ones do not collide.
        offset = 5 if place == 0 else -6
        at = (0.98 * ax.get_xlim()[1], best)
        write(ax, f"best of {AXES[axis]}", at, offset=(0, offset), colour=MUTED, align="right")
    ax.set_ylim(low, high)
    dress(ax, title=title, x="cost (T_max)", y="accuracy (%)")
    _name_curves(ax, result, lambda moment: moment.accuracy)


def _draw_regret(ax: Axes, *, result: SettingResult, title: str) -> None:
    _draw_curves(ax, result, lambda moment: moment.regret.mean)
    ax.set_ylim(0, 1.08 * max(*_settled(result, lambda moment: moment.regret.mean), 0.05))
    dress(ax, title=title, x="cost (T_max)", y="mean regret (%)")
    _name_curves(ax, result, lambda moment: moment.regret.mean)


def _draw_curves(ax: Axes, result: SettingResult, value: Callable[[Moment], float]) -> None:
    longest = max(summary.curve[-1].cost for summary in result.summaries)
    ax.set_xlim(0, longest)
    for summary in result.summaries:
        colour, style = _COLOURS[summary.entry.strategy], _style(result, summary)
        costs = [moment.cost for moment in summary.curve]
        values = [value(moment) for moment in summary.curve]
        plan = summary.entry.strategy in PLANS
        ax.step(
            costs,
            values,
            where="post",
            color=colour,
            lw=1.8 if plan else 1.2,
            ls=style,
            zorder=4 + plan,
        )
        if plan:
            end = value(summary.end)
            # A thin line from its end to its name: what the others have to reach.
            ax.plot([costs[-1], longest], [end, end], color=colour, lw=0.6, alpha=0.6, zorder=2)
            ax.plot(summary.end.cost, end, marker="o", ms=6, mfc=colour, mec=PAPER, mew=1, zorder=7)


def _name_curves(ax: Axes, result: SettingResult, value: Callable[[Moment], float]) -> None:
    labels = [
        EndLabel(value(summary.end), _name(result, summary), _COLOURS[summary.entry.strategy])
        for summary in result.summaries
    ]
    end_labels(ax, labels, height=_HEIGHT - 52)


def _draw_ends(ax: Axes, *, result: SettingResult, title: str) -> None:
    rows = list(reversed(result.summaries))
    for row, summary in enumerate(rows):
        colour, regret = _COLOURS[summary.entry.strategy], summary.end.regret
        ends = [_regret(summary, trace.end.accuracy) for trace in summary.traces]
        ax.plot([0, regret.q90], [row, row], color=colour, lw=5, alpha=0.25, solid_capstyle="butt")
        ax.plot(
            ends, [row - 0.27] * len(ends), ls="none", marker=".", ms=2, color=colour, alpha=0.3
        )
        ax.plot([regret.median] * 2, [row - 0.16, row + 0.16], color=colour, lw=1.4)
        ax.plot(regret.mean, row, marker="o", ms=6, mfc=colour, mec=PAPER, mew=1, zorder=5)
        ax.text(
            1.02,
            row,
            f"{summary.end.cost:.1f} T_max",
            transform=ax.get_yaxis_transform(),
            ha="left",
            va="center",
            fontsize=FONT_SIZE - 1,
            color=MUTED,
            parse_math=False,
        )
    ax.set_ylim(-0.6, len(rows) - 0.4)
    widest = max(max(summary.end.regret.q90, summary.end.regret.mean) for summary in rows)
    ax.set_xlim(0, 1.15 * max(widest, 0.05))
    dress(ax, title=title, x="regret (%): dot mean, line median, bar up to the 90 % quantile")
    ax.grid(visible=False, axis="y")
    ax.yaxis.set_minor_locator(NullLocator())
    ax.set_yticks(range(len(rows)), [_name(result, summary) for summary in rows])
    ax.tick_params(axis="y", length=0, labelcolor=INK)


def _regret(summary: Summary, accuracy: float) -> float:
    return max(summary.entry.landscape.best.accuracy - accuracy, 0.0)


def _settled(result: SettingResult, value: Callable[[Moment], float]) -> list[float]:
    found = [value(summary.end) for summary in result.summaries]
    for summary in result.summaries:
        found += [value(moment) for moment in summary.curve if moment.cost >= _SETTLED]
    return found


def _name(result: SettingResult, summary: Summary) -> str:
    """With its landscape where the same strategy runs on two."""
    name = STRATEGIES[summary.entry.strategy]
    return f"{name}, alpha" if _twice(result, summary) else name


def _style(result: SettingResult, summary: Summary) -> str:
    return "--" if _twice(result, summary) else "-"


def _twice(result: SettingResult, summary: Summary) -> bool:
    """Whether this is the second landscape of a strategy."""
    same = [s for s in result.summaries if s.entry.strategy == summary.entry.strategy]
    return len(same) > 1 and summary.entry.landscape.axis == "alpha"
