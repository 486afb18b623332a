"""From the names of experiments to trainings, drawings and tables, one plan for all of them.

Trainings are runs in folders; experiments that need some say which, and go on when they are there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fixnorm.evidence.experiment import Experiment
from fixnorm.evidence.experiments import DRAWN, EXPERIMENTS
from fixnorm.evidence.record import (
    Record,
    check_places,
    exhibit_of,
    read_record,
    record_of,
    write_exhibit,
    write_landscapes,
)
from fixnorm.evidence.scales import Scale
from fixnorm.evidence.trainings import IMAGINED, Found, Training, Trainings, read_found
from fixnorm.system import brief
from fixnorm.system.interrupt import Interrupt
from fixnorm.system.lock import owned_folder
from fixnorm.training.recipe import Recipe
from fixnorm.tuning.driver import drive
from fixnorm.tuning.engine import Engine, Refused
from fixnorm.tuning.run import Runs
from fixnorm.tuning.trial import Result, Trial
from fixnorm.tuning.view import LiveView

__all__ = ["draw_again", "missing", "plan", "reproduce", "together", "unrecorded"]

Over = Callable[[str, Experiment, Mapping[Training, Found]], None]
"""Told the name of an experiment that is over, its outcome and the trainings that it rests on."""


def plan(name: str, scale: Scale) -> list[Training]:
    """All trainings that an experiment may take."""
    trainings = Trainings(lambda _: IMAGINED, dry=True)
    trainings.attempt(EXPERIMENTS[name].at(scale))
    return list(trainings.used)


def reproduce(
    planned: dict[str, list[Training]],
    scale: Scale,
    *,
    folder: Path,
    data: Path | None,
    processes: int,
    new_engine: Callable[[Runs], Engine],
    recorded: Mapping[Recipe, Found] | None = None,
) -> dict[str, list[Path]]:
    """Run the experiments; returns the files that each has written.

    Args:
        planned: their names, and all trainings that each may take.
        scale: at which they run.
        folder: for trainings, drawings and tables. Trainings that are there are not run again.
        data: holds a folder for each data set.
        processes: of each training.
        new_engine: what runs them.
        recorded: what trainings of recordings found, for experiments of scores.
    """
    trainings = together(planned)
    runs = TrainingRuns(
        folder=folder / "trainings",
        data=data,
        processes=processes,
        options=("--no-tensorboard",),
        recorded=recorded or {},
    )
    runs.check_data({training.data for training in missing(planned, runs.recorded)})
    written: dict[str, list[Path]] = {}

    def over(name: str, outcome: Experiment, used: Mapping[Training, Found]) -> None:
        record = record_of(name, scale.name, outcome, used)
        write = write_exhibit if name in DRAWN else write_landscapes
        written[name] = write(record, folder)

    experiments = RunningExperiments(
        {name: EXPERIMENTS[name].at(scale) for name in planned}, runs, over
    )
    engine = new_engine(runs)
    with ExitStack() as stack:
        stack.callback(engine.stop)
        stack.enter_context(owned_folder(folder))
        interrupt = stack.enter_context(Interrupt())
        view = stack.enter_context(ExperimentView(experiments, most=len(trainings)))
        drive(experiments, engine, view, interrupt)
    return written


def together(planned: dict[str, list[Training]]) -> list[Training]:
    """The trainings of all experiments, each once."""
    return list(dict.fromkeys(training for trainings in planned.values() for training in trainings))


def missing(planned: dict[str, list[Training]], recorded: Mapping[Recipe, Found]) -> list[Training]:
    """What is trained if nothing but the recordings is there."""
    return together({name: unrecorded(name, planned[name], recorded) for name in planned})


def unrecorded(
    name: str, trainings: Iterable[Training], recorded: Mapping[Recipe, Found]
) -> list[Training]:
    """Those that an experiment cannot take from recordings."""
    known = recorded if EXPERIMENTS[name].of_scores else {}
    return [training for training in trainings if training.recipe not in known]


def draw_again(stored: Path, names: list[str], out: Path) -> dict[str, list[Path]]:
    """Drawings and tables from a file, or from a folder of files."""
    if "landscapes" in names and len(names) == 1:
        raise ValueError("landscapes have no figure of their own: fixnorm replay draws on them")
    records = {name: _stored(stored, name) for name in names if name in DRAWN}
    check_places(records, out)
    return {name: write_exhibit(record, out) for name, record in records.items()}


def _stored(stored: Path, name: str) -> Record:
    """The record of an experiment, as whole as its drawings need it."""
    path = stored / f"{name}.json" if stored.is_dir() else stored
    record = read_record(path)
    if record.experiment != name:
        raise ValueError(f"{path} is of {brief(record.experiment, plain=True)}, not of {name}")
    try:
        exhibit_of(record)
    except ValueError as error:
        raise ValueError(f"{path} is no whole record of {name}: {error}") from None
    return record


@dataclass(frozen=True, kw_only=True)
class TrainingRuns(Runs):
    """All trainings of all experiments, each in a folder; what is there is not run again."""

    data: Path | None
    """Holds a folder for each data set."""
    recorded: Mapping[Recipe, Found] = field(default_factory=dict)
    trainings: dict[str, Training] = field(default_factory=dict)
    """Those that were asked for, by key."""
    _found: dict[Training, Found] = field(default_factory=dict)

    def find(self, training: Training) -> Found | None:
        """What it found, if it is over."""
        known = self._found.get(training)
        if known is None:
            known = read_found(self.folder / training.key)
            if known is not None:
                self._found[training] = known
        return known

    def find_score(self, training: Training) -> Found | None:
        """The same for who needs its score alone: a recording will do."""
        return self.find(training) or self.recorded.get(training.recipe)

    def trial(self, training: Training) -> Trial:
        """As engines know it; from now on this knows its recipe."""
        self.trainings[training.key] = training
        return training.trial()

    def recipe_of(self, trial: Trial) -> Recipe:
        return self.trainings[trial.key].recipe

    def arguments(self, trial: Trial) -> list[str]:
        """A command that anyone can type."""
        training = self.trainings[trial.key]
        arguments = [training.base, "--method", training.method]
        for pair in training.settings():
            arguments += ["--set", pair]
        if training.data is not None:
            assert self.data is not None
            arguments += ["--data", str(self.data / training.data)]
        return arguments

    def check_data(self, names: Collection[str | None]) -> None:
        """Refuse folders that are not there, all in one line."""
        wanted = sorted(name for name in names if name is not None)
        if not wanted:
            return
        if self.data is None:
            raise ValueError(
                f"--data is needed: a folder that holds {', '.join(wanted)}"
                " (or set FIXNORM_DATA to it)"
            )
        absent = [name for name in wanted if not (self.data / name).is_dir()]
        if absent:
            raise ValueError(f"{self.data} holds no folder {', '.join(absent)}")


class RunningExperiments:
    """Experiments side by side: decides what is trained, and keeps what was, for the driver."""

    def __init__(
        self,
        experiments: Mapping[str, Callable[[Trainings], Experiment]],
        runs: TrainingRuns,
        over: Over,
    ) -> None:
        self.runs = runs
        self._over = over
        self._open = dict(experiments)
        self.running: dict[str, Trial] = {}
        self.done = 0
        """What this process has trained."""
        self._trainings = {
            name: Trainings(runs.find_score if EXPERIMENTS[name].of_scores else runs.find)
            for name in experiments
        }
        self._ready: dict[str, Trial] | None = None

    @property
    def known(self) -> int:
        """Trainings that are there, of all that were asked for."""
        return len({training for each in self._trainings.values() for training in each.used})

    def ready(self) -> dict[str, Trial]:
        """What can be trained now, by key."""
        if self._ready is None:
            self._ready = {}
            for name, experiment in list(self._open.items()):
                trainings = self._trainings[name]
                outcome = trainings.attempt(experiment)
                if outcome is not None:
                    del self._open[name]
                    self._over(name, outcome, dict(trainings.used))
                trials = [self.runs.trial(training) for training in trainings.missing]
                self._ready |= {trial.key: trial for trial in trials}
        return self._ready

    def ask(self, n: int = 1) -> list[Trial]:
        """In the order in which the experiments ask."""
        if n < 1:
            return []
        trials = [trial for key, trial in self.ready().items() if key not in self.running][:n]
        self.running |= {trial.key: trial for trial in trials}
        return trials

    def give_back(self, trial: Trial) -> None:
        """It came to no result: it is asked for again."""
        del self.running[trial.key]

    def tell(self, trial: Trial, result: Result) -> Trial:
        """It has left its result; one that failed for good ends the whole."""
        if result.state == "failed":
            raise Refused(f"{trial.key} failed: {result.reason}; look at {self.runs.log_of(trial)}")
        self._ready = None
        self.done += 1
        self.give_back(trial)
        return replace(trial, result=result, folder=self.runs.folder_of(trial))


class ExperimentView(LiveView):
    """A live view on a terminal; elsewhere one line for each training."""

    def __init__(self, experiments: RunningExperiments, *, most: int) -> None:
        super().__init__()
        self._experiments, self._most = experiments, most
        self._progress: dict[Trial, float] = {}
        self._began = time.monotonic()
        self._before = 0

    def __enter__(self) -> ExperimentView:
        self._experiments.ready()
        self._before = self._experiments.known
        there = f", {self._before} are there" if self._before else ""
        self.message(f"at most {self._most} trainings{there}")
        self.start()
        return self

    def started(self, trial: Trial) -> None:
        self._progress[trial] = 0.0

    def died(self, trial: Trial, reason: str) -> None:
        self.message(f"{trial.key} ended by {reason}; trying again")

    def ended(self, trial: Trial) -> None:
        if not self.shown:
            self._experiments.ready()
            found = "diverged" if trial.accuracy is None else f"{trial.accuracy:.2f}"
            done = self._experiments.known
            self.message(f"{done:>4} of ≤ {self._most}  {trial.key}: {found}")

    def tick(self, progress: dict[Trial, float]) -> None:
        self._progress = progress

    def view(self) -> RenderableType:
        """How far the whole is, and each training that runs."""
        running = dict(self._progress)
        known = self._experiments.known
        done = known + sum(running.values())
        whole, table = Table.grid(padding=(0, 2)), Table.grid(padding=(0, 2))
        whole.add_row(
            ProgressBar(total=self._most, completed=done, width=24),
            f"{known} of at most {self._most} trainings",
            self._left(done),
        )
        for trial, share in running.items():
            table.add_row(
                ProgressBar(total=1.0, completed=share, width=24),
                Text(f"{100 * share:3.0f} %"),
                Text(f"{trial.round}, {trial.numbers()}, seed {trial.seed}"),
            )
        return Group(whole, table)

    def _left(self, done: float) -> str:
        new = done - self._before
        if new < 1:
            return "time left: not known yet"
        seconds = (time.monotonic() - self._began) / new * (self._most - done)
        minutes = max(round(seconds / 60), 1)
        return f"at most {minutes // 60} h {minutes % 60:02} min left"
