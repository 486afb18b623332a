"""Table 1 and Figure 5: FixNorm by each plan against BO + weight decay; data, model, epochs equal.

Each search is repeated, with other seeds for everything. Its winner is trained again with seeds
that no search has seen, the same for all of them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, ClassVar, Literal, Self

from matplotlib.axes import Axes
from pydantic import Field, model_validator

from fixnorm.evidence.experiment import (
    Claim,
    DrawnExperiment,
    Exhibit,
    NotNegative,
    Scores,
    at_least,
    need,
    same_number,
)
from fixnorm.evidence.noise import Group
from fixnorm.evidence.panels import COLOURS, Line, Row, dots, lines
from fixnorm.evidence.scales import Scale, Workload
from fixnorm.evidence.searches import (
    Step,
    Winner,
    fresh_scores,
    tuned_fixnorm,
    tuned_weight_decay,
)
from fixnorm.evidence.trainings import Trainings
from fixnorm.report.drawing import Drawing, Panel
from fixnorm.report.statistics import Mean, mean_of, paired
from fixnorm.report.style import (
    MUTED,
    PAPER,
    SERIES,
    EndLabel,
    breadth,
    dress,
    end_labels,
    room,
)
from fixnorm.report.tables import TextTable
from fixnorm.training.bounded import Name, Percent, Positive, Slug
from fixnorm.training.checked import Part

__all__ = ["RepeatedSearch", "Table1", "Way", "so_far"]

Way = Literal["paper", "unimodal", "auto", "weight-decay"]
_NAMES: dict[Way, str] = {
    "paper": "FixNorm, Algorithm 4",
    "unimodal": "FixNorm, unimodal plan",
    "auto": "FixNorm, plan auto",
    "weight-decay": "BO + weight decay",
}
_OURS: tuple[Way, ...] = ("paper", "unimodal", "auto")
_RIVAL: Way = "weight-decay"
_COLOURS: dict[Way, str] = {
    "paper": COLOURS["fixnorm"],
    "unimodal": SERIES[2],
    "auto": SERIES[3],
    "weight-decay": COLOURS["weight-decay"],
}
_HEIGHT = 225.0
_SHADES = ("#0072b2", "#3f9fd8", "#7d6aa8")


class _Method(Part):
    method: Literal["fixnorm", "weight-decay"]
    plan: Literal["paper", "unimodal", "auto"] = "paper"
    """Of FixNorm's."""


class RepeatedSearch(Winner, _Method):
    """One of the searches of a workload; its method comes first in the file."""

    @property
    def way(self) -> Way:
        return self.plan if self.method == "fixnorm" else _RIVAL

    @model_validator(mode="after")
    def _found_something(self) -> Self:
        need(any(step.score is not None for step in self.tried), "tried has no score")
        return self


Searches = Mapping[Way, Sequence[RepeatedSearch]]


class Reference(Part):
    """The recipe as it stands."""

    lr: Positive
    weight_decay: NotNegative
    scores: Scores


class Comparison(Part):
    """All searches of one workload."""

    setting: Name
    recipe: Slug
    model: Slug | None = None
    """Where it is not the recipe's own."""
    metric: Name
    paper: Percent | None
    searches: tuple[RepeatedSearch, ...]
    reference: Reference

    @model_validator(mode="after")
    def _in_pairs(self) -> Self:
        by_way = self.by_way()
        counts = [len(searches) for searches in by_way.values()]
        same_number(counts, "searches should be as many of fixnorm as of weight-decay")
        need(_RIVAL in by_way and len(by_way) > 1, "searches should be of fixnorm and weight-decay")
        return self

    def by_way(self) -> dict[Way, list[RepeatedSearch]]:
        every = {way: [s for s in self.searches if s.way == way] for way in _NAMES}
        return {way: searches for way, searches in every.items() if searches}

    @classmethod
    def train(cls, trainings: Trainings, workload: Workload, budget: int, scale: Scale) -> Self:
        def decayed(seed: int) -> RepeatedSearch:
            won = tuned_weight_decay(trainings, workload, scale, seed=seed, budget=budget)
            return RepeatedSearch.model_validate({"method": "weight-decay", **dict(won)})

        def fixed(seed: int, plan: str) -> RepeatedSearch:
            won = tuned_fixnorm(trainings, workload, scale, seed=seed, plan=plan)
            return RepeatedSearch.model_validate({"method": "fixnorm", "plan": plan, **dict(won)})

        seeds = range(scale.searches)
        parts = [partial(decayed, seed) for seed in seeds]
        parts += [partial(fixed, seed, plan) for plan in scale.plans for seed in seeds]
        searches, reference = trainings.both(
            lambda: trainings.each(parts),
            lambda: fresh_scores(trainings, workload, "weight-decay", scale),
        )
        recipe = workload.recipe_for("weight-decay")
        return cls(
            setting=workload.name,
            recipe=workload.recipe,
            model=workload.model,
            metric=workload.metric.label,
            paper=workload.recipe_for("fixnorm").paper_score,
            searches=tuple(searches),
            reference=Reference(
                lr=recipe.peak_lr, weight_decay=recipe.weight_decay, scores=reference
            ),
        )

    def show(self) -> Exhibit:
        by_way, reference = self.by_way(), self.reference
        rows = [
            (
                _NAMES[way],
                search.numbers(),
                f"{search.cost:g}",
                f"{search.score:.2f}",
                mean_of(search.scores).spread(),
            )
            for way, found in by_way.items()
            for search in found
        ]
        numbers = f"lr {reference.lr:g}, λ {reference.weight_decay:g}"
        rows.append(("reference", numbers, "0", "–", mean_of(reference.scores).spread()))
        paper = "" if self.paper is None else f" The paper has {self.paper:.2f} %."
        table = TextTable(
            f"{self.setting}: each search, and its winner trained anew",
            ("search", "winner", "cost (T_max)", "as found", "trained anew"),
            tuple(rows),
            (
                "As found: the best score of the search, the best of many and so too good. Trained"
                f" anew: {len(reference.scores)} seeds that no search has seen, the same for all"
                f" (mean ± standard deviation).{paper}",
                *(
                    f"{_NAMES[way]} − BO + weight decay, winners trained anew, paired by search:"
                    f" {self.difference(way).interval()} % (95 %)"
                    for way in self.ours
                ),
            ),
        )
        claims = tuple(_claim(way, self, self.setting) for way in self.ours)
        drawings = (self._progress(), *([self._rounds()] if "paper" in by_way else []))
        return Exhibit(drawings, (table,), claims)

    @property
    def ours(self) -> list[Way]:
        """The plans that there are."""
        by_way = self.by_way()
        return [way for way in _OURS if way in by_way]

    def means(self, way: Way) -> list[float]:
        """Of each winner over fresh seeds."""
        return [statistics.fmean(search.scores) for search in self.by_way()[way]]

    def difference(self, way: Way) -> Mean:
        """To BO + weight decay, paired by search."""
        return paired(self.means(way), self.means(_RIVAL))

    def cost(self, way: Way) -> float:
        """Of a search, in T_max."""
        return statistics.fmean(search.cost for search in self.by_way()[way])

    def groups(self) -> list[Group]:
        """All have the same seeds."""
        return [*(search.scores for search in self.searches), self.reference.scores]

    def _progress(self) -> Drawing:
        by_way = self.by_way()
        title = f"{self.setting}: best so far"
        rows = [
            Row(f"{_NAMES[way]}, search {k + 1}", search.scores, _COLOURS[way])
            for way, found in by_way.items()
            for k, search in enumerate(found)
        ]
        rows.append(Row("reference", self.reference.scores, MUTED))
        anew = dots(
            "The winners, trained anew with other seeds",
            rows,
            x=self.metric,
            width=380,
            least_height=_HEIGHT,
        )
        draw = partial(
            _draw_progress, by_way=by_way, title=title, y=self.metric, height=anew.height
        )
        panel = Panel(
            title,
            draw,
            width=anew.width,
            height=anew.height,
            left=42,
            right=max(breadth(_NAMES[way]) for way in by_way),
        )
        return Drawing(
            self._file,
            "Figure 5, left",
            "Left: the best score that each search has seen, against what it has spent."
            " Right: its winner with seeds that it has not seen.",
            (panel, anew),
        )

    @property
    def _file(self) -> str:
        return "-".join(("fig5", self.recipe, *([self.model] if self.model else [])))

    def _rounds(self) -> Drawing:
        """The rounds of Algorithm 4: a line for each repetition of the search."""
        searches = self.by_way()["paper"]
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
                places, scores = [getattr(s, axis) for s in steps], [s.score for s in steps]
                shade = _SHADES[k % len(_SHADES)]
                curves.append(Line(f"search {k + 1}", shade, places, [scores], dots=True))
            x = "alpha" if axis == "second" else "learning rate"
            panels.append(lines(f"FixNorm, {name}", curves, x=x, y=self.metric, log=True))
        return Drawing(
            f"{self._file}-details",
            "Figure 5, middle and right",
            "The rounds of Algorithm 4, of each repetition of the search.",
            tuple(panels),
            columns=3,
        )


class Table1(DrawnExperiment):
    """All searches of all workloads, their winners, and the reference as it stands."""

    title: ClassVar = "Table 1, Figure 5: tuned FixNorm against BO + weight decay"
    of_scores: ClassVar = True

    settings: Annotated[tuple[Comparison, ...], Field(min_length=1)]

    @classmethod
    def train(cls, trainings: Trainings, scale: Scale) -> Self:
        parts = [
            partial(Comparison.train, trainings, workload, budget, scale)
            for workload, budget in zip(scale.table1, scale.budgets, strict=True)
        ]
        return cls(settings=tuple(trainings.each(parts)))

    def show(self) -> Exhibit:
        parts = [comparison.show() for comparison in self.settings]
        claims = [claim for part in parts for claim in part.claims]
        drawings = [drawing for part in parts for drawing in part.drawings]
        if len(parts) > 1:
            claims = [_claim(way, self, f"all {len(parts)}") for way in self.ours] + claims
            drawings.insert(0, self._differences())
        return Exhibit(
            tuple(drawings),
            tuple(table for part in parts for table in part.tables),
            tuple(claims),
        )

    @property
    def ours(self) -> list[Way]:
        """The plans that every setting has."""
        return [way for way in _OURS if all(way in each.ours for each in self.settings)]

    def mean(self, way: Way) -> float:
        """Over all settings."""
        return statistics.fmean(statistics.fmean(each.means(way)) for each in self.settings)

    def difference(self, way: Way) -> Mean:
        """To BO + weight decay: paired by setting, if there are several."""
        if len(self.settings) == 1:
            return self.settings[0].difference(way)
        sides = (
            [statistics.fmean(each.means(side)) for each in self.settings] for side in (way, _RIVAL)
        )
        return paired(*sides)

    def cost(self, way: Way) -> float:
        """Of a search, in T_max."""
        return statistics.fmean(each.cost(way) for each in self.settings)

    def _differences(self) -> Drawing:
        """Every plan beside its rival, over all settings."""
        rows = [
            Row(
                f"{_NAMES[way].removeprefix('FixNorm, ')}, {self.cost(way):.1f} T_max",
                [each.difference(way).mean for each in self.settings],
                _COLOURS[way],
            )
            for way in self.ours
        ]
        title = f"FixNorm − {_NAMES[_RIVAL]}, {self.cost(_RIVAL):.0f} T_max"
        return Drawing(
            "table1",
            "Table 1",
            "Dots are settings, each the mean of all its winners trained anew; the bar is the 95 %"
            " interval of their mean.",
            (dots(title, rows, x="difference of accuracies (%)", zero=True),),
            columns=1,
        )

    def repeats(self) -> dict[str, list[Group]]:
        return {comparison.setting: comparison.groups() for comparison in self.settings}


def _claim(way: Way, found: Comparison | Table1, where: str) -> Claim:
    """Of a plan beside its rival."""
    difference, costs = found.difference(way), (found.cost(way), found.cost(_RIVAL))
    subject = {"paper": "Tuned FixNorm", "unimodal": "… by the unimodal plan"}
    text = subject.get(way, "… by plan auto, without a search for lr,")
    return Claim(
        f"{text} is at least as good as BO + weight decay, at less cost ({where})",
        at_least(difference),
        f"{difference.interval()} %, at {costs[0]:.1f} against {costs[1]:.0f} T_max",
    )


def so_far(tried: Sequence[Step]) -> list[tuple[float, float]]:
    """Cost and best score after each training, from the first that has a score."""
    curve: list[tuple[float, float]] = []
    spent, best = 0.0, -math.inf
    for step in tried:
        spent += 0.0 if step.free else step.fraction
        best = max(best, -math.inf if step.score is None else step.score)
        if best > -math.inf:
            curve.append((spent, best))
    return curve


def _draw_progress(ax: Axes, *, by_way: Searches, title: str, y: str, height: float) -> None:
    ends, values = [], []
    for way, found in by_way.items():
        colour = _COLOURS[way]
        curves = [so_far(search.tried) for search in found]
        for curve in curves:
            costs, scores = [cost for cost, _ in curve], [score for _, score in curve]
            ax.step(costs, scores, where="post", color=colour, lw=0.8, alpha=0.5)
            ax.plot(*curve[-1], marker="o", ms=4, mfc=colour, mec=PAPER, mew=0.8)
            values += [score for cost, score in curve if cost >= 3]
        end = statistics.fmean(curve[-1][1] for curve in curves)
        ends.append(EndLabel(end, _NAMES[way], colour))
    ax.set_xlim(0, None)
    room(ax, values, below=0.06, above=0.1)
    dress(ax, title=title, x="cost (T_max)", y=y)
    end_labels(ax, ends, height=height - 52)
