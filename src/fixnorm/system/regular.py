"""Regular files alone: a pipe would be waited for, a device has no end."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

__all__ = ["kind_of", "open_regular", "read_regular", "regular"]

MOST = 2**28
"""Bytes of a file of ours."""
_NOWHERE = "a link that leads nowhere"
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
    try:
        return _KINDS.get(stat.S_IFMT(os.stat(path).st_mode), "no regular file")
    except FileNotFoundError:
        if not os.path.islink(path):
            raise
        return _NOWHERE
    except OSError as error:
        return "a link to itself" if error.errno == errno.ELOOP else "no regular file"


def open_regular(path: str | Path) -> BinaryIO:
    """A regular file to read; anything else is an ``OSError`` without a number, at once."""
    if not regular(path):
        if not os.path.lexists(path) or kind_of(path) == _NOWHERE:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        raise _refusal(path, f"it is {kind_of(path)}")
    # Should it have become a pipe by now, opening it still does not wait.
    return open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")


def read_regular(path: str | Path, *, most: int = MOST) -> bytes:
    """All of a regular file of ordinary size: one may be larger than any memory."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise _refusal(path, f"it has {size:,} bytes, more than {most:,}")
        return file.read()


def _refusal(path: str | Path, reason: str) -> OSError:
    error = OSError(f"{path}: {reason}")
    error.strerror = reason
    return error
