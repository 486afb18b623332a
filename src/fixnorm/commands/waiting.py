"""What a terminal shows while a command takes its time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["waiting"]


@contextmanager
def waiting(text: str) -> Iterator[None]:
    """A spinner with this text."""
    from rich.console import Console
    from rich.markup import escape

    with Console(stderr=True).status(escape(text)):
        yield
