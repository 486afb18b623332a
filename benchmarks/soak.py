"""A search under a saboteur: at the end every slot has its one value, and nothing is left running.

    python benchmarks/soak.py --minutes 30 --seed 0              # local processes, SQLite
    python benchmarks/soak.py --minutes 10 --kind postgres       # a server stopped and started
    python benchmarks/soak.py --minutes 10 --kind ray            # three nodes that come and go

Searches on the digits run one after another. At random moments the driver is killed or asked to
leave, trainings are killed, alone or with the process that they are forks of, stopped and woken,
the runs' disk (a small tmpfs: needs the right to mount) fills up and is freed, the database is
locked, the newest checkpoint is cut short. A driver may end in three ways only: with the answer,
with one line of its own, or by the signal that it was sent. After each end no training may be left,
and each finished search is compared with an undisturbed one. Exit code 1 if anything else was seen;
the seed says which acts were played, not at which step they met a training. Uses the tools
of the tests: needs the extra ``dev``.
"""

from __future__ import annotations

import argparse
import collections
import fcntl
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from fixnorm.tuning.storage import Storage  # noqa: E402
from fixnorm.tuning.study import read_studies  # noqa: E402
from helpers.postgres import running  # type: ignore[import-not-found]  # noqa: E402
from helpers.searches import gone, trainings  # type: ignore[import-not-found]  # noqa: E402
from helpers.small_disk import SmallDisk  # type: ignore[import-not-found]  # noqa: E402

SEARCH = (
    *("--set", "epochs=10", "--set", "warmup_epochs=0", "--set", "train_per_class=60"),
    *("--splits", "3", "--fractions", "0.5,1", "--alphas", "0.5,2,16"),
)
Acts = dict[str, Callable[[], Any]]
Values = dict[str, tuple[str, float | None]]


class Broken(Exception):
    """The promise was not kept."""


class Search:
    """One search, from its first driver to its answer."""

    def __init__(self, place: Path, runs: Path, storage: str, options: tuple[str, ...]) -> None:
        self.out, self.storage, self.options = runs / "study", storage, options
        self.words = place / "words"
        self.driver: subprocess.Popen[bytes] | None = None
        self.signals: set[int] = set()
        """What this driver was sent."""

    def start(self) -> None:
        """A driver, new or the next one."""
        words = [sys.executable, "-m", "fixnorm", "tune", "digits", "--out", str(self.out)]
        words += [*SEARCH, "--storage", self.storage, *self.options]
        self.signals = set()
        with self.words.open("wb") as said:
            self.driver = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
                start_new_session=True,
            )

    def send(self, number: int) -> None:
        """To the driver."""
        assert self.driver is not None
        self.signals.add(number)
        self.driver.send_signal(number)

    def ended(self, patience: float = 0.0) -> int | None:
        """The driver's exit code once it has left as it may; none while it runs."""
        assert self.driver is not None
        try:
            code = self.driver.wait(patience)
        except subprocess.TimeoutExpired:
            return None
        said = self.words.read_text(errors="replace")
        ours = [line for line in said.splitlines() if line.startswith("fixnorm: ")]
        expected = {0: 0, 2: 1}.get(code)
        if expected is None:
            number = -code if code < 0 else code - 128
            if number not in self.signals:
                raise Broken(f"the driver ended with {code}:\n{said}")
            expected = len(ours) if number == signal.SIGKILL else 1
            early = number != signal.SIGKILL and not ours and code < 0  # while it was loading
            expected = 0 if early else expected
        if len(ours) != expected or "Traceback" in said:
            raise Broken(f"the driver ended with {code} and said:\n{said}")
        if not gone(self.out):
            raise Broken(f"trainings are left: {trainings(self.out)}")
        return code

    def values(self) -> Values:
        """Of every slot."""
        (record,) = read_studies(Storage.parse(self.storage), self.out)
        keys = [trial.key for trial in record.trials]
        if len(keys) != len(set(keys)):
            raise Broken(f"slots were closed twice: {sorted(keys)}")
        return {trial.key: (trial.state, trial.accuracy) for trial in record.trials}


class Saboteur:
    """Acts at random, and undoes what must not last."""

    def __init__(
        self, search: Search, disk: SmallDisk | None, moments: random.Random, own: Acts
    ) -> None:
        self.search, self.disk, self.random, self.own = search, disk, moments, own
        self.counts: collections.Counter[str] = collections.Counter()
        self.acts: dict[str, Callable[[], Any]] = {
            "kill the driver": lambda: search.send(signal.SIGKILL),
            "ask the driver to leave": lambda: search.send(signal.SIGTERM),
            "close the driver's terminal": lambda: search.send(signal.SIGHUP),
            "kill a training": lambda: self._signal(signal.SIGKILL),
            "kill the process that forks": self._kill_warm,
            "ask a training to leave": lambda: self._signal(signal.SIGTERM),
            "stop a training": self._stop,
            "stop a training and end the driver": self._stop_and_end,
            "cut the newest checkpoint": self._cut,
        }
        if disk is not None:
            self.acts["fill the disk"] = self._fill
        if Storage.parse(search.storage).file is not None:
            self.acts["lock the database"] = self._lock

    def act(self) -> None:
        """One of them, as often of this kind's own as of all; it may find nothing to do."""
        kinds = [acts for acts in (self.own, self.acts) if acts]
        name = self.random.choice(sorted(self.random.choice(kinds)))
        if (self.acts | self.own)[name]() is not False:
            self.counts[name] += 1

    def _training(self) -> int | None:
        running = trainings(self.search.out)
        return self.random.choice(running) if running else None

    def _signal(self, number: int) -> bool:
        pid = self._training()
        if pid is None:
            return False
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        return True

    def _kill_warm(self) -> bool:
        """All trainings of the moment end with it."""
        pid, driver = self._training(), self.search.driver
        with suppress(OSError):
            words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            if driver is not None and int(words[1]) not in (1, driver.pid):
                os.kill(int(words[1]), signal.SIGKILL)
                return True
        return False

    def _stop(self) -> bool:
        pid = self._training()
        if pid is None:
            return False
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            time.sleep(self.random.uniform(0.2, 3.0))
            os.kill(pid, signal.SIGCONT)
        return True

    def _stop_and_end(self) -> bool:
        """It must leave at once, as if nobody had stopped its training."""
        pid = self._training()
        if pid is None:
            return False
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
        self.search.send(signal.SIGTERM)
        if self.search.ended(50.0) is None:
            raise Broken("a driver whose training was stopped did not leave in 50 s")
        return True

    def _cut(self) -> bool:
        found = sorted(self.search.out.glob("*/*/checkpoints/*.ckpt"), key=_age)
        if not found:
            return False
        with suppress(FileNotFoundError):
            os.truncate(found[-1], self.random.randrange(found[-1].stat().st_size))
        return True

    def _fill(self) -> None:
        assert self.disk is not None
        self.disk.fill()
        time.sleep(self.random.uniform(0.5, 4.0))
        self.search.ended()
        self.disk.free()

    def _lock(self) -> bool:
        file = Storage.parse(self.search.storage).file
        assert file is not None
        if not file.exists():
            return False
        with suppress(sqlite3.OperationalError), closing(sqlite3.connect(file)) as database:
            database.execute("BEGIN EXCLUSIVE")
            time.sleep(self.random.uniform(0.2, 9.0))
            database.rollback()
        return True


def _age(path: Path) -> float:
    with suppress(FileNotFoundError):
        return path.stat().st_mtime
    return 0.0


@contextmanager
def small_disk(path: Path, size: str) -> Iterator[SmallDisk | None]:
    """Mounted at a path, or none where that is not allowed."""
    path.mkdir()
    disk = SmallDisk(path)
    if problem := disk.resize(size, first=True):
        print(f"no disk is filled: {problem}")
        yield None
        return
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


@contextmanager
def servers(
    kind: str,
) -> Iterator[tuple[str | None, tuple[str, ...], dict[str, Callable[[], Any]]]]:
    """The storage, the options and the acts of a kind of search."""
    if kind == "local":
        yield None, ("--workers", "2"), {}
    elif kind == "postgres":
        with running() as server:
            if server is None:
                sys.exit("PostgreSQL's server is not installed (Debian: apt install postgresql)")

            def restart() -> None:
                server.stop()
                time.sleep(random.uniform(0.0, 4.0))
                server.start()

            acts = {
                "restart the server": restart,
                "drop the server's connections": lambda: server.drop_connections("soak"),
                "end the lock's connection": lambda: server.tell(
                    "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'"
                ),
            }
            yield server.new("soak"), ("--workers", "2"), acts
    else:
        with ray_cluster() as (address, acts):
            yield None, ("--engine", "ray", "--address", address), acts


@contextmanager
def ray_cluster() -> Iterator[tuple[str, Acts]]:
    """A head and two more nodes of this machine, which may be taken away and come back."""
    from ray import cluster_utils

    node: dict[str, Any] = {
        "num_cpus": 1,
        "object_store_memory": 100_000_000,
        "include_dashboard": False,
    }
    cluster: Any = cluster_utils.Cluster(initialize_head=True, head_node_args=node)
    cluster.add_node(**node)
    cluster.add_node(**node)
    cluster.wait_for_nodes()

    def take() -> bool:
        if not cluster.worker_nodes:
            return False
        cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
        return True

    def add() -> bool:
        if len(cluster.worker_nodes) > 1:
            return False
        cluster.add_node(**node)
        return True

    try:
        yield cluster.address, {"take a node away": take, "add a node": add}
    finally:
        cluster.shutdown()


def undisturbed(place: Path, options: tuple[str, ...]) -> Values:
    """What every search must come to."""
    place.mkdir()
    search = Search(place, place, f"sqlite:///{place / 'study.db'}", options)
    search.start()
    if search.ended(1800) != 0:
        raise Broken(f"the undisturbed search failed:\n{search.words.read_text()}")
    return search.values()


def check_locks(search: Search) -> None:
    """Every file lock can be had, and the server knows of none."""
    storage = Storage.parse(search.storage)
    locks = [*search.out.rglob(".lock")]
    locks += [storage.file.with_name(f"{storage.file.name}.lock")] if storage.file else []
    for lock in locks:
        with lock.open("a") as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise Broken(f"{lock} is still held") from None
    if storage.file is None:
        with storage.owned(search.out.name):
            pass


def soak(kind: str, minutes: float, seed: int, place: Path) -> None:
    """Searches under a saboteur until the time is over, and the last one to its end."""
    moments, counts = random.Random(seed), collections.Counter[str]()
    expected = undisturbed(place / "undisturbed", ("--workers", "2"))
    print(f"undisturbed: {expected}", flush=True)
    deadline, searches = time.monotonic() + 60 * minutes, 0
    with servers(kind) as (url, options, more):
        while True:
            searches += 1
            here = place / f"search{searches}"
            here.mkdir()
            with small_disk(here / "runs", "24m") as disk:
                storage = url or f"sqlite:///{here / 'study.db'}"
                named = ("--study", f"search{searches}")
                search = Search(here, here / "runs", storage, (*options, *named))
                saboteur = Saboteur(search, disk, moments, more)
                drivers = under_sabotage(search, saboteur, moments, deadline)
                counts += saboteur.counts
                if search.values() != expected:
                    raise Broken(f"search {searches}: {search.values()} is not {expected}")
                check_locks(search)
            left = max(deadline - time.monotonic(), 0) / 60
            print(f"search {searches}: as undisturbed after {drivers} drivers; {left:.1f} min left")
            print(f"  so far: {dict(sorted(counts.items()))}", flush=True)
            if left == 0:
                return


def under_sabotage(
    search: Search, saboteur: Saboteur, moments: random.Random, deadline: float
) -> int:
    """Drivers one after another until one has the answer; how many it took."""
    drivers = 0
    while True:
        drivers += 1
        search.start()
        wait = moments.uniform(0.0, 8.0)  # some are met while they load
        while search.ended(wait) is None:
            if time.monotonic() < deadline:
                saboteur.act()
                wait = moments.uniform(0.0, 6.0)
            else:
                wait = 600.0
                if search.ended(wait) is None:
                    raise Broken(f"left alone it does not end:\n{search.words.read_text()}")
        assert search.driver is not None
        if search.driver.returncode == 0:
            return drivers


def main() -> None:
    """Parse, soak, report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=("local", "postgres", "ray"), default="local")
    given = parser.parse_args()
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fixnorm-soak-")))
        try:
            soak(given.kind, given.minutes, given.seed, place)
        except Broken as broken:
            sys.exit(f"broken: {broken}")
    print("whole: every slot its one value, nothing left running")


if __name__ == "__main__":
    main()
