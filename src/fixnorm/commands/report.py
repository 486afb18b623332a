"""``fixnorm report``: the page of one study, or of several side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fixnorm.starting import loading
from fixnorm.tuning.place import check_there, database_of


def report(
    studies: Annotated[list[Path], typer.Argument(help="Folders of fixnorm tune.")],
    out: Annotated[
        Path | None,
        typer.Option(help="Where to write (default: the study's own folder; for several: report)."),
    ] = None,
    storage: Annotated[
        str | None, typer.Option(help="Database of the study, if it is not in its folder.")
    ] = None,
) -> None:
    """Write report.html and its figures, also while a search runs; several studies are compared.

    Example: fixnorm report runs/tune-few-digits
    """
    if storage is not None and len(studies) > 1:
        raise ValueError("--storage is for one study: give one folder")
    if storage is None:
        for folder in studies:
            check_there(database_of(folder))
    with loading():  # Optuna
        from fixnorm.tuning.storage import Storage
        from fixnorm.tuning.study import read_studies
    found = []
    for folder in studies:
        place = Storage.in_folder(folder) if storage is None else Storage.parse(storage)
        found += read_studies(place, folder)
    if not found:
        raise ValueError(f"{studies[0]} holds no search of fixnorm's")
    with loading():
        from fixnorm.report import write_report  # last: it draws
    folder = out or (studies[0] if len(studies) == 1 else Path("report"))
    print(write_report(found, folder))
