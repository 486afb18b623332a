"""Tables 3 and 4 (appendix): segmentation and detection, weight decay against FixNorm.

FixNorm's lr and alpha are those of the recipe, which a search has found. Weight decay is trained
with the recipe's numbers and, where there is a budget, with those of a search that begins with them
and may cost as much as FixNorm's did. All are trained with seeds that neither search has seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from fixnorm.evidence.experiment import (
    DrawnExperiment,
    Exhibit,
    NotNegative,
    as_good,
    grouped,
    need,
    same_number,
)
from fixnorm.evidence.noise import Group
from fixnorm.evidence.panels import COLOURS, NAMES, SEEDS_AS_DOTS, Row, dots
from fixnorm.evidence.scales import Scale, Workload
from fixnorm.evidence.searches import FRESH, bayesian
from fixnorm.evidence.trainings import Trainings, Value
from fixnorm.methods import MethodName, method_named
from fixnorm.report.drawing import Drawing
from fixnorm.report.statistics import mean_of, paired
from fixnorm.report.tables import TextTable
from fixnorm.training.bounded import Loose, Name, Percent, Positive, Real
from fixnorm.training.checked import Part

__all__ = ["Table3", "Table4"]

_OURS, _RIVAL, _TUNED = NAMES["fixnorm"], NAMES["weight-decay"], ", tuned"
_COLOURS = {
    _OURS: COLOURS["fixnorm"],
    _RIVAL: COLOURS["wn-fc"],
    _RIVAL + _TUNED: COLOURS["weight-decay"],
}
Numbers = Mapping[str, Value]
"""That a search has found: fields of a recipe."""


class Run(Part):
    """A training of a dense task."""

    setting: Name = ""
    recipe: Name
    method: Literal["fixnorm", "weight-decay"]
    searched: bool = False
    """Whether its lr and λ are those of a search of its own."""
    seed: int = 0
    lr: Positive
    alpha: Positive | None
    weight_decay: NotNegative
    score: Percent
    mcbr_val: Real
    largest_scale: Loose = None
    seconds: NotNegative = 0.0
    paper: Percent | None

    @model_validator(mode="after")
    def _has_its_number(self) -> Self:
        need(not method_named(self.method).caps or self.alpha is not None, "alpha is missing")
        return self

    @property
    def side(self) -> str:
        """Of a comparison, for people."""
        return NAMES[self.method] + (_TUNED if self.searched else "")

    def numbers(self) -> str:
        """What was tuned, for people."""
        caps = method_named(self.method).caps
        second = f"alpha {self.alpha:g}" if caps else f"λ {self.weight_decay:g}"
        return f"lr {self.lr:g}, {second}"


class Dense(DrawnExperiment):
    """Trainings by recipe and method."""

    name: ClassVar[str]
    task: ClassVar[str]

    metric: Name
    runs: Annotated[tuple[Run, ...], Field(min_length=1)]

    @classmethod
    def of_workloads(
        cls, trainings: Trainings, workloads: tuple[Workload, ...], scale: Scale, *, budget: int
    ) -> Self:
        """``budget``: trainings of the search for lr and weight decay; none without one."""
        parts = [partial(_runs, trainings, each, scale, budget=budget) for each in workloads]
        runs = tuple(run for own in trainings.each(parts) for run in own)
        return cls(metric=workloads[0].metric.label, runs=runs)

    @model_validator(mode="after")
    def _in_pairs(self) -> Self:
        for recipe, runs in grouped(self.runs, lambda run: run.recipe).items():
            counts = dict.fromkeys((_OURS, _RIVAL), 0)
            counts |= {side: len(own) for side, own in _by_side(runs).items()}
            same_number(
                counts.values(), f"runs of {recipe} should be as many of {', '.join(counts)}"
            )
        return self

    def show(self) -> Exhibit:
        rows, panels, claims, notes = [], [], [], []
        for recipe, runs in grouped(self.runs, lambda run: run.recipe).items():
            by_side = _by_side(runs)
            scores = {side: [run.score for run in found] for side, found in by_side.items()}
            for side, found in by_side.items():
                paper = found[0].paper
                rows.append(
                    (
                        recipe,
                        side,
                        found[0].numbers(),
                        mean_of(scores[side]).spread(),
                        mean_of([run.mcbr_val for run in found]).spread(3).replace("-", "−"),
                        str(len(found)),
                        "–" if paper is None else f"{paper:.1f}",
                    )
                )
            in_rows = [Row(side, values, _COLOURS[side]) for side, values in scores.items()]
            panels.append(dots(recipe, in_rows, x=self.metric))
            texts = {
                _RIVAL: "Tuned FixNorm is at least as good as the default",
                _RIVAL + _TUNED: "… and as good as weight decay tuned as long",
            }
            for side in (rival for rival in texts if rival in scores):
                difference = paired(scores[_OURS], scores[side])
                told = f"{difference.interval()} % (95 %)"
                notes.append(f"{recipe}: {_OURS} − {side}, paired by seed: {told}")
                claims.append(as_good(f"{texts[side]} ({recipe})", difference))
        table = TextTable(
            self.task,
            ("recipe", "method", "numbers", self.metric, "MCBR val", "seeds", "paper"),
            tuple(rows),
            tuple(notes),
            words=3,
        )
        drawing = Drawing(self.name, self.task, SEEDS_AS_DOTS, tuple(panels))
        return Exhibit((drawing,), (table,), tuple(claims))

    def repeats(self) -> dict[str, list[Group]]:
        runs = sorted(self.runs, key=lambda run: run.seed)
        return {
            recipe: [[run.score for run in found] for found in _by_side(of_recipe).values()]
            for recipe, of_recipe in grouped(runs, lambda run: run.recipe).items()
        }


def _by_side(runs: Iterable[Run]) -> dict[str, list[Run]]:
    return grouped(runs, lambda run: run.side)


def _runs(trainings: Trainings, workload: Workload, scale: Scale, *, budget: int) -> list[Run]:
    """Each side by fresh seeds."""

    def recipes() -> list[list[Run]]:
        methods: tuple[MethodName, ...] = ("weight-decay", "fixnorm")
        return trainings.each(
            [partial(_side, trainings, workload, method, scale) for method in methods]
        )

    def tuned() -> list[Run]:
        recipe = workload.recipe_for("weight-decay")
        first = recipe.peak_lr, recipe.weight_decay
        found = bayesian(trainings, workload, seed=0, budget=budget, first=first)
        return _side(trainings, workload, "weight-decay", scale, found.winner)

    if not budget:
        return [run for own in recipes() for run in own]
    ((default, ours), searched) = trainings.both(recipes, tuned)
    return [*default, *searched, *ours]


def _side(
    trainings: Trainings,
    workload: Workload,
    method: MethodName,
    scale: Scale,
    numbers: Numbers = MappingProxyType({}),
) -> list[Run]:
    """One side of a comparison; with numbers of its own it was searched for."""
    seeds = range(FRESH, FRESH + (workload.seeds or scale.seeds))
    asked = [workload.training(method, seed=seed, fraction=1.0, **numbers) for seed in seeds]
    fields = ("method", "seed", "lr", "alpha", "weight_decay")
    measured = ("score", "mcbr_val", "largest_scale", "seconds")
    runs = []
    for training, found in zip(asked, trainings.sound(asked), strict=True):
        recipe = training.recipe
        ours, reference = recipe.paper_score, recipe.paper_reference_score
        runs.append(
            Run.model_validate(
                {"setting": workload.name, "recipe": workload.recipe, "searched": bool(numbers)}
                | {name: getattr(recipe, name) for name in fields}
                | {name: getattr(found, name) for name in measured}
                | {"paper": ours if method_named(method).fixes else reference}
            )
        )
    return runs


class Table3(Dense):
    title: ClassVar = "Segmentation (appendix)"
    name: ClassVar = "table3"
    task: ClassVar = "Segmentation"

    @classmethod
    def train(cls, trainings: Trainings, scale: Scale) -> Self:
        return cls.of_workloads(trainings, scale.table3, scale, budget=scale.table3_budget)


class Table4(Dense):
    title: ClassVar = "Detection (appendix)"
    name: ClassVar = "table4"
    task: ClassVar = "Detection"

    @classmethod
    def train(cls, trainings: Trainings, scale: Scale) -> Self:
        return cls.of_workloads(trainings, scale.table4, scale, budget=scale.table4_budget)
