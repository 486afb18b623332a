"""What an experiment shows: figures, tables, and what became of the paper's claims."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fixnorm.report.drawing import Drawing
from fixnorm.report.text_table import TextTable
from fixnorm.reproduce.statistics import Mean

__all__ = ["Claim", "Shown", "Verdict", "at_least", "greater"]

Verdict = Literal["holds", "does not hold", "cannot be told"]


@dataclass(frozen=True)
class Claim:
    """Something that the paper says, and what was measured."""

    text: str
    verdict: Verdict
    measured: str


@dataclass(frozen=True)
class Shown:
    """All of an experiment that people look at."""

    drawings: tuple[Drawing, ...]
    tables: tuple[TextTable, ...]
    claims: tuple[Claim, ...]


def greater(difference: Mean) -> Verdict:
    """Of a claim that something is greater: zero must be outside of the interval."""
    if not difference.clear:
        return "cannot be told"
    return "holds" if difference.mean > 0 else "does not hold"


def at_least(difference: Mean) -> Verdict:
    """Of a claim that something is as good: not if it is clearly worse."""
    if difference.half_width is None:
        return "cannot be told"
    return "does not hold" if difference.clear and difference.mean < 0 else "holds"
