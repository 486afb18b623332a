"""An image file to 8-bit RGB, whatever its mode, or to the label ids it holds."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from fixnorm.data.errors import BrokenImageError, DataError
from fixnorm.system import open_regular, read_regular

T = TypeVar("T")
_MOST = 2**31
"""Bytes of an image's file."""
_SIXTEEN_BIT = ("I", "I;16", "I;16L", "I;16B", "I;16N")


def _eight_bit(image: Image.Image) -> Image.Image:
    """16-bit grey to 8 bits by v/257, so that 65535 becomes 255 (Pillow's convert clips)."""
    pixels = np.asarray(image).astype(np.int64)
    if pixels.min() < 0 or pixels.max() > 65535:
        raise ValueError(f"pixels {pixels.min()}..{pixels.max()} are outside 0..65535")
    return Image.fromarray(((pixels + 128) // 257).astype(np.uint8))


def to_rgb(image: Image.Image) -> Image.Image:
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


def broken(path: Path, reason: str) -> BrokenImageError:
    """The error of a file that `skip_broken` may leave out."""
    return BrokenImageError(
        f"broken image {path}: {reason}; repair or remove it, or set skip_broken to leave it out"
    )


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


def read_image(path: Path) -> Image.Image:
    """The decoded file as RGB."""
    return _read(path, to_rgb)


def _indices(image: Image.Image) -> NDArray[np.uint8]:
    if image.mode not in ("L", "P"):
        raise ValueError(f"labels must be 8-bit grey or palette pixels but are {image.mode}")
    return np.array(image)


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
