"""Table 2: models of several kinds by default weight decay, tuned weight decay, tuned FixNorm."""

from __future__ import annotations

from functools import partial
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from fixnorm.evidence.experiment import (
    Claim,
    DrawnExperiment,
    Exhibit,
    as_good,
    better,
    need,
    same_number,
)
from fixnorm.evidence.noise import Group
from fixnorm.evidence.panels import COLOURS, SEEDS_AS_DOTS, Row, dots
from fixnorm.evidence.scales import Scale, Workload
from fixnorm.evidence.searches import (
    Scored,
    Winner,
    fresh_scores,
    tuned_fixnorm,
    tuned_weight_decay,
)
from fixnorm.evidence.trainings import Trainings
from fixnorm.report.drawing import Drawing
from fixnorm.report.statistics import mean_of, paired
from fixnorm.report.tables import TextTable
from fixnorm.training.bounded import Name, Percent
from fixnorm.training.checked import Part

__all__ = ["BUDGET", "Table2"]

BUDGET = 11
"""Trainings for tuning weight decay: what Algorithm 4 takes at most."""
_KINDS = {
    "default weight decay": COLOURS["wn-fc"],
    "tuned weight decay": COLOURS["weight-decay"],
    "tuned FixNorm": COLOURS["fixnorm"],
}


class Model(Part):
    """A row of the table."""

    setting: Name
    recipe: Name = ""
    model: Name = ""
    paper: Percent | None
    paper_reference: Percent | None
    tuned_weight_decay: Winner
    tuned_fixnorm: Winner
    default: Scored

    @classmethod
    def train(cls, trainings: Trainings, workload: Workload, scale: Scale) -> Self:
        search = partial(tuned_weight_decay, trainings, workload, scale, seed=0, budget=BUDGET)
        ours = partial(tuned_fixnorm, trainings, workload, scale, seed=0)
        (decayed, fixed), scores = trainings.both(
            lambda: trainings.each([search, ours]),
            lambda: fresh_scores(trainings, workload, "weight-decay", scale),
        )
        default, recipe = workload.recipe_for("weight-decay"), workload.recipe_for("fixnorm")
        return cls(
            setting=workload.name,
            recipe=workload.recipe,
            model=recipe.model,
            paper=recipe.paper_score,
            paper_reference=recipe.paper_reference_score,
            tuned_weight_decay=decayed,
            tuned_fixnorm=fixed,
            default=Scored(
                lr=default.peak_lr, second=default.weight_decay, cost=0.0, scores=scores
            ),
        )

    @model_validator(mode="after")
    def _paired(self) -> Self:
        same_number([len(s) for s in self.scores()], "scores should be as many of each kind")
        both = (self.paper is None) == (self.paper_reference is None)
        need(both, "paper and paper_reference should both be there, or none")
        return self

    def scores(self) -> tuple[tuple[float, ...], ...]:
        """Of each of the three kinds."""
        return self.default.scores, self.tuned_weight_decay.scores, self.tuned_fixnorm.scores

    def row(self) -> tuple[str, ...]:
        default, tuned, ours = self.scores()
        costs = f"{self.tuned_fixnorm.cost:g} / {self.tuned_weight_decay.cost:g}"
        paper = "–" if self.paper is None else f"{self.paper:.2f} ({self.paper_reference:.2f})"
        return (
            self.setting,
            *(mean_of(scores).spread() for scores in self.scores()),
            paired(ours, default).interval(),
            paired(ours, tuned).interval(),
            self.tuned_fixnorm.numbers(),
            costs,
            paper,
        )

    def claims(self) -> tuple[Claim, Claim]:
        default, tuned, ours = self.scores()
        name = self.setting
        return (
            better(
                f"Tuned FixNorm is better than default weight decay ({name})",
                paired(ours, default),
            ),
            as_good(f"… and as good as weight decay tuned as long ({name})", paired(ours, tuned)),
        )


class Table2(DrawnExperiment):
    """Every model, all at the same budget; the scores are of fresh seeds."""

    title: ClassVar = "Table 2: several models, each tuned"
    of_scores: ClassVar = True

    models: Annotated[tuple[Model, ...], Field(min_length=1)]

    @classmethod
    def train(cls, trainings: Trainings, scale: Scale) -> Self:
        parts = [partial(Model.train, trainings, workload, scale) for workload in scale.table2]
        return cls(models=tuple(trainings.each(parts)))

    def show(self) -> Exhibit:
        panels = [
            dots(
                model.setting,
                [Row(*row) for row in zip(_KINDS, model.scores(), _KINDS.values(), strict=True)],
                x="accuracy (%)",
                width=380,
            )
            for model in self.models
        ]
        table = TextTable(
            "Accuracy (%) with seeds that no search has seen",
            (
                "model",
                *_KINDS,
                "FixNorm − default",
                "FixNorm − tuned",
                "FixNorm's winner",
                "cost (T_max)",
                "paper (its reference)",
            ),
            tuple(model.row() for model in self.models),
            (
                "Mean ± standard deviation; differences paired by seed with their 95 % interval."
                " The paper compares with default weight decay only.",
            ),
            words=1,
        )
        drawing = Drawing("table2", "Table 2", SEEDS_AS_DOTS, tuple(panels))
        claims = tuple(claim for model in self.models for claim in model.claims())
        return Exhibit((drawing,), (table,), claims)

    def repeats(self) -> dict[str, list[Group]]:
        return {model.setting: list(model.scores()) for model in self.models}
