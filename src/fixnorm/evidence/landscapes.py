"""A recorded landscape: real trainings over a grid of lr and alpha, or of lr and weight decay.

Between the points of the grid a value is interpolated, linearly in log lr and in the log of the
second parameter; outside it is that of the edge. ``fixnorm.evidence.replay`` runs searches on it.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from fixnorm.system import regular
from fixnorm.training.bounded import Fraction, Loose, Name, Positive
from fixnorm.training.checked import Part, read_checked

__all__ = [
    "AXES",
    "NOISES",
    "Corner",
    "Landscape",
    "NoisyLandscape",
    "Peak",
    "Point",
    "Recorded",
    "files_of",
    "read_landscapes",
]

AXES = {"alpha": "lr × alpha", "weight_decay": "lr × weight decay"}
"""The second parameter of a landscape, and what people call it."""
NOISES = ("full", "recorded")


class Point(Part):
    """A training of a recording."""

    lr: Positive
    seed: int
    alpha: Positive | None = None
    weight_decay: Positive | None = None
    fraction: Fraction
    accuracy: Loose
    largest_scale: Loose = None
    curve: tuple[Loose, ...] | None = None
    """The accuracy after each epoch."""


class _Recording(Part):
    """The content of a landscape's file."""

    name: Name
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Recorded:
    """One training, or the mean of some."""

    accuracy: float
    """In percent; of one that diverged the last that was measured, or 0."""
    curve: tuple[float, ...]
    """The accuracy after each epoch."""
    largest_scale: float | None = None
    """The largest |g|/√C of the training, if it is known."""


@dataclass(frozen=True)
class Corner:
    """A point of the grid and its share in a point between."""

    lr: float
    level: float
    weight: float


@dataclass(frozen=True)
class Peak:
    """The best point of a grid."""

    lr: float
    level: float
    accuracy: float


Place = tuple[float, float, float]
"""(fraction, level, lr)."""


@dataclass(frozen=True)
class Landscape:
    """Trainings by (fraction, level, lr) and seed; a level is a value of the second parameter."""

    name: str
    axis: str
    """What is tuned beside lr: a key of :data:`AXES`."""
    lrs: tuple[float, ...]
    levels: tuple[float, ...]
    """Of the trainings of full length."""
    seeds: tuple[int, ...]
    """Those with every point of the grid."""
    trainings: dict[tuple[Place, int], Recorded]

    @classmethod
    def read(cls, file: Path) -> Landscape:
        """From the JSON file of a recording."""
        content = read_checked(
            file,
            _Recording,
            what="a recorded landscape",
            advice="give the JSON file of a recording",
        )
        axis, recorded = _axis(file, content.points), _recorded(content.points)
        lrs = tuple(sorted({lr for (_, _, lr), _ in recorded}))
        rows = {(fraction, level) for (fraction, level, _), _ in recorded}
        grid = [(fraction, level, lr) for fraction, level in rows for lr in lrs]
        seeds = sorted({seed for _, seed in recorded})
        whole = tuple(s for s in seeds if all((point, s) in recorded for point in grid))
        if not whole:
            raise ValueError(f"{file} holds no seed with every point of its grid")
        if len(lrs) < 2:
            raise ValueError(f"{file} holds one learning rate: a landscape needs at least two")
        if not any(fraction == 1 for fraction, _ in rows):
            raise ValueError(f"{file} holds no training of full length, with fraction 1")
        return cls(
            name=content.name,
            axis=axis,
            lrs=lrs,
            levels=tuple(sorted({level for fraction, level in rows if fraction == 1})),
            seeds=whole,
            trainings={(p, s): recorded[p, s] for p in grid for s in whole},
        )

    @cached_property
    def fractions(self) -> tuple[float, ...]:
        """The lengths of the recorded trainings, in T_max."""
        return tuple(sorted({fraction for (fraction, _, _), _ in self.trainings}))

    @cached_property
    def epochs(self) -> int:
        """T_max, by the curves of full length."""
        return max(len(t.curve) for ((f, _, _), _), t in self.trainings.items() if f == 1)

    @cached_property
    def means(self) -> dict[Place, Recorded]:
        """The mean over the seeds, at each point of the grid."""
        points = dict.fromkeys(point for point, _ in self.trainings)
        return {point: _mean([self.trainings[point, s] for s in self.seeds]) for point in points}

    @cached_property
    def best(self) -> Peak:
        """The point of the grid with the best mean at full length; the first of equals."""
        full = {point: mean for point, mean in sorted(self.means.items()) if point[0] == 1}
        (_, level, lr), mean = max(full.items(), key=lambda item: item[1].accuracy)
        return Peak(lr, level, mean.accuracy)

    @cached_property
    def noise(self) -> float:
        """The standard deviation between the seeds at full length, pooled over the grid."""
        if len(self.seeds) < 2:
            return 0.0
        squares = [
            (self.trainings[point, seed].accuracy - mean.accuracy) ** 2
            for point, mean in self.means.items()
            if point[0] == 1
            for seed in self.seeds
        ]
        return math.sqrt(math.fsum(squares) / (len(squares) * (1 - 1 / len(self.seeds))))

    @cached_property
    def _levels(self) -> dict[float, list[float]]:
        """By length: short trainings may be recorded at some levels only."""
        return {
            fraction: sorted({level for f, level, _ in self.means if f == fraction})
            for fraction in self.fractions
        }

    def corners(self, lr: float, level: float, *, fraction: float = 1.0) -> list[Corner]:
        """The points of the grid around a point; their weights add up to 1."""
        return [
            Corner(at, level_at, share * level_share)
            for level_at, level_share in _shares(self._levels[fraction], level)
            for at, share in _shares(self.lrs, lr)
        ]

    def mean(self, lr: float, level: float, *, fraction: float = 1.0) -> float:
        """The accuracy that a training has there on average."""
        return self.mean_of(self.corners(lr, level, fraction=fraction), fraction=fraction)

    def mean_of(self, corners: Sequence[Corner], *, fraction: float = 1.0) -> float:
        """The same where the corners are known."""
        return math.fsum(
            corner.weight * self.means[fraction, corner.level, corner.lr].accuracy
            for corner in corners
        )


def read_landscapes(paths: Sequence[Path]) -> list[Landscape]:
    """From JSON files, and from all JSON files of folders."""
    return [Landscape.read(file) for file in files_of(paths)]


def files_of(paths: Sequence[Path]) -> list[Path]:
    """The JSON files that are given, and all of the folders."""
    files: list[Path] = []
    for path in paths:
        files += sorted(filter(regular, path.rglob("*.json"))) if path.is_dir() else [path]
    if not files:
        raise ValueError(
            f"no landscape in {', '.join(map(str, paths))}: give the JSON file of a recording"
        )
    return files


def _axis(file: Path, points: Sequence[Point]) -> str:
    found = [{name for name in AXES if getattr(point, name) is not None} for point in points]
    all_found = set().union(*found)
    if len(all_found) != 1 or not all(found):
        what = "both" if len(all_found) > 1 else "neither of both"
        raise ValueError(f"{file} must be over alpha or over weight decay but has {what}")
    return str(all_found.pop())


def _recorded(points: Sequence[Point]) -> dict[tuple[Place, int], Recorded]:
    lengths: dict[float, int] = {}
    for point in points:
        lengths[point.fraction] = max(lengths.get(point.fraction, 1), len(point.curve or ()))
    found: dict[tuple[Place, int], Recorded] = {}
    for point in points:
        level = point.weight_decay if point.alpha is None else point.alpha
        assert level is not None
        accuracy = point.accuracy or 0.0
        curve = [value or 0.0 for value in point.curve or (accuracy,)]
        # One that diverged ends early: it stays where it was.
        curve += [accuracy] * (lengths[point.fraction] - len(curve))
        found[(point.fraction, level, point.lr), point.seed] = Recorded(
            accuracy, tuple(curve), point.largest_scale
        )
    return found


def _mean(trainings: Sequence[Recorded]) -> Recorded:
    count = len(trainings)
    curves = zip(*(training.curve for training in trainings), strict=True)
    return Recorded(
        math.fsum(training.accuracy for training in trainings) / count,
        tuple(math.fsum(values) / count for values in curves),
    )


def _shares(places: Sequence[float], at: float) -> list[tuple[float, float]]:
    """The neighbours of a number with their weights, linear in its logarithm."""
    right = bisect_right(places, at * (1 + 1e-9))
    if right == 0 or right == len(places) or math.isclose(places[right - 1], at, rel_tol=1e-9):
        return [(places[max(right - 1, 0)], 1.0)]
    low, high = places[right - 1], places[right]
    share = (math.log(at) - math.log(low)) / (math.log(high) - math.log(low))
    return [(low, 1 - share), (high, share)]


@dataclass(frozen=True)
class NoisyLandscape:
    """A landscape to train on: its mean plus the noise of a recorded training.

    With w the weights of the grid points around x, y_{k,s} what seed s gave at point k, and ȳ_k the
    mean of the n seeds there,

        full:      y(x) = Σ_k w_k·ȳ_k + √(n/(n−1))·(y_{j,s} − ȳ_j)
        recorded:  y(x) = Σ_k w_k·y_{k,s}

    where s is drawn evenly and j by the weights. ``recorded`` shows nothing but recorded numbers,
    yet has too little noise: deviations from the mean of n seeds are too small by √((n−1)/n), and
    between the points of the grid they average out. ``full`` gives the noise, everywhere, the size
    that the unbiased estimate of its variance has. One seed has no noise to lend.
    """

    landscape: Landscape
    key: str
    """Of the draws: the same point is the same training, whoever asks for it."""
    noise: str = "full"
    """Of :data:`NOISES`."""

    def training(
        self, lr: float, level: float, *, fraction: float = 1.0, seed: int = 0
    ) -> Recorded:
        """Train there.

        The draw does not depend on the level: alphas whose caps are not met are one training, and
        must stay one.
        """
        world = self.landscape
        chance = random.Random(f"{self.key} {lr!r} {fraction!r} {seed}")
        recorded_seed = chance.choice(world.seeds)
        corners = world.corners(lr, level, fraction=fraction)
        lenders, stretch = corners, 1.0
        if self.noise == "full":
            picked = _pick(corners, lr_share=chance.random(), level_share=chance.random())
            count = len(world.seeds)
            lenders = [replace(picked, weight=1.0)]
            stretch = math.sqrt(count / (count - 1)) if count > 1 else 0.0
        parts = [(c.weight, world.means[fraction, c.level, c.lr]) for c in corners]
        for c in lenders:
            at = (fraction, c.level, c.lr)
            parts.append((c.weight * stretch, world.trainings[at, recorded_seed]))
            parts.append((-c.weight * stretch, world.means[at]))
        scales = [
            (c.weight, world.trainings[(fraction, c.level, c.lr), recorded_seed].largest_scale)
            for c in corners
        ]
        return Recorded(
            math.fsum(weight * part.accuracy for weight, part in parts),
            tuple(
                math.fsum(weight * value for weight, value in values)
                for values in zip(*([(w, v) for v in part.curve] for w, part in parts), strict=True)
            ),
            _sum(scales),
        )


def _pick(corners: list[Corner], *, lr_share: float, level_share: float) -> Corner:
    """One corner with the probability of its weight: first the lr, the same for every level."""
    lr = _drawn([(c.lr, c.weight) for c in corners], lr_share)
    level = _drawn([(c.level, c.weight) for c in corners if c.lr == lr], level_share)
    return next(c for c in corners if (c.lr, c.level) == (lr, level))


def _drawn(weighted: list[tuple[float, float]], share: float) -> float:
    left = share * math.fsum(weight for _, weight in weighted)
    sums: dict[float, float] = {}
    for value, weight in weighted:
        sums[value] = sums.get(value, 0.0) + weight
    for value, weight in sums.items():
        left -= weight
        if left < 0:
            return value
    return value


def _sum(weighted: list[tuple[float, float | None]]) -> float | None:
    known = [w * scale for w, scale in weighted if scale is not None]
    return math.fsum(known) if len(known) == len(weighted) else None
