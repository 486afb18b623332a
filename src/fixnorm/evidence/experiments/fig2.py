"""Figure 2: Algorithm 1, @WN-FC and @FixNorm-FC over training: accuracy, head, MCBR."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, ClassVar, Self

from matplotlib.axes import Axes
from matplotlib.typing import LineStyleType
from pydantic import Field, model_validator

from fixnorm.evidence.experiment import (
    Claim,
    DrawnExperiment,
    Exhibit,
    NotNegative,
    as_good,
    better,
    greater,
    grouped,
    need,
    same_number,
)
from fixnorm.evidence.noise import Group
from fixnorm.evidence.panels import COLOURS, NAMES, Line, lines
from fixnorm.evidence.scales import Scale
from fixnorm.evidence.trainings import Trainings
from fixnorm.methods import MethodName, method_named
from fixnorm.report.drawing import Drawing
from fixnorm.report.statistics import Mean, mean_of, paired
from fixnorm.report.style import MUTED, write
from fixnorm.report.tables import TextTable
from fixnorm.training.bounded import Loose, Name, Percent, Positive, Real
from fixnorm.training.checked import Part

__all__ = ["Fig2"]

METHODS: tuple[MethodName, ...] = ("algorithm1", "wn-fc", "fixnorm")
Column = tuple[Loose, ...]
Ending = Annotated[Column, Field(min_length=1)]


class Curves(Part):
    """Columns of a training's table."""

    epoch: Annotated[tuple[NotNegative, ...], Field(min_length=1)]
    score: Column
    train_accuracy: Column = ()
    head_scale: Ending
    cap: Ending
    mcbr_train: Column
    mcbr_val: Column


class Run(Part):
    """One training with its curves."""

    method: MethodName
    lr: Positive
    alpha: Positive | None
    weight_decay: NotNegative = 0.0
    seed: int = 0
    score: Percent
    mcbr_train: Real
    mcbr_val: Real
    largest_scale: Loose = None
    seconds: NotNegative = 0.0
    curve: Curves

    @model_validator(mode="after")
    def _ends_are_there(self) -> Self:
        need(self.curve.head_scale[-1] is not None, "head_scale should end with a number")
        if method_named(self.method).caps:
            need(self.alpha is not None, "alpha is missing")
            need(self.curve.cap[-1] is not None, "cap should end with a number")
        return self


Runs = Mapping[str, Sequence[Run]]


class Fig2(DrawnExperiment):
    """The methods side by side."""

    title: ClassVar = "Figure 2: the scale of the head and the cross-boundary risk"

    setting: Name
    runs: tuple[Run, ...]

    @classmethod
    def train(cls, trainings: Trainings, scale: Scale) -> Self:
        """The recipe by each method, everything else equal."""
        workload, seeds = scale.fig2, range(scale.seeds)
        asked = [workload.training(m, seed=seed) for m in METHODS for seed in seeds]
        numbers = ("method", "lr", "alpha", "weight_decay", "seed")
        measured = ("score", "mcbr_train", "mcbr_val", "largest_scale", "seconds", "curve")
        runs = [
            Run.model_validate(
                {name: getattr(training.recipe, name) for name in numbers}
                | {name: getattr(found, name) for name in measured}
            )
            for training, found in zip(asked, trainings.sound(asked), strict=True)
        ]
        return cls(setting=workload.name, runs=tuple(runs))

    @model_validator(mode="after")
    def _three_methods(self) -> Self:
        counts = dict.fromkeys(("fixnorm", "wn-fc", "algorithm1"), 0)
        counts |= {method: len(runs) for method, runs in self._by_method().items()}
        same_number(counts.values(), f"runs should be as many of {', '.join(counts)}")
        need(all(counts.values()), "runs should not be empty")
        return self

    def _by_method(self) -> dict[str, list[Run]]:
        return grouped(self.runs, lambda run: str(run.method))

    def show(self) -> Exhibit:
        runs = self._by_method()
        cap = _last(runs["fixnorm"][0].curve.cap)
        gain = _paired(runs, "fixnorm", "wn-fc", "score")
        closed = _paired(runs, "fixnorm", "algorithm1", "score")
        gap = _paired(runs, "algorithm1", "wn-fc", "score")
        validation = _paired(runs, "wn-fc", "fixnorm", "mcbr_val")
        training = _paired(runs, "wn-fc", "fixnorm", "mcbr_train")
        table = TextTable(
            f"{self.setting}: at the end of training",
            ("method", "accuracy (%)", "scale of the head", "MCBR train", "MCBR val"),
            tuple(_row(method, found, cap) for method, found in runs.items()),
            (
                f"FixNorm − WN-FC, paired by seed: {gain.interval()} % (95 %)",
                f"FixNorm − Algorithm 1: {closed.interval()} %",
            ),
            words=1,
        )
        ends = mean_of([_last(run.curve.head_scale) for run in runs["wn-fc"]])
        claims = (
            Claim(
                "Without a cap g grows past it",
                "holds" if ends.mean > cap else "does not hold",
                f"g {ends.spread()} without a cap; the cap is {cap:.2f}",
            ),
            Claim(
                "… and the risk is higher",
                greater(validation),
                f"MCBR, WN-FC − FixNorm: validation {validation.interval(3)}, training"
                f" {training.interval(3)}",
            ),
            better("… and accuracy is lower than Algorithm 1's", gap),
            better("The cap raises accuracy over WN-FC", gain),
            as_good("… up to Algorithm 1's", closed),
        )
        return Exhibit((self._drawing(runs, cap),), (table,), claims)

    def repeats(self) -> dict[str, list[Group]]:
        return {self.setting: [_by_seed(runs, "score") for runs in self._by_method().values()]}

    def _drawing(self, runs: Runs, cap: float) -> Drawing:
        accuracy = lines(
            "Accuracy",
            [_line(runs, m, "score") for m in runs],
            x="epoch",
            y="validation accuracy (%)",
        )
        scale = lines(
            "Scale of the head: ‖W^FC‖, or min(g, cap)",
            [_line(runs, m, "head_scale", cap=cap if method_named(m).caps else None) for m in runs],
            x="epoch",
            y="scale",
            extra=partial(_draw_cap, cap=cap),
        )
        risk = lines(
            "Cross-boundary risk: validation, dashed: training",
            [
                *(_line(runs, m, "mcbr_val") for m in runs),
                *(_line(runs, m, "mcbr_train", style=(0, (3, 2)), named=False) for m in runs),
            ],
            x="epoch",
            y="MCBR",
        )
        first, seeds = runs["fixnorm"][0], len(runs["fixnorm"])
        return Drawing(
            "fig2",
            "Figure 2",
            f"{self.setting}, {seeds} seeds (thin) and their mean. The same lr {first.lr:g} for"
            f" all; FixNorm's alpha is {first.alpha:g}.",
            (accuracy, scale, risk),
            columns=3,
        )


def _last(values: Column) -> float:
    value = values[-1]
    assert value is not None
    return value


def _row(method: str, runs: Sequence[Run], cap: float) -> tuple[str, ...]:
    scales = [_last(run.curve.head_scale) for run in runs]
    if method_named(method).caps:
        scales = [min(scale, cap) for scale in scales]
    return (
        NAMES[method],
        mean_of([run.score for run in runs]).spread(),
        mean_of(scales).spread(),
        mean_of([run.mcbr_train for run in runs]).spread(3).replace("-", "−"),
        mean_of([run.mcbr_val for run in runs]).spread(3).replace("-", "−"),
    )


def _line(
    runs: Runs,
    method: str,
    column: str,
    *,
    cap: float | None = None,
    style: LineStyleType = "-",
    named: bool = True,
) -> Line:
    curves: list[Column] = [getattr(run.curve, column) for run in runs[method]]
    if cap is not None:
        curves = [tuple(None if v is None else min(v, cap) for v in curve) for curve in curves]
    epochs = runs[method][0].curve.epoch
    return Line(NAMES[method], COLOURS[method], epochs, curves, style=style, named=named)


def _draw_cap(ax: Axes, *, cap: float) -> None:
    ax.axhline(cap, color=MUTED, lw=0.8, ls=(0, (1, 2)), zorder=1)
    ax.set_ylim(0, None)
    write(ax, "α√C", (ax.get_xlim()[1], cap), offset=(-12, 7), colour=MUTED)


def _paired(runs: Runs, one: str, other: str, column: str) -> Mean:
    return paired(_by_seed(runs[one], column), _by_seed(runs[other], column))


def _by_seed(runs: Sequence[Run], column: str) -> list[float]:
    return [getattr(run, column) for run in sorted(runs, key=lambda run: run.seed)]
