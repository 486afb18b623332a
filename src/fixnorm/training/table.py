"""``metrics.csv`` of a run, read as columns of numbers."""

from __future__ import annotations

import csv
import math
from pathlib import Path

from fixnorm.system import read_regular
from fixnorm.training.checked import Unreadable

__all__ = ["count_lines", "read_table"]


def read_table(path: Path, *, advice: str) -> dict[str, tuple[float | None, ...]]:
    """The columns by name; a cell that is empty or no finite number is none.

    Args:
        path: the file.
        advice: the next move where it is damaged.
    """
    try:
        text = read_regular(path).decode()
        rows = list(csv.reader(text.splitlines(), strict=True))
    except OSError as error:
        raise Unreadable(f"cannot read {path} ({error.strerror}): {advice}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise Unreadable(f"{path} is no table of figures ({error}): {advice}") from None
    if len(rows) < 2 or len(set(rows[0])) < len(rows[0]):
        raise Unreadable(f"{path} is no table of figures (no lines, or a column twice): {advice}")
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(rows[0]):
            raise Unreadable(
                f"{path} is no table of figures: line {number} has {len(row)} cells, the first"
                f" {len(rows[0])}; {advice}"
            )
    columns = zip(*(map(_number, row) for row in rows[1:]), strict=True)
    return dict(zip(rows[0], columns, strict=True))


def count_lines(path: Path) -> int:
    """Lines of figures so far, in whatever state the file is."""
    try:
        return max(read_regular(path).count(b"\n") - 1, 0)
    except OSError:
        return 0


def _number(cell: str) -> float | None:
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
