"""What a replay leaves behind: all numbers for programs, a drawing and a table for people."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

import optuna
from matplotlib.axes import Axes

from fixnorm.evidence.landscapes import AXES, Landscape
from fixnorm.evidence.panels import name_rows, write_beside
from fixnorm.evidence.replay.options import Options, strategies
from fixnorm.evidence.replay.summary import NEAR, Moment, Summary, WorkloadResult
from fixnorm.report.drawing import Drawing, Panel, png
from fixnorm.report.statistics import Mean
from fixnorm.report.style import (
    FONT_SIZE,
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
from fixnorm.report.tables import TextTable
from fixnorm.system import check_files
from fixnorm.system.files import write_files
from fixnorm.system.versions import commit, versions
from fixnorm.training.checked import Part, can_read, read_checked
from fixnorm.tuning.plans import PLANS

__all__ = ["check_place", "content", "table_of", "write_replay"]

_FILES = ("replay.json", "regret.png", "table.md")
_WIDTH, _HEIGHT = 330.0, 235.0
_SETTLED = 3.0
"""T_max from which on the axes must show everything: first guesses may be anywhere."""


# -- files -----------------------------------------------------------------------------------------


class _File(Part):
    options: dict[str, object]
    versions: dict[str, str]
    settings: list[dict[str, object]]


def content(results: Sequence[WorkloadResult], options: Options) -> dict[str, object]:
    """All numbers, for programs."""
    return {
        "options": asdict(options),
        "versions": {**versions(), "optuna": optuna.__version__},
        "commit": commit(),
        "settings": [result.to_dict() for result in results],
    }


def _read(path: Path) -> _File:
    return read_checked(path, _File, what="a replay", advice="")


def check_place(out: Path) -> None:
    """Refuse a folder where files of others have our names."""
    sign, *others = _FILES
    check_files(out, others, sign=sign, ours=can_read(_read))


def write_replay(results: Sequence[WorkloadResult], options: Options, out: Path) -> list[Path]:
    """Write ``replay.json``, ``regret.png`` and ``table.md`` into a folder; return their paths."""
    tables = [table_of(result, replays=options.replays).markdown() for result in results]
    made = (
        f"{json.dumps(content(results, options))}\n".encode(),
        png(_drawing(results)),
        "\n".join(tables).encode(),
    )
    return write_files(out, dict(zip(_FILES, made, strict=True)), ours=can_read(_read))


# -- the table -------------------------------------------------------------------------------------


def table_of(result: WorkloadResult, *, replays: int) -> TextTable:
    """Costs in T_max, accuracies and regrets in percent."""
    plans = result.plan_costs
    costs = sorted(set(plans.values()))
    columns = ["search", "over", "cost", "accuracy", "regret", "median", "90 %"]
    columns += [f"at {cost} T_max" for cost in costs]
    if result.paper is not None:
        same = f"− paper's, at {plans['paper']} T_max"
        columns += ["near paper's", same, "− paper's, at the end"]
    rows = []
    for summary in result.summaries:
        end, regret = summary.end, summary.end.regret
        rows.append(
            (
                strategies()[summary.entry.strategy],
                AXES[summary.entry.landscape.axis],
                f"{end.cost:.1f}",
                *(f"{v:.2f}" for v in (end.accuracy, regret.mean, regret.median, regret.q90)),
                *(_then(summary.at(cost)) for cost in costs),
                *_against_paper(result, summary),
            )
        )
    notes = [_about(landscape) for landscape in result.landscapes]
    if len(result.landscapes) > 1:
        notes.append(f"best of both: {result.best:.2f} %")
    notes.append(
        f"{replays} replays; cost in T_max (mean), accuracy: mean of the landscape at the point"
        " chosen (%), regret: below the best of its own landscape (mean, median, 90 % quantile)"
    )
    if costs:
        notes.append(
            "at … T_max: accuracy (regret) of the answer so far, at the mean cost of "
            + " and ".join(f"the {strategies()[name].removeprefix('the ')}" for name in plans)
        )
    if result.paper is not None:
        notes.append(
            f"near paper's: share of replays not more than {NEAR:g} % below the paper's plan;"
            " − paper's: mean difference to it, replay by replay, with its 95 % interval over the"
            " replays, for the landscapes as they are recorded"
        )
    return TextTable(result.name, tuple(columns), tuple(rows), tuple(notes))


def _about(landscape: Landscape) -> str:
    best = landscape.best
    said = "alpha" if landscape.axis == "alpha" else "weight decay"
    seeds = len(landscape.seeds)
    noise = f"standard deviation of one training {landscape.noise:.2f} %"
    return (
        f"best of {AXES[landscape.axis]}: {best.accuracy:.2f} % at lr {best.lr:g}, {said}"
        f" {best.level:g}; {len(landscape.lrs)} × {len(landscape.levels)} points,"
        + (f" {seeds} seeds, {noise}" if seeds > 1 else " 1 seed, so without noise")
    )


def _then(moment: Moment | None) -> str:
    return "–" if moment is None else f"{moment.accuracy:.2f} ({moment.regret.mean:.2f})"


def _against_paper(result: WorkloadResult, summary: Summary) -> tuple[str, ...]:
    share = result.near_paper(summary)
    if share is None:
        return ()
    if summary is result.paper:
        return "–", "–", "–"
    then = result.over_paper(summary, cost=result.plan_costs["paper"])
    return f"{100 * share:.0f} %", _interval(then), _interval(result.over_paper(summary))


def _interval(mean: Mean | None) -> str:
    return "–" if mean is None else mean.interval()


# -- the drawing -----------------------------------------------------------------------------------

Value = Callable[[Moment], float]


def _drawing(results: Sequence[WorkloadResult]) -> Drawing:
    """A row a workload: accuracy (where two landscapes meet), regret, regret at the end."""
    together = any(len(result.landscapes) > 1 for result in results)
    panels: list[Panel] = []
    for result in results:
        labels = max(breadth(_name(result, summary)) for summary in result.summaries)
        wanted = [
            ("accuracy of the answer", _draw_accuracy, 40.0, labels),
            ("regret on its own landscape", _draw_regret, 40.0, labels),
            ("regret at the end", _draw_ends, labels + 4, 46.0),
        ]
        for words, draw, left, right in wanted if together else wanted[1:]:
            title = f"{result.name}: {words}"
            drawn = partial(draw, result=result, title=title)
            panels.append(Panel(title, drawn, _WIDTH, _HEIGHT, left=left, right=right))
    return Drawing(
        "regret",
        "Regret against cost",
        "Means over the replays; a dot is the mean end of a plan, which costs what it costs.",
        tuple(panels),
        columns=3 if together else 2,
    )


def _draw_accuracy(ax: Axes, *, result: WorkloadResult, title: str) -> None:
    def value(moment: Moment) -> float:
        return moment.accuracy

    _draw_curves(ax, result, value)
    bests = {landscape.axis: landscape.best.accuracy for landscape in result.landscapes}
    room(ax, [*_settled(result, value), *bests.values()], above=0.12)
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
    _name_curves(ax, result, value)


def _draw_regret(ax: Axes, *, result: WorkloadResult, title: str) -> None:
    def value(moment: Moment) -> float:
        return moment.regret.mean

    _draw_curves(ax, result, value)
    ax.set_ylim(0, 1.08 * max(*_settled(result, value), 0.05))
    dress(ax, title=title, x="cost (T_max)", y="mean regret (%)")
    _name_curves(ax, result, value)


def _draw_curves(ax: Axes, result: WorkloadResult, value: Value) -> None:
    longest = max(summary.curve[-1].cost for summary in result.summaries)
    ax.set_xlim(0, longest)
    for summary in result.summaries:
        colour = _colour(summary)
        style = "--" if _is_second(result, summary) else "-"
        costs = [moment.cost for moment in summary.curve]
        values = [value(moment) for moment in summary.curve]
        plan = summary.entry.strategy in PLANS
        width = 1.8 if plan else 1.2
        ax.step(costs, values, where="post", color=colour, lw=width, ls=style, zorder=4 + plan)
        if plan:
            end = value(summary.end)
            # A thin line from its end to its name: what the others have to reach.
            ax.plot([costs[-1], longest], [end, end], color=colour, lw=0.6, alpha=0.6, zorder=2)
            ax.plot(summary.end.cost, end, marker="o", ms=6, mfc=colour, mec=PAPER, mew=1, zorder=7)


def _name_curves(ax: Axes, result: WorkloadResult, value: Value) -> None:
    labels = [
        EndLabel(value(summary.end), _name(result, summary), _colour(summary))
        for summary in result.summaries
    ]
    end_labels(ax, labels, height=_HEIGHT - 52)


def _draw_ends(ax: Axes, *, result: WorkloadResult, title: str) -> None:
    rows = list(reversed(result.summaries))
    for row, summary in enumerate(rows):
        colour, regret = _colour(summary), summary.end.regret
        ends = summary.regrets([trace.end.accuracy for trace in summary.traces])
        below = [row - 0.27] * len(ends)
        ax.plot([0, regret.q90], [row, row], color=colour, lw=5, alpha=0.25, solid_capstyle="butt")
        ax.plot(ends, below, ls="none", marker=".", ms=2, color=colour, alpha=0.3)
        ax.plot([regret.median] * 2, [row - 0.16, row + 0.16], color=colour, lw=1.4)
        ax.plot(regret.mean, row, marker="o", ms=6, mfc=colour, mec=PAPER, mew=1, zorder=5)
        cost = f"{summary.end.cost:.1f} T_max"
        write_beside(ax, row, cost, size=FONT_SIZE - 1, colour=MUTED)
    widest = max(max(summary.end.regret.q90, summary.end.regret.mean) for summary in rows)
    ax.set_xlim(0, 1.15 * max(widest, 0.05))
    dress(ax, title=title, x="regret (%): dot mean, line median, bar up to the 90 % quantile")
    name_rows(ax, [_name(result, summary) for summary in rows])


def _settled(result: WorkloadResult, value: Value) -> list[float]:
    found = [value(summary.end) for summary in result.summaries]
    for summary in result.summaries:
        found += [value(moment) for moment in summary.curve if moment.cost >= _SETTLED]
    return found


def _name(result: WorkloadResult, summary: Summary) -> str:
    """With its landscape where the same strategy runs on two."""
    name = strategies()[summary.entry.strategy]
    return f"{name}, alpha" if _is_second(result, summary) else name


def _colour(summary: Summary) -> str:
    return SERIES[list(strategies()).index(summary.entry.strategy) % len(SERIES)]


def _is_second(result: WorkloadResult, summary: Summary) -> bool:
    """Whether this is the second landscape of a strategy."""
    same = [s for s in result.summaries if s.entry.strategy == summary.entry.strategy]
    return len(same) > 1 and summary.entry.landscape.axis == "alpha"
