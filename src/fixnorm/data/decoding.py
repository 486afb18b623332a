"""Work over all images of a set on a pool of threads: decode them, or read their headers."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from fixnorm.data.errors import BrokenImageError, DataError
from fixnorm.data.images import Images
from fixnorm.data.pixels import to_pixels

_CHUNK = 64  # images a task: small ones decode in less time than a task costs
T = TypeVar("T")


class MixedSizesError(DataError):
    """Images of several sizes where one tensor must hold them all."""


class Decoded(NamedTuple):
    """The readable images of a set."""

    pixels: torch.Tensor  # uint8 (n, channels, height, width)
    kept: NDArray[np.int64]


def _threads() -> int:
    return min(16, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 4)


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

    starts = range(0, n, _CHUNK)
    with ThreadPoolExecutor(_threads()) as pool:
        for start, done in zip(starts, pool.map(chunk, starts), strict=True):
            yield done
            advance(min(_CHUNK, n - start))


def decode_all(
    images: Images,
    transform: Callable[[Image.Image], Image.Image],
    *,
    skip_broken: bool,
    advance: Callable[[int], None],
) -> Decoded:
    """Every image through `transform` into one tensor."""
    n = len(images.labels)
    pixels = torch.empty(0, dtype=torch.uint8)
    kept: list[int] = []
    for done in each_chunk(
        n, lambda i: to_pixels(transform(images.image(i))), skip_broken=skip_broken, advance=advance
    ):
        for i, one in done:
            if not kept:
                pixels = torch.empty(n, *one.shape, dtype=torch.uint8)
            elif one.shape != pixels.shape[1:]:
                raise MixedSizesError(
                    f"images of several sizes: {images.path(i)} has {one.shape[1]}×{one.shape[2]}"
                    f" pixels, {images.path(kept[0])} {pixels.shape[2]}×{pixels.shape[3]}; leave"
                    " in_memory unset to stream them, or take another train_crop"
                )
            pixels[len(kept)] = one
            kept.append(i)
    return Decoded(pixels[: len(kept)], np.array(kept, dtype=np.int64))


class Headers(NamedTuple):
    """What the headers of a set's files say."""

    kept: NDArray[np.int64]
    sizes: NDArray[np.int64]  # (kept, 2): height, width


def read_headers(
    n: int,
    size: Callable[[int], tuple[int, int]],
    *,
    skip_broken: bool,
    advance: Callable[[int], None],
) -> Headers:
    """`size(i)` for i < n, without the broken ones if they are skipped."""
    chunks = each_chunk(n, size, skip_broken=skip_broken, advance=advance)
    found = [pair for done in chunks for pair in done]
    kept = np.array([i for i, _ in found], dtype=np.int64)
    return Headers(kept, np.array([s for _, s in found], dtype=np.int64).reshape(-1, 2))


def readable_headers(images: Images, *, advance: Callable[[int], None]) -> NDArray[np.int64]:
    """Positions of the images whose file at least begins as an image."""
    n = len(images.labels)
    return read_headers(n, images.size, skip_broken=True, advance=advance).kept
