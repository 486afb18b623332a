"""A lab gives an experiment its trainings.

An experiment is a plain function: it asks the lab for trainings and goes on with what they found.
Where some are not there yet the function is left, and begun again when they are; all it has asked
for before is then at hand. So a function that decides by earlier results, such as a search, reads
from top to bottom, and an experiment that was killed goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from fixnorm.evidence.training import Found, Training

__all__ = ["IMAGINED", "Lab", "NotYet"]

T = TypeVar("T")

IMAGINED = Found(
    score=0.0,
    largest_scale=float("inf"),
    mcbr_train=0.0,
    mcbr_val=0.0,
    seconds=0.0,
    steps=1,
    device="",
    commit=None,
    curve={},
)
"""Stands for every training of a dry run: no search ends early by it."""


class NotYet(Exception):
    """Some trainings are missing; the lab has noted which."""


class Lab:
    """Finds trainings, and notes those that are missing."""

    def __init__(self, find: Callable[[Training], Found | None], *, dry: bool = False) -> None:
        self._find = find
        self.dry = dry
        """Whether trainings are only imagined."""
        self.missing: dict[Training, None] = {}
        """What the last attempt could not go on without."""
        self.used: dict[Training, Found] = {}
        """All that was asked for and is there, by any attempt: a search does not ask again."""
        self.memory: dict[Any, Any] = {}
        """For what is costly to work out again each time."""

    def attempt(self, experiment: Callable[[Lab], T]) -> T | None:
        """The experiment's outcome; none, with :attr:`missing` filled, where it is not over."""
        self.missing.clear()
        try:
            return experiment(self)
        except NotYet:
            return None

    def all(self, trainings: Iterable[Training]) -> list[Found]:
        """What all of these have found."""
        there: list[Found] = []
        complete = True
        for training in trainings:
            found = self._find(training)
            if found is None:
                self.missing[training] = None
                complete = False
            else:
                self.used[training] = found
                there.append(found)
        if not complete:
            raise NotYet
        return there

    def sound(self, trainings: Sequence[Training]) -> list[Found]:
        """What all of these have found, for an experiment that makes no sense if one diverged."""
        there = self.all(trainings)
        for training, found in zip(trainings, there, strict=True):
            if found.score is None:
                raise ValueError(
                    f"{training.key} diverged and this experiment needs all of its trainings:"
                    f" lower the lr of its recipe, {training.recipe.lr:g}"
                )
        return there

    def one(self, training: Training) -> Found:
        """What it has found."""
        return self.all([training])[0]

    def each(self, parts: Sequence[Callable[[], T]]) -> list[T]:
        """The outcomes of parts that do not depend on one another: they run side by side."""
        done: list[T] = []
        for part in parts:
            try:
                done.append(part())
            except NotYet:
                continue
        if len(done) < len(parts):
            raise NotYet
        return done
