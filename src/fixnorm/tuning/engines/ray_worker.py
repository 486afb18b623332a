"""What a Ray worker does with a training.

This is sent to the workers by value, so that they need not import the package, which takes seconds
and much memory; the training does.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from fixnorm.system.lock import InUse, held
from fixnorm.tuning.engines.process import start, stop

__all__ = ["train"]

_LOOK_EVERY = 0.1
_PATIENCE = 180.0
"""Seconds for a file server to notice that a lost machine holds its locks no more."""


def train(
    command: Sequence[str],
    log: Path,
    lock: Path,
    *,
    threads: int,
    devices: str | None,
    folder: Path,
) -> int:
    """Train to the end, and return the exit code.

    The worker runs this in its main thread, so the training ends with the worker, as the worker
    does with its node or the driver.
    """
    _wait_until_free(lock)
    process = start(command, log, threads=threads, devices=devices, folder=folder)
    try:
        while process.poll() is None:  # cancelling shows between two looks, not in a wait
            time.sleep(_LOOK_EVERY)
    finally:
        stop([process])
    return process.returncode


def _wait_until_free(lock: Path) -> None:
    """The same training on a lost node may have a moment to live: it would refuse a second."""
    deadline = time.monotonic() + _PATIENCE
    while lock.exists():
        try:
            with held(lock):
                return
        except InUse as used:
            if time.monotonic() > deadline:
                raise OSError(f"{lock.parent} is still in use by {used.owner}") from None
        time.sleep(_LOOK_EVERY)
