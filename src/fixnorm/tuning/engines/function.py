"""The caller's own training function, in this process or in several others."""

from __future__ import annotations

import math
import multiprocessing
import os
import pickle
import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from fixnorm.training import leash
from fixnorm.tuning.engines.engine import Died
from fixnorm.tuning.job import Ended, Job

__all__ = ["FunctionEngine", "Train", "ended", "failed", "steps_of"]

Train = Callable[..., float | Mapping[str, float]]


def steps_of(job: Job, steps: int) -> int:
    """Steps of a training of some fraction of T_max, at least one."""
    return max(round(job.fraction * steps), 1)


class FunctionEngine:
    """Calls ``train(lr, alpha, steps)``; with several seeds ``train(lr, alpha, steps, seed=…)``."""

    def __init__(self, train: Train, *, steps: int, seeds: int, workers: int) -> None:
        self._train, self._steps, self._seeded = train, steps, seeds > 1
        self._workers = workers
        self._waiting: list[Job] = []
        self._running: dict[Future[Ended], Job] = {}
        self.error: Exception | None = None
        """The last exception of a training of this process."""
        if workers > 1:
            try:
                pickle.dumps(train)
            except (pickle.PicklingError, AttributeError, TypeError):
                raise ValueError(
                    "with workers > 1 `train` runs in other processes, which import it by name:"
                    " define it at the top level of a module, or use workers=1"
                ) from None
        self._pool = self._new_pool() if workers > 1 else None

    @property
    def room(self) -> int:
        """Trainings at a time."""
        return self._workers

    def start(self, job: Job) -> None:
        """Queue it: in this process it runs when it is waited for."""
        if self._pool is None:
            self._waiting.append(job)
        else:
            self._running[self._submitted(self._pool, job)] = job

    def wait(self, seconds: float) -> list[tuple[Job, Ended | Died]]:
        """Train the next one here, or see which of the other processes are ready."""
        if self._pool is None:
            return [(job, self._here(job)) for job in self._taken()]
        done, _ = wait(self._running, timeout=seconds, return_when=FIRST_COMPLETED)
        ends = [(self._running.pop(future), self._end(future)) for future in done]
        if any(isinstance(end, Died) for _, end in ends):
            # One process was killed, and the pool with it: all of its trainings are lost.
            ends += [
                (job, Died("its pool of processes broke", killed=True))
                for job in self._running.values()
            ]
            self._running.clear()
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = self._new_pool()
        return ends

    def progress(self, job: Job) -> float:
        """Not known."""
        return 0.0

    def stop(self) -> None:
        """End the other processes; a function has no checkpoint to wait for."""
        if self._pool is not None:
            for process in list((self._pool._processes or {}).values()):
                process.kill()
            self._pool.shutdown(wait=True, cancel_futures=True)

    def _new_pool(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(
            self._workers,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=leash.hold,
            initargs=(str(os.getpid()),),
        )

    def _submitted(self, pool: ProcessPoolExecutor, job: Job) -> Future[Ended]:
        try:
            return pool.submit(_called, *self._call(job))
        except BrokenProcessPool as broken:  # since we last looked: this one dies with the others
            dead: Future[Ended] = Future()
            dead.set_exception(broken)
            return dead

    def _call(self, job: Job) -> tuple[Train, dict[str, Any]]:
        arguments = {"lr": job.lr, "alpha": job.alpha, "steps": steps_of(job, self._steps)}
        return self._train, arguments | ({"seed": job.seed} if self._seeded else {})

    def _taken(self) -> list[Job]:
        return [self._waiting.pop(0)] if self._waiting else []

    def _here(self, job: Job) -> Ended:
        try:
            return _called(*self._call(job))
        except Exception as error:
            self.error = error
            return failed(error)

    def _end(self, future: Future[Ended]) -> Ended | Died:
        error = future.exception()
        if isinstance(error, BrokenProcessPool):
            return Died("its process was killed", killed=True)
        if isinstance(error, Exception):
            self.error = error
            return failed(error)
        return future.result()


def _called(train: Train, arguments: Mapping[str, Any]) -> Ended:
    started = time.monotonic()
    found = train(**arguments)
    return ended(found, seconds=round(time.monotonic() - started, 6))


def ended(found: float | Mapping[str, float], *, seconds: float | None = None) -> Ended:
    """What a training returned, as the study wants it."""
    scale = None
    if isinstance(found, Mapping):
        scale = found.get("largest_scale")
        found = found["accuracy"]
    accuracy = float(found)
    if not math.isfinite(accuracy):
        return Ended(state="diverged", reason=f"train returned {accuracy}", seconds=seconds)
    return Ended(state="trained", accuracy=accuracy, largest_scale=scale, seconds=seconds)


def failed(error: Exception) -> Ended:
    """What a training raised."""
    return Ended(state="failed", reason=f"{type(error).__name__}: {error}")
