"""A pool of processes that cannot outlive this one, and that Ctrl-C does not reach."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.context import SpawnContext, SpawnProcess

from fixnorm.internals import processes_of
from fixnorm.system import leash

__all__ = ["end_pool", "leashed_pool"]


class _Process(SpawnProcess):
    """Starts deaf to Ctrl-C: while it loads it could only answer with a traceback."""

    def start(self) -> None:
        """As ever; the signal waits here meanwhile."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            super().start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Context(SpawnContext):
    Process = _Process


def leashed_pool(workers: int, *, threads: int | None = None) -> ProcessPoolExecutor:
    """Fresh processes: a fork of one that has used torch's threads may hang."""
    return ProcessPoolExecutor(
        workers,
        mp_context=_Context(),
        initializer=_begin,
        initargs=(str(os.getpid()), threads),
    )


def end_pool(pool: ProcessPoolExecutor) -> None:
    """End its processes now, whatever they are at."""
    for process in processes_of(pool):
        process.kill()
    pool.shutdown(wait=True, cancel_futures=True)


def _begin(parent: str, threads: int | None) -> None:
    if os.getppid() != int(parent):
        os._exit(1)  # an exception here would be shown to whoever is left
    leash.hold(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: it is for the parent
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
