"""Trainings as tasks of a Ray cluster whose nodes share the file system of the driver.

The Python environment, the data and the study's folder have the same paths on every node. A
training whose node is lost goes on from its checkpoint on another.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from fixnorm.internals_of_others import ray_on_loopback
from fixnorm.system import lock, process
from fixnorm.system.extras import needs
from fixnorm.training.folder import RunFolder
from fixnorm.tuning.engine import Died
from fixnorm.tuning.local_engine import cores
from fixnorm.tuning.run import Runs
from fixnorm.tuning.trial import Result, Trial

__all__ = ["RayEngine", "loopback"]

_RETRIES = 3
"""Lost nodes and workers that Ray itself makes good, for each start of a training."""
_ANSWER = 20.0
"""Seconds that a cluster has to answer; left to itself Ray tries for a quarter of an hour."""
_CLUSTERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
_ROOMLESS = 600.0
"""Seconds to wait for nodes to come back when there is none left that a training fits on."""


class RayEngine:
    """One Ray task for each running trial, on whatever nodes there are."""

    def __init__(
        self,
        runs: Runs,
        *,
        cpus: float = 1.0,
        gpus: float = 0.0,
        address: str | None = None,
    ) -> None:
        if not all(math.isfinite(n) and n >= 0 for n in (cpus, gpus)) or cpus == gpus == 0:
            raise ValueError(f"a trial must ask for CPUs or GPUs but got {cpus:g} and {gpus:g}")
        if gpus > 1 and gpus != round(gpus):
            raise ValueError(f"a trial's GPUs must be whole, or a part of one, but got {gpus:g}")
        self.runs = runs
        self._asked = {"CPU": cpus, "GPU": gpus}
        self._ray = _imported()
        self._running: dict[Trial, tuple[Any, int]] = {}
        self._ours = _connect(self._ray, address)
        if not self._places():
            there = self._there()
            self.stop()
            raise ValueError(
                f"a trial asks for {_resources(self._asked)} but the cluster has {there}:"
                " ask for less or add a node"
            )
        self._had_room = time.monotonic()
        for module in (process, lock):
            self._ray.cloudpickle.register_pickle_by_value(module)
        self._train = self._ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=_RETRIES)(
            process.run_to_end
        )

    @property
    def room(self) -> int:
        """Trials that fit on the nodes that are there now; nodes may come and go."""
        places = self._places()
        if places:
            self._had_room = time.monotonic()
        elif time.monotonic() - self._had_room > _ROOMLESS:
            raise OSError(
                f"a trial needs {_resources(self._asked)} but all the cluster has had for"
                f" {_ROOMLESS / 60:g} minutes is {self._there()}; the same command goes on"
            )
        return max(places, 1)

    def start(self, trial: Trial) -> None:
        """Hand the training to Ray, which starts it as soon as a node has room."""
        here = Path.cwd()
        said = self.runs.said(trial)
        task = self._train.remote(
            self.runs.command(trial),
            here / self.runs.log_of(trial),
            here / RunFolder(self.runs.folder_of(trial)).lock,
            threads=max(int(self._asked["CPU"] / self.runs.processes), 1),
            devices=None if self._asked["GPU"] else "",
            folder=here,
        )
        self._running[trial] = task, said

    def wait(self, seconds: float) -> list[tuple[Trial, Result | Died]]:
        waiting = [task for task, _ in self._running.values()]
        first, _ = self._ray.wait(waiting, timeout=seconds)
        if not first:
            return []
        over, _ = self._ray.wait(waiting, num_returns=len(waiting), timeout=0)
        ready = [trial for trial, (task, _) in self._running.items() if task in over]
        return [(trial, self._end(trial)) for trial in ready]

    def progress(self, trial: Trial) -> float:
        return self.runs.progress(trial)

    def stop(self) -> None:
        """Cancelling a task makes its training write a checkpoint and leave."""
        tasks = [task for task, _ in self._running.values()]
        for task in tasks:
            self._ray.cancel(task)
        if tasks:
            self._ray.wait(tasks, num_returns=len(tasks), timeout=process.GRACE + 10)
        self._running.clear()
        if self._ours:
            self._ours = False
            self._ray.shutdown()

    def _end(self, trial: Trial) -> Result | Died:
        task, said = self._running.pop(trial)
        try:
            code = self._ray.get(task)
        except self._ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None) or error
            reason = " ".join(str(cause).split()) or type(cause).__name__
            return self.runs.died(trial, reason, killed=True)
        return self.runs.ended(trial, code, since=said)

    def _nodes(self) -> list[dict[str, float]]:
        return [node["Resources"] for node in self._ray.nodes() if node["Alive"]]

    def _places(self) -> int:
        asked = {name: amount for name, amount in self._asked.items() if amount}
        return sum(
            min(int(node.get(name, 0) / amount + 1e-9) for name, amount in asked.items())
            for node in self._nodes()
        )

    def _there(self) -> str:
        kinds = sorted({_resources(node) for node in self._nodes()})
        return f"nodes of {' or '.join(kinds)}" if kinds else "no node"


def _imported() -> Any:
    """Ray, told to be quiet: it prints the loss of a node to stdout, whatever its log level."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")  # read when ray is imported
    try:
        import ray
    except ImportError:
        raise ValueError(needs("the ray engine", "ray", "ray")) from None
    return ray


def _connect(ray: Any, address: str | None) -> bool:
    """Join the cluster, or start one; whether this is ours to end."""
    if ray.is_initialized():
        return False
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    new = {"num_cpus": cores(), "object_store_memory": 100_000_000} if address == "local" else {}
    if address != "local":
        _check_cluster(address)
    with _handlers_kept(), loopback() if address == "local" else nullcontext():
        try:
            ray.init(
                address=address,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.CRITICAL,
                **new,
            )
        except (OSError, RuntimeError, ValueError) as error:
            raise ValueError(f"no Ray at {address}: {_last_line(str(error))}") from None
    return True


@contextmanager
def loopback() -> Iterator[None]:
    """Let a Ray that is started here listen to this machine alone.

    Left to itself it opens ports on every interface for whoever comes; asked for 127.0.0.1 it
    takes the machine's address instead. This switch of its own is off on other systems.
    """
    before = os.environ.get(_CLUSTERS)
    os.environ[_CLUSTERS] = "0"  # for the processes that it starts
    try:
        with ray_on_loopback():
            yield
    finally:
        if before is None:
            del os.environ[_CLUSTERS]
        else:
            os.environ[_CLUSTERS] = before


def _check_cluster(address: str) -> None:
    """Connect once in a process that can be given up, and whose words nobody sees."""
    if "://" in address:
        raise ValueError(
            f"the address must be HOST:PORT or auto, on a node of the cluster, but got {address}"
        )
    probe = "import ray, sys; ray.init(sys.argv[1], log_to_driver=False, logging_level='CRITICAL')"
    try:
        done = subprocess.run(
            [sys.executable, "-c", probe, address],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_ANSWER,
            check=False,
        )
    except subprocess.TimeoutExpired:
        reason = f"no answer in {_ANSWER:g} s"
    else:
        if done.returncode == 0:
            return
        reason = _last_line(done.stderr)
    raise ValueError(
        f"no Ray cluster at {address} ({reason}): start one with ray start --head,"
        " or leave the address out"
    )


@contextmanager
def _handlers_kept() -> Iterator[None]:
    """Ray puts its own handler of SIGTERM in the place of the driver's."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:  # else it was not set from Python
                signal.signal(number, handler)


def _resources(amounts: dict[str, float]) -> str:
    cpus, gpus = amounts.get("CPU", 0), amounts.get("GPU", 0)
    return f"{cpus:g} CPU{'s' * (cpus != 1)} and {gpus:g} GPU{'s' * (gpus != 1)}"


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
