"""Numbers and names as files may hold them: finite, and of a size that a figure can show."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import AfterValidator, Field

__all__ = ["Count", "Fraction", "Loose", "Name", "Percent", "Positive", "Real", "Slug"]

Real = Annotated[float, Field(ge=-1e9, le=1e9, allow_inf_nan=False)]
Positive = Annotated[float, Field(ge=1e-12, le=1e9, allow_inf_nan=False)]
Percent = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, lt=2**53)]
Fraction = Annotated[float, Field(ge=1e-4, le=1)]
"""Of T_max."""
Name = Annotated[str, Field(max_length=200, pattern=r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*$")]
"""Words for people: one line, nothing that a terminal would obey."""


def _finite(value: float | None) -> float | None:
    if value is None or not math.isfinite(value):
        return None
    if abs(value) > 1e9:
        raise ValueError(f"should be a number of ordinary size but it is {value:g}")
    return value


Loose = Annotated[float | None, AfterValidator(_finite)]
"""Of one that diverged: none, or no number at all, which becomes none."""
Slug = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$", max_length=100)]
"""A name that becomes part of a path: no separators, nothing that leads elsewhere."""
