"""The answer to a name nobody knows."""

from collections.abc import Iterable
from difflib import get_close_matches


def unknown(
    name: str, known: Iterable[str], *, listed_by: str, first: Iterable[str] = ()
) -> ValueError:
    """Return the error for `name`: the names to show `first`, then the nearest known ones."""
    near = [*first, *get_close_matches(name.lower(), list(known), n=4, cutoff=0.5)]
    hint = f"nearest are {', '.join(near)}" if near else "no name is near it"
    return ValueError(f"unknown model {name!r}: {hint}; all are listed by {listed_by}")
