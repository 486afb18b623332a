"""`open_detection`: images and boxes, from COCO's layout.

The columns of a row of draws:
    0 flip · 1, 2, 3 unused
"""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from fixnorm.data.coco import (
    Boxes,
    CocoFile,
    GroundTruth,
    Instances,
    Skipped,
    ground_truth,
    learnable,
    read_coco_file,
)
from fixnorm.data.crops import LEAST_DRAWS, flips
from fixnorm.data.dense import DenseImages, place
from fixnorm.data.errors import DataError, check_root
from fixnorm.data.images import to_pixels
from fixnorm.data.settings import DetectionSettings
from fixnorm.data.split import OpenSet, Progress
from fixnorm.data.stream import stream_splits
from fixnorm.data.transforms import resized


class Target(TypedDict):
    """What torchvision's detectors learn from."""

    boxes: torch.Tensor
    """float32 (n, 4): x0, y0, x1, y1 in the pixels of the image beside it."""
    labels: torch.Tensor
    """int64 (n,): positions in `DetectionData.classes`, from 0 as RetinaNet wants them."""
    image_id: int
    """COCO's."""


class DetectionBatch(NamedTuple):
    """float32 images (3, height, width) in 0..1, of any sizes, and their targets."""

    images: list[torch.Tensor]
    targets: list[Target]


class Result(TypedDict):
    """A detection as COCO's evaluators read it."""

    image_id: int
    category_id: int
    bbox: list[float]
    score: float


@dataclass(kw_only=True)
class DetectionData(OpenSet[DetectionBatch]):
    """A detection set that is ready to train on."""

    category_ids: tuple[int, ...]
    """COCO's id of each class."""
    ground_truth: GroundTruth
    """The validation images as their file describes them, for COCO's evaluators. A streaming set
    may leave out more of them later (`broken`): score the image ids that were seen."""
    train_skipped: Skipped
    val_skipped: Skipped
    settings: DetectionSettings

    def describe(self) -> str:
        """The set in one line."""
        skipped = self.train_skipped.describe()
        return super().describe() + (f"; left out of train: {skipped}" if skipped else "")

    def _shape(self) -> str:
        short, longest = self.settings.short_side, self.settings.max_side
        sides = [f"short side {short}"] if short else []
        sides += [f"long side at most {longest}"] if longest else []
        return ", ".join(sides) or "images of their own size"

    def results(
        self,
        target: Target,
        image: torch.Tensor,
        *,
        boxes: torch.Tensor,
        scores: torch.Tensor,
        labels: torch.Tensor,
    ) -> list[Result]:
        """Detections on a validation image of a batch, in COCO's ids and the file's pixels."""
        height, width = self._sizes[target["image_id"]]
        before = (image.shape[-2], image.shape[-1])
        corners = scaled(boxes.detach().float().cpu().numpy(), before, (height, width))
        return [
            Result(
                image_id=target["image_id"],
                category_id=self.category_ids[label],
                bbox=[x0, y0, x1 - x0, y1 - y0],
                score=score,
            )
            for (x0, y0, x1, y1), score, label in zip(
                corners.tolist(), scores.tolist(), labels.tolist(), strict=True
            )
        ]

    def __post_init__(self) -> None:
        images = self.ground_truth["images"]
        self._sizes = {image["id"]: (image["height"], image["width"]) for image in images}


BoxSample = tuple[torch.Tensor, Target]


def seen_size(size: tuple[int, int], settings: DetectionSettings) -> tuple[int, int]:
    """Height and width after the resize that the settings ask for."""
    factor = 1.0 if settings.short_side is None else settings.short_side / min(size)
    if settings.max_side is not None:
        factor = min(factor, settings.max_side / max(size))
    height, width = (max(1, int(side * factor + 0.5)) for side in size)
    return height, width


def scaled(boxes: Boxes, before: tuple[int, int], after: tuple[int, int]) -> Boxes:
    """Boxes of an image that is resized from `before` to `after` (height, width)."""
    y, x = (new / old for old, new in zip(before, after, strict=True))
    return boxes * np.array([x, y, x, y], dtype=np.float32)


def mirrored(boxes: Boxes, width: int) -> Boxes:
    """Boxes of an image that is mirrored left to right: x0 ↦ width − x1, x1 ↦ width − x0."""
    result = boxes.copy()
    result[:, [0, 2]] = width - boxes[:, [2, 0]]
    return result


class BoxReader:
    """Makes samples of images and of their boxes."""

    draws = LEAST_DRAWS

    def __init__(
        self, images: DenseImages, instances: Instances, settings: DetectionSettings
    ) -> None:
        self._images = images
        self._instances = instances
        self._settings = settings

    def __len__(self) -> int:
        return len(self._images)

    def path(self, at: int) -> Path:
        return self._images.path(at)

    def read(self, at: int, draws: NDArray[np.float64] | None) -> BoxSample:
        image = Image.fromarray(self._images.pixels(at))
        boxes, labels = self._instances.target(at)
        before = (image.height, image.width)
        after = seen_size(before, self._settings)
        if after != before:
            image, boxes = resized(image, *after), scaled(boxes, before, after)
        pixels = to_pixels(image)
        if draws is not None and self._settings.flip and flips(draws)[0]:
            pixels, boxes = pixels.flip(2), mirrored(boxes, after[1])
        target = Target(
            boxes=torch.from_numpy(boxes.copy()),
            labels=torch.from_numpy(labels.copy()),
            image_id=int(self._instances.image_ids[at]),
        )
        return pixels.contiguous().float().div_(255), target

    def collate(self, samples: list[BoxSample]) -> DetectionBatch:
        return DetectionBatch(*map(list, zip(*samples, strict=True)))


def _read_file(root: Path, split: str) -> tuple[CocoFile, Path]:
    """Annotations and image folder of a split."""
    folder = root / f"{split}2017"
    if not folder.is_dir():
        raise DataError(
            f"no {split} split: {folder} is missing; lay the set out as {root}/{split}2017/*.jpg"
            f" and {root}/annotations/instances_{split}2017.json"
        )
    return read_coco_file(root / "annotations" / f"instances_{split}2017.json"), folder


def _check_same_categories(train: CocoFile, val: CocoFile) -> None:
    differing = sorted(train.categories.items() ^ val.categories.items())
    if differing:
        one, name = differing[0]
        raise DataError(
            f"categories of train and val differ: id {one} ({name}) is not the same in"
            f" {train.path} and {val.path}; give both the same list"
        )


def open_detection(
    root: Path,
    *,
    settings: DetectionSettings,
    seed: int,
    progress: Progress | None = None,
) -> DetectionData:
    """Open a set in COCO's layout; nothing is written to `root`.

    Annotation files are checked wholly, and image files for their presence. Images that do not
    decode, or have another size than their annotations say, are found here by a set in memory and
    when they are met by one that streams; with `skip_broken` these and missing files are left out
    and listed in `broken`, as `open_data` does it.

    Training leaves out what no detector can learn, and counts it in `train_skipped`: crowds, boxes
    of no area or outside their image, images without boxes. Boxes are clipped to their image.
    Validation keeps all images, and `ground_truth` all annotations.
    """
    check_root(root, "coco")
    (train_file, train_folder), (val_file, val_folder) = (
        _read_file(root, split) for split in ("train", "val")
    )
    _check_same_categories(train_file, val_file)
    train, train_skipped = learnable(
        train_file, train_folder, keep_empty=False, limit=settings.train_images
    )
    val, val_skipped = learnable(val_file, val_folder, keep_empty=True, limit=settings.val_images)
    if not settings.skip_broken:
        for instances in (train, val):
            for at in range(len(instances)):
                instances.check_present(at)
    placed = place(train, val, settings=settings, where=str(root), progress=progress)
    train, val = train.subset(placed.train.kept), val.subset(placed.val.kept)
    train_split, val_split = stream_splits(
        BoxReader(placed.train.images, train, settings),
        BoxReader(placed.val.images, val, settings),
        settings,
        seed=seed,
        broken=placed.broken,
    )
    return DetectionData(
        name="coco",
        classes=tuple(train_file.categories.values()),
        train=train_split,
        val=val_split,
        memory_bytes=placed.memory_bytes,
        broken=placed.broken,
        category_ids=tuple(train_file.categories),
        ground_truth=ground_truth(val_file, val.image_ids),
        train_skipped=train_skipped,
        val_skipped=val_skipped,
        settings=settings,
    )
