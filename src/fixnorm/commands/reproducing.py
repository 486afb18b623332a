"""What ``fixnorm reproduce`` does: from its options to trainings, figures and tables."""

from __future__ import annotations

import difflib
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch

from fixnorm.commands.searching import ENGINES
from fixnorm.reproduce.bench import Bench, Outcome
from fixnorm.reproduce.experiments import EXPERIMENTS
from fixnorm.reproduce.lab import IMAGINED, Lab
from fixnorm.reproduce.pool import Pool
from fixnorm.reproduce.record import record_of, write_record
from fixnorm.reproduce.scales import SCALES, Scale
from fixnorm.reproduce.training import Training
from fixnorm.reproduce.view import BenchView
from fixnorm.training.interrupt import Interrupt
from fixnorm.tuning.driver import search
from fixnorm.tuning.engines.engine import Engine
from fixnorm.tuning.engines.local import LocalEngine, default_workers

_SAME = {"fig5": "table1"}
"""Figures of the same trainings."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The options of the command, as given."""

    names: tuple[str, ...]
    scale: str
    data: Path | None
    out: Path
    stored: Path | None
    dry_run: bool
    engine: str
    workers: int | None
    processes: int
    gpus: float
    cpus: float
    address: str | None
    as_json: bool


def run(wanted: Wanted) -> None:
    """Experiments, one plan for all of them."""
    names, scale = names_of(wanted.names), scale_of(wanted.scale)
    if wanted.engine not in ENGINES:
        raise ValueError(f"engine must be {' or '.join(ENGINES)} but got {wanted.engine!r}")
    if wanted.out.exists() and not wanted.out.is_dir():
        raise ValueError(f"{wanted.out} is a file: give another --out")
    planned = {name: plan(name, scale) for name in names}
    trainings = {t: None for plan_ in planned.values() for t in plan_}
    pool = Pool(
        folder=wanted.out / "trainings",
        data=wanted.data,
        processes=wanted.processes,
        options=("--no-tensorboard",),
    )
    pool.check_data({training.data for training in trainings})

    def over(name: str, outcome: Outcome) -> None:
        record = record_of(name, scale.name, outcome.found, outcome.used)
        write_record(wanted.out / f"{name}.json", record)

    experiments = {name: EXPERIMENTS[name].at(scale) for name in names}
    bench = Bench(experiments, pool, over)
    engine = engine_of(wanted, pool)
    with ExitStack() as stack:
        stack.callback(engine.stop)
        interrupt = stack.enter_context(Interrupt())
        view = stack.enter_context(BenchView(bench, most=len(trainings), workers=engine.room))
        search(bench, bench, engine, view, interrupt)


def plan(name: str, scale: Scale) -> list[Training]:
    """All trainings that an experiment may take."""
    lab = Lab(lambda _: IMAGINED, dry=True)
    lab.attempt(EXPERIMENTS[name].at(scale))
    return list(lab.used)


def names_of(given: tuple[str, ...]) -> list[str]:
    """The experiments; each once."""
    if "all" in given:
        return list(EXPERIMENTS)
    names = [_SAME.get(name, name) for name in given]
    for name in names:
        if name not in EXPERIMENTS:
            known = [*EXPERIMENTS, *_SAME, "all"]
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"one of {', '.join(known)}"
            raise ValueError(f"no experiment {name!r}; {hint}")
    return list(dict.fromkeys(names))


def scale_of(name: str) -> Scale:
    """By its name."""
    if name not in SCALES:
        raise ValueError(f"scale must be {' or '.join(SCALES)} but got {name!r}")
    return SCALES[name]


def engine_of(wanted: Wanted, pool: Pool) -> Engine:
    """Where trainings run."""
    if wanted.engine == "ray":
        from fixnorm.tuning.engines.ray_tasks import RayEngine

        return RayEngine(pool, cpus=wanted.cpus, gpus=wanted.gpus, address=wanted.address)
    gpus = torch.cuda.device_count()
    workers = wanted.workers or default_workers(gpus=gpus, processes=wanted.processes)
    return LocalEngine(pool, workers=workers, gpus=gpus)
