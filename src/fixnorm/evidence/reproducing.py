"""From the names of experiments to trainings, figures and tables, one plan for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path

from fixnorm.evidence.cost import TFLOPS, Cost
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
from fixnorm.evidence.running import ExperimentView, RunningExperiments, TrainingRuns
from fixnorm.evidence.scales import SCALES, Scale
from fixnorm.evidence.trainings import IMAGINED, Found, Training, Trainings
from fixnorm.report.text_table import TextTable
from fixnorm.system import brief
from fixnorm.system.interrupt import Interrupt
from fixnorm.system.lock import owned_folder
from fixnorm.system.nearest import did_you_mean
from fixnorm.tuning.driver import drive
from fixnorm.tuning.engines import Engine
from fixnorm.tuning.run import Runs

__all__ = ["cost_table", "draw_again", "names_of", "plan", "reproduce", "scale_of", "together"]

_SAME = {"fig5": "table1"}
"""Figures of the same trainings."""


def reproduce(
    planned: dict[str, list[Training]],
    scale: Scale,
    *,
    folder: Path,
    data: Path | None,
    processes: int,
    new_engine: Callable[[Runs], Engine],
) -> dict[str, list[Path]]:
    """Run the experiments; returns the files that each has written.

    Args:
        planned: their names, and all trainings that each may take.
        scale: at which they run.
        folder: for trainings, figures and tables. Trainings that are there are not run again.
        data: holds a folder for each data set.
        processes: of each training.
        new_engine: what runs them.
    """
    trainings = together(planned)
    runs = TrainingRuns(
        folder=folder / "trainings",
        data=data,
        processes=processes,
        options=("--no-tensorboard",),
    )
    runs.check_data({training.data for training in trainings})
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


def draw_again(stored: Path, names: list[str], out: Path) -> dict[str, list[Path]]:
    """Figures and tables from a file, or from a folder of files."""
    if "landscapes" in names and len(names) == 1:
        raise ValueError("landscapes have no figure of their own: fixnorm replay draws on them")
    records = {name: _stored(stored, name) for name in names if name in DRAWN}
    check_places(records, out)
    return {name: write_exhibit(record, out) for name, record in records.items()}


def _stored(stored: Path, name: str) -> Record:
    """The record of an experiment, as whole as its figures need it."""
    path = stored / f"{name}.json" if stored.is_dir() else stored
    record = read_record(path)
    if record.experiment != name:
        raise ValueError(f"{path} is of {brief(record.experiment, plain=True)}, not of {name}")
    try:
        exhibit_of(record)
    except ValueError as error:
        raise ValueError(f"{path} is no whole record of {name}: {error}") from None
    return record


def cost_table(costs: dict[str, Cost], scale: Scale) -> TextTable:
    """What experiments would take, one row for each."""
    here = scale.name == "small"
    rows = [
        (
            name,
            str(cost.trainings),
            f"{cost.t_max:g}",
            f"{cost.images / 1e6:,.1f}",
            f"{cost.operations / (1e15 if here else 1e18):.3g}",
            f"{(cost.seconds or 0) / 3600:.1f}" if here else f"{cost.gpu_hours:,.0f}",
        )
        for name, cost in costs.items()
    ]
    last = "core-hours here" if here else f"GPU-hours at {TFLOPS:g} TFLOP/s"
    notes = ["At most: searches end earlier where a cap is never met."]
    if len(costs) > 1:
        notes.append("together: trainings that are the same are run once.")
    if not here:
        notes.append("Forward and backward passes alone, as each network counts on one image.")
    columns = (
        "experiment",
        "trainings",
        "T_max",
        "million images",
        "PFLOP" if here else "EFLOP",
        last,
    )
    return TextTable(f"At {scale.name} scale", columns, tuple(rows), tuple(notes), words=1)


def plan(name: str, scale: Scale) -> list[Training]:
    """All trainings that an experiment may take."""
    trainings = Trainings(lambda _: IMAGINED, dry=True)
    trainings.attempt(EXPERIMENTS[name].at(scale))
    return list(trainings.used)


def names_of(given: Iterable[str]) -> list[str]:
    """The experiments that are meant, each once."""
    given = list(given)
    if "all" in given:
        return list(EXPERIMENTS)
    names = [_SAME.get(name, name) for name in given]
    for name in names:
        if name not in EXPERIMENTS:
            known = [*EXPERIMENTS, *_SAME, "all"]
            raise ValueError(f"no experiment {name!r}; {did_you_mean(name, known)}")
    return list(dict.fromkeys(names))


def scale_of(name: str) -> Scale:
    if name not in SCALES:
        raise ValueError(f"scale must be {' or '.join(SCALES)} but got {name!r}")
    return SCALES[name]
