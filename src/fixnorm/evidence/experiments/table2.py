"""Table 2: models of several kinds by default and tuned weight decay, and by tuned FixNorm.

FixNorm is tuned by Algorithm 4 and, where it is a plan of the scale, without a search for lr.
"""

from __future__ import annotations

import statistics
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
from fixnorm.report.statistics import Mean, mean_of, paired
from fixnorm.report.style import SERIES
from fixnorm.report.tables import TextTable
from fixnorm.training.bounded import Name, Percent
from fixnorm.training.checked import Part

__all__ = ["BUDGET", "Table2"]

BUDGET = 11
"""Trainings for tuning weight decay: what Algorithm 4 takes at most."""
_DEFAULT, _TUNED = "default weight decay", "tuned weight decay"
_OURS, _AUTO = "FixNorm, Algorithm 4", "FixNorm, plan auto"
_COLOURS = {
    _DEFAULT: COLOURS["wn-fc"],
    _TUNED: COLOURS["weight-decay"],
    _OURS: COLOURS["fixnorm"],
    _AUTO: SERIES[2],
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
    fixnorm_auto: Winner | None = None
    """By plan auto."""
    default: Scored

    @classmethod
    def train(cls, trainings: Trainings, workload: Workload, scale: Scale) -> Self:
        search = partial(tuned_weight_decay, trainings, workload, scale, seed=0, budget=BUDGET)
        ours = partial(tuned_fixnorm, trainings, workload, scale, seed=0)
        auto = [partial(ours, plan="auto")] if "auto" in scale.plans else []
        (decayed, *fixed), scores = trainings.both(
            lambda: trainings.each([search, ours, *auto]),
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
            tuned_fixnorm=fixed[0],
            fixnorm_auto=fixed[1] if auto else None,
            default=Scored(
                lr=default.peak_lr, second=default.weight_decay, cost=0.0, scores=scores
            ),
        )

    @model_validator(mode="after")
    def _paired(self) -> Self:
        counts = [len(side.scores) for side in self.sides.values()]
        same_number(counts, "scores should be as many of each kind")
        both = (self.paper is None) == (self.paper_reference is None)
        need(both, "paper and paper_reference should both be there, or none")
        return self

    @property
    def sides(self) -> dict[str, Scored | Winner]:
        """What is compared."""
        auto = {} if self.fixnorm_auto is None else {_AUTO: self.fixnorm_auto}
        tuned = {_TUNED: self.tuned_weight_decay, _OURS: self.tuned_fixnorm}
        return {_DEFAULT: self.default, **tuned, **auto}

    def difference(self, side: str, rival: str) -> Mean:
        """Paired by seed."""
        return paired(self.sides[side].scores, self.sides[rival].scores)

    def rows(self) -> list[tuple[str, ...]]:
        """One for each side."""
        paper = {_DEFAULT: self.paper_reference, _OURS: self.paper}
        rows: list[tuple[str, ...]] = []
        for name, side in self.sides.items():
            score = paper.get(name)
            rows.append(
                (
                    self.setting,
                    name,
                    side.numbers(),
                    f"{side.cost:g}",
                    mean_of(side.scores).spread(),
                    "–" if name == _DEFAULT else self.difference(name, _DEFAULT).interval(),
                    self.difference(name, _TUNED).interval() if name in (_OURS, _AUTO) else "–",
                    "–" if score is None else f"{score:.2f}",
                )
            )
        return rows


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
                [Row(name, side.scores, _COLOURS[name]) for name, side in model.sides.items()],
                x="accuracy (%)",
                width=380,
            )
            for model in self.models
        ]
        table = TextTable(
            "Accuracy (%) with seeds that no search has seen",
            (
                "model",
                "method",
                "numbers",
                "cost (T_max)",
                "accuracy (%)",
                "− default",
                "− tuned weight decay",
                "paper",
            ),
            tuple(row for model in self.models for row in model.rows()),
            (
                "Mean ± standard deviation; differences paired by seed with their 95 % interval."
                " The paper compares with default weight decay only. Plan auto trains each alpha"
                " from its start here; its branches would cost less.",
            ),
            words=3,
        )
        drawing = Drawing("table2", "Table 2", SEEDS_AS_DOTS, tuple(panels))
        each = [claim for model in self.models for claim in _claims(model, model.setting)]
        over_all = _claims(self, f"all {len(self.models)}") if len(self.models) > 1 else []
        return Exhibit((drawing,), (table,), (*over_all, *each))

    @property
    def sides(self) -> list[str]:
        """Those that every model has."""
        return [side for side in _COLOURS if all(side in model.sides for model in self.models)]

    def difference(self, side: str, rival: str) -> Mean:
        """Paired by model."""
        both = ([statistics.fmean(m.sides[s].scores) for m in self.models] for s in (side, rival))
        return paired(*both)

    @property
    def without_search(self) -> Mean | None:
        """Plan auto less tuned weight decay, where every model has it."""
        return self.difference(_AUTO, _TUNED) if _AUTO in self.sides else None

    @property
    def searched(self) -> Mean:
        """Algorithm 4 less weight decay tuned as long."""
        return self.difference(_OURS, _TUNED)

    def repeats(self) -> dict[str, list[Group]]:
        return {
            model.setting: [side.scores for side in model.sides.values()] for model in self.models
        }


def _claims(found: Model | Table2, where: str) -> list[Claim]:
    """FixNorm beside weight decay as it stands, and tuned."""
    default, tuned = found.difference(_OURS, _DEFAULT), found.difference(_OURS, _TUNED)
    claims = [
        better(f"Tuned FixNorm is better than default weight decay ({where})", default),
        as_good(f"… and as good as weight decay tuned as long ({where})", tuned),
    ]
    if _AUTO in found.sides:
        auto = found.difference(_AUTO, _TUNED)
        text = f"… and by plan auto, without a search for lr, as good as that, too ({where})"
        claims.append(as_good(text, auto))
    return claims
