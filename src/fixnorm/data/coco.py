"""COCO as its authors pack it: what a detector learns from it, what an evaluator compares with.

ROOT/{train2017,val2017}/*.jpg
ROOT/annotations/instances_{train,val}2017.json
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray

from fixnorm.data.boxes import Boxes, clip
from fixnorm.data.coco_file import CocoFile
from fixnorm.data.decode import broken, read_image, read_size
from fixnorm.data.errors import BrokenImageError, DataError
from fixnorm.data.images import PathTable
from fixnorm.system import regular


class GroundTruth(TypedDict):
    """What COCO's evaluators (pycocotools, faster-coco-eval) read: their `dataset`.

    Boxes are the file's own, those of no area and crowds included, as the benchmark scores them.
    """

    images: list[dict[str, Any]]
    """`id`, `file_name`, `height`, `width`"""
    annotations: list[dict[str, Any]]
    """`id` (counted from 1: the evaluators take 0 for "no match"), `image_id`, `category_id`,
    `bbox` (x, y, width, height), `area`, `iscrowd`"""
    categories: list[dict[str, Any]]
    """`id`, `name`"""


@dataclass(frozen=True)
class Skipped:
    """What one annotation file holds and its split does not use."""

    crowds: int = 0
    """Annotations of crowds."""
    no_area: int = 0
    """Boxes of no width or no height (COCO has some)."""
    outside: int = 0
    """Boxes of which nothing lies inside their image."""
    images: int = 0
    """Training images that have no box left; validation keeps them."""

    def describe(self) -> str:
        """In words; empty where nothing is left out."""
        counts = (
            (self.crowds, "crowd boxes"),
            (self.no_area, "boxes of no area"),
            (self.outside, "boxes outside their image"),
            (self.images, "images without boxes"),
        )
        return ", ".join(f"{count:,} {what}" for count, what in counts if count)


@dataclass(frozen=True)
class Instances:
    """The images of a split and the boxes that a detector learns; no lists of objects."""

    image_ids: NDArray[np.int64]
    sizes: NDArray[np.int64]  # (images, 2): height, width
    paths: PathTable
    ends: NDArray[np.int64]  # (images + 1,): image i has the boxes ends[i] … ends[i + 1]
    boxes: Boxes  # corners
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.image_ids)

    def target(self, at: int) -> tuple[Boxes, NDArray[np.int64]]:
        """Boxes and labels of image `at`."""
        mine = slice(self.ends[at], self.ends[at + 1])
        return self.boxes[mine], self.labels[mine]

    def subset(self, keep: NDArray[np.int64]) -> "Instances":
        """The images at these positions."""
        counts = np.diff(self.ends)
        chosen = np.concatenate(
            [np.arange(self.ends[i], self.ends[i + 1]) for i in keep] or [keep]
        ).astype(np.int64)
        return Instances(
            self.image_ids[keep],
            self.sizes[keep],
            self.paths.subset(keep),
            np.concatenate([[0], np.cumsum(counts[keep])]),
            self.boxes[chosen],
            self.labels[chosen],
        )


@dataclass(frozen=True)
class InstanceImages:
    """The pictures of a split: RGB, of the sizes that its annotation file states."""

    instances: Instances
    channels = 3

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Heights and widths by the annotation file."""
        return self.instances.sizes

    def __len__(self) -> int:
        return len(self.instances)

    def path(self, at: int) -> Path:
        """The file of image `at`."""
        return self.instances.paths[at]

    def check_present(self, at: int) -> None:
        """The file of image `at` must exist."""
        path = self.path(at)
        if not regular(path):
            raise BrokenImageError(
                f"no image {path}: the annotations list it as id {self.instances.image_ids[at]};"
                " unpack the images wholly, or set skip_broken to leave it out"
            )

    def size(self, at: int) -> tuple[int, int]:
        """Height and width by the image's header, which must be those of the annotations."""
        self.check_present(at)
        return self._agreed(at, read_size(self.path(at)))

    def picture(self, at: int) -> NDArray[np.uint8]:
        """Image `at`."""
        pixels = np.array(read_image(self.path(at)))
        self._agreed(at, (pixels.shape[0], pixels.shape[1]))
        return pixels

    def _agreed(self, at: int, size: tuple[int, int]) -> tuple[int, int]:
        height, width = self.instances.sizes[at]
        if size != (height, width):
            raise broken(
                self.path(at),
                f"it has {size[0]}×{size[1]} pixels but its annotations say {height}×{width}",
            )
        return size

    def subset(self, keep: NDArray[np.int64]) -> "InstanceImages":
        """The images at these positions."""
        return InstanceImages(self.instances.subset(keep))


class Learnable(NamedTuple):
    """What a detector can learn from an annotation file, and what it cannot."""

    instances: Instances
    skipped: Skipped


def learnable(file: CocoFile, folder: Path, *, keep_empty: bool, limit: int | None) -> Learnable:
    """The first `limit` images by id and their boxes, clipped to them.

    Left out and counted, over the whole file: crowds, boxes of no area or outside their image, and
    unless `keep_empty` images without boxes.
    """
    position_of = {image.id: at for at, image in enumerate(file.images)}
    label_of = {category: label for label, category in enumerate(file.categories)}
    sizes = np.array([(image.height, image.width) for image in file.images], dtype=np.int64)
    position = np.array([position_of[box.image_id] for box in file.boxes], dtype=np.int64)
    labels = np.array([label_of[box.category_id] for box in file.boxes], dtype=np.int64)
    crowd = np.array([box.crowd for box in file.boxes], dtype=np.bool_)
    xywh = np.array([box.bbox for box in file.boxes], dtype=np.float64).reshape(-1, 4)
    corners, no_area, outside = clip(xywh, sizes[position])

    good = np.flatnonzero(~crowd & ~no_area & ~outside)
    good = good[np.argsort(position[good], kind="stable")]
    counts = np.bincount(position[good], minlength=len(file.images))
    keep = np.arange(len(file.images)) if keep_empty else np.flatnonzero(counts)
    if len(keep) == 0:
        raise DataError(f"no images: {file.path} has no box that a detector can learn")
    instances = Instances(
        np.array([image.id for image in file.images], dtype=np.int64),
        sizes,
        PathTable([folder / image.file_name for image in file.images]),
        np.concatenate([[0], np.cumsum(counts)]),
        corners[good].astype(np.float32),
        labels[good],
    )
    skipped = Skipped(
        crowds=int(crowd.sum()),
        no_area=int((no_area & ~crowd).sum()),
        outside=int((outside & ~crowd).sum()),
        images=len(file.images) - len(keep),
    )
    return Learnable(instances.subset(keep[:limit]), skipped)


def ground_truth(file: CocoFile, image_ids: NDArray[np.int64]) -> GroundTruth:
    """All that the file says of these images."""
    wanted = set(image_ids.tolist())
    boxes = (box for box in file.boxes if box.image_id in wanted)
    return GroundTruth(
        images=[image._asdict() for image in file.images if image.id in wanted],
        annotations=[
            {
                "id": number,
                "image_id": box.image_id,
                "category_id": box.category_id,
                "bbox": box.bbox,
                "area": box.area,
                "iscrowd": int(box.crowd),
            }
            for number, box in enumerate(boxes, start=1)
        ],
        categories=[{"id": one, "name": name} for one, name in file.categories.items()],
    )
