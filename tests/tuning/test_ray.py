"""Searches on a simulated Ray cluster of three nodes: a lost node, a stop, a killed driver."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fixnorm.commands.configured import configured
from fixnorm.system import process
from fixnorm.tuning import ray_engine
from fixnorm.tuning.driver import drive
from fixnorm.tuning.engine import Died, Engine
from fixnorm.tuning.local_engine import LocalEngine
from fixnorm.tuning.plan import SearchSpace
from fixnorm.tuning.ray_engine import RayEngine
from fixnorm.tuning.run import RecipeSearch, TrialRuns
from fixnorm.tuning.storage import Storage
from fixnorm.tuning.strategies import PlanStrategy
from fixnorm.tuning.trial import Round, Trial
from helpers import tiny
from helpers.searches import command, finish, gone, stored, trainings

PATIENCE = 600.0
"""Seconds after which a test gives up: far beyond what anything here takes."""
JOB = Trial(round=Round("lr"), index=0, lr=0.8, alpha=1.0)


def runs_in(folder: Path, *, epochs: int, checkpoint_steps: int = 100_000) -> TrialRuns:
    settings = [f"epochs={epochs}", "warmup_epochs=0"]
    return TrialRuns(
        recipe=configured("digits", None, settings),
        settings=settings,
        data=None,
        folder=folder / "trials",
        options=("--checkpoint-steps", str(checkpoint_steps)),
    )


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def said(runs: TrialRuns, key: str = JOB.key) -> str:
    log = runs.folder / "logs" / f"{key}.log"
    return log.read_text() if log.exists() else ""


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


# -- bad input, without a cluster ------------------------------------------------------------------


def test_ray_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(
        ValueError, match=r"^the ray engine needs ray: pip install 'fixnorm\[ray\]'"
    ):
        RayEngine(runs_in(tmp_path, epochs=2))


def test_the_package_does_not_import_ray() -> None:
    asleep = "import fixnorm.tuning.ray_engine, sys; assert 'ray' not in sys.modules"
    subprocess.run([sys.executable, "-c", asleep], check=True)


@pytest.mark.parametrize(
    ("asked", "rule"),
    [
        ({"cpus": 0.0}, "must ask for CPUs or GPUs but got 0 and 0"),
        ({"cpus": -1.0}, "must ask for CPUs or GPUs but got -1 and 0"),
        ({"gpus": 1.5}, "GPUs must be whole, or a part of one, but got 1.5"),
        ({"address": "ray://there:10001"}, "must be HOST:PORT or auto.* but got ray://there:10001"),
        ({"address": "nonsense"}, r"no Ray cluster at nonsense \(.*Invalid address format"),
    ],
)
def test_settings_that_no_cluster_can_meet(
    tmp_path: Path, asked: dict[str, Any], rule: str
) -> None:
    with pytest.raises(ValueError, match=rule):
        RayEngine(runs_in(tmp_path, epochs=2), **asked)


@pytest.mark.slow
def test_no_cluster_at_the_address(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_engine, "_ANSWER", 2.0)
    with pytest.raises(ValueError, match=r"^no Ray cluster at 127\.0\.0\.1:9 \(no answer in 2 s"):
        RayEngine(runs_in(tmp_path, epochs=2), address="127.0.0.1:9")
    assert capfd.readouterr() == ("", "")


def test_a_run_that_another_process_still_holds_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost node's training may have a moment to live, and a second one would be refused."""
    lock, log = tmp_path / "run" / ".lock", tmp_path / "log"
    lock.parent.mkdir()
    hold = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX)"
    hold += "; f.write('process 7 on there'); f.flush(); print(); input()"
    holder = subprocess.Popen(
        [sys.executable, "-c", hold, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    holder.stdout.readline()

    def train() -> int:
        words = [sys.executable, "-c", "print('trained'); raise SystemExit(3)"]
        return process.run_to_end(words, log, lock, threads=1, devices=None, folder=tmp_path)

    monkeypatch.setattr(process, "_PATIENCE", 0.0)
    with pytest.raises(OSError, match="run is still in use by process 7 on there"):
        train()
    assert not log.exists()

    monkeypatch.setattr(process, "_PATIENCE", PATIENCE)
    release = threading.Timer(0.5, holder.communicate, [b"\n"])
    release.start()
    assert train() == 3
    release.join()
    assert holder.returncode == 0
    assert log.read_text() == "trained\n"


# -- on a cluster ----------------------------------------------------------------------------------


@pytest.fixture
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster on a busy machine may take its time to answer."""
    monkeypatch.setattr(ray_engine, "_ANSWER", PATIENCE)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head and two more nodes, with one core each."""
    ray = ray_engine._imported()  # as the engine would, so that it is as quiet
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    node = {"num_cpus": 1, "object_store_memory": 100_000_000, "include_dashboard": False}
    made = cluster_utils.Cluster(initialize_head=True, head_node_args=node)
    for _ in range(2):
        made.add_node(**node)
    made.wait_for_nodes()
    yield made
    ray.shutdown()
    made.shutdown()


@dataclass
class NodeThief:
    """Takes away the first node that is found in the middle of a training."""

    cluster: Any
    runs: TrialRuns
    lost: str = ""
    """The key of the training whose node was lost."""
    deaths: list[str] = field(default_factory=list)

    def started(self, trial: Trial) -> None: ...

    def ended(self, trial: Trial) -> None: ...

    def died(self, trial: Trial, reason: str) -> None:
        self.deaths.append(reason)

    def tick(self, progress: dict[Trial, float]) -> None:
        for trial in progress:
            if not self.lost and self._took_node_of(trial):
                self.lost = trial.key

    def _took_node_of(self, trial: Trial) -> bool:
        folder = self.runs.folder_of(trial)
        begun = bool(list(folder.glob("checkpoints/step-*.ckpt")))
        return begun and took_node_of(self.cluster, folder)


def took_node_of(cluster: Any, folder: Path) -> bool:
    """Take away the node that trains into the folder, if there is one."""
    node = node_of(cluster, folder)
    if node is None:
        return False
    pids = trainings_into(folder)
    for pid in pids:  # so that it cannot end before its node does
        os.kill(pid, signal.SIGSTOP)
    if (folder / "result.json").exists():
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        return False
    cluster.remove_node(node, allow_graceful=False)
    return True


def node_of(cluster: Any, folder: Path) -> Any:
    raylets = {node.all_processes["raylet"][0].process.pid: node for node in cluster.worker_nodes}
    for pid in trainings_into(folder):
        worker = parent(pid)
        return raylets.get(parent(worker))
    return None


def trainings_into(folder: Path) -> list[int]:
    return [
        pid
        for pid in trainings(folder.parent)
        if str(folder).encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    ]


@pytest.mark.usefixtures("_patient")
@pytest.mark.slow
def test_a_node_lost_in_the_middle_of_a_training(
    cluster: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def searched(folder: Path, new_engine: Callable[[TrialRuns], Engine]) -> NodeThief:
        runs = runs_in(folder, epochs=6, checkpoint_steps=5)
        space = SearchSpace(splits=3, fractions=(1.0,), alphas=(1.0, 2.0))
        place = Storage.in_folder(folder)
        search = RecipeSearch(strategy=PlanStrategy(space=space), runs=runs, storage=place)
        thief = NodeThief(cluster, runs)
        with search.owned() as asking:
            drive(asking, new_engine(runs), thief)
        return thief

    on_ray, local = tmp_path / "ray", tmp_path / "local"
    thief = searched(on_ray, lambda runs: RayEngine(runs, address=cluster.address))
    assert thief.lost, "no training was found in its middle"
    assert thief.deaths == []  # Ray itself tried again
    assert "going on from step" in said(thief.runs, thief.lost)
    assert gone(on_ray)
    assert capfd.readouterr() == ("", "")

    undisturbed = searched(local, lambda runs: LocalEngine(runs, workers=2))
    assert undisturbed.lost == ""
    record, reference = stored(on_ray), stored(local)
    keys = ["lr1-0-seed0", "lr1-1-seed0", "lr1-2-seed0", "alpha-1-seed0"]
    assert sorted(trial.key for trial in record.trials) == sorted(keys)
    assert {trial.state for trial in record.trials} <= {"trained", "free"}
    values = {t.key: (t.state, t.accuracy, t.largest_scale) for t in record.trials}
    assert values == {t.key: (t.state, t.accuracy, t.largest_scale) for t in reference.trials}
    nodes = [node for node in cluster.list_all_nodes() if node.any_processes_alive()]
    assert len(nodes) == 2
    cluster.add_node(num_cpus=1, object_store_memory=100_000_000)  # for the other tests


@pytest.mark.usefixtures("_patient")
@pytest.mark.slow
def test_an_experiment_whose_node_is_lost(cluster: Any, tmp_path: Path) -> None:
    """By the command: it goes on on the other nodes, and finds what it finds on one machine."""
    on_ray, local = tmp_path / "ray", tmp_path / "local"
    python, words = [sys.executable, tiny.__file__], ["reproduce", "fig2", "--out"]
    with (tmp_path / "words").open("wb") as said_there:
        driver = subprocess.Popen(
            [*python, *words, str(on_ray), "--engine", "ray", "--address", cluster.address],
            stdout=said_there,
            stderr=said_there,
        )
    until(
        lambda: (
            driver.poll() is not None
            or any(took_node_of(cluster, run) for run in (on_ray / "trainings").glob("*"))
        )
    )
    assert driver.poll() is None, (tmp_path / "words").read_text()
    assert driver.wait(timeout=600) == 0, (tmp_path / "words").read_text()
    nodes = [node for node in cluster.list_all_nodes() if node.any_processes_alive()]
    assert len(nodes) == 2
    cluster.add_node(num_cpus=1, object_store_memory=100_000_000)  # for the other tests

    subprocess.run([*python, *words, str(local)], check=True)
    found = [
        json.loads((out / "fig2.json").read_text())["outcome"]["runs"] for out in (on_ray, local)
    ]
    assert len(found[0]) == 6
    for ours, theirs in zip(*found, strict=True):
        assert ours | {"seconds": 0} == theirs | {"seconds": 0}


@pytest.mark.usefixtures("_patient")
@pytest.mark.slow
def test_room_follows_the_nodes(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = runs_in(tmp_path, epochs=2)
    rule = (
        "a trial asks for 4 CPUs and 0 GPUs but the cluster has nodes of 1 CPU and 0 GPUs:"
        " ask for less or add a node"
    )
    with pytest.raises(ValueError, match=rule):
        RayEngine(runs, cpus=4, address=cluster.address)
    with pytest.raises(ValueError, match="asks for 1 CPU and 1 GPU but the cluster has nodes of"):
        RayEngine(runs, gpus=1, address=cluster.address)

    before = signal.getsignal(signal.SIGTERM)
    engine = RayEngine(runs, cpus=0.5, address=cluster.address)
    assert signal.getsignal(signal.SIGTERM) is before
    try:
        until(lambda: engine.room == 3 * 2)
        large = cluster.add_node(num_cpus=4, object_store_memory=100_000_000)
        until(lambda: engine.room == 3 * 2 + 8)
        demanding = RayEngine(runs, cpus=3, address=cluster.address)
        assert demanding.room == 1
        monkeypatch.setattr(ray_engine, "_ROOMLESS", 0.0)
        cluster.remove_node(large)
        with pytest.raises(OSError, match="needs 3 CPUs and 0 GPUs but all the cluster has had"):
            until(lambda: demanding.room == 0)  # it is never 0
    finally:
        engine.stop()


@pytest.mark.usefixtures("_patient")
@pytest.mark.slow
def test_a_stopped_training_writes_its_checkpoint(cluster: Any, tmp_path: Path) -> None:
    runs = runs_in(tmp_path, epochs=500)
    saved = runs.folder_of(JOB) / "checkpoints"

    engine = RayEngine(runs, address=cluster.address)
    engine.start(JOB)
    until((runs.folder_of(JOB) / "metrics.csv").exists)
    assert trainings(tmp_path)
    assert list(saved.glob("*.ckpt")) == []  # of its own accord it writes none
    engine.stop()
    assert trainings(tmp_path) == []
    assert "fixnorm: stopped after step" in said(runs)
    assert len(list(saved.glob("*.ckpt"))) == 1

    engine = RayEngine(runs, address=cluster.address)
    engine.start(JOB)
    until(lambda: "going on from step" in said(runs))
    engine.stop()
    assert trainings(tmp_path) == []


@pytest.mark.usefixtures("_patient")
@pytest.mark.slow
def test_a_worker_killed_when_ray_tries_no_more(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_engine, "_RETRIES", 0)
    runs = runs_in(tmp_path, epochs=500)
    engine = RayEngine(runs, address=cluster.address)
    try:
        engine.start(JOB)
        until((runs.folder_of(JOB) / "metrics.csv").exists)
        (training,) = trainings(tmp_path)
        os.kill(parent(training), signal.SIGKILL)
        assert gone(tmp_path), "the training outlived its worker"
        over: list[Any] = []
        until(lambda: over.extend(engine.wait(1.0)) or over)
        ((trial, end),) = over
        assert trial == JOB
        assert isinstance(end, Died)
        assert "worker" in end.reason
    finally:
        engine.stop()


@pytest.mark.slow
def test_a_killed_driver_takes_its_own_ray_and_all_trainings_with_it(tmp_path: Path) -> None:
    """By the command, as a user would; the same command then goes on."""
    out, mark = tmp_path / "study", f"FIXNORM_TEST_MARK={tmp_path}"
    name, _, value = mark.partition("=")
    ray_gives_up_soon = {"RAY_gcs_rpc_server_reconnect_timeout_s": "4"}  # its agents wait a minute
    options = ("--engine", "ray", "--fractions", "1", "--alphas", "1")
    with (tmp_path / "words").open("wb") as words:
        driver = subprocess.Popen(
            command(out, *options),
            stdout=words,
            stderr=words,
            env=os.environ | {"OMP_NUM_THREADS": "1", name: value} | ray_gives_up_soon,
        )
    until(lambda: trainings(out) or driver.poll() is not None)
    assert driver.poll() is None, (tmp_path / "words").read_text()
    assert len(marked(mark)) > 3  # the driver, a training, and those of Ray
    assert heard_from(marked(mark)) <= {"0100007F", "0000000000000000FFFF00000100007F"}
    driver.kill()
    driver.wait()
    until(lambda: marked(mark) == [])

    assert finish(out, *options)["failed"] == 0
    assert sorted(trial.key for trial in stored(out).trials) == ["lr1-0-seed0", "lr1-1-seed0"]


def heard_from(pids: list[int]) -> set[str]:
    """Addresses, as the kernel writes them, on which the processes listen."""
    sockets = set()
    for pid in pids:
        for handle in Path(f"/proc/{pid}/fd").glob("*"):
            with suppress(OSError):
                sockets.add(os.readlink(handle).removeprefix("socket:[").removesuffix("]"))
    lines = [
        line.split()
        for family in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{family}").read_text().splitlines()[1:]
    ]
    listening = "0A"
    found = {w[1].partition(":")[0] for w in lines if w[3] == listening and w[9] in sockets}
    assert found, "Ray listens nowhere"
    return found


def marked(mark: str) -> list[int]:
    """Processes with a variable in their environment, and their children."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                variables = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if mark.encode() in variables:
                found.append(int(entry.name))
    return found
