"""Cityscapes as its authors pack it, and its 19 classes.

ROOT/leftImg8bit/{train,val}/CITY/NAME_leftImg8bit.png
ROOT/gtFine/{train,val}/CITY/NAME_gtFine_labelIds.png
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fixnorm.data.decode import broken, read_image, read_indices, read_size
from fixnorm.data.errors import BrokenImageError, DataError
from fixnorm.data.folder import entries_of, is_folder
from fixnorm.data.images import PathTable
from fixnorm.system import regular

IGNORED = 255
"""The label of pixels that neither loss nor metric counts."""

CLASSES = {
    "road": 7,
    "sidewalk": 8,
    "building": 11,
    "wall": 12,
    "fence": 13,
    "pole": 17,
    "traffic light": 19,
    "traffic sign": 20,
    "vegetation": 21,
    "terrain": 22,
    "sky": 23,
    "person": 24,
    "rider": 25,
    "car": 26,
    "truck": 27,
    "bus": 28,
    "train": 31,
    "motorcycle": 32,
    "bicycle": 33,
}
"""Label ids of the classes that are trained and scored, in the order of their train ids."""

_IDS = 34  # 0 … 33; the rest of them (void, rare) and -1, stored as 255, are ignored
_UNKNOWN = 254
_IMAGE, _LABEL = "_leftImg8bit.png", "_gtFine_labelIds.png"


def _train_id_table() -> NDArray[np.uint8]:
    table = np.full(256, _UNKNOWN, dtype=np.uint8)
    table[:_IDS] = table[255] = IGNORED
    table[list(CLASSES.values())] = np.arange(len(CLASSES))
    return table


_TRAIN_IDS = _train_id_table()


def to_train_ids(label_ids: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Label ids to train ids 0 … 18, or 255 for those that are ignored."""
    train_ids: NDArray[np.uint8] = _TRAIN_IDS[label_ids]
    if (train_ids == _UNKNOWN).any():
        unknown = int(label_ids[train_ids == _UNKNOWN].min())
        raise ValueError(f"label ids must be in 0..{_IDS - 1} or 255 but it holds {unknown}")
    return train_ids


def _label_path(image: Path) -> Path:
    """.../leftImg8bit/SPLIT/CITY/NAME_leftImg8bit.png to its labels."""
    split = image.parents[1]
    root = split.parents[1]
    name = image.name.removesuffix(_IMAGE) + _LABEL
    return root / "gtFine" / split.name / image.parent.name / name


def _check_same(
    image: Path, size: tuple[int, int], label: Path, label_size: tuple[int, int]
) -> None:
    if size != label_size:
        (height, width), (label_height, label_width) = size, label_size
        raise broken(
            image, f"it has {height}×{width} pixels but {label} has {label_height}×{label_width}"
        )


@dataclass(frozen=True)
class LabelledImages:
    """Pictures of four channels: RGB and train ids."""

    paths: PathTable
    channels = 4
    sizes = None

    def __len__(self) -> int:
        return len(self.paths)

    def path(self, at: int) -> Path:
        """The file of image `at`."""
        return self.paths[at]

    def size(self, at: int) -> tuple[int, int]:
        """Height and width, which image and labels must share, by their headers."""
        image = self.paths[at]
        label = _label_path(image)
        if not regular(label):
            raise BrokenImageError(
                f"no labels for {image}: {label} is missing; unpack gtFine wholly, remove the"
                " image, or set skip_broken to leave it out"
            )
        size = read_size(image)
        _check_same(image, size, label, read_size(label))
        return size

    def picture(self, at: int) -> NDArray[np.uint8]:
        """RGB and train ids of image `at`."""
        path = self.paths[at]
        label = _label_path(path)
        image, label_ids = np.asarray(read_image(path)), read_indices(label)
        _check_same(path, image.shape[:2], label, label_ids.shape)
        try:
            return np.dstack([image, to_train_ids(label_ids)])
        except ValueError as error:
            raise broken(label, str(error)) from error

    def subset(self, keep: NDArray[np.int64]) -> "LabelledImages":
        """The images at these positions."""
        return LabelledImages(self.paths.subset(keep))


def list_split(root: Path, split: str, *, limit: int | None) -> LabelledImages:
    """The first images of a split, by city and name."""
    for kind in ("leftImg8bit", "gtFine"):
        if not (root / kind / split).is_dir():
            raise DataError(
                f"no {split} split: {root / kind / split} is missing; unpack {kind}_trainvaltest"
                f" so that {root} holds leftImg8bit/ and gtFine/"
            )
    folder = root / "leftImg8bit" / split
    files = sorted(
        Path(image.path)
        for city in entries_of(folder)
        if is_folder(city)
        for image in entries_of(city.path)
        if image.name.endswith(_IMAGE)
    )[:limit]
    if not files:
        raise DataError(f"no images: {folder} holds no CITY/*{_IMAGE}; unpack leftImg8bit again")
    return LabelledImages(PathTable(files))
