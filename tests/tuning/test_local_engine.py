"""The driver and local processes, with small programs in the place of trainings."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from fixnorm import recipes
from fixnorm.commands.configured import configured
from fixnorm.system import process
from fixnorm.system.process import leashed
from fixnorm.system.run_paths import RunPaths
from fixnorm.training.kinds import DetectionRecipe, SegmentationRecipe
from fixnorm.tuning.driver import drive
from fixnorm.tuning.engine import Refused, Unfinished
from fixnorm.tuning.local_engine import LocalEngine, _shares, cores, default_workers
from fixnorm.tuning.plan import SearchSpace
from fixnorm.tuning.run import _MODULES, RecipeSearch, TrialRuns
from fixnorm.tuning.storage import Storage
from fixnorm.tuning.strategies import PlanStrategy
from fixnorm.tuning.trial import Result, Round, StudyRecord, Trial
from helpers.small_disk import small_disk

TRAINS = """
import json, os, pathlib, sys
out = pathlib.Path(sys.argv[1]); out.mkdir(parents=True, exist_ok=True)
lives = len(list(out.glob("life*"))) + 1
(out / f"life{lives}").write_text(os.environ["OMP_NUM_THREADS"])
def finish(accuracy=70.0, diverged=False, recipe=json.loads(sys.argv[3]), share=1.0):
    (out / "result.json").write_text(json.dumps({"metric": "accuracy", "accuracy": accuracy,
        "diverged": diverged, "epochs": 1, "seconds": 0.1, "largest_scale": None,
        "share": share, "recipe": recipe}))
"""


@dataclass(frozen=True, kw_only=True)
class Programs(TrialRuns):
    """Runs of a program instead of trainings."""

    program: str

    def modules(self) -> tuple[str, ...]:
        """What the programs need, they import themselves."""
        return ()

    def command(self, trial: Trial) -> list[str]:
        """The program, with the run's folder, lr and recipe."""
        given = (
            str(self.folder_of(trial)),
            str(trial.lr),
            json.dumps(self.recipe_of(trial).to_dict()),
        )
        return [sys.executable, "-c", TRAINS + self.program, *given]


class Heard:
    def __init__(self) -> None:
        self.words: list[str] = []

    def started(self, trial: Trial) -> None:
        pass

    def died(self, trial: Trial, reason: str) -> None:
        self.words.append(f"{trial.key} {reason}")

    def ended(self, trial: Trial) -> None:
        self.words.append(f"{trial.key} {trial.state}")

    def tick(self, progress: dict[Trial, float]) -> None:
        pass


TWO = SearchSpace(lr_min=0.1, lr_max=0.2, splits=2, fractions=(1.0,), alphas=(1.0,))
BRANCHES = PlanStrategy(space=SearchSpace(alphas=(1.0, 4.0)), plan="auto")


def searched(
    tmp_path: Path,
    program: str,
    *,
    workers: int = 2,
    strategy: PlanStrategy = PlanStrategy(space=TWO),  # noqa: B008
) -> tuple[StudyRecord, Heard]:
    """Two trials, lr 1 and lr 2."""
    runs = Programs(
        recipe=recipes.get("digits"),
        settings=(),
        data=None,
        folder=tmp_path / "runs",
        program=program,
    )
    heard = Heard()
    of_runs = RecipeSearch(strategy=strategy, runs=runs, storage=Storage.in_folder(tmp_path))
    with of_runs.owned() as search:
        drive(search, LocalEngine(runs, workers=workers), heard)
        return search.ledger.record(), heard


def test_results_become_values(tmp_path: Path) -> None:
    record, _ = searched(tmp_path, "finish(float(sys.argv[2]))")
    assert [t.accuracy for t in record.trials] == [0.15, 0.2]
    assert record.over


def test_cores_are_divided(tmp_path: Path) -> None:
    searched(tmp_path, "finish()")
    assert (tmp_path / "runs" / "lr1-0-seed0" / "life1").read_text() == str(max(cores() // 2, 1))


def test_a_diverged_training_closes_its_slot(tmp_path: Path) -> None:
    record, _ = searched(tmp_path, "finish(None, diverged=True); sys.exit(1)")
    assert [t.state for t in record.trials] == ["diverged"] * 2
    assert record.trials[0].reason == "the loss was not finite after epoch 1"


UNKNOWN = {
    "a crash": (
        "raise RuntimeError('no such kernel')",
        "exit code 1: RuntimeError: no such kernel",
    ),
    "a crash without a word": ("sys.exit(1)", "exit code 1: mend"),
    "a crash beside another's result": ("finish(99.0, recipe={'lr': 7}); sys.exit(1)", "code 1"),
    "a good end without a result": ("pass", "exit code 0"),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_is_no_outcome_is_tried_three_times_and_stays_open(tmp_path: Path, name: str) -> None:
    program, reason = UNKNOWN[name]
    with pytest.raises(Unfinished, match=r"-seed0 ended 3 times without getting any") as raised:
        searched(tmp_path, program)
    assert reason in str(raised.value)
    assert f"look at {tmp_path / 'runs' / 'logs'}" in str(raised.value)
    lives = [len(list((tmp_path / "runs" / f"lr1-{k}-seed0").glob("life*"))) for k in (0, 1)]
    assert max(lives) == 3
    record, _ = searched(tmp_path, "finish(float(sys.argv[2]))")
    assert [t.accuracy for t in record.trials] == [0.15, 0.2]


def test_a_trial_that_cannot_write_a_byte_is_no_outcome(tmp_path: Path) -> None:
    """Its words are lost on the full disk, whatever its exit code."""
    with small_disk(tmp_path / "runs", "200k") as disk:
        disk.fill()
        with pytest.raises(OSError, match="is full; nothing was lost, make room"):
            searched(tmp_path, "finish(float(sys.argv[2]))")
        disk.free()
        fill = "f = open(out.parent / 'filler', 'wb', 0)\nwhile f.write(bytes(4096)): pass"
        for code in (1, 2):
            disk.free()
            crash = f"try:\n exec({fill!r})\nexcept OSError: os._exit({code})"
            with pytest.raises(Unfinished, match=f"exit code {code}, and the disk of .* is full"):
                searched(tmp_path, crash, workers=1)  # another would find the disk full sooner
        disk.free()
        record, _ = searched(tmp_path, "finish(float(sys.argv[2]))")
    assert [t.accuracy for t in record.trials] == [0.15, 0.2]


def test_an_earlier_lifes_words_are_not_taken_for_the_last_ones(tmp_path: Path) -> None:
    program = "print('fixnorm: said long ago', file=sys.stderr); sys.exit(2)"
    with pytest.raises(Refused, match="said long ago"):
        searched(tmp_path, program)
    with pytest.raises(Refused, match=r"ended by exit code 2 without a word: look at .*\.log"):
        searched(tmp_path, "sys.exit(2)")


def test_a_crash_that_mends_itself(tmp_path: Path) -> None:
    record, _ = searched(tmp_path, "finish() if lives == 3 else sys.exit(7)")
    assert [t.state for t in record.trials] == ["trained"] * 2


@pytest.mark.parametrize(
    ("strategy", "killed", "cost"),
    [(PlanStrategy(space=TWO), "lr1-0-seed0", 2.0), (BRANCHES, "alpha-0-seed0", 1.25)],
)
def test_many_kills_are_survived(
    tmp_path: Path, strategy: PlanStrategy, killed: str, cost: float
) -> None:
    program = f"""
import signal
if lives < 12 and out.name == {killed!r}:
    os.kill(os.getpid(), signal.SIGKILL)
finish(share=0.25 if out.name.startswith("alpha") else 1.0)
"""
    record, heard = searched(tmp_path, program, strategy=strategy)
    assert [t.state for t in record.trials] == ["trained"] * 2
    assert heard.words.count(f"{killed} signal 9") == 11
    assert record.cost == cost


def test_a_refused_training_ends_the_search_and_loses_nothing(tmp_path: Path) -> None:
    program = "print('fixnorm: data folder /x does not exist', file=sys.stderr); sys.exit(2)"
    with pytest.raises(Refused, match=r"^data folder /x does not exist$"):
        searched(tmp_path, program)
    record, _ = searched(tmp_path, "finish()")
    assert [t.state for t in record.trials] == ["trained"] * 2


def test_a_result_of_a_killed_run_is_not_taken(tmp_path: Path) -> None:
    """A half-written or strange result.json counts as none."""
    program = "(out / 'result.json').write_text('{') if lives == 1 else finish()\nsys.exit(0)"
    record, _ = searched(tmp_path, program)
    assert [t.state for t in record.trials] == ["trained"] * 2


# -- GPUs and workers ------------------------------------------------------------------------------


def test_gpus_are_divided() -> None:
    assert _shares(["0", "1", "2", "3"], 2, 2) == [["0", "1"], ["2", "3"]]
    assert _shares(["0", "1"], 4, 1) == [["0"], ["1"], ["0"], ["1"]]
    assert _shares([], 2, 1) == [[], []]
    with pytest.raises(ValueError, match="2 trials of 4 processes need 8 GPUs but there are 4"):
        _shares(["0", "1", "2", "3"], 2, 4)


def test_each_trial_sees_its_own_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    runs = Programs(
        recipe=recipes.get("digits"),
        settings=(),
        data=None,
        folder=tmp_path,
        program="(out / 'gpu').write_text(os.environ['CUDA_VISIBLE_DEVICES']); finish()",
    )
    engine = LocalEngine(runs, workers=2, gpus=2)
    jobs = [Trial(key=f"job{i}", round=Round("points"), index=i, lr=1.0) for i in range(2)]
    for job in jobs:
        engine.start(job)
    ended = 0
    while ended < 2:
        ended += len(engine.wait(1.0))
    engine.stop()
    assert sorted((tmp_path / f"job{i}" / "gpu").read_text() for i in range(2)) == ["5", "7"]


def test_workers_by_default() -> None:
    assert default_workers(gpus=8, processes=2) == 4
    assert default_workers(gpus=1, processes=2) == 1
    assert default_workers(gpus=0, processes=1) == cores()


def test_a_trial_that_somebody_has_stopped_leaves_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is woken: asleep it would be waited for in vain, and then killed."""
    monkeypatch.setattr("fixnorm.system.process.GRACE", 600.0)
    program = (
        "import signal, time\n"
        "def leave(*_): (out / 'left').touch(); os._exit(143)\n"
        "signal.signal(signal.SIGTERM, leave)\n"
        "(out / 'pid').write_text(str(os.getpid()))\n"
        "time.sleep(600)"
    )
    digits = recipes.get("digits")
    runs = Programs(recipe=digits, settings=(), data=None, folder=tmp_path, program=program)
    engine = LocalEngine(runs, workers=1)
    engine.start(Trial(key="job", round=Round("points"), index=0, lr=1.0))
    pid = tmp_path / "job" / "pid"
    while not pid.exists() or not pid.read_text():
        time.sleep(0.01)
    os.kill(int(pid.read_text()), signal.SIGSTOP)
    engine.stop()
    assert (tmp_path / "job" / "left").exists()


# -- the command line of a trial -------------------------------------------------------------------


def test_command_and_recipe_agree(tmp_path: Path) -> None:
    runs = TrialRuns(
        recipe=recipes.get("resnet50d-120"), settings=("workers=4",), data=None, folder=tmp_path
    )
    job = Trial(key="lr1-0-seed1", round=Round("lr"), index=0, lr=0.8, alpha=0.5, fraction=0.2)
    recipe = runs.recipe_of(job)
    assert (recipe.epochs, recipe.warmup_epochs, recipe.lr, recipe.alpha) == (24, 4.0, 0.8, 0.5)
    words = runs.command(job)
    assert words[1:6] == ["-m", "fixnorm", "train", "resnet50d-120", "--method"]
    for pair in ("workers=4", "lr=0.8", "alpha=0.5", "epochs=24", "seed=0"):
        assert pair in words


def test_a_short_training_keeps_three_quarters_after_warm_up(tmp_path: Path) -> None:
    runs = TrialRuns(recipe=recipes.get("digits"), settings=(), data=None, folder=tmp_path)
    job = Trial(key="x", round=Round("lr"), index=0, lr=0.8, alpha=0.5, fraction=0.2)
    recipe = runs.recipe_of(job)
    assert (recipe.epochs, recipe.warmup_epochs) == (3, 0.75)


# -- what trainings import -------------------------------------------------------------------------

LOADS = """
import importlib, os, sys, torch
names = ("is_available", "device_count", "init", "_lazy_init", "current_device")
own = {name: getattr(torch.cuda, name) for name in names}
def tells(name):
    def told(*_, **__): raise SystemExit(f"torch.cuda.{name} was asked while loading")
    return told
for name in names:
    setattr(torch.cuda, name, tells(name))
for name in sys.argv[1:]:
    importlib.import_module(name)
if os.fork() == 0: os._exit(0)
os.wait()
assert len(os.listdir("/proc/self/task")) == 1, "a thread was left behind"
assert not torch.cuda.is_initialized()

for name in names:
    setattr(torch.cuda, name, own[name])
loaded = set(sys.modules)
from fixnorm.commands import run
words = "train digits --no-tensorboard --set epochs=1 --set warmup_epochs=0 --out run".split()
try:
    run(words)
except SystemExit as end:
    assert not end.code, end
heavy = ("torch", "timm", "torchvision", "pydantic", "fixnorm.training", "fixnorm.models")
late = sorted(name for name in set(sys.modules) - loaded if name.startswith(heavy))
assert not late, late
"""


@pytest.mark.slow
def test_to_import_what_trainings_need_computes_nothing(tmp_path: Path) -> None:
    """No GPU is looked for, as no fork could use it then; no thread is left, at any number.

    And a training then finds all that it needs.
    """
    modules = (*_MODULES, *SegmentationRecipe.libraries, *DetectionRecipe.libraries)
    done = subprocess.run(
        [sys.executable, "-c", LOADS, *modules],
        env=os.environ | {"OMP_NUM_THREADS": "4"},
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_fork_trains_as_a_process_from_nothing(tmp_path: Path) -> None:
    """Bit for bit, with processes of its own that decode, and timm's average of the weights."""
    settings = ("train_per_class=20", "val_per_class=10", "batch_size=32", "warmup_epochs=0")
    settings += ("epochs=1", "ema=0.9", "auto_augment=v0", "workers=2")
    digits = configured("digits", None, list(settings))
    runs = TrialRuns(recipe=digits, settings=settings, data=None, folder=tmp_path)
    cold, forked = (
        Trial(key=key, round=Round("lr"), index=0, lr=0.8, alpha=0.5) for key in ("cold", "forked")
    )
    assert process.start(runs.command(cold), runs.log_of(cold), threads=cores()).wait() == 0
    engine = LocalEngine(runs, workers=1)
    try:
        engine.start(forked)
        while not (ends := engine.wait(1.0)):
            server = engine._warm._server
            assert server is not None
            assert server.poll() is None  # else it would be started from nothing, too
    finally:
        engine.stop()
    ((_, end),) = ends
    assert isinstance(end, Result), end
    first, second = (RunPaths(runs.folder_of(trial)) for trial in (cold, forked))
    assert second.metrics.read_text() == first.metrics.read_text()
    assert second.weights.read_bytes() == first.weights.read_bytes()
    results = [json.loads(paths.result.read_text()) for paths in (first, second)]
    for result in results:
        del result["seconds"], result["images_per_second"]
    assert results[0] == results[1]


# -- the leash -------------------------------------------------------------------------------------


def test_a_process_dies_with_its_parent(tmp_path: Path) -> None:
    """The parent starts a leashed sleep, says its pid, and is killed."""
    program = (
        "import json, os, subprocess, sys, time\n"
        "words = [w if w != 'PID' else str(os.getpid()) for w in json.loads(sys.argv[1])]\n"
        "child = subprocess.Popen([*words, 'sleep', '600'])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program, json.dumps(leashed("PID"))],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    command = Path(f"/proc/{child}/cmdline")
    while b"sleep" not in command.read_bytes().split(b"\0")[0]:
        time.sleep(0.01)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()  # not read to its end: a child that lives on would hold it open
    for _ in range(60_000):
        if not command.exists() or not command.read_bytes():
            return
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    pytest.fail("the process outlived its parent")


def test_a_leash_without_a_parent_runs_nothing() -> None:
    command = [*leashed("1"), sys.executable, "-c", "print('ran')"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "ran" not in done.stdout
    assert "process 1, which asked for this, is gone" in done.stderr
