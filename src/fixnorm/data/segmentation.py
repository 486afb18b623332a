"""`open_segmentation`: images and a class a pixel, from Cityscapes' layout."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fixnorm.data.cityscapes import CLASSES, IGNORED, list_split
from fixnorm.data.dense_settings import SegmentationSettings
from fixnorm.data.opened import OpenSet, Progress, check_folder
from fixnorm.data.pictures import Pictures, place
from fixnorm.data.pixels import Normalize
from fixnorm.data.split import Batch
from fixnorm.data.stream import stream_splits
from fixnorm.data.windows import DRAWS, completed, draw_window, image_window, label_window


@dataclass(kw_only=True)
class SegmentationData(OpenSet[Batch]):
    """A segmentation set that is ready to train on."""

    crop: tuple[int, int]
    """Height and width of a training batch; validation sees whole images."""
    ignored: int = IGNORED
    """The label of pixels that neither loss nor metric counts."""

    def _shape(self) -> str:
        return f"crops of {self.crop[0]}×{self.crop[1]}"


class PixelSample(NamedTuple):
    """Normalised image (3, height, width) and uint8 classes (height, width)."""

    image: torch.Tensor
    labels: torch.Tensor


class PixelReader:
    """Makes samples of pictures whose fourth channel is the class."""

    draws = DRAWS

    def __init__(self, pictures: Pictures, settings: SegmentationSettings) -> None:
        self._pictures = pictures
        self._settings = settings
        self._normalize = Normalize(settings, channels=3)

    def __len__(self) -> int:
        return len(self._pictures)

    def path(self, at: int) -> Path:
        """The file of image `at`."""
        return self._pictures.path(at)

    def read(self, at: int, draws: NDArray[np.float64] | None) -> PixelSample:
        """The whole image, or a crop of it."""
        picture = self._pictures.picture(at)
        image, labels = np.ascontiguousarray(picture[:, :, :3]), picture[:, :, 3]
        size = labels.shape[0], labels.shape[1]
        if draws is None:
            pixels = torch.from_numpy(image).permute(2, 0, 1)
            return PixelSample(self._normalized(pixels), torch.from_numpy(labels.copy()))
        settings = self._settings
        window = draw_window(size, draws, settings)
        pixels = self._normalized(image_window(image, window))
        classes = label_window(labels, window)
        return PixelSample(
            completed(pixels, window, settings, fill=0),  # the mean is 0 by now
            completed(classes, window, settings, fill=IGNORED),
        )

    def _normalized(self, pixels: torch.Tensor) -> torch.Tensor:
        return self._normalize(pixels[None])[0]

    def collate(self, samples: list[PixelSample]) -> Batch:
        """Stacked; classes become int64."""
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
    check_folder(root, "Cityscapes")
    train = list_split(root, "train", limit=settings.train_images)
    val = list_split(root, "val", limit=settings.val_images)
    placed = place(train, val, settings=settings, where=str(root), progress=progress)
    changes = np.flatnonzero((np.diff(placed.val.sizes, axis=0) != 0).any(axis=1)) + 1
    splits = stream_splits(
        PixelReader(placed.train.pictures, settings),
        PixelReader(placed.val.pictures, settings),
        settings,
        seed=seed,
        broken=placed.broken,
        breaks=changes.tolist(),
    )
    return SegmentationData(
        name="cityscapes",
        classes=tuple(CLASSES),
        train=splits.train,
        val=splits.val,
        memory_bytes=placed.memory_bytes,
        broken=placed.broken,
        crop=settings.crop_size,
    )
