"""``fixnorm reproduce``: the paper's figures and tables, re-run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fixnorm.commands import where_options as options
from fixnorm.commands.together import check_where, refuse

_OF_TRAININGS = (
    *("scale", "dry_run", "engine", "workers", "nproc_per_trial"),
    *("gpus_per_trial", "cpus_per_trial", "address"),
)


def reproduce(
    context: typer.Context,
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME…",
            help="fig1, fig2, fig4, fig5, table1 to table4, peers, landscapes; or all.",
        ),
    ],
    scale: Annotated[
        str, typer.Option(help="small: one machine; paper: ImageNet, Cityscapes, COCO.")
    ] = "small",
    data: Annotated[
        Path | None,
        typer.Option(
            envvar="FIXNORM_DATA",
            help="Folder of the data sets' folders; a dry run names those it needs.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the trainings, figures and tables (default: runs/reproduce-SCALE; with"
            " --from runs/redrawn)."
        ),
    ] = None,
    stored: Annotated[
        Path | None,
        typer.Option("--from", help="Draw again from a stored JSON file; nothing is trained."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be trained and what it costs.")
    ] = False,
    engine: options.Engine = "local",
    workers: options.Workers = None,
    nproc_per_trial: options.NprocPerTrial = 1,
    gpus_per_trial: options.GpusPerTrial = 0,
    cpus_per_trial: options.CpusPerTrial = 1,
    address: options.Address = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False,
) -> None:
    """Run experiments of the paper; trainings that are there are not run again.

    The same command goes on after a stop. Experiments share trainings that are the same.

    Example: fixnorm reproduce fig2 --scale small --data DATA

    From what is stored: fixnorm reproduce fig2 --from results/reproduce/fig2.json
    """
    from fixnorm.commands.reproducing import Wanted, run  # other commands must not wait for it
    from fixnorm.commands.where import Where

    check_where(context)
    if stored is not None:
        refuse(context, _OF_TRAININGS, "--from", "nothing is trained")
    run(
        Wanted(
            names=tuple(names),
            scale=scale,
            data=data,
            out=out,
            stored=stored,
            dry_run=dry_run,
            where=Where(
                engine=engine,
                workers=workers,
                nproc_per_trial=nproc_per_trial,
                gpus_per_trial=gpus_per_trial,
                cpus_per_trial=cpus_per_trial,
                address=address,
            ),
            as_json=as_json,
        )
    )
