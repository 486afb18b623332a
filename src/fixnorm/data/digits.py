"""scikit-learn's embedded digits: 1,797 grey images of 8×8."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fixnorm.data.errors import DataError
from fixnorm.data.images import ArrayImages, Source
from fixnorm.system.extras import needs


def open_digits() -> Source:
    """Every fifth image of each class is validation, for any seed."""
    values, labels = _stored()
    pixels = np.rint(values * (255 / 16)).astype(np.uint8)  # stored as 0..16
    images = ArrayImages(pixels, labels)
    is_val = np.zeros(len(pixels), dtype=bool)
    for label in range(10):
        is_val[np.flatnonzero(images.labels == label)[4::5]] = True
    return Source(
        "embedded",
        tuple("0123456789"),
        1,
        images.subset(np.flatnonzero(~is_val)),
        images.subset(np.flatnonzero(is_val)),
    )


def _stored() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Images and labels from the package's file; importing all of it takes a second or more."""
    package = find_spec("sklearn")
    if package is None or not package.submodule_search_locations:
        raise DataError(needs("digits", "scikit-learn", "train"))
    file = Path(package.submodule_search_locations[0]) / "datasets" / "data" / "digits.csv.gz"
    if file.exists():
        table = np.loadtxt(file, delimiter=",")
        return table[:, :-1].reshape(-1, 8, 8), table[:, -1].astype(np.int64)
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return bunch.images, bunch.target.astype(np.int64)
