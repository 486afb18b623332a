"""Images of any sizes, read one by one: from files, or from one buffer in memory.

A picture is uint8 (height, width, channels); what lies in its channels is its maker's affair
(RGB, or RGB and a class a pixel). Reading one from memory gives the bits that its file gives, so a
loader need not know where pictures live.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray

from fixnorm.data.decoding import each_chunk, read_headers
from fixnorm.data.dense_settings import DenseSettings
from fixnorm.data.images import PathTable
from fixnorm.data.opened import MEMORY_LIMIT, Counter, Progress, check_some_left


class Pictures(Protocol):
    """Pictures by position."""

    def __len__(self) -> int: ...

    def path(self, at: int) -> Path:
        """The file of picture `at`."""

    def picture(self, at: int) -> NDArray[np.uint8]:
        """Picture `at`: an array of its own, or a view that is only read."""


class FilePictures(Pictures, Protocol):
    """Pictures that are decoded when they are asked for."""

    @property
    def channels(self) -> int:
        """Channels of a picture."""

    @property
    def sizes(self) -> NDArray[np.int64] | None:
        """(n, 2) heights and widths where they are known without opening the files."""

    def size(self, at: int) -> tuple[int, int]:
        """Height and width by the header; a file that is seen to be broken raises here."""

    def subset(self, keep: NDArray[np.int64]) -> Self:
        """The pictures at these positions."""


@dataclass(frozen=True)
class MemoryPictures:
    """Pictures in one tensor: loader processes share it, whatever way they are started."""

    paths: PathTable
    channels: int
    sizes: NDArray[np.int64]
    begins: NDArray[np.int64]
    pixels: torch.Tensor  # uint8 (bytes in all,)

    def __len__(self) -> int:
        return len(self.begins)

    def path(self, at: int) -> Path:
        """The file that picture `at` was."""
        return self.paths[at]

    def picture(self, at: int) -> NDArray[np.uint8]:
        """A view of the buffer."""
        height, width = self.sizes[at]
        begin, length = self.begins[at], height * width * self.channels
        view: NDArray[np.uint8] = self.pixels[begin : begin + length].numpy()
        return view.reshape(height, width, self.channels)


class Part(NamedTuple):
    """The pictures of a split that are left, and where they stood in it."""

    pictures: Pictures
    sizes: NDArray[np.int64]
    kept: NDArray[np.int64]


class Placed(NamedTuple):
    """Both splits of a set, in memory or on disk, without what is broken."""

    train: Part
    val: Part
    memory_bytes: int | None
    broken: list[Path]


def _checked(
    files: FilePictures, *, skip_broken: bool, advance: Callable[[int], None]
) -> tuple[FilePictures, NDArray[np.int64], NDArray[np.int64]]:
    """Files without those whose header is broken; their sizes and positions."""
    if files.sizes is not None and not skip_broken:
        advance(len(files))
        return files, files.sizes, np.arange(len(files))
    kept, sizes = read_headers(len(files), files.size, skip_broken=skip_broken, advance=advance)
    return files.subset(kept), sizes, kept


def _held(
    files: FilePictures,
    sizes: NDArray[np.int64],
    *,
    skip_broken: bool,
    advance: Callable[[int], None],
) -> Part:
    """Every picture decoded into one buffer."""
    lengths = sizes.prod(axis=1) * files.channels
    ends = np.cumsum(lengths)
    begins = ends - lengths
    pixels = torch.empty(int(lengths.sum()), dtype=torch.uint8)

    def store(at: int) -> None:
        picture = torch.from_numpy(files.picture(at))
        pixels[begins[at] : ends[at]] = picture.flatten()

    chunks = each_chunk(len(files), store, skip_broken=skip_broken, advance=advance)
    kept = np.array([at for done in chunks for at, _ in done], dtype=np.int64)
    paths = PathTable([files.path(int(at)) for at in kept])
    held = MemoryPictures(paths, files.channels, sizes[kept], begins[kept], pixels)
    return Part(held, sizes[kept], kept)


def place(
    train: FilePictures,
    val: FilePictures,
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
