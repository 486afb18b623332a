"""One process or many, by what a launcher such as ``torchrun`` has set; which of them speaks."""

from __future__ import annotations

import os

__all__ = ["SAID", "launched", "mark_said", "speaks", "was_said"]

_LAUNCHED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""What a launcher sets; one of them alone is a stray."""
SAID = "fixnorm_said"
"""Of an error, and among all processes: one of them has said it."""


def launched() -> tuple[int, int] | None:
    """This process's rank among how many, if a launcher started it."""
    if any(name not in os.environ for name in _LAUNCHED):
        return None
    rank, size = os.environ["RANK"], os.environ["WORLD_SIZE"]
    if not (rank.isdecimal() and size.isdecimal() and int(rank) < int(size)):
        raise ValueError(
            f"RANK must be a number less than WORLD_SIZE but they are {rank!r} and {size!r}: start"
            f" many processes by torchrun, or unset {', '.join(_LAUNCHED)}"
        )
    return int(rank), int(size)


def speaks() -> bool:
    """Whether this process says what all of them meet."""
    try:
        place = launched()
    except ValueError:
        return True
    return place is None or place[0] == 0


def was_said(error: BaseException) -> bool:
    """Whether the process that met the error, or the first of those, has said what it was."""
    return getattr(error, SAID, False)


def mark_said(error: BaseException) -> None:
    """From now on :func:`was_said`."""
    setattr(error, SAID, True)
