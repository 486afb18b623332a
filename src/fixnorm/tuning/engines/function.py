"""The caller's own training function, in this process or in several others."""

from __future__ import annotations

import inspect
import math
import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Protocol

from fixnorm.system import brief
from fixnorm.system.machine import of_machine
from fixnorm.tuning.engines.engine import Died, Unfinished
from fixnorm.tuning.engines.pool import end_pool, leashed_pool
from fixnorm.tuning.job import Ended, Job

__all__ = ["FunctionEngine", "Real", "Train", "check_callable", "ended", "failed", "steps_of"]


class Real(Protocol):
    """A real number: Python's, numpy's, or a tensor of one element."""

    def __float__(self) -> float: ...


Train = Callable[..., Real | Mapping[str, Real]]


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
        check_callable(train, ("lr", "alpha", "steps", *(["seed"] if seeds > 1 else [])))
        if workers > 1:
            try:
                pickle.dumps(train)
            except (pickle.PicklingError, AttributeError, TypeError):
                raise ValueError(
                    "with workers > 1 `train` runs in other processes, which import it by name:"
                    " define it at the top level of a module, or use workers=1"
                ) from None
        self._pool = leashed_pool(workers) if workers > 1 else None

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
        ends: list[tuple[Job, Ended | Died]] = []
        for future in sorted(done, key=lambda future: future.exception() is not None):
            if ends and not isinstance(future.exception(), BrokenProcessPool | None):
                continue  # a value is written down before an error may stop the search
            job = self._running.pop(future)
            ends.append((job, self._end(job, future)))
        if any(isinstance(end, Died) for _, end in ends):
            # One process was killed, and the pool with it: all of its trainings are lost.
            ends += [
                (job, Died("its pool of processes broke", killed=True))
                for job in self._running.values()
            ]
            self._running.clear()
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = leashed_pool(self._workers)
        return ends

    def progress(self, job: Job) -> float:
        """Not known."""
        return 0.0

    def stop(self) -> None:
        """End the other processes; a function has no checkpoint to wait for."""
        if self._pool is not None:
            end_pool(self._pool)

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
            return self._raised(job, error)

    def _raised(self, job: Job, error: Exception) -> Ended:
        self.error = error
        return failed(error, job.key)

    def _end(self, job: Job, future: Future[Ended]) -> Ended | Died:
        error = future.exception()
        if isinstance(error, BrokenProcessPool):
            return Died("its process was killed", killed=True)
        if isinstance(error, Exception):
            return self._raised(job, error)
        return future.result()


def _called(train: Train, arguments: Mapping[str, Any]) -> Ended:
    started = time.monotonic()
    found = train(**arguments)
    return ended(found, seconds=round(time.monotonic() - started, 6))


def check_callable(train: object, names: Sequence[str]) -> None:
    """Refuse, before anything is trained, what cannot be called by these keywords."""
    if not callable(train):
        raise ValueError(f"train must be a function but got {train!r}")
    try:
        inspect.signature(train).bind(**dict.fromkeys(names))
    except TypeError as error:
        raise ValueError(f"train must take the keywords {', '.join(names)}: {error}") from None
    except ValueError:  # it does not say what it takes
        return


class NoNumber(ValueError):
    """A training returned something else: a mistake of its function, not an outcome."""


def ended(found: Real | Mapping[str, Real], *, seconds: float | None = None) -> Ended:
    """What a training returned, as the study wants it."""
    scale = None
    if isinstance(found, Mapping):
        if "accuracy" not in found:
            raise NoNumber(f"train returned a dict without 'accuracy': {brief(found)}")
        largest = found.get("largest_scale")
        scale = None if largest is None else _number(largest, "a largest_scale")
        found = found["accuracy"]
    accuracy = _number(found, "an accuracy")
    if not math.isfinite(accuracy):
        return Ended(state="diverged", reason=f"train returned {accuracy}", seconds=seconds)
    if scale is not None and not math.isfinite(scale):
        scale = None  # not known: every slot is then trained
    return Ended(state="trained", accuracy=accuracy, largest_scale=scale, seconds=seconds)


def _number(found: object, what: str) -> float:
    """Any real number, whoever makes it; text and truth values are none."""
    plain = found
    if hasattr(found, "item") and hasattr(found, "dtype"):  # of numpy or torch
        try:
            plain = found.item()
        except (RuntimeError, TypeError, ValueError):
            plain = None  # of several elements
    if isinstance(plain, bool | str | bytes | complex) or not hasattr(plain, "__float__"):
        raise NoNumber(f"train must return {what} that is one real number but got {brief(found)}")
    try:
        return float(plain)
    except (TypeError, ValueError, OverflowError):
        raise NoNumber(
            f"train must return {what} that is one real number but got {brief(found)}"
        ) from None


def failed(error: Exception, what: str) -> Ended:
    """What a training raised; where that is no outcome of it, the search cannot go on."""
    if isinstance(error, NoNumber):
        raise error
    if of_machine(error):
        raise Unfinished(
            f"{what} ended for a reason of the machine, {type(error).__name__}: {error}; it stays"
            " open: mend that, then the same call goes on"
        ) from error
    return Ended(state="failed", reason=f"{type(error).__name__}: {error}")
