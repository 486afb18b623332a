"""The ways to train that ``matrix_scope.py`` compares, and where their searches begin."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """A way to train, with where its search begins."""

    name: str
    image_lrs: tuple[float, float, float] = (1e-3, 3e-3, 9e-3)
    text_lrs: tuple[float, float, float] = (3e-3, 1e-2, 3e-2)
    others: tuple[float, ...] = (0.1, 1.0)
    """Weight decay or alpha."""
    gains: bool = False
    """Whether each row of a hidden matrix has a learnt gain."""
    constants: tuple[float, float, float] | None = None
    """Of a rule that is tried: c of steps by angle, of steps of their own length, of all else."""

    @property
    def finds_lr(self) -> bool:
        """Whether lr follows from the length of the training."""
        return self.name.startswith("auto")

    @property
    def has_muon(self) -> bool:
        """Whether matrices between the first layer and the head are Muon's."""
        return "muon" in self.name

    @property
    def decays(self) -> bool:
        """Whether the other number is a weight decay."""
        return self.name.removesuffix("-fan") in ("adamw", "adamw-tables", "muon")

    @property
    def starts_by_fan_in(self) -> bool:
        """Whether the start is given, and all of the search goes to lr and the other number."""
        return self.name.endswith("-fan")


ANGLES = (0.007, 0.02, 0.06)
CAPS = (2.0, 0.5)
CONSTANTS = (0.25, 0.5, 1.0, 2.0)
ADAMW = Side(name="adamw")
TABLES = Side(name="adamw-tables")
"""A control: AdamW with ten times the lr for embeddings, as relative steps leave them a larger one
than is good for matrices."""
MATRIX = Side(name="matrix", image_lrs=ANGLES, text_lrs=ANGLES, others=CAPS)
MUON = Side(name="muon")
FAN_IN = (replace(ADAMW, name="adamw-fan"), replace(MUON, name="muon-fan"))
"""A control: with the start that the rule for lr has beside it."""
SIDES = (ADAMW, MATRIX, MUON, Side(name="global", others=CAPS))
OWN_LRS = (0.01, 0.03, 0.09)
OWN = replace(MATRIX, name="matrix-own", image_lrs=OWN_LRS, text_lrs=OWN_LRS)
MATRIX_MUON = replace(MATRIX, name="matrix-muon")
MUON_OWN = replace(OWN, name="matrix-muon-own")
"""Muon's steps are all as long as AdamW's usually are: a fifth of lr for an entry."""
AUTO_MUON = Side(name="auto-muon")
AUTO_ADAMW = Side(name="auto-adamw")
"""Nothing is searched for: lr by the rule, and :data:`NO_SEARCH`."""
OWN_LENGTH = (OWN, MUON_OWN)
KNOWN = {side.name: side for side in (*SIDES, OWN, TABLES, MATRIX_MUON, MUON_OWN, *FAN_IN)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """The numbers of a training, and its score."""

    lr: float
    radius: float | Literal["fan_in"]
    other: float
    seed: int = 0
    score: float = -math.inf

    @property
    def name(self) -> str:
        """Unique in a setting and side."""
        return f"lr{self.lr:g}-r{self.radius}-o{self.other:g}-s{self.seed}"


GAINS = (replace(AUTO_MUON, name="auto-muon-gains", gains=True), AUTO_MUON)
NO_SEARCH = Point(lr=1.0, radius="fan_in", other=2.0)
