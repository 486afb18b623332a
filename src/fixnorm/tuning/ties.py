"""Which answers are level: apart by less than the validation images can tell.

An accuracy p over n images has the standard error √(p(1 − p)/n). Two trainings are measured on the
same images and are wrong on many of the same, so that their difference has about the error of one
accuracy, not √2 times that. What is apart by less than 1.96 of it is a tie. Seeds do not make it
smaller: all are measured on the same images.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from fixnorm.tuning.trial import Result, mean_of

__all__ = ["level", "noise_of"]

_SURE = 1.96
"""Standard errors: 95 %."""


def noise_of(results: Iterable[Result | None]) -> float | None:
    """The difference that is still a tie with this slot, in percent.

    None of a score that is no share of images, or where nobody has said how many there are.
    """
    known = [result for result in results if result is not None]
    images = {result.images for result in known}
    mean = mean_of(known)
    if len(images) != 1 or mean is None or not 0 <= mean <= 100:
        return None
    (number,) = images
    return None if number is None else _SURE * math.sqrt(mean * (100 - mean) / number)


def level(best: Sequence[Result | None], other: Sequence[Result | None]) -> bool:
    """Whether a slot is as good as the best one, as far as the validation images can tell."""
    noise, means = noise_of(best), (mean_of(best), mean_of(other))
    if noise is None or means[0] is None or means[1] is None:
        return False
    return means[0] - means[1] <= noise
