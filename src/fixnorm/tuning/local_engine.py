"""Trainings in processes of this machine."""

from __future__ import annotations

import os
import time

from fixnorm.system.process import Running
from fixnorm.system.warm import Warm
from fixnorm.tuning.engine import Died
from fixnorm.tuning.run import Runs
from fixnorm.tuning.trial import Result, Trial

__all__ = ["LocalEngine", "cores", "default_workers"]

_LOOK_EVERY = 0.01


class LocalEngine:
    """One process for each running trial, or several under torchrun.

    Cores and GPUs are divided: trials side by side that fight for cores are up to ten times slower.
    A process is a fork of one that has imported already what trainings need, where that can be; it
    begins to do so at once.
    """

    def __init__(self, runs: Runs, *, workers: int, gpus: int = 0) -> None:
        self.runs = runs
        self._threads = max(cores() // (workers * runs.processes), 1)
        self._devices = _devices(gpus)
        self._free = _shares(self._devices, workers, runs.processes)
        self._workers = workers
        self._running: dict[Trial, tuple[Running, list[str], int]] = {}
        modules = runs.modules() if runs.processes == 1 else None  # torchrun starts its own
        self._warm = Warm(modules, threads=self._threads)
        self._warm.begin()

    @property
    def room(self) -> int:
        return self._workers

    def start(self, trial: Trial) -> None:
        devices = self._free.pop()
        said = self.runs.said(trial)
        started = self._warm.start(
            self.runs.command(trial),
            self.runs.log_of(trial),
            devices=",".join(devices) if self._devices else None,
        )
        self._running[trial] = started, devices, said

    def wait(self, seconds: float) -> list[tuple[Trial, Result | Died]]:
        deadline = time.monotonic() + seconds
        while True:
            over = [trial for trial, (run, *_) in self._running.items() if run.poll() is not None]
            if over or time.monotonic() > deadline:
                return [(trial, self._end(trial)) for trial in over]
            time.sleep(_LOOK_EVERY)

    def progress(self, trial: Trial) -> float:
        return self.runs.progress(trial)

    def stop(self) -> None:
        """SIGTERM makes a training write its checkpoint and leave."""
        self._warm.stop(run for run, *_ in self._running.values())
        self._running.clear()

    def _end(self, trial: Trial) -> Result | Died:
        run, devices, said = self._running.pop(trial)
        self._free.append(devices)
        return self.runs.ended(trial, run.wait(), since=said)


def _devices(gpus: int) -> list[str]:
    """The names of the GPUs that this process may use."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return visible.split(",")[:gpus] if visible else [str(i) for i in range(gpus)]


def _shares(devices: list[str], workers: int, processes: int) -> list[list[str]]:
    """The GPUs of each worker; more workers than GPUs share them."""
    share = max(len(devices) // workers, 1)
    if devices and share < processes:
        raise ValueError(
            f"{workers} trials of {processes} processes need {workers * processes} GPUs but there"
            f" are {len(devices)}: lower --workers or --nproc-per-trial"
        )
    if not devices:
        return [[] for _ in range(workers)]
    return [[devices[(i * share + k) % len(devices)] for k in range(share)] for i in range(workers)]


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_workers(*, gpus: int, processes: int) -> int:
    """As many trials as there are GPUs for, or cores."""
    if gpus:
        return max(gpus // processes, 1)
    return max(cores() // processes, 1)
