"""What every open set has in common: two splits, the files left out, one line about it."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from fixnorm.data.errors import DataError
from fixnorm.data.split import EvalSplit, TrainSplit

Progress = Callable[[int, int], None]
"""Called with (files done, files in all) while a set is opened."""

MEMORY_LIMIT = 2 * 10**9
"""Bytes of pixels up to which `in_memory=None` keeps a set in memory."""

B = TypeVar("B")


@dataclass(kw_only=True)
class OpenSet(ABC, Generic[B]):
    """A set that is ready to train on."""

    name: str
    classes: tuple[str, ...]
    train: TrainSplit[B]
    val: EvalSplit[B]
    channels: int = 3
    memory_bytes: int | None
    """Bytes of pixels held, None for a set that streams."""
    broken: list[Path] = field(default_factory=list)
    """Files left out by `skip_broken`; a streaming set adds those it meets (on this rank)."""
    left_out: int = 0
    """What lies among the images and is no regular file (a pipe), or a link in a circle."""

    def describe(self) -> str:
        """The set in one line."""
        place = (
            "streaming"
            if self.memory_bytes is None
            else f"{self.memory_bytes / 1e6:.0f} MB in memory"
        )
        line = (
            f"{self._title()}: {len(self.train):,} train and {len(self.val):,} val"
            f" images, {len(self.classes)} classes, {self._shape()}, {place}"
        )
        line += f"; {len(self.broken)} broken left out" if self.broken else ""
        line += f"; {self.left_out} left out that are no regular files" if self.left_out else ""
        return line

    def _title(self) -> str:
        return self.name

    @abstractmethod
    def _shape(self) -> str:
        """The images that a model sees, in a few words."""

    def close(self) -> None:
        """End the loader processes, if there are any."""
        self.train.close()
        self.val.close()


class Counter:
    """One count over both splits for the progress callback."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0

    def __call__(self, n: int) -> None:
        """`n` more files are done."""
        self._done += n
        if self._progress is not None:
            self._progress(self._done, self._total)

    def finish(self) -> None:
        """What was not needed is done too."""
        if self._done < self._total:
            self(self._total - self._done)


def check_folder(root: Path, name: str) -> None:
    """`root` must be a folder."""
    if not root.is_dir():
        what = "is not a folder" if root.exists() else "does not exist"
        raise DataError(f"data folder {root} {what}: give the folder that holds the {name} files")


def check_some_left(n: int, kind: str, where: str) -> None:
    """At least one image must be left after the broken ones are gone."""
    if n == 0:
        raise DataError(f"every {kind} image in {where} is broken: replace them")
