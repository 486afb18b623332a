"""JSON as a checked model: the one border between files and the code behind it.

Whatever is wrong with a file (no JSON, cut off, nested without end, a list where an object should
be, a key that is missing, a number of a thousand digits) is one line with the file, the place in it
and what was expected there.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from fixnorm.system import brief, read_regular

__all__ = [
    "Missing",
    "Part",
    "Unreadable",
    "can_read",
    "checked",
    "fault",
    "read_checked",
]

T = TypeVar("T")

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,60}")


class Unreadable(ValueError):
    """A file that is not what it should be."""


class Missing(Unreadable):
    """No file at all."""


class Part(BaseModel):
    """Something a file holds: strict in its types; what it does not know it leaves alone."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", protected_namespaces=())


def read_checked(path: Path, kind: type[T], *, what: str, advice: str) -> T:
    """The content of a JSON file as ``kind``.

    Args:
        path: the file.
        kind: a model, or any type that pydantic knows.
        what: the file should be, such as ``"a record of fixnorm reproduce"``.
        advice: the next move.
    """
    try:
        content = read_regular(path)
    except FileNotFoundError:
        raise Missing(f"{path} does not exist: {advice}") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise Unreadable(f"cannot read {path} ({reason}): {advice}") from None
    try:
        return checked(content.removeprefix(b"\xef\xbb\xbf"), kind)
    except ValueError as error:
        raise Unreadable(f"{path} is not {what}: {error}; {advice}") from None


def can_read(read: Callable[[Path], object]) -> Callable[[Path], bool]:
    """Whether a file is what ``read`` takes; for who asks whose it is."""

    def answer(path: Path) -> bool:
        try:
            read(path)
        except ValueError:
            return False
        return True

    return answer


def checked(content: bytes | str, kind: type[T]) -> T:
    """JSON text as ``kind``; a :class:`ValueError` says where it is wrong."""
    try:
        return TypeAdapter(kind).validate_json(content, strict=True)
    except ValidationError as error:
        raise ValueError(fault(error)) from None


def fault(error: ValidationError) -> str:
    """The first fault in a line: place, what was expected, what is there."""
    first = error.errors(include_url=False)[0]
    place = _place(first["loc"])
    if first["type"] == "json_invalid":
        return f"it is no whole JSON ({first['msg'].removeprefix('Invalid JSON: ')})"
    if first["type"] == "missing":
        return f"{place} is missing"
    if first["type"] == "extra_forbidden":
        return f"{place} is unknown to this version"
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "value_error":
        return f"{place}: {message}" if place else message
    message = message[0].lower() + message[1:]
    return f"{place or 'it'}: {message} but it is {brief(first['input'])}"


def _place(steps: tuple[Any, ...]) -> str:
    """``("runs", 3, "curve")`` as ``runs[3].curve``."""
    place = ""
    for step in steps:
        if isinstance(step, int):
            place += f"[{step}]"
        elif _WORD.fullmatch(step):
            place += f".{step}" if place else step
        else:  # a key that somebody else chose
            place += f"[{brief(step)}]"
    return place
