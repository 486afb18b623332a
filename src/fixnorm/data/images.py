"""Image files: decoded to 8-bit RGB or to label ids, listed in a table, read on a pool of threads;
and the tensors that a model sees."""

import io
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError
from torch.utils.data import get_worker_info

from fixnorm.data.errors import BrokenImageError, DataError, broken
from fixnorm.data.settings import ClassificationFields, SegmentationFields
from fixnorm.internals import new_shared
from fixnorm.system import open_regular, read_regular

T = TypeVar("T")
_MOST = 2**31
"""Bytes of an image's file."""
_SIXTEEN_BIT = ("I", "I;16", "I;16L", "I;16B", "I;16N")
_PART = 2**22
_CHUNK = 64  # images a task: small ones decode in less time than a task costs


# -- one file --------------------------------------------------------------------------------------


def read_image(path: Path) -> Image.Image:
    """The decoded file as RGB."""
    return _read(path, _to_rgb)


def read_indices(path: Path) -> NDArray[np.uint8]:
    """The decoded file as (height, width) numbers: grey values, or indices of its palette."""
    return _read(path, _indices)


def read_size(path: Path) -> tuple[int, int]:
    """Height and width from the file's header; the pixels are not decoded."""
    try:
        with open_regular(path) as file, Image.open(file) as image:
            return image.height, image.width
    except MemoryError:
        raise
    except Exception as error:
        raise _failure(path, error) from error


def _read(path: Path, convert: Callable[[Image.Image], T]) -> T:
    # Pillow's format plugins raise whatever a corrupt file makes them trip over
    try:
        with Image.open(io.BytesIO(read_regular(path, most=_MOST))) as image:
            image.load()
            return convert(image)
    except MemoryError:
        raise
    except Exception as error:
        raise _failure(path, error) from error


def _failure(path: Path, error: Exception) -> DataError:
    if isinstance(error, OSError) and error.errno is not None:
        # a disk or a permission, not the image: never skipped, or a set could shrink unseen
        return DataError(f"cannot read {path}: {error.strerror}; check the disk and the rights")
    reason = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, OSError) and error.strerror:  # a pipe or a device
        reason = error.strerror
    if isinstance(error, UnidentifiedImageError):
        reason = "not an image"
    return broken(path, reason)


def _to_rgb(image: Image.Image) -> Image.Image:
    """Any image as RGB; alpha is dropped."""
    if image.mode == "RGB":
        return image
    if image.mode == "F":
        raise ValueError("float pixels have no known range; store 8- or 16-bit pixels")
    if image.mode in _SIXTEEN_BIT:
        image = _eight_bit(image)
    elif image.mode == "P":
        image = image.convert("RGBA")  # keeps Pillow from warning about byte transparency
    return image.convert("RGB")


def _eight_bit(image: Image.Image) -> Image.Image:
    """16-bit grey to 8 bits by v/257, so that 65535 becomes 255 (Pillow's convert clips)."""
    pixels = np.asarray(image).astype(np.int64)
    if pixels.min() < 0 or pixels.max() > 65535:
        raise ValueError(f"pixels {pixels.min()}..{pixels.max()} are outside 0..65535")
    return Image.fromarray(((pixels + 128) // 257).astype(np.uint8))


def _indices(image: Image.Image) -> NDArray[np.uint8]:
    if image.mode not in ("L", "P"):
        raise ValueError(f"labels must be 8-bit grey or palette pixels but are {image.mode}")
    return np.array(image)


# -- many files ------------------------------------------------------------------------------------


def joined(paths: Iterable[str | Path]) -> NDArray[np.uint8]:
    """The names one after another, each ended by a NUL, which no name can hold."""
    names = "".join(f"{os.fspath(path)}\0" for path in paths)
    return np.frombuffer(os.fsencode(names), dtype=np.uint8)


class PathTable:
    """File names in one buffer.

    A list of a million `Path`s is copied page by page into every forked loader process, because
    reading an object changes its reference count; a buffer stays shared.
    """

    def __init__(self, paths: Iterable[str | Path] | NDArray[np.uint8], *, base: str = "") -> None:
        """`paths`: also as :func:`joined` makes them; `base`: the folder that they are below."""
        self._names = paths if isinstance(paths, np.ndarray) else joined(paths)
        self._base = base
        # a comparison for each byte: in parts, so that it takes little memory
        parts = range(0, len(self._names), _PART)
        ends = [np.flatnonzero(self._names[at : at + _PART] == 0) + at for at in parts]
        self._ends = np.concatenate([np.array([-1]), *ends])

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, index: int) -> Path:
        if not 0 <= index < len(self):
            raise IndexError(f"path {index} of {len(self)}")
        begin, end = self._ends[index] + 1, self._ends[index + 1]
        return Path(self._base, os.fsdecode(self._names[begin:end].tobytes()))

    def subset(self, keep: NDArray[np.int64]) -> "PathTable":
        """The names at these positions."""
        names = self._names.data
        begins, ends = (self._ends[keep] + 1).tolist(), (self._ends[keep + 1] + 1).tolist()
        kept = b"".join(names[begin:end] for begin, end in zip(begins, ends, strict=True))
        return PathTable(np.frombuffer(kept, dtype=np.uint8), base=self._base)


def each_chunk(
    n: int, work: Callable[[int], T], *, skip_broken: bool, advance: Callable[[int], None]
) -> Iterator[list[tuple[int, T]]]:
    """`work(i)` for i < n in order, chunk by chunk, without the broken ones if they are skipped."""

    def chunk(start: int) -> list[tuple[int, T]]:
        done = []
        for i in range(start, min(start + _CHUNK, n)):
            try:
                done.append((i, work(i)))
            except BrokenImageError:
                if not skip_broken:
                    raise
        return done

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 4
    starts = range(0, n, _CHUNK)
    with ThreadPoolExecutor(min(16, cores)) as pool:
        for start, done in zip(starts, pool.map(chunk, starts), strict=True):
            yield done
            advance(min(_CHUNK, n - start))


def read_headers(
    n: int,
    size: Callable[[int], tuple[int, int]],
    *,
    skip_broken: bool,
    advance: Callable[[int], None],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The positions i < n whose header can be read, and (kept, 2) heights and widths, `size(i)`.

    A broken one raises unless they are skipped.
    """
    chunks = each_chunk(n, size, skip_broken=skip_broken, advance=advance)
    found = [pair for done in chunks for pair in done]
    kept = np.array([i for i, _ in found], dtype=np.int64)
    return kept, np.array([s for _, s in found], dtype=np.int64).reshape(-1, 2)


# -- labelled images, read one by one --------------------------------------------------------------


@dataclass(frozen=True)
class FileImages:
    """Image files, decoded when they are asked for as RGB, and their labels."""

    paths: PathTable
    labels: NDArray[np.int64]

    def image(self, at: int) -> Image.Image:
        return read_image(self.paths[at])

    def size(self, at: int) -> tuple[int, int]:
        return read_size(self.paths[at])

    def path(self, at: int) -> Path:
        return self.paths[at]

    def subset(self, keep: NDArray[np.int64]) -> "FileImages":
        return FileImages(self.paths.subset(keep), self.labels[keep])


@dataclass(frozen=True)
class ArrayImages:
    """Pixels (n, height, width) or (n, height, width, 3) in uint8, read as L or RGB; labels."""

    pixels: NDArray[np.uint8]
    labels: NDArray[np.int64]

    def image(self, at: int) -> Image.Image:
        return Image.fromarray(self.pixels[at])

    def size(self, at: int) -> tuple[int, int]:
        return self.pixels.shape[1], self.pixels.shape[2]

    def path(self, at: int) -> None:
        return

    def subset(self, keep: NDArray[np.int64]) -> "ArrayImages":
        return ArrayImages(self.pixels[keep], self.labels[keep])


Images = FileImages | ArrayImages
"""`image(at)` decodes, `size(at)` does not; `path(at)` is None where there is no file."""


@dataclass(frozen=True)
class Source:
    """A classification set as it lies on disk, before any crop."""

    layout: str
    classes: tuple[str, ...]
    channels: int
    train: Images
    val: Images
    left_out: int = 0
    """What lies among the images and is no regular file, or leads in a circle."""


# -- tensors ---------------------------------------------------------------------------------------


def to_pixels(image: Image.Image) -> torch.Tensor:
    """uint8 (channels, height, width)."""
    pixels = torch.from_numpy(np.array(image))
    return pixels.unsqueeze(0) if pixels.ndim == 2 else pixels.permute(2, 0, 1)


def to_image(pixels: torch.Tensor) -> Image.Image:
    """What `to_pixels` was given."""
    return Image.fromarray((pixels[0] if len(pixels) == 1 else pixels.permute(1, 2, 0)).numpy())


class Normalize:
    """uint8 images to float32: (x/255 − mean)/std, in torchvision's order of operations."""

    def __init__(
        self, settings: ClassificationFields | SegmentationFields, *, channels: int
    ) -> None:
        self._mean, self._std = (
            torch.tensor(values * channels if len(values) == 1 else values).view(1, -1, 1, 1)
            for values in (settings.mean, settings.std)
        )

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        return pixels.float().div_(255).sub_(self._mean).div_(self._std)

    def stacked(self, images: Sequence[torch.Tensor], *, channels_last: bool) -> torch.Tensor:
        """The same numbers of the stacked images, in either memory layout.

        Image by image, since one fits into the processor's cache and a batch does not. A loader
        process writes them where the trainer will read them.
        """
        channels, height, width = images[0].shape
        channels_last = channels_last and channels > 1  # torch takes one channel for either
        shape = (height, width * channels) if channels_last else (channels, height, width)
        new = torch.empty if get_worker_info() is None else new_shared
        batch = new(len(images), *shape)
        mean, std = self._mean[0], self._std[0]
        if channels_last:  # pixel by pixel, as `to_pixels` has them
            mean, std = mean.view(-1).repeat(width), std.view(-1).repeat(width)
            images = [image.permute(1, 2, 0).reshape(shape) for image in images]
        for one, image in zip(batch, images, strict=True):
            one.copy_(image).div_(255).sub_(mean).div_(std)
        if channels_last:
            batch = batch.view(len(images), height, width, channels).permute(0, 3, 1, 2)
        return batch
