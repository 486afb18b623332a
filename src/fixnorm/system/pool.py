"""A pool of processes that cannot outlive this one, and that Ctrl-C does not reach."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any

from fixnorm.system import leash

__all__ = ["LeashedPool"]


class _Process(SpawnProcess):
    """Starts deaf to Ctrl-C: while it loads it could only answer with a traceback."""

    def start(self) -> None:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            super().start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Context(SpawnContext):
    """Remembers the processes that it made."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[_Process] = []

    def Process(self, *args: Any, **given: Any) -> _Process:  # type: ignore[override]
        self.made.append(_Process(*args, **given))
        return self.made[-1]


class LeashedPool(ProcessPoolExecutor):
    """Fresh processes: a fork of one that has used torch's threads may hang."""

    def __init__(self, workers: int, *, begin: Callable[[], None] | None = None) -> None:
        self._context = _Context()
        super().__init__(
            workers,
            mp_context=self._context,
            initializer=_begin,
            initargs=(str(os.getpid()), begin),
        )

    def end(self) -> None:
        """End its processes now, whatever they are at."""
        for process in self._context.made:
            if process.is_alive():
                process.kill()
        self.shutdown(wait=True, cancel_futures=True)


def _begin(parent: str, begin: Callable[[], None] | None) -> None:
    if os.getppid() != int(parent):
        os._exit(1)  # an exception here would be shown to whoever is left
    leash.hold(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: it is for the parent
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    if begin is not None:
        begin()
