"""A file that one process holds as long as it lives."""

from __future__ import annotations

import fcntl
import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TextIO

__all__ = ["LOCK", "InUse", "held", "owned_folder", "this_process"]

LOCK = ".lock"
"""The file by which a folder is held."""
_NAME = re.compile(r"(process \d+ on \S+)?\s*")
"""What a lock says: who holds it, or held it last."""
_PATIENCE = 1.0
_LONGEST = 200
"""Characters of a name."""


class InUse(ValueError):
    """Another process holds the file."""

    def __init__(self, owner: str) -> None:
        super().__init__(owner)
        self.owner = owner


def this_process() -> str:
    """The name under which this process owns things."""
    return f"process {os.getpid()} on {socket.gethostname()}"


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the file; a process that comes second is told who does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", errors="replace") as lock:
        try:
            # Not flock: child processes would inherit it and outlive a killed owner with it.
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            raise InUse(_owner(lock)) from None
        lock.seek(0)
        if not _NAME.fullmatch(lock.read(_LONGEST)):
            raise ValueError(
                f"{path} is not a lock of fixnorm's: move it away, or give another --out"
            )
        lock.truncate(0)
        lock.write(this_process())
        lock.flush()
        yield


def _owner(lock: TextIO) -> str:
    """Who holds it; one that has only just taken it is about to write its name."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        lock.seek(0)
        name = lock.read(_LONGEST).strip()
        if name or time.monotonic() > deadline:
            return name or "another process"
        time.sleep(0.01)


@contextmanager
def owned_folder(folder: Path) -> Iterator[None]:
    """Hold a folder; one that another process holds is refused with one line."""
    with ExitStack() as stack:
        try:
            stack.enter_context(held(folder / LOCK))
        except InUse as used:
            raise ValueError(
                f"{folder} is in use by {used.owner}: wait for it or give another --out"
            ) from None
        yield
