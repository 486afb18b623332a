"""Regular files alone: a pipe would be waited for, a device has no end."""

from __future__ import annotations

import os
import stat
from pathlib import Path

__all__ = ["kind_of", "read_regular", "regular"]

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def regular(path: str | Path) -> bool:
    """Whether there is a regular file, or a link to one; never waits and never raises."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError):  # not there, a link in a circle, a name that no file can have
        return False


def kind_of(path: str | Path) -> str:
    """What is there that is no regular file, for people."""
    return _KINDS.get(stat.S_IFMT(os.stat(path).st_mode), "no regular file")


def read_regular(path: str | Path) -> bytes:
    """The content of a regular file; anything else is an ``OSError`` at once."""
    if not regular(path):
        raise OSError(0, f"it is {kind_of(path)}", str(path))
    # Should it have become a pipe by now, opening it still does not wait.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        return file.read()
