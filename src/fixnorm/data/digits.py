"""scikit-learn's embedded digits: 1,797 grey images of 8×8."""

import numpy as np

from fixnorm.data.errors import DataError
from fixnorm.data.images import ArrayImages, Source


def open_digits() -> Source:
    """Every fifth image of each class is validation, for any seed."""
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError as error:
        raise DataError("digits needs scikit-learn: pip install 'fixnorm[train]'") from error
    bunch = load_digits()
    pixels = np.rint(bunch.images * (255 / 16)).astype(np.uint8)  # stored as 0..16
    images = ArrayImages(pixels, bunch.target.astype(np.int64))
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
