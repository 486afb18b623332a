"""What can be wrong with a data set, and the words for it."""

from pathlib import Path


class DataError(ValueError):
    """A data set that cannot be trained on: one line that names the path and the next move."""


class BrokenImageError(DataError):
    """An image file that does not decode; `skip_broken` leaves such files out."""


def broken(path: Path, reason: str) -> BrokenImageError:
    """The error of a file that `skip_broken` may leave out."""
    return BrokenImageError(
        f"broken image {path}: {reason}; repair or remove it, or set skip_broken to leave it out"
    )


EMBEDDED = ("digits", "few-digits")
"""Sets that come with the package."""
_TITLES = {"coco": "COCO", "cityscapes": "Cityscapes"}


def check_root(root: Path | None, name: str) -> None:
    """`root` is to hold the set of that name: it must be a folder, and none for the digits."""
    if name in EMBEDDED:
        if root is not None:
            raise DataError(f"{name} is embedded and takes no folder but got {root}: leave it out")
    elif root is None:
        raise DataError(f"{name} needs a folder: give the one that holds its files")
    elif not root.is_dir():
        what = "is not a folder" if root.exists() else "does not exist"
        title = _TITLES.get(name, name)
        raise DataError(f"data folder {root} {what}: give the folder that holds the {title} files")


def check_some_left(n: int, kind: str, where: str) -> None:
    """At least one image must be left after the broken ones are gone."""
    if n == 0:
        raise DataError(f"every {kind} image in {where} is broken: replace them")
