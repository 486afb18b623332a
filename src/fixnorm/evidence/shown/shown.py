"""What an experiment shows: figures, tables, and what became of the paper's claims."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fixnorm.report.drawing import Drawing
from fixnorm.report.statistics import Mean
from fixnorm.report.tables import TextTable

__all__ = ["NEAR", "Claim", "Shown", "Verdict", "at_least", "greater"]

Verdict = Literal["holds", "does not hold", "not contradicted", "cannot be told"]

NEAR = 1.0
"""Percent of accuracy: less than this below is as good, for trainings of this size."""


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
    """Of a claim that something is as good: the interval must end near zero, or above it.

    One that reaches further down, but is not all below zero, contradicts nothing.
    """
    if difference.half_width is None:
        return "cannot be told"
    if difference.clear and difference.mean < 0:
        return "does not hold"
    lowest = difference.mean - difference.half_width
    return "holds" if lowest >= -NEAR else "not contradicted"
