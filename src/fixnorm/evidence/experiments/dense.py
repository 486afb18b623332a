"""Tables 3 and 4 (appendix): segmentation and detection, weight decay against FixNorm."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from fixnorm.evidence.experiment import (
    DrawnExperiment,
    Exhibit,
    NotNegative,
    as_good,
    grouped,
    need,
)
from fixnorm.evidence.noise import Group
from fixnorm.evidence.panels import COLOURS, NAMES, SEEDS_AS_DOTS, Row, dots
from fixnorm.evidence.scales import Scale, Workload
from fixnorm.evidence.trainings import Trainings
from fixnorm.methods import MethodName, method_named
from fixnorm.report.drawing import Drawing
from fixnorm.report.statistics import mean_of, paired
from fixnorm.report.tables import TextTable
from fixnorm.training.bounded import Loose, Name, Percent, Positive, Real
from fixnorm.training.checked import Part

__all__ = ["Table3", "Table4"]

METHODS: tuple[MethodName, ...] = ("weight-decay", "fixnorm")


class Run(Part):
    """A training of a dense task."""

    setting: Name = ""
    recipe: Name
    method: Literal["fixnorm", "weight-decay"]
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
        cls, trainings: Trainings, workloads: tuple[Workload, ...], seeds: int
    ) -> Self:
        """The recipes with their numbers: FixNorm's are those of a search by ``fixnorm tune``."""
        asked = [
            (workload, workload.training(method, seed=seed))
            for workload in workloads
            for method in METHODS
            for seed in range(seeds)
        ]
        runs = []
        found = trainings.sound([training for _, training in asked])
        for (workload, training), one in zip(asked, found, strict=True):
            recipe = training.recipe
            ours, reference = recipe.paper_score, recipe.paper_reference_score
            numbers = ("method", "seed", "lr", "alpha", "weight_decay")
            measured = ("score", "mcbr_val", "largest_scale", "seconds")
            runs.append(
                Run.model_validate(
                    {"setting": workload.name, "recipe": workload.recipe}
                    | {name: getattr(recipe, name) for name in numbers}
                    | {name: getattr(one, name) for name in measured}
                    | {"paper": ours if method_named(training.method).fixes else reference}
                )
            )
        return cls(metric=workloads[0].metric.label, runs=tuple(runs))

    @model_validator(mode="after")
    def _in_pairs(self) -> Self:
        for recipe, runs in grouped(self.runs, lambda run: run.recipe).items():
            mine = [run.method for run in runs]
            same = mine.count("fixnorm") == mine.count("weight-decay")
            need(same, f"runs of {recipe} should be as many of fixnorm as of weight-decay")
        return self

    def show(self) -> Exhibit:
        rows, panels, claims, notes = [], [], [], []
        for recipe, runs in grouped(self.runs, lambda run: run.recipe).items():
            by_method = grouped(runs, lambda run: run.method)
            scores = {m: [run.score for run in found] for m, found in by_method.items()}
            for method, found in by_method.items():
                paper = found[0].paper
                rows.append(
                    (
                        recipe,
                        NAMES[method],
                        found[0].numbers(),
                        mean_of(scores[method]).spread(),
                        mean_of([run.mcbr_val for run in found]).spread(3).replace("-", "−"),
                        str(len(found)),
                        "–" if paper is None else f"{paper:.1f}",
                    )
                )
            in_rows = [Row(NAMES[m], values, COLOURS[m]) for m, values in scores.items()]
            panels.append(dots(recipe, in_rows, x=self.metric))
            difference = paired(scores["fixnorm"], scores["weight-decay"])
            told = f"{difference.interval()} % (95 %)"
            notes.append(f"FixNorm − weight decay, paired by seed: {told}")
            claim = f"Tuned FixNorm is at least as good as the default ({recipe})"
            claims.append(as_good(claim, difference))
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
            recipe: [
                [run.score for run in found]
                for found in grouped(of_recipe, lambda run: run.method).values()
            ]
            for recipe, of_recipe in grouped(runs, lambda run: run.recipe).items()
        }


class Table3(Dense):
    title: ClassVar = "Segmentation (appendix)"
    name: ClassVar = "table3"
    task: ClassVar = "Segmentation"

    @classmethod
    def train(cls, trainings: Trainings, scale: Scale) -> Self:
        return cls.of_workloads(trainings, scale.table3, scale.seeds)


class Table4(Dense):
    title: ClassVar = "Detection (appendix)"
    name: ClassVar = "table4"
    task: ClassVar = "Detection"

    @classmethod
    def train(cls, trainings: Trainings, scale: Scale) -> Self:
        return cls.of_workloads(trainings, scale.table4, scale.seeds)
