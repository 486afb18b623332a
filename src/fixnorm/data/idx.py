"""Fashion-MNIST (or MNIST's own digits) in the idx format, plain or gzipped.

An idx file: two zero bytes, type 0x08 (uint8), the number of dimensions, each dimension as a
big-endian uint32, then the bytes.
"""

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fixnorm.data.errors import DataError
from fixnorm.data.images import ArrayImages, Source

CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)


def read_idx(path: Path, *, dimensions: int) -> NDArray[np.uint8]:
    """The array of one idx file."""
    try:
        with path.open("rb") as file:
            content = file.read()
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"broken gzip file {path}: {error}; fetch it again") from error
    header = 4 + 4 * dimensions
    if content[:4] != bytes((0, 0, 8, dimensions)) or len(content) < header:
        raise DataError(
            f"{path} is no idx file of uint8 in {dimensions} dimensions: fetch it again"
        )
    shape = struct.unpack(f">{dimensions}I", content[4:header])
    if len(content) - header != math.prod(shape):
        raise DataError(
            f"{path} holds {len(content) - header} bytes where its header says"
            f" {' × '.join(map(str, shape))}: fetch it again"
        )
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape)


def _find(root: Path, name: str) -> Path:
    for folder in (root, root / "raw", root / "FashionMNIST" / "raw"):
        for path in (folder / name, folder / f"{name}.gz"):
            if path.is_file():
                return path
    raise DataError(
        f"no {name} or {name}.gz in {root} or {root / 'raw'}: fetch Fashion-MNIST there"
    )


def _split(root: Path, prefix: str) -> ArrayImages:
    images_path = _find(root, f"{prefix}-images-idx3-ubyte")
    labels_path = _find(root, f"{prefix}-labels-idx1-ubyte")
    images, labels = read_idx(images_path, dimensions=3), read_idx(labels_path, dimensions=1)
    if len(images) != len(labels):
        raise DataError(
            f"{len(images)} images in {images_path} but {len(labels)} labels in {labels_path}:"
            " take both from one download"
        )
    if len(images) == 0:
        raise DataError(f"no images: {images_path} is empty; fetch it again")
    if labels.max() >= len(CLASSES):
        raise DataError(f"{labels_path} holds label {labels.max()}, the classes end at 9")
    return ArrayImages(images, labels.astype(np.int64))


def open_fashion_mnist(root: Path) -> Source:
    """The four files lie in `root` or `root`/raw."""
    return Source("idx", CLASSES, 1, _split(root, "train"), _split(root, "t10k"))
