"""COCO as its authors pack it: its files checked entry by entry, what a detector learns from them,
what an evaluator compares with.

ROOT/{train2017,val2017}/*.jpg
ROOT/annotations/instances_{train,val}2017.json
"""

import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, TypeGuard

import numpy as np
from numpy.typing import NDArray

from fixnorm.data.errors import BrokenImageError, DataError, broken
from fixnorm.data.images import PathTable, read_image, read_size
from fixnorm.system import brief, read_regular, regular

# -- the annotation file ---------------------------------------------------------------------------

_MOST = 2**32
"""Bytes of a file; COCO's has half a billion."""
_LARGEST = 100_000
"""Pixels of a side."""


class CocoImage(NamedTuple):
    """An image as the file lists it."""

    id: int
    file_name: str
    height: int
    width: int


class CocoBox(NamedTuple):
    """An annotation without its outline."""

    image_id: int
    category_id: int
    bbox: list[float]
    """x, y, width, height"""
    area: float
    crowd: bool


class CocoFile(NamedTuple):
    """What an instances file holds: ids are unique, annotations name ids that exist."""

    path: Path
    categories: dict[int, str]
    """By rising id."""
    images: list[CocoImage]
    """By rising id."""
    boxes: list[CocoBox]


def _without_outlines(entry: dict[str, Any]) -> dict[str, Any]:
    # nine tenths of COCO's file; dropped while it is parsed, they never fill the memory
    entry.pop("segmentation", None)
    return entry


def _parsed(path: Path) -> dict[str, list[Any]]:
    try:
        content = json.loads(read_regular(path, most=_MOST), object_hook=_without_outlines)
    except FileNotFoundError:
        raise DataError(
            f"no annotations: {path} is missing; unpack annotations_trainval2017 beside the images"
        ) from None
    except OSError as error:
        raise DataError(
            f"cannot read {path}: {error.strerror}; check the disk and the rights"
        ) from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is no whole JSON: {error!s:.200}; fetch it again") from None
    for key in ("images", "annotations", "categories"):
        if not isinstance(content, dict) or not isinstance(content.get(key), list):
            raise DataError(
                f"{path} has no list {key!r}: an instances file holds images, annotations and"
                " categories"
            )
        for entry in content[key]:
            if not isinstance(entry, dict):
                raise DataError(
                    f"{path}: {key} hold {brief(entry, plain=True)}, which is no object; remove it"
                )
    return dict(content)


class _Entry:
    """One object of the file; what it lacks is told with its kind and id."""

    def __init__(self, path: Path, kind: str, content: dict[str, Any]) -> None:
        self._content = content
        self._name = f"{path}: {kind} {brief(content.get('id'), plain=True)}"

    def __call__(self, key: str, kind: type) -> Any:
        value = self._content.get(key)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise DataError(
                f"{self._name} needs {key} as {kind.__name__} but has {brief(value, plain=True)};"
                " repair or remove it"
            )
        if isinstance(value, int) and abs(value) >= 2**62:
            raise DataError(f"{self._name} has a {key} that is too large; repair or remove it")
        return value

    def fail(self, reason: str) -> DataError:
        return DataError(f"{self._name} {reason}")


def _check_unique(path: Path, kind: str, ids: list[int]) -> None:
    for one, following in pairwise(ids):
        if one == following:
            raise DataError(f"{path}: duplicate {kind} id {one}; give each {kind} its own")


def _image(entry: _Entry) -> CocoImage:
    image = CocoImage(
        entry("id", int), entry("file_name", str), entry("height", int), entry("width", int)
    )
    if not _stays_inside(image.file_name):
        raise entry.fail(
            f"has file_name {brief(image.file_name, plain=True)}, which leads out of the images'"
            " folder; give a path inside it"
        )
    if not (1 <= image.height <= _LARGEST and 1 <= image.width <= _LARGEST):
        raise entry.fail(f"has {image.height}×{image.width} pixels; repair or remove it")
    return image


def _stays_inside(name: str) -> bool:
    """Whether a name can only be that of a file below the folder it is looked for in."""
    parts = name.replace("\\", "/").split("/")
    return bool(name) and not name.startswith("/") and ".." not in parts and "\0" not in name


def _is_number(value: Any) -> TypeGuard[float]:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and abs(value) < 1e15  # NaN is not


def _box(entry: _Entry, content: dict[str, Any]) -> CocoBox:
    bbox = entry("bbox", list)
    if len(bbox) != 4 or not all(map(_is_number, bbox)):
        raise entry.fail(
            "needs a bbox of 4 finite numbers (x, y, width, height) but has"
            f" {brief(bbox, plain=True)}; repair or remove it"
        )
    area = content.get("area")
    return CocoBox(
        entry("image_id", int),
        entry("category_id", int),
        bbox,
        area if _is_number(area) else bbox[2] * bbox[3],
        bool(content.get("iscrowd", 0)),
    )


def read_coco_file(path: Path) -> CocoFile:
    """The file's content, or one line that names the file and the id at fault."""
    content = _parsed(path)
    images = sorted(_image(_Entry(path, "image", one)) for one in content["images"])
    categories = sorted(
        (entry("id", int), entry("name", str))
        for entry in (_Entry(path, "category", one) for one in content["categories"])
    )
    if not images:
        raise DataError(f"no images: {path} lists none")
    if not categories:
        raise DataError(f"{path} lists no categories: a detector needs at least one")
    _check_unique(path, "image", [image.id for image in images])
    _check_unique(path, "category", [one for one, _ in categories])

    image_ids, names = {image.id for image in images}, dict(categories)
    boxes = []
    for one in content["annotations"]:
        entry = _Entry(path, "annotation", one)
        box = _box(entry, one)
        if box.image_id not in image_ids:
            raise entry.fail(
                f"is of the unknown image id {box.image_id}; list the image or remove it"
            )
        if box.category_id not in names:
            known = ", ".join(map(str, list(names)[:10]))
            raise entry.fail(
                f"has the unknown category id {box.category_id}: the file's are {known}"
                f"{', …' if len(names) > 10 else ''}"
            )
        boxes.append(box)
    return CocoFile(path, names, images, boxes)


# -- what is learned and compared ------------------------------------------------------------------


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


LEAST_SIDE = 0.01
"""Pixels. A box thinner than this counts as one of no area: resized and mirrored in float32 its
two edges could fall together, and detectors refuse such boxes."""

Boxes = NDArray[np.float32]
"""(n, 4): corners x0, y0, x1, y1."""


def clip(
    xywh: NDArray[np.float64], sizes: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
    """Corners of boxes (x, y, width, height), each clipped to its image (height, width).

    And which boxes are of no use: those of no area, and those of which too little is inside.
    """
    low, length = xywh[:, :2], xywh[:, 2:]
    bounds = sizes[:, ::-1]
    corners = np.concatenate([np.clip(low, 0, bounds), np.clip(low + length, 0, bounds)], axis=1)
    left = corners[:, 2:] - corners[:, :2]
    no_area, too_little_left = (np.any(sides < LEAST_SIDE, axis=1) for sides in (length, left))
    return corners, no_area, ~no_area & too_little_left


@dataclass(frozen=True)
class Instances:
    """The images of a split (RGB, of the sizes that its file states) and the boxes to learn.

    No lists of objects: loader processes share arrays.
    """

    image_ids: NDArray[np.int64]
    sizes: NDArray[np.int64]  # (images, 2): height, width
    paths: PathTable
    ends: NDArray[np.int64]  # (images + 1,): image i has the boxes ends[i] … ends[i + 1]
    boxes: Boxes  # corners
    labels: NDArray[np.int64]
    channels = 3

    def __len__(self) -> int:
        return len(self.image_ids)

    def path(self, at: int) -> Path:
        return self.paths[at]

    def target(self, at: int) -> tuple[Boxes, NDArray[np.int64]]:
        """Boxes and labels of image `at`."""
        mine = slice(self.ends[at], self.ends[at + 1])
        return self.boxes[mine], self.labels[mine]

    def check_present(self, at: int) -> None:
        """The file of image `at` must exist."""
        path = self.paths[at]
        if not regular(path):
            raise BrokenImageError(
                f"no image {path}: the annotations list it as id {self.image_ids[at]};"
                " unpack the images wholly, or set skip_broken to leave it out"
            )

    def size(self, at: int) -> tuple[int, int]:
        """Height and width by the image's header, which must be those of the annotations."""
        self.check_present(at)
        return self._agreed(at, read_size(self.paths[at]))

    def pixels(self, at: int) -> NDArray[np.uint8]:
        pixels = np.array(read_image(self.paths[at]))
        self._agreed(at, (pixels.shape[0], pixels.shape[1]))
        return pixels

    def _agreed(self, at: int, size: tuple[int, int]) -> tuple[int, int]:
        height, width = self.sizes[at]
        if size != (height, width):
            raise broken(
                self.paths[at],
                f"it has {size[0]}×{size[1]} pixels but its annotations say {height}×{width}",
            )
        return size

    def subset(self, keep: NDArray[np.int64]) -> "Instances":
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


def learnable(
    file: CocoFile, folder: Path, *, keep_empty: bool, limit: int | None
) -> tuple[Instances, Skipped]:
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
    return instances.subset(keep[:limit]), skipped


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
