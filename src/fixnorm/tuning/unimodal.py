"""A faster plan: Algorithm 4's grids, without the trainings that cannot win.

It trusts the paper's priors. Accuracy rises and then falls over the learning rates of a round, and
over alpha; so where it has fallen by more than the noise from one trained slot to another, nothing
beyond the lower one can win. And the best lr of a long training seldom is the bound that a short
one gave it: the search starts in the middle and looks down first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fixnorm.tuning.plan import Advice, Outcomes, Search, SearchSpace, Slot

__all__ = ["unimodal"]

MARGIN = 0.3
"""A difference in accuracy (percent) that noise does not explain."""


def unimodal(space: SearchSpace, outcomes: Outcomes, *, margin: float = MARGIN) -> Advice:
    """The next trainings: never one that :func:`~fixnorm.tuning.plan.paper` would not take."""
    search = Search(space, outcomes)
    for r in range(len(space.fractions)):
        slots = search.open_lr_round(r)
        middle = len(slots) // 2
        wanted = next_of(search, slots, margin, start=(middle, middle - 1))
        if wanted:
            return search.advice(wanted)
    if len(space.alphas) > 1:
        slots = search.open_alpha_round()
        if search.missing(slots[-1:]):
            return search.advice(slots[-1:])
        known = [slot for slot in slots if search.is_free(slot)]
        if search.missing(known):
            return search.advice(known)
        first = [slot for slot in search.rounds[-2].slots if slot.lr == slots[0].lr]
        wanted = next_of(search, (*first, *slots), margin, start=(0,))
        if wanted:
            return search.advice(wanted)
    return search.end()


def next_of(
    search: Search, slots: Sequence[Slot], margin: float, *, start: Sequence[int]
) -> list[Slot]:
    """The slots of a grid to train next; none when no other can win."""
    begun = [k for k, slot in enumerate(slots) if k in start or search.begun(slot)]
    values = {k: search.accuracy(slots[k]) for k in begun}
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
