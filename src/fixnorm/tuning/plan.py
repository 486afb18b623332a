"""Algorithm 4 as a pure function: from the trials that have ended to those that come next.

Nothing here trains, reads a file or knows the time. A round is a list of slots; with several seeds
a slot is trained several times and decided by the mean. Because the next trials follow from the
finished ones alone, a search that was killed goes on where it stood.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from fixnorm.methods import under_cap
from fixnorm.system import brief
from fixnorm.system.numbers import check_number, check_whole
from fixnorm.tuning.trial import Lr, Result, Round, Trial, judged, mean_of, ties_in_order

__all__ = ["PAPER", "Advice", "Results", "Rounds", "SearchSpace", "paper"]

LR, ALPHA = (1e-9, 1e6), (1e-6, 1e6)
"""Between these a search may look; beyond them float32 does not."""
_MOST = 1000
"""Slots of a round, and seeds of a slot."""

Results = Mapping[Trial, Result]


@dataclass(frozen=True, kw_only=True)
class SearchSpace:
    """The input of Algorithm 4; the defaults are the paper's (section 4)."""

    lr_min: float = 0.2
    lr_max: float = 3.2
    splits: int = 5
    """K: learning rates a round."""
    fractions: tuple[float, ...] = (0.2, 1.0)
    """T: the length of each lr round, in T_max."""
    alphas: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
    seeds: int = 1

    def __post_init__(self) -> None:
        for name in ("lr_min", "lr_max"):
            check_number(name, getattr(self, name))
        for name in ("fractions", "alphas"):
            numbers = getattr(self, name)
            if not isinstance(numbers, tuple):
                raise ValueError(f"{name} must be numbers but got {brief(numbers)}")
            if len(numbers) > _MOST:
                raise ValueError(f"{name} must be at most {_MOST} but got {len(numbers)} of them")
            for number in numbers:
                check_number(name, number)
        check_whole("splits (K)", self.splits, least=2, most=_MOST)
        check_whole("seeds", self.seeds, least=1, most=_MOST)
        if not self.lr_min > 0:
            raise ValueError(f"lr_min must be > 0 but got {self.lr_min:g}")
        if not self.lr_min < self.lr_max:
            raise ValueError(
                f"lr_max must be greater than lr_min but got [{self.lr_min:g}, {self.lr_max:g}]"
            )
        if not self.fractions or not all(0 < f <= 1 for f in self.fractions):
            raise ValueError(f"fractions must lie in (0, 1] but got {_listed(self.fractions)}")
        if list(self.fractions) != sorted(self.fractions):
            raise ValueError(f"fractions must not decrease but got {_listed(self.fractions)}")
        if not self.alphas:
            raise ValueError("alphas must not be empty: the paper tries 0.5 1 2 4 8 16")
        if self.alphas[0] <= 0:
            raise ValueError(f"alphas must be > 0 but got {_listed(self.alphas)}")
        if list(self.alphas) != sorted(set(self.alphas)):
            raise ValueError(f"alphas must increase but got {_listed(self.alphas)}")
        for name, least, most in (("lr_min", *LR), ("lr_max", *LR)):
            if not least <= getattr(self, name) <= most:
                raise ValueError(
                    f"{name} must lie in [{least:g}, {most:g}] but got {getattr(self, name):g}"
                )
        if not ALPHA[0] <= self.alphas[0] <= self.alphas[-1] <= ALPHA[1]:
            raise ValueError(
                f"alphas must lie in [{ALPHA[0]:g}, {ALPHA[1]:g}] but got {_listed(self.alphas)}"
            )

    @property
    def trainings(self) -> int:
        """The most trainings a search takes."""
        lr_rounds = self.splits * len(self.fractions)
        return (lr_rounds + len(self.alphas) - 1) * self.seeds

    @property
    def cost(self) -> float:
        """The most it costs, in T_max: K·ΣT + (m − 1)·T_last, 11 with the paper's settings."""
        lr_rounds = self.splits * math.fsum(self.fractions)
        alpha_round = (len(self.alphas) - 1) * self.fractions[-1]
        return round((lr_rounds + alpha_round) * self.seeds, 9)


PAPER = SearchSpace()
"""Section 4: two rounds over [0.2, 3.2], K = 5, T = [0.2, 1.0]·T_max, alphas 0.5 … 16."""


@dataclass(frozen=True)
class Advice:
    """What to do next."""

    rounds: Mapping[Round, tuple[Trial, ...]]
    """The slots of all rounds that are known by now, the current round last; a plan may leave some
    of them untrained."""
    train: tuple[Trial, ...] = ()
    """Trials to train now, in this order; those already under way are among them."""
    free: Mapping[Trial, Trial] = field(default_factory=dict)
    """Trials that need no training, each with the trial whose result is theirs, bit for bit."""
    answer: Trial | None = None
    """There when the search is over, unless every training failed: a slot with its mean."""

    @property
    def over(self) -> bool:
        """Whether nothing is left to do."""
        return not self.train and not self.free


def paper(space: SearchSpace, results: Results, *, rounds: Rounds | None = None) -> Advice:
    """The next trainings of Algorithm 4; ``rounds`` may take lr from another alpha."""
    rounds = rounds or Rounds(space, results)
    for r in range(len(space.fractions)):
        slots = rounds.open_lr_round(r)
        if rounds.missing(slots):
            return rounds.advice(slots)
    if len(space.alphas) > 1:
        slots = rounds.open_alpha_round()
        # The largest first: where its g stays under a smaller cap, that slot is the same training.
        for group in (slots[-1:], slots):
            if rounds.missing(group):
                return rounds.advice(group)
    return rounds.end()


class Rounds:
    """The rounds of a search, rebuilt from its results: Algorithm 4's variables by their names."""

    def __init__(self, space: SearchSpace, results: Results, *, lr_alpha: int = 0) -> None:
        self.space, self.results = space, results
        self._lr_alpha = space.alphas[lr_alpha]
        """The alpha under which lr is tuned; the alpha round has the others."""
        self.opened: dict[Round, tuple[Trial, ...]] = {}
        self.lr_max = space.lr_max

    @cached_property
    def _trained(self) -> dict[tuple[Lr, float, int], list[Trial]]:
        """The trials that stand for others, by lr, fraction and seed."""
        trained: dict[tuple[Lr, float, int], list[Trial]] = {}
        for trial in sorted(self.results, key=_order):
            trained.setdefault((trial.lr, trial.fraction, trial.seed), []).append(trial)
        return trained

    def open_lr_round(self, r: int) -> tuple[Trial, ...]:
        """The slots of lr round ``r``, under the winner of the round before."""
        if r > 0:
            before = self.opened[Round("lr", r - 1)]
            winner = self.best(before)
            # Every training of the round failed: ties go to the lower lr, so does this.
            self.lr_max = (winner or before[0]).rate
        rates = uniform_split(self.space.lr_min, self.lr_max, self.space.splits, first=r == 0)
        fraction, alpha = self.space.fractions[r], self._lr_alpha
        return self.open(
            Round("lr", r), ((k, lr, alpha) for k, lr in enumerate(rates)), fraction=fraction
        )

    def best_lr(self) -> float:
        """lr_best of the rounds that are done; the lowest of the last where every one failed."""
        slots = [slot for slots in self.opened.values() for slot in slots]
        return (self.best(slots) or list(self.opened.values())[-1][0]).rate

    def open_alpha_round(self) -> tuple[Trial, ...]:
        """The slots of the alpha round, at lr_best; that of the lr rounds is trained already."""
        lr = self.best_lr()
        alphas = [(i, a) for i, a in enumerate(self.space.alphas) if a != self._lr_alpha]
        return self.open(
            Round("alpha", len(self.opened)),
            ((i, lr, alpha) for i, alpha in alphas),
            fraction=self.space.fractions[-1],
        )

    def open(
        self,
        round_: Round,
        choices: Iterable[tuple[int, Lr, float]],
        *,
        fraction: float,
        branch_of: str | None = None,
    ) -> tuple[Trial, ...]:
        """The slots of a round, by place, lr and alpha."""
        self.opened[round_] = tuple(
            Trial(
                round=round_,
                index=index,
                lr=lr,
                alpha=alpha,
                fraction=fraction,
                branch_of=branch_of,
            )
            for index, lr, alpha in choices
        )
        return self.opened[round_]

    def trials(self, slots: Iterable[Trial]) -> list[Trial]:
        """All trainings of some slots."""
        return [slot.seeded(seed) for slot in slots for seed in range(self.space.seeds)]

    def missing(self, slots: Iterable[Trial]) -> list[Trial]:
        """Those without a result."""
        return [trial for trial in self.trials(slots) if trial not in self.results]

    def accuracy(self, slot: Trial) -> float | None:
        """The mean over the seeds; −∞ if one failed; none while one is missing."""
        return mean_of(self.results.get(trial) for trial in self.trials([slot]))

    def best(self, slots: Iterable[Trial]) -> Trial | None:
        """The slot with the best accuracy; the first of equals; none if every training failed."""
        best, best_accuracy = None, -math.inf
        for slot in slots:
            accuracy = self.accuracy(slot)
            if accuracy is not None and accuracy > best_accuracy:
                best, best_accuracy = slot, accuracy
        return best

    def source(self, trial: Trial) -> Trial | None:
        """A finished trial that is this one bit for bit: same numbers, or a cap that neither met.

        min(g, α√C) is g as long as g is under the cap, so a training whose g stayed below both
        caps does not depend on which of the two it had.
        """
        assert trial.alpha is not None
        for other in reversed(self._trained.get((trial.lr, trial.fraction, trial.seed), [])):
            if other.alpha == trial.alpha:
                return other
            result = self.results[other]
            if result.largest_scale is None or not result.finite or other.alpha is None:
                continue
            if under_cap(result.largest_scale, min(trial.alpha, other.alpha)):
                return other
        return None

    def is_free(self, slot: Trial) -> bool:
        """Whether no training of the slot is needed."""
        return all(self.source(trial) is not None for trial in self.trials([slot]))

    def begun(self, slot: Trial) -> bool:
        """Whether some training of the slot has ended."""
        return any(trial in self.results for trial in self.trials([slot]))

    def advice(self, slots: Iterable[Trial]) -> Advice:
        """Train what is missing of these slots, but for what is known already."""
        train: list[Trial] = []
        free: dict[Trial, Trial] = {}
        for trial in self.missing(slots):
            source = self.source(trial)
            if source is None:
                train.append(trial)
            else:
                free[trial] = source
        return Advice(self.opened, tuple(train), free)

    def end(self) -> Advice:
        """The search is over: the best slot of all rounds, the first of equals."""
        every = (slot for slots in self.opened.values() for slot in slots)
        best = self.best(ties_in_order(every))
        if best is None:
            return Advice(self.opened)
        accuracy = self.accuracy(best)
        assert accuracy is not None
        return Advice(self.opened, answer=judged(best, accuracy))


def _order(trial: Trial) -> tuple[bool, bool, int, int, int]:
    """As a plan asks for them, the lr rounds first; a trunk stands for others before all else."""
    kind, number = trial.round.kind, trial.round.number
    return kind != "lr", kind == "trunk", number, trial.index, trial.seed


def uniform_split(low: float, high: float, count: int, *, first: bool) -> tuple[float, ...]:
    """``count`` learning rates of [low, high], evenly spaced.

    The first round leaves the lower end out, later rounds have both ends: only this gives every
    learning rate that the paper prints.
    """
    steps = count if first else count - 1
    start = 1 if first else 0
    # Rounded so that 0.2 + 2·0.6 is 1.4 and a slot's numbers read as they are written.
    return tuple(
        float(f"{low + (high - low) * k / steps:.10g}") for k in range(start, start + count)
    )


def _listed(numbers: Iterable[float]) -> str:
    return " ".join(f"{number:g}" for number in numbers) or "none"
