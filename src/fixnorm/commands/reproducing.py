"""What ``fixnorm reproduce`` does: from its options to trainings, figures and tables."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.console import Console

from fixnorm.commands.searching import ENGINES
from fixnorm.commands.terminal import wide_console
from fixnorm.report.text_table import TextTable
from fixnorm.reproduce.bench import Bench, Outcome
from fixnorm.reproduce.cost import TFLOPS, Cost, Counter
from fixnorm.reproduce.experiments import EXPERIMENTS
from fixnorm.reproduce.lab import IMAGINED, Lab
from fixnorm.reproduce.pool import Pool
from fixnorm.reproduce.record import read_record, record_of
from fixnorm.reproduce.scales import SCALES, Scale
from fixnorm.reproduce.shown import SHOW
from fixnorm.reproduce.training import Training
from fixnorm.reproduce.view import BenchView
from fixnorm.reproduce.write import write_landscapes, write_shown
from fixnorm.training.interrupt import Interrupt
from fixnorm.training.lock import InUse, held
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
    if wanted.stored is not None:
        tell(draw_again(wanted.stored, names, wanted.out), wanted)
        return
    planned = {name: plan(name, scale) for name in names}
    if wanted.dry_run:
        announce(planned, scale, wanted)
        return
    trainings = {t: None for plan_ in planned.values() for t in plan_}
    pool = Pool(
        folder=wanted.out / "trainings",
        data=wanted.data,
        processes=wanted.processes,
        options=("--no-tensorboard",),
    )
    pool.check_data({training.data for training in trainings})

    written: dict[str, list[Path]] = {}

    def over(name: str, outcome: Outcome) -> None:
        record = record_of(name, scale.name, outcome.found, outcome.used)
        write = write_landscapes if name == "landscapes" else write_shown
        written[name] = write(record, wanted.out)

    experiments = {name: EXPERIMENTS[name].at(scale) for name in names}
    bench = Bench(experiments, pool, over)
    engine = engine_of(wanted, pool)
    with ExitStack() as stack:
        stack.callback(engine.stop)
        stack.enter_context(owned(wanted.out))
        interrupt = stack.enter_context(Interrupt())
        view = stack.enter_context(BenchView(bench, most=len(trainings)))
        search(bench, bench, engine, view, interrupt)
    tell(written, wanted)


@contextmanager
def owned(out: Path) -> Iterator[None]:
    """Hold the folder: two drivers would train the same."""
    out.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        try:
            stack.enter_context(held(out / ".lock"))
        except InUse as used:
            raise ValueError(
                f"{out} is in use by {used.owner}: wait for it or give another --out"
            ) from None
        yield


def draw_again(stored: Path, names: list[str], out: Path) -> dict[str, list[Path]]:
    """Figures and tables from a file, or from a folder of files."""
    if "landscapes" in names and len(names) == 1:
        raise ValueError("landscapes have no figure of their own: fixnorm replay draws on them")
    written = {}
    for name in names:
        if name not in SHOW:
            continue
        record = read_record(stored / f"{name}.json" if stored.is_dir() else stored)
        if record["experiment"] != name:
            raise ValueError(f"{stored} is of {record['experiment']}, not of {name}")
        written[name] = write_shown(record, out)
    return written


def tell(written: dict[str, list[Path]], wanted: Wanted) -> None:
    """The tables, what became of the claims, and where everything is."""
    if wanted.as_json:
        print(json.dumps({name: [str(path) for path in paths] for name, paths in written.items()}))
        return
    console = wide_console()
    for name, paths in written.items():
        if name in SHOW:
            shown = SHOW[name](read_record(wanted.out / f"{name}.json")["outcome"])
            for table in shown.tables:
                console.print(table.rich())
                for note in table.notes:
                    console.print(note, style="dim", markup=False)
                console.print()
            for claim in shown.claims:
                console.print(f"{claim.verdict}: {claim.text}: {claim.measured}", markup=False)
        print("\n".join(map(str, paths)))


def announce(planned: dict[str, list[Training]], scale: Scale, wanted: Wanted) -> None:
    """What experiments would take; nothing is trained."""
    counter = Counter(measure=scale.name == "small")
    shared = {training: None for trainings in planned.values() for training in trainings}
    console = wide_console()
    with Console(stderr=True).status("counting the operations of each network"):
        costs = {name: counter.cost(trainings) for name, trainings in planned.items()}
        costs |= {"together": counter.cost(shared)} if len(planned) > 1 else {}
    if wanted.as_json:
        print(json.dumps({name: asdict(cost) for name, cost in costs.items()}))
        return
    table = plan_table(costs, scale)
    console.print(table.rich())
    for note in table.notes:
        console.print(note, style="dim", markup=False)
    folders = sorted({training.data for training in shared if training.data is not None})
    console.print(f"--data must hold: {', '.join(folders)}", markup=False)


def plan_table(costs: dict[str, Cost], scale: Scale) -> TextTable:
    """One row for each experiment."""
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
