"""The numbers of each experiment as its JSON file holds them, checked before anything is drawn.

A file may come from anywhere. What a figure takes for granted (every cell of a grid, as many seeds
of the one method as of the other) is a rule here, so that a file that breaks it is refused by its
place and not by the line of code that stumbles over it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from fixnorm.training.bounded import Count, Fraction, Loose, Name, Percent, Positive, Real, Slug
from fixnorm.training.checked import Part, checked

__all__ = [
    "Dense",
    "DenseRun",
    "Fig1",
    "Fig2",
    "Fig2Run",
    "Fig4",
    "GridPoint",
    "Landscape",
    "Model",
    "NormRun",
    "Outcome",
    "Peers",
    "Point",
    "Scored",
    "Searched",
    "Setting",
    "Step",
    "Table1",
    "Table2",
    "Winner",
]

Method = Literal["fixnorm", "weight-decay", "algorithm1", "wn-fc"]
Scores = Annotated[tuple[Percent, ...], Field(min_length=1)]
NotNegative = Annotated[Real, Field(ge=0)]


class Outcome(Part):
    """What an experiment found."""

    @classmethod
    def of(cls, outcome: Mapping[str, Any]) -> Self:
        """From plain containers; a :class:`ValueError` names the place that is wrong."""
        try:
            return checked(json.dumps(outcome), cls)
        except ValueError as error:
            raise ValueError(f"in outcome, {error}") from None


def _need(rule: bool, message: str) -> None:
    if not rule:
        raise ValueError(message)


def _same_number(counts: Collection[int], message: str) -> None:
    _need(len(set(counts)) == 1, message)


# -- Figure 1 --------------------------------------------------------------------------------------


class _NormCurve(Part):
    epoch: Annotated[tuple[NotNegative, ...], Field(min_length=1)]
    conv_norm: tuple[Positive, ...]

    @model_validator(mode="after")
    def _one_norm_an_epoch(self) -> Self:
        _same_number([len(self.epoch), len(self.conv_norm)], "needs one conv_norm for each epoch")
        return self


class NormRun(Part):
    """A training under weight decay."""

    weight_decay: Positive
    seed: int
    curve: _NormCurve
    steps: Count


class Point(Part):
    """A training of a grid over learning rates."""

    method: Literal["weight-decay", "algorithm1"]
    lr: Positive
    seed: int
    score: Percent | None


class Fig1(Outcome):
    """Norms under weight decay, and two grids over learning rates."""

    setting: Name
    weight_decay: NotNegative
    default_lr: Positive
    norms: Annotated[tuple[NormRun, ...], Field(min_length=1)]
    points: tuple[Point, ...]

    @model_validator(mode="after")
    def _two_whole_grids(self) -> Self:
        seeds = []
        for method in ("weight-decay", "algorithm1"):
            points = [p for p in self.points if p.method == method]
            _need(bool(points), f"points has none of {method}")
            places = {(p.lr, p.seed) for p in points}
            of_method = sorted({p.seed for p in points})
            lrs = {p.lr for p in points}
            whole = len(places) == len(points) == len(lrs) * len(of_method)
            _need(whole, f"points of {method} should be one for each lr and seed")
            known = {p.lr for p in points} - {p.lr for p in points if p.score is None}
            _need(bool(known), f"points of {method} has no lr with a score of every seed")
            seeds.append(tuple(of_method))
        _need(seeds[0] == seeds[1], "points should have the same seeds of both methods")
        return self


# -- Figure 2 --------------------------------------------------------------------------------------


class _Curves(Part):
    epoch: Annotated[tuple[NotNegative, ...], Field(min_length=1)]
    score: tuple[Loose, ...]
    head_scale: Annotated[tuple[Loose, ...], Field(min_length=1)]
    cap: Annotated[tuple[Loose, ...], Field(min_length=1)]
    mcbr_train: tuple[Loose, ...]
    mcbr_val: tuple[Loose, ...]


class Fig2Run(Part):
    """One training with its curves."""

    method: Method
    lr: Positive
    alpha: Positive | None
    score: Percent
    mcbr_train: Real
    mcbr_val: Real
    curve: _Curves

    @model_validator(mode="after")
    def _ends_are_there(self) -> Self:
        _need(self.curve.head_scale[-1] is not None, "head_scale should end with a number")
        if self.method == "fixnorm":
            _need(self.alpha is not None, "alpha is missing")
            _need(self.curve.cap[-1] is not None, "cap should end with a number")
        return self


class Fig2(Outcome):
    """The methods side by side."""

    setting: Name
    runs: tuple[Fig2Run, ...]

    @model_validator(mode="after")
    def _three_methods(self) -> Self:
        counts = dict.fromkeys(("fixnorm", "wn-fc", "algorithm1"), 0)
        counts |= {run.method: 0 for run in self.runs}
        for run in self.runs:
            counts[run.method] += 1
        _same_number(counts.values(), f"runs should be as many of {', '.join(counts)}")
        _need(all(counts.values()), "runs should not be empty")
        return self


# -- Figure 4 --------------------------------------------------------------------------------------


class GridPoint(Part):
    """A training of a grid over lr and alpha."""

    lr: Positive
    alpha: Positive | None = None
    fraction: Fraction
    seed: int
    accuracy: Percent | None

    @property
    def whole(self) -> bool:
        """Whether the figure shows it."""
        return self.fraction == 1 and self.alpha is not None

    @property
    def place(self) -> tuple[float, float]:
        """lr and alpha of one that is :attr:`whole`."""
        assert self.alpha is not None
        return self.lr, self.alpha


class Landscape(Part):
    """A grid; one over weight decay has no point for the figure."""

    name: Name
    points: tuple[GridPoint, ...]

    @model_validator(mode="after")
    def _whole_grid(self) -> Self:
        cells = {p.place for p in self.points if p.whole}
        wanted = len({lr for lr, _ in cells}) * len({alpha for _, alpha in cells})
        _need(len(cells) == wanted, "points should have every alpha at every lr")
        return self


class Fig4(Outcome):
    """Landscapes."""

    landscapes: tuple[Landscape, ...]

    @model_validator(mode="after")
    def _something_to_show(self) -> Self:
        shown = any(p.whole for landscape in self.landscapes for p in landscape.points)
        _need(shown, "landscapes has no training of full length over alpha")
        return self


# -- searches and their winners --------------------------------------------------------------------


class Scored(Part):
    """Numbers of a recipe, trained with fresh seeds."""

    lr: Positive
    second: NotNegative
    """alpha or λ."""
    cost: NotNegative
    scores: Scores


class Winner(Scored):
    """Of a search."""

    kind: Literal["alpha", "weight_decay"]


class Step(Part):
    """One training of a search."""

    round: Name
    lr: Positive
    second: Positive
    fraction: Fraction
    score: Percent | None
    free: bool


class Searched(Winner):
    """A whole search."""

    method: Literal["fixnorm", "weight-decay"]
    score: Percent
    tried: tuple[Step, ...]

    @model_validator(mode="after")
    def _found_something(self) -> Self:
        _need(any(step.score is not None for step in self.tried), "tried has no score")
        return self


class _Reference(Part):
    lr: Positive
    weight_decay: NotNegative
    scores: Scores


class Setting(Part):
    """All searches of one setting."""

    setting: Name
    recipe: Slug
    metric: Name
    paper: Percent | None
    searches: tuple[Searched, ...]
    reference: _Reference

    @model_validator(mode="after")
    def _in_pairs(self) -> Self:
        counts = [sum(s.method == m for s in self.searches) for m in ("fixnorm", "weight-decay")]
        _same_number(counts, "searches should be as many of fixnorm as of weight-decay")
        _need(all(counts), "searches should not be empty")
        return self


class Table1(Outcome):
    """Settings."""

    settings: Annotated[tuple[Setting, ...], Field(min_length=1)]


class Model(Part):
    """A row of Table 2."""

    setting: Name
    paper: Percent | None
    paper_reference: Percent | None
    default: Scored
    tuned_weight_decay: Winner
    tuned_fixnorm: Winner

    @model_validator(mode="after")
    def _paired(self) -> Self:
        kinds = (self.default, self.tuned_weight_decay, self.tuned_fixnorm)
        _same_number([len(k.scores) for k in kinds], "scores should be as many of each kind")
        both = (self.paper is None) == (self.paper_reference is None)
        _need(both, "paper and paper_reference should both be there, or none")
        return self


class Table2(Outcome):
    """Models."""

    models: Annotated[tuple[Model, ...], Field(min_length=1)]


# -- Tables 3 and 4 --------------------------------------------------------------------------------


class DenseRun(Part):
    """A training of a dense task."""

    recipe: Name
    method: Literal["fixnorm", "weight-decay"]
    lr: Positive
    alpha: Positive | None
    weight_decay: NotNegative
    score: Percent
    mcbr_val: Real
    paper: Percent | None

    @model_validator(mode="after")
    def _has_its_number(self) -> Self:
        _need(self.method != "fixnorm" or self.alpha is not None, "alpha is missing")
        return self


class Dense(Outcome):
    """Trainings by recipe and method."""

    metric: Name
    runs: Annotated[tuple[DenseRun, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _in_pairs(self) -> Self:
        for recipe in dict.fromkeys(run.recipe for run in self.runs):
            mine = [run.method for run in self.runs if run.recipe == recipe]
            same = mine.count("fixnorm") == mine.count("weight-decay")
            _need(same, f"runs of {recipe} should be as many of fixnorm as of weight-decay")
        return self


# -- peers -----------------------------------------------------------------------------------------


class _StepCost(Part):
    step_time: NotNegative
    bytes_per_weight: NotNegative


class _StepCosts(Part):
    model: Name
    peers: dict[str, _StepCost]


class _Peer(Winner):
    peer: Name


def _five(rows: tuple[_Peer, ...]) -> tuple[_Peer, ...]:
    _need(len(rows) == 5, f"should have five peers but has {len(rows)}")
    return rows


class Peers(Outcome):
    """Optimizers, each tuned with the same budget."""

    setting: Name
    metric: Name
    budget: Count
    step: _StepCosts
    rows: Annotated[tuple[_Peer, ...], AfterValidator(_five)]

    @model_validator(mode="after")
    def _paired(self) -> Self:
        names = [row.peer for row in self.rows]
        _need(len(set(names)) == len(names), "rows has a peer twice")
        _need("FixNorm" in names, "rows has no FixNorm")
        _need(set(names) <= self.step.peers.keys(), "step.peers should have every peer of rows")
        _same_number([len(r.scores) for r in self.rows], "scores should be as many of each peer")
        return self
