"""A plan without a search for lr: the rule of the sphere sets it, and alphas branch from one trunk.

The effective scale of the head is min(g, α√C), so a training with a large alpha is bit for bit that
of a smaller one until g first meets the smaller cap. The largest alpha is trained from the start to
the end: the trunk. A smaller one

- is free where g never met its cap,
- else *branches* from the trunk where g meets it, and costs what is left of the training.

The smaller the alpha, the earlier it branches and the more it costs. So the plan goes downwards,
and stops when accuracy has fallen by more than noise explains.
"""

from __future__ import annotations

from fixnorm.tuning.plan import Advice, Results, Rounds, SearchSpace
from fixnorm.tuning.trial import AUTO, Round
from fixnorm.tuning.unimodal import MARGIN

__all__ = ["auto", "outline"]


def auto(space: SearchSpace, results: Results, *, margin: float = MARGIN) -> Advice:
    """The trunk, then one alpha after another from the largest to the smallest."""
    rounds = Rounds(space, results)
    *smaller, (index, largest) = enumerate(space.alphas)
    (trunk,) = rounds.open(Round("trunk"), [(index, AUTO, largest)], fraction=1.0)
    if rounds.missing([trunk]):
        return rounds.advice([trunk])
    if smaller:
        slots = rounds.open(
            Round("alpha", 1),
            [(place, AUTO, alpha) for place, alpha in smaller],
            fraction=1.0,
            branch_of=trunk.slot_name,
        )
        best = rounds.accuracy(trunk)
        for slot in reversed(slots):
            accuracy = rounds.accuracy(slot)
            if accuracy is None or best is None:
                return rounds.advice([slot])
            if accuracy < best - margin:
                break
            best = max(best, accuracy)
    return rounds.end()


def outline(space: SearchSpace) -> list[str]:
    """Its rounds, in words."""
    times = f" × {space.seeds} seeds" if space.seeds > 1 else ""
    *smaller, largest = space.alphas
    lines = [f"{Round('trunk')}: alpha {largest:g}{times}, lr auto, 1 T_max"]
    if smaller:
        alphas = " ".join(f"{alpha:g}" for alpha in reversed(smaller))
        lines.append(
            f"{Round('alpha')}: {alphas}{times}, each from where g meets its cap in the trunk;"
            " those whose cap is never met are free"
        )
    return lines
