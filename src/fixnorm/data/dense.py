"""Images of any sizes for segmentation and detection: read from files, or held in one buffer.

The pixels of an image are uint8 (height, width, channels); what lies in the channels is its maker's
affair (RGB, or RGB and a class a pixel). Memory gives the bits that the file gives, so a loader
need not know where images live.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray

from fixnorm.data.errors import check_some_left
from fixnorm.data.images import PathTable, each_chunk, read_headers
from fixnorm.data.settings import DenseSettings
from fixnorm.data.split import MEMORY_LIMIT, Counter, Progress


class DenseImages(Protocol):
    def __len__(self) -> int: ...

    def path(self, at: int) -> Path: ...

    def pixels(self, at: int) -> NDArray[np.uint8]:
        """An array of its own, or a view that is only read."""


class DenseFiles(DenseImages, Protocol):
    """Images that are decoded when they are asked for."""

    @property
    def channels(self) -> int: ...

    @property
    def sizes(self) -> NDArray[np.int64] | None:
        """(n, 2) heights and widths where they are known without opening the files."""

    def size(self, at: int) -> tuple[int, int]:
        """Height and width by the header; a file that is seen to be broken raises here."""

    def subset(self, keep: NDArray[np.int64]) -> Self:
        """The images at these positions."""


@dataclass(frozen=True)
class HeldImages:
    """Images in one tensor: loader processes share it, whatever way they are started."""

    paths: PathTable
    channels: int
    sizes: NDArray[np.int64]
    begins: NDArray[np.int64]
    buffer: torch.Tensor  # uint8 (bytes in all,)

    def __len__(self) -> int:
        return len(self.begins)

    def path(self, at: int) -> Path:
        return self.paths[at]

    def pixels(self, at: int) -> NDArray[np.uint8]:
        height, width = self.sizes[at]
        begin, length = self.begins[at], height * width * self.channels
        view: NDArray[np.uint8] = self.buffer[begin : begin + length].numpy()
        return view.reshape(height, width, self.channels)


class Part(NamedTuple):
    """The images of a split that are left, and where they stood in it."""

    images: DenseImages
    sizes: NDArray[np.int64]
    kept: NDArray[np.int64]


class Placed(NamedTuple):
    """Both splits of a set, in memory or on disk, without what is broken."""

    train: Part
    val: Part
    memory_bytes: int | None
    broken: list[Path]


def place(
    train: DenseFiles,
    val: DenseFiles,
    *,
    settings: DenseSettings,
    where: str,
    progress: Progress | None,
) -> Placed:
    """Look at the headers that must be looked at, then hold the pixels if they may be held."""
    # a file counts twice: its header, then its pixels
    advance = Counter(progress, 2 * (len(train) + len(val)))
    skip_broken = settings.skip_broken
    parts, total = [], 0
    for kind, files in (("training", train), ("validation", val)):
        good, sizes, kept = _checked(files, skip_broken=skip_broken, advance=advance)
        check_some_left(len(kept), kind, where)
        parts.append((kind, files, good, sizes, kept))
        total += files.channels * int(sizes.prod(axis=1).sum())
    in_memory = total <= MEMORY_LIMIT if settings.in_memory is None else settings.in_memory

    placed: list[Part] = []
    broken: list[Path] = []
    for kind, files, good, sizes, kept in parts:
        part = Part(good, sizes, kept)
        if in_memory:
            held = _held(good, sizes, skip_broken=skip_broken, advance=advance)
            check_some_left(len(held.kept), kind, where)
            part = held._replace(kept=kept[held.kept])
        gone = np.setdiff1d(np.arange(len(files)), part.kept)
        broken += [files.path(int(at)) for at in gone]
        placed.append(part)
    advance.finish()
    return Placed(placed[0], placed[1], total if in_memory else None, broken)


def _checked(
    files: DenseFiles, *, skip_broken: bool, advance: Callable[[int], None]
) -> tuple[DenseFiles, NDArray[np.int64], NDArray[np.int64]]:
    """Files without those whose header is broken; their sizes and positions."""
    if files.sizes is not None and not skip_broken:
        advance(len(files))
        return files, files.sizes, np.arange(len(files))
    kept, sizes = read_headers(len(files), files.size, skip_broken=skip_broken, advance=advance)
    return files.subset(kept), sizes, kept


def _held(
    files: DenseFiles,
    sizes: NDArray[np.int64],
    *,
    skip_broken: bool,
    advance: Callable[[int], None],
) -> Part:
    """Every image decoded into one buffer."""
    lengths = sizes.prod(axis=1) * files.channels
    ends = np.cumsum(lengths)
    begins = ends - lengths
    buffer = torch.empty(int(lengths.sum()), dtype=torch.uint8)

    def store(at: int) -> None:
        buffer[begins[at] : ends[at]] = torch.from_numpy(files.pixels(at)).flatten()

    chunks = each_chunk(len(files), store, skip_broken=skip_broken, advance=advance)
    kept = np.array([at for done in chunks for at, _ in done], dtype=np.int64)
    paths = PathTable([files.path(int(at)) for at in kept])
    held = HeldImages(paths, files.channels, sizes[kept], begins[kept], buffer)
    return Part(held, sizes[kept], kept)
