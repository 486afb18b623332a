"""Consoles of the commands."""

from rich.console import Console

__all__ = ["wide_console"]

_WIDE = 120


def wide_console() -> Console:
    """For tables on stdout: a pipe has no width, so nothing is cut there."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_WIDE)
