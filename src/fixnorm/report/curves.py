"""The curves of a run, from its ``metrics.csv``, whatever state that is in."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from fixnorm.system import read_regular
from fixnorm.system.run_paths import RunPaths

__all__ = ["Curves", "read_curves", "thinned"]

Curve = tuple[tuple[float, float], ...]
"""Points (epoch, value)."""
Curves = Mapping[str, Curve]
"""By the name of the column."""


def read_curves(folder: Path | None) -> Curves:
    """The columns of a run's figures over its epochs; empty where there is nothing to read yet.

    Cells that are empty or no finite number are left out.
    """
    if folder is None:
        return {}
    try:
        text = read_regular(RunPaths(folder).metrics).decode(errors="replace")
        # A line without its end is still being written: its last number may be cut short.
        lines = text[: text.rfind("\n") + 1].replace("\0", "").splitlines()
        rows = list(csv.DictReader(lines))
    except (OSError, csv.Error):
        return {}
    curves: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        epoch = _number(row.get("epoch"))
        if epoch is None:
            continue
        for name, cell in row.items():
            value = _number(cell)
            if name is not None and value is not None:
                curves.setdefault(name, []).append((epoch, value))
    return {name: tuple(points) for name, points in curves.items()}


def thinned(curve: Sequence[tuple[float, float]], most: int) -> Curve:
    """At most so many points (two at least), evenly taken, the first and the last among them."""
    count = len(curve)
    most = max(most, 2)
    if count <= most:
        return tuple(curve)
    return tuple(curve[round(k * (count - 1) / (most - 1))] for k in range(most))


def _number(cell: object) -> float | None:
    try:
        value = float(cell)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) else None
