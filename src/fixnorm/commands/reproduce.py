"""``fixnorm reproduce``: the paper's figures and tables, re-run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ALL = "all"


def reproduce(
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
    out: Annotated[Path, typer.Option(help="Folder of the trainings, figures and tables.")] = Path(
        "runs/reproduce"
    ),
    stored: Annotated[
        Path | None,
        typer.Option("--from", help="Draw again from a stored JSON file; nothing is trained."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be trained and what it costs.")
    ] = False,
    engine: Annotated[
        str, typer.Option(help="local, or ray for a cluster.", rich_help_panel="Where it runs")
    ] = "local",
    workers: Annotated[
        int | None, typer.Option(min=1, help="Trainings at a time (default: one a core or GPU).")
    ] = None,
    nproc_per_trial: Annotated[
        int, typer.Option(min=1, help="Processes of each training, under torchrun.")
    ] = 1,
    gpus_per_trial: Annotated[float, typer.Option(min=0, help="For ray.")] = 0.0,
    cpus_per_trial: Annotated[float, typer.Option(min=0.1, help="For ray.")] = 1.0,
    address: Annotated[str | None, typer.Option(help="Of a running Ray cluster.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False,
) -> None:
    """Run experiments of the paper; trainings that are there are not run again.

    The same command goes on after a stop. Experiments share trainings that are the same.

    Example: fixnorm reproduce fig2 --scale small --data DATA

    From what is stored: fixnorm reproduce fig2 --from results/reproduce/fig2.json
    """
    from fixnorm.commands.reproducing import Wanted, run  # other commands must not wait for it

    run(
        Wanted(
            names=tuple(names),
            scale=scale,
            data=data,
            out=out,
            stored=stored,
            dry_run=dry_run,
            engine=engine,
            workers=workers,
            processes=nproc_per_trial,
            gpus=gpus_per_trial,
            cpus=cpus_per_trial,
            address=address,
            as_json=as_json,
        )
    )
