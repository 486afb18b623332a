"""The trainings of an experiment: what one is, what it found, and those that are missing.

An experiment is a plain function: it asks :class:`Trainings` for trainings and goes on with what
they found. Where some are not there yet the function is left, and begun again when they are; all it
has asked for before is then at hand. So a function that decides by earlier results, such as a
search, reads from top to bottom, and an experiment that was killed goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar, cast

from fixnorm import recipes
from fixnorm.methods import MethodName
from fixnorm.training.folder import RunFolder
from fixnorm.training.recipe import Recipe, changed
from fixnorm.training.result import RunResult
from fixnorm.tuning.trial import Round, Trial

__all__ = ["IMAGINED", "Found", "NotYet", "Training", "Trainings", "Value", "read_found"]

S = TypeVar("S")
T = TypeVar("T")
Value = str | float | None
"""Of a field of a recipe."""

_DIGITS = 5
"""Significant digits of what is kept of a curve."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """A recipe with some fields changed. Equal trainings of different experiments are run once."""

    base: str
    """The recipe's name."""
    method: MethodName
    changes: tuple[tuple[str, Value], ...]
    data: str | None
    """The name of the data's folder."""
    cost: float = 1.0
    """In T_max of its recipe."""

    @cached_property
    def recipe(self) -> Recipe:
        return changed(recipes.get(self.base, self.method), **dict(self.changes))

    @cached_property
    def key(self) -> str:
        """Of its folder: words for people, and a digest of everything that it depends on."""
        recipe = self.recipe
        text = json.dumps([recipe.to_dict(), self.data], sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:10]
        lr = recipe.lr if recipe.lr == "auto" else f"{recipe.lr:.3g}"
        return f"{recipe.name}-{recipe.method}-lr{lr}-seed{recipe.seed}-{digest}"

    def settings(self) -> list[str]:
        """The ``--set`` pairs of its command."""
        return [f"{name}={value}" for name, value in self.changes]

    def trial(self) -> Trial:
        """As engines know it."""
        recipe = self.recipe
        return Trial(
            key=self.key,
            round=Round(recipe.name),
            index=0,
            lr=recipe.peak_lr,
            alpha=recipe.alpha,
            weight_decay=recipe.weight_decay if recipe.alpha is None else None,
            fraction=self.cost,
            seed=recipe.seed,
        )


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a training found."""

    score: float | None
    """In percent; none where it diverged."""
    largest_scale: float | None
    mcbr_train: float | None
    mcbr_val: float | None
    seconds: float
    steps: int
    device: str
    commits: tuple[str, ...]
    """At which it was trained; of a recording all at which it was."""
    curve: Mapping[str, tuple[float | None, ...]]
    """Columns of ``metrics.csv``."""
    recorded: bool = False
    """Whether a recording has it, and no folder."""

    @property
    def value(self) -> float:
        """For a search: −∞ where it diverged."""
        return -math.inf if self.score is None else self.score

    @property
    def counted(self) -> float:
        """For a mean: 0 where it diverged."""
        return 0.0 if self.score is None else self.score


def read_found(folder: Path) -> Found | None:
    """What the run in a folder found; none while it is not over.

    A run that is over and whose files are damaged is refused: training it again would find it over.
    """
    run, advice = RunFolder(folder), f"remove {folder} to train it again"
    result = run.ended(RunResult, advice=advice)
    if result is None:
        return None
    table = run.table(advice=advice)
    return Found(
        score=None if result.diverged else result.score,
        largest_scale=result.largest_scale,
        mcbr_train=result.mcbr_train,
        mcbr_val=result.mcbr_val,
        seconds=result.seconds,
        steps=result.steps,
        device=result.device,
        commits=() if result.commit is None else (result.commit,),
        curve={
            name.replace(f"val_{result.metric}", "score"): tuple(map(_rounded, values))
            for name, values in table.items()
        },
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{_DIGITS}g}")


IMAGINED = Found(
    score=0.0,
    largest_scale=float("inf"),
    mcbr_train=0.0,
    mcbr_val=0.0,
    seconds=0.0,
    steps=1,
    device="",
    commits=(),
    curve={
        **dict.fromkeys(("epoch", "conv_norm", "head_scale", "cap"), (1.0,)),
        **dict.fromkeys(("score", "train_accuracy", "mcbr_train", "mcbr_val"), (0.0,)),
    },
)
"""Stands for every training of a dry run: no search ends early by it."""


class NotYet(Exception):
    """Some trainings are missing; they are noted."""


class Trainings:
    """Finds trainings, and notes those that are missing."""

    def __init__(self, find: Callable[[Training], Found | None], *, dry: bool = False) -> None:
        self._find = find
        self.dry = dry
        """Whether trainings are only imagined."""
        self.missing: dict[Training, None] = {}
        """What the last attempt could not go on without."""
        self.used: dict[Training, Found] = {}
        """All that was asked for and is there, by any attempt: a search does not ask again."""
        self._made: dict[object, object] = {}

    def attempt(self, experiment: Callable[[Trainings], T]) -> T | None:
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
                    f" lower the lr of its recipe, {training.recipe.lr}"
                )
        return there

    def one(self, training: Training) -> Found:
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

    def both(self, one: Callable[[], S], other: Callable[[], T]) -> tuple[S, T]:
        """The same for two parts of different kinds."""
        try:
            first = one()
        except NotYet:
            self.each([other])
            raise
        return first, other()

    def kept(self, key: object, make: Callable[[], T]) -> T:
        """Something that is made once: what an attempt has worked out serves the next."""
        if key not in self._made:
            self._made[key] = make()
        return cast(T, self._made[key])
