"""A file that one process holds as long as it lives."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

__all__ = ["InUse", "held", "owned_folder", "this_process"]


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
    with path.open("a+") as lock:
        try:
            # Not flock: child processes would inherit it and outlive a killed owner with it.
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            lock.seek(0)
            raise InUse(lock.read().strip() or "another process") from None
        lock.truncate(0)
        lock.write(this_process())
        lock.flush()
        yield


@contextmanager
def owned_folder(folder: Path) -> Iterator[None]:
    """Hold a folder; one that another process holds is refused with one line."""
    with ExitStack() as stack:
        try:
            stack.enter_context(held(folder / ".lock"))
        except InUse as used:
            raise ValueError(
                f"{folder} is in use by {used.owner}: wait for it or give another --out"
            ) from None
        yield
