"""A search plan as a stranger would write it: one file, and a line that makes it known."""

from __future__ import annotations

from fixnorm.tuning.plan import Advice, Results, Rounds, SearchSpace
from fixnorm.tuning.plans import Plan


def ends_only(space: SearchSpace, results: Results, *, reach: float) -> Advice:
    """Of every lr round the slots near its ends; then the largest alpha."""
    rounds = Rounds(space, results)
    for r in range(len(space.fractions)):
        slots = rounds.open_lr_round(r)
        near = [s for s in slots if min(s.index, len(slots) - 1 - s.index) < reach]
        if rounds.missing(near):
            return rounds.advice(near)
    largest = rounds.open_alpha_round()[-1:]
    return rounds.advice(largest) if rounds.missing(largest) else rounds.end()


ENDS = Plan(
    name="ends",
    title="toy plan of ends",
    hint="looks at the ends of each range",
    function=ends_only,
    parameters={"reach": 1.0},
    outline="slots within {reach:g} of an end",
    skips=True,
)
