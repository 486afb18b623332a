"""One default for settings that differ: chosen on half of them, judged on the other half.

And chosen by one seed, judged by the other, so that noise does not choose. In a setting s the
regret of a place p of a grid is

    regret(s, p) = score(s, best(s)) − score(s, p),

both scores by the judging seed, and best(s) the place, of all grids of both methods, that is best
by the choosing seed: what tuning in the setting itself would have brought. Each half and each seed
chooses once and judges once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean

__all__ = [
    "ORDERS",
    "Judged",
    "Place",
    "Table",
    "Way",
    "aims",
    "crossed",
    "every_half",
    "judged",
]

ORDERS = ((0, 1), (1, 0))
"""The seed that chooses, and the one that judges."""

Place = tuple[float | None, float]
"""lr and the second number; an lr that is none follows from the sphere."""
Table = Mapping[str, Mapping[Place, Sequence[float]]]
"""Of a setting: the scores of each seed, by side and place."""
Way = tuple[Sequence[int], Sequence[int]]
"""The settings that choose, and those that judge, by their places."""


@dataclass(frozen=True)
class Judged:
    """What the defaults of a side lose in each setting."""

    defaults: tuple[Place, ...]
    """By half and seed."""
    regrets: tuple[float, ...]
    """By setting, the mean over the seeds."""
    tuned: tuple[float, ...]
    """The same of the side's own best place in each setting."""

    @property
    def mean(self) -> float:
        return fmean(self.regrets)

    @property
    def worst(self) -> float:
        return max(self.regrets)


def judged(
    tables: Sequence[Table], ways: Sequence[Way], side: str, *, rivals: Sequence[str]
) -> Judged:
    """A side's defaults, chosen and judged in these ways.

    Args:
        tables: the settings.
        ways: each setting is judged in one of them.
        side: whose defaults.
        rivals: the sides whose best is what is lost to.
    """
    defaults: list[Place] = []
    regrets, tuned = [0.0] * len(tables), [0.0] * len(tables)
    for choosing, judging in ways:
        for by, on in ORDERS:
            default = _best([tables[k][side] for k in choosing], by)
            defaults.append(default)
            for k in judging:
                own, top = tables[k][side], _aim(tables[k], rivals, by=by, on=on)
                regrets[k] += (top - own[default][on]) / len(ORDERS)
                tuned[k] += (top - own[_best([own], by)][on]) / len(ORDERS)
    return Judged(tuple(defaults), tuple(regrets), tuple(tuned))


def aims(tables: Sequence[Table], *, rivals: Sequence[str]) -> tuple[float, ...]:
    """What regrets are counted from in each setting, the mean over the seeds."""
    return tuple(fmean(_aim(table, rivals, by=by, on=on) for by, on in ORDERS) for table in tables)


def crossed(half: Sequence[int], count: int) -> tuple[Way, Way]:
    """Chosen on the half and judged on the others, and chosen on the others and judged on it."""
    others = tuple(k for k in range(count) if k not in half)
    return (tuple(half), others), (others, tuple(half))


def every_half(count: int) -> Iterator[tuple[int, ...]]:
    """All ways to choose on half of so many settings; the two halves of a way come once."""
    for half in combinations(range(count), count // 2):
        if count % 2 or 0 in half:
            yield half


def _aim(table: Table, rivals: Sequence[str], *, by: int, on: int) -> float:
    places = [(side, place) for side in rivals for place in table[side]]
    side, place = max(places, key=lambda at: table[at[0]][at[1]][by])
    return table[side][place][on]


def _best(grids: Sequence[Mapping[Place, Sequence[float]]], seed: int) -> Place:
    """The place with the best mean over the settings; the first of equals."""
    return max(grids[0], key=lambda place: fmean(grid[place][seed] for grid in grids))
