"""The run's folder: who may write into it, and its small files."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os.path import lexists
from pathlib import Path
from typing import Any

from fixnorm.system import brief
from fixnorm.system.files import PART, write_atomically
from fixnorm.system.lock import owned_folder
from fixnorm.training.checked import read_checked
from fixnorm.training.outcome import RunResult, read_result
from fixnorm.training.recipe import Recipe

__all__ = ["RunFolder"]

_ANOTHER = "give another --out"


class RunFolder:
    """Paths and files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.recipe = path / "recipe.json"
        self.metrics = path / "metrics.csv"
        self.weights = path / "weights.safetensors"
        self.result = path / "result.json"
        self.classes = path / "classes.json"
        self.pictures = path / "pictures"
        self.checkpoints = path / "checkpoints"
        self.tensorboard = path / "tensorboard"
        self.lock = path / ".lock"

    def check(self, recipe: Recipe) -> None:
        """Make sure that the folder is free, or holds this very recipe; changes nothing."""
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"{self.path} is a file: give another --out")
        if lexists(self.recipe):
            self._check_same(recipe)
        elif self.path.is_dir() and any(not _passing(p) for p in self.path.iterdir()):
            raise ValueError(f"{self.path} holds other files: give an empty or new folder as --out")

    def prepare(self, recipe: Recipe) -> None:
        """Make the folder and write the recipe into it, unless it is there."""
        self.check(recipe)
        if not lexists(self.recipe):
            write_json(self.recipe, recipe.to_dict())

    def finished(self) -> RunResult | None:
        """The result, if the run has ended."""
        if not lexists(self.result):  # a link to nothing is there, too
            return None
        return read_result(self.result, RunResult, advice=_ANOTHER)

    def _check_same(self, recipe: Recipe) -> None:
        there = read_checked(self.recipe, dict[str, Any], what="a recipe", advice=_ANOTHER)
        different = differences(there, recipe)
        if different:
            raise ValueError(
                f"{self.path} holds a run of another recipe: {different}; give another --out"
            )

    @contextmanager
    def owned(self) -> Iterator[None]:
        """Hold the folder: a second run into it is refused as long as this process lives."""
        with owned_folder(self.path):
            for folder in (self.path, self.checkpoints):
                for part in folder.glob(f".*{PART}"):  # of an owner that was killed
                    part.unlink()
            yield


def differences(there: Mapping[str, Any], recipe: Recipe) -> str:
    """In which fields a recipe differs from a stored one; empty if in none."""
    here = recipe.to_dict()
    different = [key for key in here if there.get(key) != here[key]]
    listed = ", ".join(
        f"{k} ({brief(there.get(k), plain=True)} there, {brief(here[k], plain=True)} here)"
        for k in different[:4]
    )
    return listed + (f" and {len(different) - 4} more" if len(different) > 4 else "")


def _passing(path: Path) -> bool:
    """A file that a run killed before its first word leaves behind."""
    return path.name == ".lock" or (path.name.startswith(".") and path.name.endswith(PART))


def write_json(path: Path, content: Any) -> None:
    """Write JSON that appears whole or not at all."""
    with write_atomically(path) as file:
        file.write((json.dumps(content, indent=2) + "\n").encode())


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write all rows anew, so that the file is what an uninterrupted run would have written."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    with write_atomically(path) as file:
        file.write(text.getvalue().encode())
