"""CIFAR-10 as its authors pickled it (and torchvision keeps it), or as an image folder."""

from pathlib import Path

import numpy as np

from fixnorm.data.errors import DataError
from fixnorm.data.folder import open_folder
from fixnorm.data.images import ArrayImages, Source
from fixnorm.data.pickles import read_arrays

CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
_FOLDER = "cifar-10-batches-py"


def _read_batch(path: Path) -> ArrayImages:
    content = read_arrays(path)
    pixels, labels = content.get("data"), content.get("labels")
    if (
        not isinstance(pixels, np.ndarray)
        or not isinstance(labels, list)
        or pixels.shape != (len(labels), 3072)
        or not all(isinstance(label, int) and 0 <= label < len(CLASSES) for label in labels)
    ):
        raise DataError(
            f"{path} is no CIFAR-10 batch: it needs data of shape (n, 3072) and n labels in 0..9;"
            " fetch cifar-10-python.tar.gz again"
        )
    planes = pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return ArrayImages(np.ascontiguousarray(planes), np.array(labels, dtype=np.int64))


def open_cifar10(root: Path) -> Source:
    """`root` holds cifar-10-batches-py/ (or is it), or train/ and val/ folders."""
    for folder in (root / _FOLDER, root):
        if not (folder / "data_batch_1").is_file():
            continue
        names = [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]
        for name in names:
            if not (folder / name).is_file():
                raise DataError(f"no {folder / name}: unpack cifar-10-python.tar.gz wholly")
        *train, val = (_read_batch(folder / name) for name in names)
        joined = ArrayImages(
            np.concatenate([part.pixels for part in train]),
            np.concatenate([part.labels for part in train]),
        )
        return Source("batches", CLASSES, 3, joined, val)
    if not (root / "train").is_dir():
        raise DataError(
            f"no CIFAR-10 in {root}: give the folder that holds {_FOLDER}/ or train/ and val/"
        )
    return open_folder(root)
