"""``fixnorm reproduce``: the paper's figures and tables, re-run."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fixnorm.commands.options import Where, check_where, refuse, takes
from fixnorm.commands.waiting import waiting
from fixnorm.starting import loading

if TYPE_CHECKING:
    from fixnorm.evidence.scales import Scale
    from fixnorm.evidence.trainings import Training

_OF_TRAININGS = ("scale", "dry_run", "recorded", *Where.__dataclass_fields__)


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What the command is asked for."""

    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME…",
            help="fig1, fig2, fig4, fig5, table1 to table4, peers, forgiveness, landscapes; all.",
        ),
    ]
    scale: Annotated[
        str, typer.Option(help="small: one machine; paper: ImageNet, Cityscapes, COCO.")
    ] = "small"
    data: Annotated[
        Path | None,
        typer.Option(
            envvar="FIXNORM_DATA",
            help="Folder of the data sets' folders; a dry run names those it needs.",
        ),
    ] = None
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the trainings, figures and tables (default: runs/reproduce-SCALE; with"
            " --from runs/redrawn)."
        ),
    ] = None
    stored: Annotated[
        Path | None,
        typer.Option("--from", help="Draw again from a stored JSON file; nothing is trained."),
    ] = None
    recorded: Annotated[
        Path | None,
        typer.Option(
            help="Recorded landscapes, such as results/landscapes: fig4 and forgiveness take their"
            " trainings from there."
        ),
    ] = None
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be trained and what it costs.")
    ] = False
    where: Where
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False

    @property
    def folder(self) -> Path:
        """Where everything goes: what is drawn again does not replace what was trained."""
        default = "redrawn" if self.stored is not None else f"reproduce-{self.scale}"
        return self.out or Path("runs") / default


def _check_stored(context: typer.Context) -> None:
    if context.params["stored"] is not None:
        refuse(context, _OF_TRAININGS, "--from", "nothing is trained")


@takes(Wanted, check_where, _check_stored)
def reproduce(wanted: Wanted) -> None:
    """Run experiments of the paper; trainings that are there are not run again.

    The same command goes on after a stop. Experiments share trainings that are the same.

    Example: fixnorm reproduce fig2 --scale small --data DATA

    From what is stored: fixnorm reproduce fig2 --from results/reproduce/fig2.json
    """
    from fixnorm.evidence.experiments import names_of
    from fixnorm.evidence.scale_names import check_scale

    names, folder = names_of(wanted.names), wanted.folder
    check_scale(wanted.scale)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: give another --out")
    with loading():
        from fixnorm.evidence import reproducing
        from fixnorm.evidence.record import check_places
        from fixnorm.evidence.recorded import read_recorded
        from fixnorm.evidence.scales import scale_of
    scale = scale_of(wanted.scale)
    if wanted.stored is not None:
        tell(reproducing.draw_again(wanted.stored, names, folder), wanted)
        return
    check_places(names, folder)
    known = {} if wanted.recorded is None else read_recorded([wanted.recorded])
    planned = {name: reproducing.plan(name, scale) for name in names}
    if wanted.dry_run:
        left = {n: reproducing.unrecorded(n, planned[n], known) for n in names}
        announce(left, scale, wanted)
        return
    written = reproducing.reproduce(
        planned,
        scale,
        folder=folder,
        data=wanted.data,
        processes=wanted.where.nproc_per_trial,
        new_engine=wanted.where.new_engine,
        recorded=known,
    )
    tell(written, wanted)


def tell(written: dict[str, list[Path]], wanted: Wanted) -> None:
    """The tables, what became of the claims, and where everything is."""
    from fixnorm.evidence.experiments import DRAWN
    from fixnorm.evidence.record import exhibit_of, read_record
    from fixnorm.report.tables import wide_console

    if wanted.as_json:
        print(json.dumps({name: [str(path) for path in paths] for name, paths in written.items()}))
        return
    console = wide_console()
    for name, paths in written.items():
        if name in DRAWN:
            exhibit = exhibit_of(read_record(wanted.folder / f"{name}.json"))
            for table in exhibit.tables:
                table.print(console)
                console.print()
            for claim in exhibit.claims:
                console.print(f"{claim.verdict}: {claim.text}: {claim.measured}", markup=False)
        print("\n".join(map(str, paths)))


def announce(planned: dict[str, list[Training]], scale: Scale, wanted: Wanted) -> None:
    """What experiments would take; nothing is trained."""
    from fixnorm.evidence.cost import Counter, cost_table
    from fixnorm.evidence.reproducing import together
    from fixnorm.report.tables import wide_console

    counter, shared = Counter(measure=scale.name == "small"), together(planned)
    with waiting("counting the operations of each network"):
        costs = {name: counter.cost(trainings) for name, trainings in planned.items()}
        costs |= {"together": counter.cost(shared)} if len(planned) > 1 else {}
    if wanted.as_json:
        print(json.dumps({name: asdict(cost) for name, cost in costs.items()}))
        return
    console = wide_console()
    cost_table(costs, scale).print(console)
    folders = sorted({training.data for training in shared if training.data is not None})
    console.print(f"--data must hold: {', '.join(folders)}", markup=False)
