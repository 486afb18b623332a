"""Files: regular ones are read, whole ones appear, and what is not ours is left alone.

A pipe would be waited for and a device has no end; a file that is half written is no file.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

__all__ = [
    "PART",
    "check_files",
    "kind_of",
    "open_regular",
    "read_regular",
    "regular",
    "write_atomically",
    "write_files",
]

PART = ".part"
"""How the name of a file ends while it is being written."""
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


@contextmanager
def write_atomically(path: Path) -> Iterator[Any]:
    """A binary file that appears under its name only when it is whole and on the disk."""
    part = path.with_name(f".{path.name}.{os.getpid()}{PART}")
    try:
        with part.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        advice = "; nothing was lost, make room and run again" if full else ""
        raise OSError(error.errno, f"{error.strerror}{advice}", str(path)) from None
    finally:
        part.unlink(missing_ok=True)


def check_files(
    folder: Path, names: Iterable[str], *, sign: str, ours: Callable[[Path], bool]
) -> None:
    """Refuse to write ``names`` over what others have put there; changes nothing.

    One file of ours, the ``sign``, tells whose all of them are: it is written before the rest. A
    name that ends in ``/`` is a folder for files of ours.
    """
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: give another --out")
    known = regular(folder / sign) and ours(folder / sign)
    for name in (sign, *names):
        path = folder / name
        if (path.is_symlink() or path.exists()) and not _ours(path, name, known):
            raise ValueError(
                f"{path} is not of this command: move it away, or give another folder as --out"
            )


def write_files(
    folder: Path, contents: Mapping[str, bytes], *, ours: Callable[[Path], bool]
) -> list[Path]:
    """Write files of ours, the first of which is the sign; those of others stay as they are."""
    sign, *others = contents
    check_files(folder, others, sign=sign, ours=ours)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        with write_atomically(folder / name) as file:
            file.write(content)
    return [folder / name for name in contents]


def _ours(path: Path, name: str, known: bool) -> bool:
    if not name.endswith("/"):
        return known and regular(path)
    return path.is_dir() and (known or not any(path.iterdir()))
