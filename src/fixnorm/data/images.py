"""Labelled images that can be read one by one: files on disk, or an array of pixels."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fixnorm.data.decode import read_image, read_size


class Images(Protocol):
    """A labelled sequence of images."""

    @property
    def labels(self) -> NDArray[np.int64]:
        """The class of each image."""

    def image(self, index: int) -> Image.Image:
        """Image `index`, decoded: mode RGB or L."""

    def size(self, index: int) -> tuple[int, int]:
        """Its height and width, without decoding."""

    def path(self, index: int) -> Path | None:
        """The file it comes from, if it is one."""

    def subset(self, keep: NDArray[np.int64]) -> Self:
        """The images at these positions."""


class PathTable:
    """File names in one buffer.

    A list of a million `Path`s is copied page by page into every forked loader process, because
    reading an object changes its reference count; a buffer stays shared.
    """

    def __init__(self, paths: Sequence[str | Path]) -> None:
        encoded = [os.fsencode(path) for path in paths]
        self._ends = np.cumsum([0, *map(len, encoded)])
        self._buffer = np.frombuffer(b"".join(encoded), dtype=np.uint8)

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, index: int) -> Path:
        if not 0 <= index < len(self):
            raise IndexError(f"path {index} of {len(self)}")
        begin, end = self._ends[index], self._ends[index + 1]
        return Path(os.fsdecode(self._buffer[begin:end].tobytes()))

    def subset(self, keep: NDArray[np.int64]) -> "PathTable":
        """The names at these positions."""
        return PathTable([self[int(i)] for i in keep])


@dataclass(frozen=True)
class FileImages:
    """Image files and their labels."""

    paths: PathTable
    labels: NDArray[np.int64]

    def image(self, index: int) -> Image.Image:
        """Image `index` as RGB."""
        return read_image(self.paths[index])

    def size(self, index: int) -> tuple[int, int]:
        """Its height and width, from the header."""
        return read_size(self.paths[index])

    def path(self, index: int) -> Path:
        """Its file."""
        return self.paths[index]

    def subset(self, keep: NDArray[np.int64]) -> "FileImages":
        """The images at these positions."""
        return FileImages(self.paths.subset(keep), self.labels[keep])


@dataclass(frozen=True)
class ArrayImages:
    """Pixels (n, height, width) or (n, height, width, 3) in uint8, and their labels."""

    pixels: NDArray[np.uint8]
    labels: NDArray[np.int64]

    def image(self, index: int) -> Image.Image:
        """Image `index` as L or RGB."""
        return Image.fromarray(self.pixels[index])

    def size(self, index: int) -> tuple[int, int]:
        """Its height and width."""
        return self.pixels.shape[1], self.pixels.shape[2]

    def path(self, index: int) -> None:
        """No file."""
        return

    def subset(self, keep: NDArray[np.int64]) -> "ArrayImages":
        """The images at these positions."""
        return ArrayImages(self.pixels[keep], self.labels[keep])


@dataclass(frozen=True)
class Source:
    """A set as it lies on disk, before any crop."""

    layout: str
    classes: tuple[str, ...]
    channels: int
    train: Images
    val: Images
    left_out: int = 0
    """What lies among the images and is no regular file, or leads in a circle."""
