"""`open_segmentation`: images and a class a pixel, from Cityscapes' layout.

ROOT/leftImg8bit/{train,val}/CITY/NAME_leftImg8bit.png
ROOT/gtFine/{train,val}/CITY/NAME_gtFine_labelIds.png
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torchvision.datasets import Cityscapes

from fixnorm.data.crops import LEAST_DRAWS, scaled_crop
from fixnorm.data.dense import DenseImages, place
from fixnorm.data.errors import BrokenImageError, DataError, broken, check_root
from fixnorm.data.folder import entries_of, is_folder
from fixnorm.data.images import Normalize, PathTable, read_image, read_indices, read_size
from fixnorm.data.settings import SegmentationSettings
from fixnorm.data.split import Batch, OpenSet, Progress
from fixnorm.data.stream import stream_splits
from fixnorm.data.transforms import completed, image_crop, label_crop
from fixnorm.system import regular

IGNORED = 255
"""The label of pixels that neither loss nor metric counts."""

CLASSES = {
    one.name: one.id
    for one in sorted(Cityscapes.classes, key=lambda one: one.train_id)
    if not one.ignore_in_eval
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
    """Images of four channels: RGB and train ids."""

    paths: PathTable
    channels = 4
    sizes = None

    def __len__(self) -> int:
        return len(self.paths)

    def path(self, at: int) -> Path:
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

    def pixels(self, at: int) -> NDArray[np.uint8]:
        path = self.paths[at]
        label = _label_path(path)
        image, label_ids = np.asarray(read_image(path)), read_indices(label)
        _check_same(path, image.shape[:2], label, label_ids.shape)
        try:
            return np.dstack([image, to_train_ids(label_ids)])
        except ValueError as error:
            raise broken(label, str(error)) from error

    def subset(self, keep: NDArray[np.int64]) -> "LabelledImages":
        return LabelledImages(self.paths.subset(keep))


def _list_split(root: Path, split: str, *, limit: int | None) -> LabelledImages:
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


@dataclass(kw_only=True)
class SegmentationData(OpenSet[Batch]):
    """A segmentation set that is ready to train on."""

    crop: tuple[int, int]
    """Height and width of a training batch; validation sees whole images."""
    ignored: int = IGNORED
    """The label of pixels that neither loss nor metric counts."""

    def _shape(self) -> str:
        return f"crops of {self.crop[0]}×{self.crop[1]}"


PixelSample = tuple[torch.Tensor, torch.Tensor]
"""Normalised image (3, height, width) and uint8 classes (height, width)."""


class PixelReader:
    """Makes samples of images whose fourth channel is the class."""

    draws = LEAST_DRAWS

    def __init__(self, images: DenseImages, settings: SegmentationSettings) -> None:
        self._images = images
        self._settings = settings
        self._normalize = Normalize(settings, channels=3)

    def __len__(self) -> int:
        return len(self._images)

    def path(self, at: int) -> Path:
        return self._images.path(at)

    def read(self, at: int, draws: NDArray[np.float64] | None) -> PixelSample:
        pixels = self._images.pixels(at)
        image, labels = np.ascontiguousarray(pixels[:, :, :3]), pixels[:, :, 3]
        size = labels.shape[0], labels.shape[1]
        if draws is None:
            whole = torch.from_numpy(image).permute(2, 0, 1)
            return self._normalized(whole), torch.from_numpy(labels.copy())
        settings = self._settings
        crop = scaled_crop(size, draws, settings)
        cropped = self._normalized(image_crop(image, crop))
        classes = label_crop(labels, crop)
        return (
            completed(cropped, crop, settings, fill=0),  # the mean is 0 by now
            completed(classes, crop, settings, fill=IGNORED),
        )

    def _normalized(self, pixels: torch.Tensor) -> torch.Tensor:
        return self._normalize(pixels[None])[0]

    def collate(self, samples: list[PixelSample]) -> Batch:
        images, labels = (torch.stack(column) for column in zip(*samples, strict=True))
        return Batch(images.contiguous(), labels.long())


def open_segmentation(
    root: Path,
    *,
    settings: SegmentationSettings,
    seed: int,
    progress: Progress | None = None,
) -> SegmentationData:
    """Open a set in Cityscapes' layout; nothing is written to `root`.

    All headers are read here: a missing split or label file, and an image whose labels have
    another size, are found before training. Unknown label ids and broken pixels are found here
    too by a set in memory, and when they are met by one that streams. With `skip_broken` all of
    these but a missing split are left out and listed in `broken`, as `open_data` does it.
    Validation batches hold neighbours of one size: where sizes differ they are smaller.
    """
    check_root(root, "cityscapes")
    train = _list_split(root, "train", limit=settings.train_images)
    val = _list_split(root, "val", limit=settings.val_images)
    placed = place(train, val, settings=settings, where=str(root), progress=progress)
    changes = np.flatnonzero((np.diff(placed.val.sizes, axis=0) != 0).any(axis=1)) + 1
    train_split, val_split = stream_splits(
        PixelReader(placed.train.images, settings),
        PixelReader(placed.val.images, settings),
        settings,
        seed=seed,
        broken=placed.broken,
        breaks=changes.tolist(),
    )
    return SegmentationData(
        name="cityscapes",
        classes=tuple(CLASSES),
        train=train_split,
        val=val_split,
        memory_bytes=placed.memory_bytes,
        broken=placed.broken,
        crop=settings.crop_size,
    )
