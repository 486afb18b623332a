"""Table 1 and Figure 5."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from matplotlib.axes import Axes

from fixnorm.evidence.shown.colours import COLOURS
from fixnorm.evidence.shown.dots import Row, dots
from fixnorm.evidence.shown.lines import Line, lines
from fixnorm.evidence.shown.shown import Claim, Shown, at_least
from fixnorm.evidence.shown.stored import Searched, Setting, Step, Table1, Winner
from fixnorm.report.drawing import Drawing, Panel
from fixnorm.report.statistics import Mean, mean_of, paired
from fixnorm.report.style import PAPER, EndLabel, breadth, dress, end_labels, room
from fixnorm.report.tables import TextTable

__all__ = ["numbers", "show"]

_NAMES = {"fixnorm": "tuned FixNorm", "weight-decay": "BO + weight decay"}
_HEIGHT = 225.0


def show(content: Mapping[str, Any]) -> Shown:
    """All settings, one after the other."""
    outcome = Table1.of(content)
    parts = [_setting(setting) for setting in outcome.settings]
    return Shown(
        tuple(drawing for part in parts for drawing in part.drawings),
        tuple(table for part in parts for table in part.tables),
        tuple(claim for part in parts for claim in part.claims),
    )


def _setting(setting: Setting) -> Shown:
    by_method = {method: [s for s in setting.searches if s.method == method] for method in _NAMES}
    reference = setting.reference
    difference = fresh_difference(by_method["fixnorm"], by_method["weight-decay"])
    costs = {m: mean_of([s.cost for s in found]) for m, found in by_method.items()}
    rows = [
        (
            _NAMES[method],
            numbers(search),
            f"{search.cost:g}",
            f"{search.score:.2f}",
            mean_of(search.scores).spread(),
        )
        for method, found in by_method.items()
        for search in found
    ]
    rows.append(
        (
            "reference",
            f"lr {reference.lr:g}, λ {reference.weight_decay:g}",
            "0",
            "–",
            mean_of(reference.scores).spread(),
        )
    )
    paper = "" if setting.paper is None else f" The paper has {setting.paper:.2f} %."
    table = TextTable(
        f"{setting.setting}: each search, and its winner trained anew",
        ("search", "winner", "cost (T_max)", "as found", "trained anew"),
        tuple(rows),
        (
            "As found: the best score of the search, the best of many and so too good. Trained"
            f" anew: {len(reference.scores)} seeds that no search has seen, the same for all"
            f" (mean ± standard deviation).{paper}",
            "FixNorm − BO + weight decay, winners trained anew, paired by search:"
            f" {difference.interval()} % (95 %)",
        ),
    )
    claim = Claim(
        f"Tuned FixNorm is at least as good as BO + weight decay, at less cost ({setting.setting})",
        at_least(difference),
        f"{difference.interval()} %, at {costs['fixnorm'].mean:.1f} against"
        f" {costs['weight-decay'].mean:.0f} T_max",
    )
    return Shown((_progress(setting, by_method), _details(setting, by_method)), (table,), (claim,))


def fresh_difference(ours: Sequence[Searched], theirs: Sequence[Searched]) -> Mean:
    """Of the means over fresh seeds, paired by search."""
    return paired(
        [statistics.fmean(search.scores) for search in ours],
        [statistics.fmean(search.scores) for search in theirs],
    )


def numbers(search: Winner) -> str:
    """The winner's."""
    if search.kind == "alpha":
        return f"lr {search.lr:g}, alpha {search.second:g}"
    return f"lr {search.lr:.2g}, λ {search.second:.1e}"


def _progress(setting: Setting, by_method: Mapping[str, Sequence[Searched]]) -> Drawing:
    title = f"{setting.setting}: best so far"
    panel = Panel(
        title,
        partial(_draw_progress, by_method=by_method, title=title, y=setting.metric),
        width=380,
        height=_HEIGHT,
        left=42,
        right=max(breadth(name) for name in _NAMES.values()),
    )
    rows = [
        Row(f"{_NAMES[m]}, search {k + 1}", search.scores, COLOURS[m])
        for m, found in by_method.items()
        for k, search in enumerate(found)
    ]
    rows.append(Row("reference", setting.reference.scores, COLOURS["wn-fc"]))
    anew = dots("The winners, trained anew with other seeds", rows, x=setting.metric, width=380)
    return Drawing(
        f"fig5-{setting.recipe}",
        "Figure 5, left",
        "Left: the best score that each search has seen, against what it has spent."
        " Right: its winner with seeds that it has not seen.",
        (panel, _as_high(anew)),
    )


def _as_high(panel: Panel) -> Panel:
    height = max(panel.height, _HEIGHT)
    return Panel(panel.title, panel.draw, panel.width, height, panel.left, panel.right)


def _draw_progress(
    ax: Axes, *, by_method: Mapping[str, Sequence[Searched]], title: str, y: str
) -> None:
    ends, values = [], []
    for method, found in by_method.items():
        curves = [so_far(search.tried) for search in found]
        for curve in curves:
            ax.step(
                [c for c, _ in curve],
                [v for _, v in curve],
                where="post",
                color=COLOURS[method],
                lw=0.8,
                alpha=0.5,
            )
            ax.plot(*curve[-1], marker="o", ms=4, mfc=COLOURS[method], mec=PAPER, mew=0.8)
            values += [v for c, v in curve if c >= 3]
        ends.append(
            EndLabel(
                statistics.fmean(curve[-1][1] for curve in curves), _NAMES[method], COLOURS[method]
            )
        )
    ax.set_xlim(0, None)
    room(ax, values, below=0.06, above=0.1)
    dress(ax, title=title, x="cost (T_max)", y=y)
    end_labels(ax, ends, height=_HEIGHT - 52)


def so_far(tried: Sequence[Step]) -> list[tuple[float, float]]:
    """Cost and best score after each training."""
    curve: list[tuple[float, float]] = []
    spent, best = 0.0, float("-inf")
    for step in tried:
        spent += 0.0 if step.free else step.fraction
        if step.score is not None and step.score > best:
            best = step.score
        if best > float("-inf"):
            curve.append((spent, best))
    return curve


def _details(setting: Setting, by_method: Mapping[str, Sequence[Searched]]) -> Drawing:
    """The rounds of Algorithm 4: a line for each repetition of the search."""
    searches = by_method["fixnorm"]
    rounds = list(dict.fromkeys(step.round for s in searches for step in s.tried))
    panels = []
    for place, name in enumerate(rounds):
        before = rounds[max(place - 1, 0) : place]
        axis = "second" if name.startswith("alpha") else "lr"
        curves = []
        for k, search in enumerate(searches):
            steps = [s for s in search.tried if s.round == name]
            if axis == "second" and steps:  # the first alpha was trained in the round before
                steps += [s for s in search.tried if s.round in before and s.lr == steps[0].lr]
            steps.sort(key=lambda s: getattr(s, axis))
            shade = ("#0072b2", "#3f9fd8", "#7d6aa8")[k % 3]
            curves.append(
                Line(
                    f"search {k + 1}",
                    shade,
                    [getattr(s, axis) for s in steps],
                    [[s.score for s in steps]],
                    dots=True,
                )
            )
        panels.append(
            lines(
                f"FixNorm, {name}",
                curves,
                x="alpha" if axis == "second" else "learning rate",
                y=setting.metric,
                log=True,
            )
        )
    return Drawing(
        f"fig5-{setting.recipe}-details",
        "Figure 5, middle and right",
        "The rounds of Algorithm 4, of each repetition of the search.",
        tuple(panels),
        columns=3,
    )
