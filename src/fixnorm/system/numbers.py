"""Numbers that are given: of the right kind, within bounds, or refused by name."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from fixnorm.system.text import brief

__all__ = ["check_number", "check_whole", "numbers"]


def check_whole(name: str, value: object, *, least: int, most: int) -> None:
    """Refuse all but whole numbers within bounds; a truth value is none."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} must be a whole number but got {brief(value)}")
    if value < least:
        raise ValueError(f"{name} must be at least {least} but got {brief(value)}")
    if value > most:
        raise ValueError(f"{name} must be at most {most:,} but got {brief(value)}")


def check_number(name: str, value: object) -> None:
    """Refuse all but finite real numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} must be a number but got {brief(value)}")
    try:
        finite = math.isfinite(value)
    except OverflowError:  # an integer that no float holds
        finite = False
    if not finite:
        raise ValueError(f"{name} must be finite but got {brief(value)}")


def numbers(name: str, values: object, count: int | None = None) -> tuple[float, ...]:
    """Real numbers in a row, as floats: a list, a tuple, an array; text is none."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise ValueError(f"{name} must be numbers in a row but got {brief(values)}")
    found = [value.item() if hasattr(value, "item") else value for value in values]
    for number in found:
        check_number(name, number)
    if count is not None and len(found) != count:
        raise ValueError(f"{name} must be {count} numbers but got {len(found)}")
    return tuple(float(number) for number in found)
