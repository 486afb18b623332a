"""What a training gives in a replay: the mean of the landscape plus the noise of a recorded one.

With w the weights of the grid points around x, y_{k,s} what seed s gave at point k, and ȳ_k the
mean of the n seeds there,

    full:      y(x) = Σ_k w_k·ȳ_k + √(n/(n−1))·(y_{j,s} − ȳ_j)
    recorded:  y(x) = Σ_k w_k·y_{k,s}

where s is drawn evenly and j by the weights. ``recorded`` shows nothing but recorded numbers, yet
has too little noise: deviations from the mean of n seeds are too small by √((n−1)/n), and between
the points of the grid they average out. ``full`` gives the noise, everywhere, the size that the
unbiased estimate of its variance has. One seed has no noise to lend.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace

from fixnorm.evidence.landscapes import Corner, Landscape, Recorded

__all__ = ["NOISES", "Draws"]

NOISES = ("full", "recorded")


@dataclass(frozen=True)
class Draws:
    """The noise of one replay: the same point is the same training, whoever asks for it."""

    landscape: Landscape
    key: str
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
