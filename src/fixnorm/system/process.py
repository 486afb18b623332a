"""The process of a training: it cannot outlive whoever started it, and leaves when it is asked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Protocol

from fixnorm.system import leash
from fixnorm.system.lock import InUse, held

__all__ = ["GRACE", "Running", "leashed", "opened", "run_to_end", "start", "stop", "wake"]

GRACE = 60.0
"""Seconds that stopped trainings have to write their checkpoints."""
_LEASH = str(leash.__file__)
_LOOK_EVERY = 0.1
_PATIENCE = 180.0
"""Seconds for a file server to notice that a lost machine holds its locks no more."""


class Running(Protocol):
    """A process that was started: what is asked of a :class:`subprocess.Popen` here."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, sig: int) -> None: ...


def leashed(parent: str) -> list[str]:
    """What to put before a command that must not outlive its parent."""
    return [sys.executable, "-I", "-S", _LEASH, parent]


def start(
    command: Sequence[str],
    log: Path,
    *,
    threads: int,
    devices: str | None = None,
    folder: Path | None = None,
    stdin: int = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    """Start a training that dies with the thread that calls this.

    Args:
        command: what to run.
        log: where its words go, after those that are there.
        threads: cores that each of its processes may use.
        devices: GPUs it may use; none: those that this process may.
        folder: working folder; none: that of this process.
        stdin: file to read from; there is nothing in it unless it is given.
    """
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    if devices is not None:
        environment["CUDA_VISIBLE_DEVICES"] = devices
    with opened(log) as words:
        return subprocess.Popen(
            [*leashed(str(os.getpid())), *command],
            stdin=stdin,
            stdout=words,
            stderr=words,
            env=environment,
            cwd=folder,
            start_new_session=True,  # Ctrl-C in the terminal is for the driver
        )


def opened(log: Path) -> BinaryIO:
    """A file that takes words after those that are there."""
    log.parent.mkdir(parents=True, exist_ok=True)
    return log.open("ab")


def wake(pid: int) -> None:
    """Let a process and its descendants go on that somebody has stopped: asleep it cannot leave."""
    for number in (pid, *_descendants(pid)):
        with suppress(OSError):
            os.kill(number, signal.SIGCONT)


def _descendants(pid: int) -> list[int]:
    """Children, their children and so on, where the system tells."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            parent = int(stat.read_text(errors="replace").rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(stat.parent.name))
    found, left = [], [pid]
    while left:
        children = parents.get(left.pop(), [])
        found += children
        left += children
    return found


def stop(processes: Iterable[Running]) -> None:
    """SIGTERM makes a training write its checkpoint and leave."""
    processes = list(processes)
    for process in processes:
        process.send_signal(signal.SIGTERM)
        if process.returncode is None:
            wake(process.pid)
    deadline = time.monotonic() + GRACE
    for process in processes:
        try:
            process.wait(max(deadline - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def run_to_end(
    command: Sequence[str],
    log: Path,
    lock: Path,
    *,
    threads: int,
    devices: str | None,
    folder: Path,
) -> int:
    """Train to the end once nobody holds the run's lock, and return the exit code.

    A Ray worker is sent this by value, so that it need not import the package, which takes seconds
    and much memory. It runs it in its main thread, so the training ends with the worker, as the
    worker does with its node or the driver.
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
