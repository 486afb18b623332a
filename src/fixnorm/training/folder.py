"""The folder of a run: who may write into it, and its small files."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os.path import lexists
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import Field

from fixnorm.system import read_regular, write_atomically
from fixnorm.system.files import PART
from fixnorm.system.lock import LOCK, owned_folder
from fixnorm.system.run_paths import RunPaths
from fixnorm.training.checked import Unreadable, read_checked
from fixnorm.training.kinds import recipe_from_dict
from fixnorm.training.recipe import Recipe, differences
from fixnorm.training.result import E, RunResult, read_result

__all__ = ["RunFolder", "read_table", "write_json"]

_ANOTHER = "give another --out"


class RunFolder(RunPaths):
    """The folder of one run."""

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
        return self.ended(RunResult, advice=_ANOTHER)

    def ended(self, kind: type[E], *, advice: str) -> E | None:
        """How the run has ended, if it has; ``advice`` is the next move where it is damaged."""
        if not lexists(self.result):  # a link to nothing is there, too
            return None
        return read_result(self.result, kind, advice=advice)

    def table(self, *, advice: str) -> dict[str, tuple[float | None, ...]]:
        """The columns of ``metrics.csv``."""
        return read_table(self.metrics, advice=advice)

    def lines(self) -> int:
        """Lines of ``metrics.csv`` so far, in whatever state the file is."""
        try:
            return max(read_regular(self.metrics).count(b"\n") - 1, 0)
        except OSError:
            return 0

    def write_rows(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write all rows anew, so that the file is what an uninterrupted run would have written."""
        text = io.StringIO()
        writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        with write_atomically(self.metrics) as file:
            file.write(text.getvalue().encode())

    def read_recipe(self) -> Recipe:
        """Of a run that is there; what is missing or wrong is named in one line."""
        advice = "give the --out folder of fixnorm train"
        if not self.path.exists():
            raise ValueError(f"{self.path} does not exist: {advice}")
        if not lexists(self.recipe):
            raise ValueError(f"{self.path} is not a run, it has no {self.recipe.name}: {advice}")
        again = "train again into another folder"
        values = read_checked(self.recipe, dict[str, Any], what="a recipe", advice=again)
        try:
            return recipe_from_dict(values)
        except ValueError as error:
            raise ValueError(f"{self.recipe} is not a recipe of this version: {error}") from None

    def finished_recipe(self) -> Recipe:
        """Of a run that has ended and left its weights."""
        recipe = self.read_recipe()
        if not lexists(self.weights):
            raise ValueError(
                f"{self.path} is not finished, it has no {self.weights.name}: give the same "
                "fixnorm train command again, it resumes"
            )
        return recipe

    def class_names(self, classes: int) -> tuple[str, ...] | None:
        """Of so many classes, where the run has written them."""
        if not lexists(self.classes):
            return None
        kind: Any = Annotated[list[str], Field(min_length=classes, max_length=classes)]
        what = f"a list of {classes} class names"
        names = read_checked(self.classes, kind, what=what, advice="correct it or delete it")
        return tuple(cast(list[str], names))

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
            for folder in (self.path, self.checkpoints, self.branches):
                for part in folder.glob(f".*{PART}"):  # of an owner that was killed
                    part.unlink()
            yield


def _passing(path: Path) -> bool:
    """A file that a run killed before its first word leaves behind."""
    return path.name == LOCK or (path.name.startswith(".") and path.name.endswith(PART))


def write_json(path: Path, content: Any) -> None:
    """Write JSON that appears whole or not at all."""
    with write_atomically(path) as file:
        file.write((json.dumps(content, indent=2) + "\n").encode())


def read_table(path: Path, *, advice: str) -> dict[str, tuple[float | None, ...]]:
    """The columns by name; a cell that is empty or no finite number is none.

    Args:
        path: the file.
        advice: the next move where it is damaged.
    """
    try:
        text = read_regular(path).decode()
        rows = list(csv.reader(text.splitlines(), strict=True))
    except OSError as error:
        raise Unreadable(f"cannot read {path} ({error.strerror}): {advice}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise Unreadable(f"{path} is no table of figures ({error}): {advice}") from None
    if len(rows) < 2 or len(set(rows[0])) < len(rows[0]):
        raise Unreadable(f"{path} is no table of figures (no lines, or a column twice): {advice}")
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(rows[0]):
            raise Unreadable(
                f"{path} is no table of figures: line {number} has {len(row)} cells, the first"
                f" {len(rows[0])}; {advice}"
            )
    columns = zip(*(map(_number, row) for row in rows[1:]), strict=True)
    return dict(zip(rows[0], columns, strict=True))


def _number(cell: str) -> float | None:
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
