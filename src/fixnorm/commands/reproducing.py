"""What ``fixnorm reproduce`` does: from its options to trainings, figures and tables."""

from __future__ import annotations

import difflib
import json
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from fixnorm.commands.terminal import wide_console
from fixnorm.commands.where import Where
from fixnorm.evidence.bench import Bench, Outcome
from fixnorm.evidence.cost import TFLOPS, Cost, Counter
from fixnorm.evidence.experiments import EXPERIMENTS
from fixnorm.evidence.lab import IMAGINED, Lab
from fixnorm.evidence.pool import Pool
from fixnorm.evidence.record import Record, read_record, record_of
from fixnorm.evidence.scales import SCALES, Scale
from fixnorm.evidence.shown import SHOW
from fixnorm.evidence.training import Training
from fixnorm.evidence.view import BenchView
from fixnorm.evidence.write import check_places, write_landscapes, write_shown
from fixnorm.report.tables import TextTable
from fixnorm.system import short
from fixnorm.system.interrupt import Interrupt
from fixnorm.system.lock import owned_folder
from fixnorm.tuning.driver import search

_SAME = {"fig5": "table1"}
"""Figures of the same trainings."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The options of the command, as given."""

    names: tuple[str, ...]
    scale: str
    data: Path | None
    out: Path | None
    stored: Path | None
    dry_run: bool
    where: Where
    as_json: bool

    @property
    def folder(self) -> Path:
        """Where everything goes: what is drawn again does not replace what was trained."""
        default = "redrawn" if self.stored is not None else f"reproduce-{self.scale}"
        return self.out or Path("runs") / default


def run(wanted: Wanted) -> None:
    """Experiments, one plan for all of them."""
    names, scale = names_of(wanted.names), scale_of(wanted.scale)
    folder = wanted.folder
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: give another --out")
    if wanted.stored is not None:
        tell(draw_again(wanted.stored, names, folder), wanted)
        return
    check_places(names, folder)
    planned = {name: plan(name, scale) for name in names}
    if wanted.dry_run:
        announce(planned, scale, wanted)
        return
    trainings = {t: None for plan_ in planned.values() for t in plan_}
    pool = Pool(
        folder=folder / "trainings",
        data=wanted.data,
        processes=wanted.where.nproc_per_trial,
        options=("--no-tensorboard",),
    )
    pool.check_data({training.data for training in trainings})

    written: dict[str, list[Path]] = {}

    def over(name: str, outcome: Outcome) -> None:
        record = record_of(name, scale.name, outcome.found, outcome.used)
        write = write_landscapes if name == "landscapes" else write_shown
        written[name] = write(record, folder)

    experiments = {name: EXPERIMENTS[name].at(scale) for name in names}
    bench = Bench(experiments, pool, over)
    engine = wanted.where.new_engine(pool)
    with ExitStack() as stack:
        stack.callback(engine.stop)
        stack.enter_context(owned_folder(folder))
        interrupt = stack.enter_context(Interrupt())
        view = stack.enter_context(BenchView(bench, most=len(trainings)))
        search(bench, bench, engine, view, interrupt)
    tell(written, wanted)


def draw_again(stored: Path, names: list[str], out: Path) -> dict[str, list[Path]]:
    """Figures and tables from a file, or from a folder of files."""
    if "landscapes" in names and len(names) == 1:
        raise ValueError("landscapes have no figure of their own: fixnorm replay draws on them")
    records = {name: _stored(stored, name) for name in names if name in SHOW}
    check_places(records, out)
    return {name: write_shown(record, out) for name, record in records.items()}


def _stored(stored: Path, name: str) -> Record:
    """The record of an experiment, as whole as its figures need it."""
    path = stored / f"{name}.json" if stored.is_dir() else stored
    record = read_record(path)
    if record.experiment != name:
        raise ValueError(f"{path} is of {short(record.experiment)}, not of {name}")
    try:
        SHOW[name](record.outcome)
    except ValueError as error:
        raise ValueError(f"{path} is no whole record of {name}: {error}") from None
    return record


def tell(written: dict[str, list[Path]], wanted: Wanted) -> None:
    """The tables, what became of the claims, and where everything is."""
    if wanted.as_json:
        print(json.dumps({name: [str(path) for path in paths] for name, paths in written.items()}))
        return
    console = wide_console()
    for name, paths in written.items():
        if name in SHOW:
            shown = SHOW[name](read_record(wanted.folder / f"{name}.json").outcome)
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
