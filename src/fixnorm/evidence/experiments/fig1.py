"""Figure 1: ‖W^Conv‖ under weight decay; Algorithm 1 against weight decay over learning rates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from fixnorm.evidence.experiment import (
    Claim,
    DrawnExperiment,
    Exhibit,
    NotNegative,
    as_good,
    grouped,
    need,
    same_number,
)
from fixnorm.evidence.noise import Group
from fixnorm.evidence.panels import COLOURS, NAMES, Line, lines
from fixnorm.evidence.scales import Scale
from fixnorm.evidence.trainings import Trainings
from fixnorm.report.drawing import Drawing
from fixnorm.report.statistics import mean_of, paired
from fixnorm.report.tables import TextTable
from fixnorm.training.bounded import Count, Name, Percent, Positive
from fixnorm.training.checked import Part

__all__ = ["Fig1"]

Compared = Literal["weight-decay", "algorithm1"]

LRS: dict[Compared, tuple[float, ...]] = {
    "weight-decay": (0.1, 0.2, 0.4, 0.8, 1.6, 3.2),
    "algorithm1": (0.2, 0.5, 0.8, 1.4, 2.0, 3.2),
}
"""Each method has its own grid, as the fixed norm is another than the one weight decay ends at."""
EARLY = 0.2
"""The share of training in which the paper sees the norm fall fast."""


class NormCurve(Part):
    """The joint norm of all convolution weights after each epoch."""

    epoch: Annotated[tuple[NotNegative, ...], Field(min_length=1)]
    conv_norm: tuple[Positive, ...]

    @model_validator(mode="after")
    def _one_norm_an_epoch(self) -> Self:
        same_number([len(self.epoch), len(self.conv_norm)], "needs one conv_norm for each epoch")
        return self


class NormRun(Part):
    """A training under weight decay."""

    weight_decay: Positive
    seed: int
    curve: NormCurve
    steps: Count


class LrPoint(Part):
    """A training of a grid over learning rates."""

    method: Compared
    lr: Positive
    seed: int
    score: Percent | None


class Fig1(DrawnExperiment):
    """Norms under weight decay, and two grids over learning rates."""

    title: ClassVar = "Figure 1: fixing the norm of W^Conv in place of weight decay"

    setting: Name
    weight_decay: NotNegative
    default_lr: Positive
    norms: Annotated[tuple[NormRun, ...], Field(min_length=1)]
    points: tuple[LrPoint, ...]

    @classmethod
    def train(cls, trainings: Trainings, scale: Scale) -> Self:
        """Both grids with the recipe's λ, for Algorithm 1 on the head alone."""
        workload, seeds = scale.fig1, range(scale.seeds)
        recipe = workload.recipe_for("weight-decay")
        grid = [(method, lr, seed) for method, lrs in LRS.items() for lr in lrs for seed in seeds]
        decays = [
            (decay, seed) for decay in (recipe.weight_decay, *scale.norm_decays) for seed in seeds
        ]
        scores, norms = trainings.each(
            [
                lambda: trainings.all(workload.training(m, seed=s, lr=lr) for m, lr, s in grid),
                lambda: trainings.all(
                    workload.training("weight-decay", seed=s, lr=recipe.lr, weight_decay=decay)
                    for decay, s in decays
                ),
            ]
        )
        return cls(
            setting=workload.name,
            weight_decay=recipe.weight_decay,
            default_lr=recipe.peak_lr,
            norms=tuple(
                NormRun(
                    weight_decay=decay,
                    seed=seed,
                    curve=NormCurve.model_validate(dict(one.curve)),
                    steps=one.steps,
                )
                for (decay, seed), one in zip(decays, norms, strict=True)
            ),
            points=tuple(
                LrPoint(method=method, lr=lr, seed=seed, score=one.score)
                for (method, lr, seed), one in zip(grid, scores, strict=True)
            ),
        )

    @model_validator(mode="after")
    def _two_whole_grids(self) -> Self:
        seeds = []
        for method in LRS:
            points = [p for p in self.points if p.method == method]
            need(bool(points), f"points has none of {method}")
            places = {(p.lr, p.seed) for p in points}
            of_method = sorted({p.seed for p in points})
            lrs = {p.lr for p in points}
            whole = len(places) == len(points) == len(lrs) * len(of_method)
            need(whole, f"points of {method} should be one for each lr and seed")
            known = lrs - {p.lr for p in points if p.score is None}
            need(bool(known), f"points of {method} has no lr with a score of every seed")
            seeds.append(tuple(of_method))
        need(seeds[0] == seeds[1], "points should have the same seeds of both methods")
        return self

    def show(self) -> Exhibit:
        by_method = grouped(self.points, lambda point: point.method)
        lrs = {method: _best_lr(points) for method, points in by_method.items()}
        best = {method: _scores(points, lrs[method]) for method, points in by_method.items()}
        norms = grouped(self.norms, lambda run: run.weight_decay)
        difference = paired(best["algorithm1"], best["weight-decay"])
        table = TextTable(
            f"{self.setting}: the best learning rate of each",
            ("method", "best lr", "accuracy", "seeds"),
            tuple(
                (NAMES[method], f"{lrs[method]:g}", mean_of(scores).spread(), str(len(scores)))
                for method, scores in best.items()
            ),
            (f"Algorithm 1 − weight decay, paired by seed: {difference.interval()} (95 %)",),
            words=1,
        )
        claims = [_norm_claim(self.default_lr, decay, runs) for decay, runs in norms.items()]
        claims.append(
            as_good("Algorithm 1 is as accurate as weight decay, each at its best lr", difference)
        )
        return Exhibit((self._drawing(norms, by_method),), (table,), tuple(claims))

    def repeats(self) -> dict[str, list[Group]]:
        """Of learning rates at which no training diverged."""
        places = grouped(self.points, lambda point: (point.method, point.lr))
        found = [_scores(points, lr) for (_, lr), points in places.items()]
        return {self.setting: [scores for scores in found if len(scores) == max(map(len, found))]}

    def _drawing(
        self, norms: dict[float, list[NormRun]], by_method: dict[Compared, list[LrPoint]]
    ) -> Drawing:
        colours = (COLOURS["weight-decay"], COLOURS["wn-fc"])
        norm = lines(
            f"‖W^Conv‖ under weight decay (lr {self.default_lr:g})",
            [
                Line(f"λ {decay:g}", colour, runs[0].curve.epoch, [r.curve.conv_norm for r in runs])
                for (decay, runs), colour in zip(norms.items(), colours, strict=False)
            ],
            x="epoch",
            y="‖W^Conv‖",
        )
        accuracy = lines(
            "Accuracy over learning rates",
            [_accuracy_line(points, method) for method, points in by_method.items()],
            x="learning rate",
            y="accuracy (%)",
            log=True,
        )
        return Drawing(
            "fig1",
            "Figure 1",
            "Left: the joint norm of all convolution weights, each seed. Right: Algorithm 1 fixes"
            f" it, and decays the head alone (λ {self.weight_decay:g} for both); each method has"
            " its own grid, dots are seeds.",
            (norm, accuracy),
        )


def _norm_claim(lr: float, decay: float, runs: Sequence[NormRun]) -> Claim:
    early, late = [], []
    for run in runs:
        curve = run.curve.conv_norm
        turn = max(round(EARLY * len(curve)), 1)
        early.append(100 * (curve[turn - 1] / curve[0] - 1))
        late.append(100 * (curve[-1] / curve[turn - 1] - 1))
    first, rest = mean_of(early), mean_of(late)
    falls_first = first.mean < 0 and abs(rest.mean) < abs(first.mean)
    return Claim(
        f"Under weight decay ‖W^Conv‖ falls fast at first, then changes slowly (λ {decay:g})",
        "holds" if falls_first else "does not hold",
        f"{first.mean:+.1f} % from the end of the first epoch to that of the first fifth of the"
        f" training, {rest.mean:+.1f} % after; the norm settles in about 1/(4·lr·λ) ="
        f" {1 / (4 * lr * decay):.0f} steps, the training has {runs[0].steps}".replace("-", "−"),
    )


def _accuracy_line(points: Sequence[LrPoint], method: Compared) -> Line:
    lrs = sorted({p.lr for p in points})
    seeds = sorted({p.seed for p in points})
    score = {(p.lr, p.seed): p.score for p in points}
    curves = [[score[lr, seed] for lr in lrs] for seed in seeds]
    return Line(NAMES[method], COLOURS[method], lrs, curves, dots=True)


def _best_lr(points: Sequence[LrPoint]) -> float:
    """By the mean; one at which a training diverged is none."""
    diverged = {p.lr for p in points if p.score is None}
    lrs = sorted({p.lr for p in points} - diverged)
    return max(lrs, key=lambda lr: mean_of(_scores(points, lr)).mean)


def _scores(points: Sequence[LrPoint], lr: float) -> list[float]:
    found = [p for p in sorted(points, key=lambda p: p.seed) if p.lr == lr]
    return [p.score for p in found if p.score is not None]
