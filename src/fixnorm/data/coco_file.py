"""COCO's annotation files, read and checked entry by entry."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from fixnorm.data.errors import DataError
from fixnorm.system import brief, read_regular

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
