"""Files that are whole or not there."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["PART", "write_atomically"]

PART = ".part"
"""How the name of a file ends while it is being written."""


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
