"""Grids of scores, by two seeds: all of one side in one setting."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from fixnorm.evidence.experiment import need
from fixnorm.evidence.forgiveness.centred import Loss, Reach, lost_around, reach_of
from fixnorm.evidence.forgiveness.one_default import Place, Table
from fixnorm.evidence.landscapes import Landscape, Recorded
from fixnorm.evidence.noise import Group, near_the_best
from fixnorm.training.bounded import Name, Percent, Positive
from fixnorm.training.checked import Part

__all__ = ["NAMES", "RIVALS", "SECOND", "SEEDS", "Cell", "Grid", "Recording", "Setting", "Side"]

SEEDS = 2
"""A default is chosen on the one and judged on the other, and the other way round."""
Side = Literal["fixnorm", "auto", "weight-decay"]
RIVALS: tuple[Side, ...] = ("fixnorm", "weight-decay")
"""Whose best is what is lost to."""
NAMES: dict[Side, str] = {
    "fixnorm": "FixNorm",
    "auto": "FixNorm, lr=auto",
    "weight-decay": "weight decay",
}
SECOND: dict[Side, str] = {"fixnorm": "alpha", "auto": "alpha", "weight-decay": "λ"}


class Cell(Part):
    """A point of a grid."""

    lr: Positive | None
    """None: it follows from the sphere."""
    level: Positive
    """alpha or λ."""
    scores: tuple[Percent | None, Percent | None]
    """By seed; none where it diverged."""

    @property
    def counted(self) -> tuple[float, float]:
        """What diverged counts as 0."""
        return self.scores[0] or 0.0, self.scores[1] or 0.0


class Grid(Part):
    """All of one side in one setting."""

    side: Side
    cells: Annotated[tuple[Cell, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _whole_grid(self) -> Self:
        wanted = len({c.lr for c in self.cells}) * len({c.level for c in self.cells})
        whole = len(self.cells) == len(self.table) == wanted
        need(whole, "cells should have every level at every lr, once")
        return self

    @property
    def table(self) -> dict[Place, tuple[float, float]]:
        return {(cell.lr, cell.level): cell.counted for cell in self.cells}


class Setting(Part):
    """What was trained, by each side."""

    name: Name
    recipe: Name
    grids: tuple[Grid, ...]

    @property
    def sides(self) -> tuple[Side, ...]:
        return tuple(grid.side for grid in self.grids)

    def near_the_best(self) -> list[Group]:
        """What was trained by both seeds, and is worth comparing."""
        return near_the_best(cell.counted for grid in self.grids for cell in grid.cells)

    @property
    def table(self) -> Table:
        return {grid.side: grid.table for grid in self.grids}


class Recording(Setting):
    """A setting whose grids are landscapes."""

    @model_validator(mode="after")
    def _two_landscapes(self) -> Self:
        need(self.sides == RIVALS, f"grids should be of {' and '.join(RIVALS)}")
        for grid in self.grids:
            rates = {cell.lr for cell in grid.cells}
            need(None not in rates and len(rates) > 1, "cells should have two lr or more")
        return self

    @cached_property
    def landscapes(self) -> dict[Side, Landscape]:
        return {grid.side: _landscape(self.name, grid) for grid in self.grids}

    @property
    def top(self) -> float:
        """The best of both."""
        return max(one.best.accuracy for one in self.landscapes.values())

    @cached_property
    def reach(self) -> Reach:
        return reach_of(list(self.landscapes.values()))

    def around(self, side: Side) -> Loss:
        return lost_around(self.landscapes[side], self.reach, self.top)


def _landscape(name: str, grid: Grid) -> Landscape:
    places = {cell: (1.0, cell.level, cell.lr) for cell in grid.cells if cell.lr is not None}
    return Landscape(
        name=name,
        axis=SECOND[grid.side],
        lrs=tuple(sorted({lr for _, _, lr in places.values()})),
        levels=tuple(sorted({level for _, level, _ in places.values()})),
        seeds=tuple(range(SEEDS)),
        trainings={
            (place, seed): Recorded(score, (score,))
            for cell, place in places.items()
            for seed, score in enumerate(cell.counted)
        },
    )
