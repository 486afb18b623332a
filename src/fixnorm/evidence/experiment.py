"""An experiment: what it trains, the numbers that it leaves, and what it shows of them.

Each is one class in a file of its own; :mod:`fixnorm.evidence.experiments` lists them. Its fields
are the numbers as its JSON file holds them. A file may come from anywhere: what a drawing takes for
granted (every cell of a grid, as many seeds of the one method as of the other) is a rule of the
class, so that a file that breaks it is refused by its place and not by the line of code that
stumbles over it.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar, Literal, Self, TypeVar

from pydantic import Field, ValidationError

from fixnorm.evidence.noise import Group
from fixnorm.evidence.scales import Scale
from fixnorm.evidence.trainings import Trainings
from fixnorm.report.drawing import Drawing
from fixnorm.report.statistics import Mean
from fixnorm.report.tables import TextTable
from fixnorm.training.bounded import Percent, Real
from fixnorm.training.checked import Part, checked, fault

__all__ = [
    "NEAR",
    "Claim",
    "DrawnExperiment",
    "Exhibit",
    "Experiment",
    "NotNegative",
    "Scores",
    "Verdict",
    "as_good",
    "at_least",
    "better",
    "greater",
    "grouped",
    "need",
    "same_number",
]

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

Scores = Annotated[tuple[Percent, ...], Field(min_length=1)]
NotNegative = Annotated[Real, Field(ge=0)]
Verdict = Literal["holds", "does not hold", "not contradicted", "cannot be told"]

NEAR = 1.0
"""Percent of accuracy: less than this below is as good, for trainings of this size."""


@dataclass(frozen=True)
class Claim:
    """Something that the paper says, and what was measured."""

    text: str
    verdict: Verdict
    measured: str


@dataclass(frozen=True)
class Exhibit:
    """All of an experiment that people look at."""

    drawings: tuple[Drawing, ...]
    tables: tuple[TextTable, ...]
    claims: tuple[Claim, ...]


class Experiment(Part):
    """The class is the experiment, its instances are outcomes."""

    title: ClassVar[str]
    of_scores: ClassVar[bool] = False
    """Whether it needs no more of a training than a recording has."""

    @classmethod
    @abstractmethod
    def train(cls, trainings: Trainings, scale: Scale) -> Self:
        """Ask for its trainings; the outcome, once all of them are there."""

    @classmethod
    def at(cls, scale: Scale) -> Callable[[Trainings], Self]:
        """As a function of its trainings alone."""
        return partial(cls._checked, scale=scale)

    @classmethod
    def _checked(cls, trainings: Trainings, *, scale: Scale) -> Self:
        try:
            return cls.train(trainings, scale)
        except ValidationError as error:
            raise ValueError(f"in outcome, {fault(error)}") from None

    @classmethod
    def of(cls, content: Mapping[str, object]) -> Self:
        """From plain containers; a :class:`ValueError` names the place that is wrong."""
        try:
            return checked(json.dumps(content), cls)
        except ValueError as error:
            raise ValueError(f"in outcome, {error}") from None

    def content(self) -> dict[str, object]:
        """As plain containers, for a file."""
        return self.model_dump(exclude_unset=True)


class DrawnExperiment(Experiment):
    """One with drawings, tables and claims."""

    @abstractmethod
    def show(self) -> Exhibit:
        """From its numbers alone."""

    @abstractmethod
    def repeats(self) -> Mapping[str, Sequence[Group]]:
        """By setting: the scores of trainings that are equal but for the seed."""


def need(rule: bool, message: str) -> None:
    """Of a validator: the rule must be kept."""
    if not rule:
        raise ValueError(message)


def same_number(counts: Collection[int], message: str) -> None:
    """Of a validator: the counts must be equal."""
    need(len(set(counts)) == 1, message)


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """The items by their keys, both in the order in which they come."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def better(text: str, difference: Mean) -> Claim:
    """The claim that something is better, in percent."""
    return Claim(text, greater(difference), f"{difference.interval()} %")


def as_good(text: str, difference: Mean) -> Claim:
    """The claim that something is as good, in percent."""
    return Claim(text, at_least(difference), f"{difference.interval()} %")


def greater(difference: Mean) -> Verdict:
    """Of a claim that something is greater: zero must be outside of the interval."""
    if not difference.clear:
        return "cannot be told"
    return "holds" if difference.mean > 0 else "does not hold"


def at_least(difference: Mean) -> Verdict:
    """Of a claim that something is as good: the interval must end near zero, or above it.

    One that reaches further down, but is not all below zero, contradicts nothing.
    """
    if difference.half_width is None:
        return "cannot be told"
    if difference.clear and difference.mean < 0:
        return "does not hold"
    lowest = difference.mean - difference.half_width
    return "holds" if lowest >= -NEAR else "not contradicted"
