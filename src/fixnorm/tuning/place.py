"""The file of a study, looked for before Optuna is loaded."""

from __future__ import annotations

from pathlib import Path

__all__ = ["check_there", "database_of"]


def database_of(folder: Path) -> Path:
    """The SQLite file in the folder of a study."""
    return folder / "study.db"


def check_there(file: Path) -> None:
    """Refuse to read a file that is not there."""
    if not file.exists():
        raise ValueError(f"{file.as_posix()} does not exist: no search has been run there")
