"""The answer to a name that is none: those it may have been meant for."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["did_you_mean", "nearest", "nearest_are"]


def nearest(name: str, known: Iterable[str], *, most: int = 4, cutoff: float = 0.5) -> list[str]:
    """The known names that look like it, the nearest first."""
    return get_close_matches(name.lower(), list(known), n=most, cutoff=cutoff)


def did_you_mean(
    name: str, known: Iterable[str], *, otherwise: str = "one of", cutoff: float = 0.5
) -> str:
    """The nearest name as a question; all of them where none is near."""
    known = list(known)
    near = nearest(name, known, most=1, cutoff=cutoff)
    return f"did you mean {near[0]}?" if near else f"{otherwise} {', '.join(known)}"


def nearest_are(
    name: str, known: Iterable[str], *, first: Iterable[str] = (), otherwise: str
) -> str:
    """The nearest of many names, after those to show ``first``."""
    near = [*first, *nearest(name, known)]
    return f"nearest are {', '.join(near)}" if near else otherwise
