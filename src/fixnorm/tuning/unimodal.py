"""A faster plan: Algorithm 4's grids, without the trainings that cannot win.

It trusts the paper's priors, with a margin for noise:

- Accuracy rises and then falls over the learning rates of a round, and over alpha. Where it has
  fallen by more than the margin from one trained slot to another, nothing beyond the lower one can
  win. The short rounds are cheap and set the range of the next: they are trained in full.
- The best lr of a long training seldom is the bound that a short one gave it: the last round starts
  in its middle and looks down first.
- A cap that g exceeds only a little hardly matters: such an alpha is as good as the largest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fixnorm.tuning.plan import Advice, Results, Rounds, SearchSpace
from fixnorm.tuning.trial import Trial

__all__ = ["MARGIN", "unimodal"]

MARGIN = 1.0
"""A difference in accuracy (percent) that noise does not explain: that of trainings of minutes.
Long trainings on much data differ less from seed to seed, and a smaller margin saves more."""
_HARDLY_MET = 0.75
"""A cap of this share of the largest scale that g reaches, or more."""


def unimodal(space: SearchSpace, results: Results, *, margin: float = MARGIN) -> Advice:
    """The next trainings: never one that :func:`~fixnorm.tuning.plan.paper` would not take."""
    rounds = Rounds(space, results)
    for r in range(len(space.fractions) - 1):
        slots = rounds.open_lr_round(r)
        if rounds.missing(slots):
            return rounds.advice(slots)
    slots = rounds.open_lr_round(len(space.fractions) - 1)
    middle = len(slots) // 2
    wanted = next_of(rounds, slots, margin, start=(middle, middle - 1))
    if wanted:
        return rounds.advice(wanted)
    if len(space.alphas) > 1:
        trained_at_first = [slot for slot in slots if slot.lr == rounds.best_lr()]
        slots = rounds.open_alpha_round()
        if rounds.missing(slots[-1:]):
            return rounds.advice(slots[-1:])
        known = [slot for slot in slots if rounds.is_free(slot)]
        if rounds.missing(known):
            return rounds.advice(known)
        grid = [*trained_at_first, *_that_matter(rounds, slots)]
        wanted = next_of(rounds, grid, margin, start=(0,))
        if wanted:
            return rounds.advice(wanted)
    return rounds.end()


def _that_matter(rounds: Rounds, slots: Sequence[Trial]) -> list[Trial]:
    """Without the alphas whose cap is hardly met by the training of the largest."""
    scales = [rounds.results[trial].largest_scale for trial in rounds.trials(slots[-1:])]
    known = [scale for scale in scales if scale is not None]
    if len(known) < len(scales):
        return list(slots)
    limit = _HARDLY_MET * max(known)
    return [slot for slot in slots if (slot.alpha or 0.0) < limit or rounds.begun(slot)]


def next_of(
    rounds: Rounds, slots: Sequence[Trial], margin: float, *, start: Sequence[int]
) -> list[Trial]:
    """The slots of a grid to train next; none when no other can win."""
    begun = [k for k, slot in enumerate(slots) if k in start or rounds.begun(slot)]
    values = {k: rounds.accuracy(slots[k]) for k in begun}
    known = {k: value for k, value in values.items() if value is not None}
    if len(known) < len(begun):
        return [slots[k] for k in begun if k not in known]
    left = set(range(len(slots))) - known.keys() - cannot_win(known, len(slots), margin)
    if not left:
        return []
    best = max(known, key=lambda k: (known[k], -k))
    return [slots[min(left, key=lambda k: (abs(k - best), k))]]


def cannot_win(accuracies: Mapping[int, float], count: int, margin: float) -> set[int]:
    """Places of a grid that unimodality rules out.

    Left of k something is better than k by more than the margin: the peak is left of k, and all
    beyond k is lower still. The same from the other side.
    """
    ruled_out: set[int] = set()
    for k, low in accuracies.items():
        if any(high > low + margin for i, high in accuracies.items() if i < k):
            ruled_out.update(range(k + 1, count))
        if any(high > low + margin for i, high in accuracies.items() if i > k):
            ruled_out.update(range(k))
    return ruled_out - accuracies.keys()
