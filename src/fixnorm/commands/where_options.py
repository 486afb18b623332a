"""Options that commands which start trainings share; :mod:`fixnorm.commands.where` takes them."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["PANEL", "Address", "CpusPerTrial", "Engine", "GpusPerTrial", "NprocPerTrial", "Workers"]

PANEL = "Where it runs"
_MOST = 1024

Engine = Annotated[str, typer.Option(help="local or ray.", rich_help_panel=PANEL)]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=_MOST,
        help="local: trials at a time (default: one a GPU or core)",
        rich_help_panel=PANEL,
    ),
]
NprocPerTrial = Annotated[
    int,
    typer.Option(
        min=1, max=_MOST, help="Processes of each trial, under torchrun.", rich_help_panel=PANEL
    ),
]
GpusPerTrial = Annotated[
    float, typer.Option(min=0, max=_MOST, help="ray: GPUs of a trial.", rich_help_panel=PANEL)
]
CpusPerTrial = Annotated[
    float, typer.Option(min=0, max=_MOST, help="ray: cores of a trial.", rich_help_panel=PANEL)
]
Address = Annotated[
    str | None,
    typer.Option(
        help="ray: address of the cluster (default: RAY_ADDRESS, or a new local one).",
        rich_help_panel=PANEL,
    ),
]
