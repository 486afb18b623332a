"""What is replayed, and the strategies by name: known before Optuna is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fixnorm.evidence.landscapes import NOISES
from fixnorm.system.nearest import did_you_mean
from fixnorm.system.numbers import check_whole
from fixnorm.tuning.plans import PLANS, TITLES

__all__ = ["HALVING", "Options", "known", "strategies"]

HALVING = "successive-halving"


def strategies() -> dict[str, str]:
    """Names, and what people call them.

    A plan whose lr follows from gradients is none of them: a landscape has no gradients.
    """
    replayed = {n: t for n, t in TITLES.items() if n not in PLANS or PLANS[n].searches_lr}
    return {**replayed, HALVING: "successive halving"}


def known(names: Sequence[str]) -> tuple[str, ...]:
    """The names in the order of :func:`strategies`, each once; an error if one is none."""
    there = strategies()
    for name in names:
        if name in PLANS and name not in there:
            raise ValueError(
                f"plan {name} cannot be replayed: its lr follows from gradients, which no landscape"
                " has; leave it out"
            )
        if name not in there:
            hint = did_you_mean(name, there, otherwise="known are")
            raise ValueError(f"unknown strategy {name!r}: {hint}")
    return tuple(name for name in there if name in names)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the replays depend on, beside the landscapes."""

    strategies: tuple[str, ...] | None = None
    """By name; all that fit where none are given."""
    replays: int = 200
    seed: int = 0
    budget: int = 25
    """Of all but the plans, in T_max."""
    noise: str = "full"
    both: bool = False
    """Whether the samplers and successive halving run on lr × alpha, too."""

    def __post_init__(self) -> None:
        check_whole("replays", self.replays, least=1, most=1_000_000)
        check_whole("seed", self.seed, least=0, most=2**32 - 1)
        check_whole("budget", self.budget, least=1, most=10_000)
        if self.noise not in NOISES:
            raise ValueError(f"noise must be {' or '.join(NOISES)} but got {self.noise!r}")
        if self.strategies is not None and not known(self.strategies):
            raise ValueError(f"--strategies names none: give some of {', '.join(strategies())}")
