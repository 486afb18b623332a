"""FixNorm among its peers, each tuned with the same budget."""

from __future__ import annotations

from functools import partial
from typing import Annotated, ClassVar, Self

from pydantic import AfterValidator, model_validator

from fixnorm.evidence.experiment import (
    DrawnExperiment,
    Exhibit,
    as_good,
    need,
    same_number,
)
from fixnorm.evidence.experiments.table2 import BUDGET
from fixnorm.evidence.noise import Group
from fixnorm.evidence.panels import SEEDS_AS_DOTS, Row, dots
from fixnorm.evidence.scales import Ranges, Scale
from fixnorm.evidence.searches import Winner, tuned_fixnorm, tuned_weight_decay
from fixnorm.evidence.step_cost import StepCosts, step_costs
from fixnorm.evidence.trainings import Trainings
from fixnorm.methods import Scope
from fixnorm.report.drawing import Drawing
from fixnorm.report.statistics import mean_of, paired
from fixnorm.report.style import SERIES
from fixnorm.report.tables import TextTable
from fixnorm.training.bounded import Count, Name
from fixnorm.training.checked import Part

__all__ = ["Peers"]

OURS = "FixNorm"


class _Peer(Part):
    peer: Name


class Peer(Winner, _Peer):
    """An optimizer with its best numbers; its name comes first in the file."""


def _five(rows: tuple[Peer, ...]) -> tuple[Peer, ...]:
    need(len(rows) == 5, f"should have five peers but has {len(rows)}")
    return rows


class Peers(DrawnExperiment):
    """Scores of fresh seeds with the best numbers of each optimizer, and the cost of a step."""

    title: ClassVar = "FixNorm among its peers, at the same tuning budget"
    of_scores: ClassVar = True

    setting: Name
    recipe: Name = ""
    metric: Name
    budget: Count
    step: StepCosts
    rows: Annotated[tuple[Peer, ...], AfterValidator(_five)]

    @classmethod
    def train(cls, trainings: Trainings, scale: Scale) -> Self:
        """Bayesian optimisation of lr and λ for optimizers, Algorithm 4 where norms are fixed."""
        workload = scale.peers

        def decayed(peer: str, optimizer: str | None, ranges: Ranges) -> Peer:
            search = partial(tuned_weight_decay, seed=0, budget=BUDGET, optimizer=optimizer)
            won = search(trainings, workload, scale, ranges=ranges)
            return Peer.model_validate({"peer": peer, **dict(won)})

        def fixed(peer: str, scope: Scope) -> Peer:
            won = tuned_fixnorm(trainings, workload, scale, seed=0, scope=scope)
            return Peer.model_validate({"peer": peer, **dict(won)})

        rows = trainings.each(
            [
                partial(decayed, "SGD + weight decay", None, workload.decay),
                partial(decayed, "AdamW", "adamw", scale.adamw),
                partial(decayed, "SGDP", "sgdp", scale.sgdp),
                partial(fixed, "norm fixed per layer", "layer"),
                partial(fixed, OURS, "global"),
            ]
        )
        return cls(
            setting=workload.name,
            recipe=workload.recipe,
            metric=workload.metric.label,
            budget=BUDGET,
            step=step_costs(measure=not trainings.dry),
            rows=tuple(rows),
        )

    @model_validator(mode="after")
    def _paired(self) -> Self:
        names = [row.peer for row in self.rows]
        need(len(set(names)) == len(names), "rows has a peer twice")
        need(OURS in names, f"rows has no {OURS}")
        need(set(names) <= self.step.peers.keys(), "step.peers should have every peer of rows")
        same_number([len(r.scores) for r in self.rows], "scores should be as many of each peer")
        return self

    def show(self) -> Exhibit:
        step = self.step.peers
        ours = next(row for row in self.rows if row.peer == OURS)
        differences = {
            row.peer: paired(ours.scores, row.scores) for row in self.rows if row is not ours
        }
        colours = [*SERIES[1:5], SERIES[0]]
        panel = dots(
            f"{self.setting}: winners trained anew",
            [Row(row.peer, row.scores, c) for row, c in zip(self.rows, colours, strict=True)],
            x=self.metric,
        )
        table = TextTable(
            f"{self.setting}: each tuned with at most {self.budget} T_max",
            (
                "optimizer",
                "winner",
                "cost (T_max)",
                self.metric,
                "FixNorm − it",
                "step time",
                "bytes a weight",
            ),
            tuple(
                (
                    row.peer,
                    row.numbers(),
                    f"{row.cost:g}",
                    mean_of(row.scores).spread(),
                    differences[row.peer].interval() if row.peer in differences else "–",
                    f"{step[row.peer].step_time:.2f} ×",
                    f"{step[row.peer].bytes_per_weight:g}",
                )
                for row in self.rows
            ),
            (
                "Scores of seeds that no search has seen, paired by seed (95 %). Step time:"
                f" optimizer.step() of {self.step.model} by that of SGD + weight decay,"
                f" alternated, one thread. Bytes a weight: the optimizer's own state.",
            ),
        )
        claims = tuple(
            as_good(f"FixNorm is at least as good as {peer}", difference)
            for peer, difference in differences.items()
        )
        return Exhibit((Drawing("peers", "Peers", SEEDS_AS_DOTS, (panel,)),), (table,), claims)

    def repeats(self) -> dict[str, list[Group]]:
        return {self.setting: [row.scores for row in self.rows]}
