"""The strategies by name, and on which landscape each can run."""

from __future__ import annotations

import random
from collections import ChainMap
from collections.abc import Sequence
from dataclasses import dataclass

from fixnorm.evidence.landscapes import AXES, Landscape
from fixnorm.evidence.replay.draws import Draws
from fixnorm.evidence.replay.halving import run_halving
from fixnorm.evidence.replay.plans import run_plan
from fixnorm.evidence.replay.samplers import run_sampler
from fixnorm.evidence.replay.trace import Trace
from fixnorm.system.nearest import did_you_mean
from fixnorm.tuning.plans import PLANS, SAMPLERS, TITLES

__all__ = ["HALVING", "STRATEGIES", "Entry", "entries_of", "known", "run"]

HALVING = "successive-halving"
STRATEGIES = ChainMap({HALVING: "successive halving"}, TITLES)
"""Names, and what people call them; plans that are registered later are among them."""


@dataclass(frozen=True)
class Entry:
    """A strategy on a landscape."""

    strategy: str
    landscape: Landscape

    @property
    def title(self) -> str:
        """For people."""
        return f"{STRATEGIES[self.strategy]}, {AXES[self.landscape.axis]}"


def known(names: Sequence[str]) -> tuple[str, ...]:
    """The names in the order of :data:`STRATEGIES`, each once; an error if one is none."""
    for name in names:
        if name not in STRATEGIES:
            hint = did_you_mean(name, STRATEGIES, otherwise="known are")
            raise ValueError(f"unknown strategy {name!r}: {hint}")
    return tuple(name for name in STRATEGIES if name in names)


def entries_of(
    landscapes: Sequence[Landscape], strategies: Sequence[str], *, both: bool = False
) -> list[Entry]:
    """Who runs where, in one setting.

    Plans run on lr × alpha. The others run on lr × weight decay, which is what they tune in
    practice, and on lr × alpha where that is all there is, or where ``both`` are wanted.
    """
    by_axis = {landscape.axis: landscape for landscape in landscapes}
    entries = []
    for name in strategies:
        axes = ["alpha"] if name in PLANS else ["weight_decay", "alpha"]
        found = [by_axis[axis] for axis in axes if axis in by_axis]
        entries += [Entry(name, landscape) for landscape in (found if both else found[:1])]
    return entries


def run(entry: Entry, *, replay: int, seed: int, budget: int, noise: str) -> Trace:
    """One replay; the same arguments give the same trace, whatever else is replayed.

    Replays of one number have the same noise for all strategies: at the same point of a landscape
    they see the same training.
    """
    draws = Draws(entry.landscape, f"{seed} {replay}", noise)
    own = random.Random(f"{seed} {replay} {entry.strategy}").getrandbits(31)
    if entry.strategy in PLANS:
        return run_plan(entry.strategy, draws)
    if entry.strategy in SAMPLERS:
        return run_sampler(entry.strategy, draws, budget=budget, seed=own)
    if entry.strategy == HALVING:
        return run_halving(draws, budget=budget, seed=own)
    raise ValueError(f"unknown strategy {entry.strategy!r}: known are {', '.join(STRATEGIES)}")
