"""ImageNet's layout: DIR/train/CLASS/*.jpg and DIR/val/CLASS/*.jpg."""

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
from torchvision.datasets.folder import IMG_EXTENSIONS

from fixnorm.data.errors import DataError
from fixnorm.data.images import FileImages, PathTable, Source, joined
from fixnorm.data.index import SplitNames, Stamp, read_index, stamp, write_index


class _Files(NamedTuple):
    """The images below a folder, and how much else was there."""

    names: list[str]
    """Relative to the root."""
    left_out: int
    """What has an image's name and is no regular file, and links that lead in a circle."""
    folders: dict[str, Stamp]
    """Those that were looked into, relative to the root."""


def entries_of(folder: str | Path) -> list[os.DirEntry[str]]:
    """What a folder holds, by name; one that cannot be read is never taken for empty."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise DataError(
            f"cannot read the folder {folder}: {error.strerror}; check its rights"
        ) from None


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether it is one, or a link to one; a link to itself is none."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def _is_special(entry: os.DirEntry[str]) -> bool:
    """A pipe, a device, a link to itself. A link to nothing is a file that is missing."""
    try:
        return not (entry.is_file() or (entry.is_symlink() and not os.path.exists(entry.path)))
    except OSError:
        return True


def _circular(entry: os.DirEntry[str], split: str) -> bool:
    """Whether a link leads into the split or to what it lies in: to images of other classes."""
    if not entry.is_symlink():
        return False
    real = os.path.realpath(entry.path)
    return real == split or _inside(real, split) or _inside(split, real)


def _inside(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip(os.sep) + os.sep)


def _image_files(root: str, folder: str, split: str) -> _Files:
    """Files below `folder`, in torchvision's order: folder by folder, names sorted."""
    found: dict[str, list[str]] = {}
    folders: dict[str, Stamp] = {}
    left_out, seen, waiting = 0, {os.path.realpath(os.path.join(root, folder))}, [folder]
    while waiting:
        at = waiting.pop()
        found[at] = []
        folders[at] = stamp(os.path.join(root, at))
        for entry in entries_of(os.path.join(root, at)):
            if is_folder(entry):
                real = os.path.realpath(entry.path) if entry.is_symlink() else entry.path
                if real in seen or _circular(entry, split):
                    left_out += 1
                    continue
                seen.add(real)
                waiting.append(os.path.join(at, entry.name))
            elif entry.name.lower().endswith(IMG_EXTENSIONS):
                if _is_special(entry):
                    left_out += 1
                else:
                    found[at].append(f"{at}{os.sep}{entry.name}")
    return _Files([name for at in sorted(found) for name in found[at]], left_out, folders)


def _listed(root: Path, name: str) -> SplitNames:
    """What lies below one split of a folder, looked for now."""
    split = root / name
    if not split.is_dir():
        raise DataError(
            f"no {name} split: {split} is missing; lay the images out as"
            f" {root}/train/CLASS/* and {root}/val/CLASS/*"
        )
    real, folders = os.path.realpath(split), {name: stamp(str(split))}
    entries = [entry for entry in entries_of(split) if is_folder(entry)]
    classes = [entry.name for entry in entries if not _circular(entry, real)]
    if not classes:
        raise DataError(
            f"no images: {split} has no class folders; sort its images into {split}/CLASS/"
        )
    counts, names, left_out = [], [], len(entries) - len(classes)
    for one in classes:
        files = _image_files(str(root), os.path.join(name, one), real)
        counts.append(len(files.names))
        names.append(joined(files.names))  # by class: a million strings would take a gigabyte
        left_out += files.left_out
        folders |= files.folders
    if not any(counts):
        raise DataError(f"no images: nothing below {split} ends in {', '.join(IMG_EXTENSIONS)}")
    if 0 in counts:
        raise DataError(
            f"empty class folder: {split / classes[counts.index(0)]} holds no image; fill it or"
            " remove it from train and val"
        )
    return SplitNames(tuple(classes), tuple(counts), np.concatenate(names), left_out, folders)


def _images(split: SplitNames, classes: tuple[str, ...], root: Path) -> FileImages:
    label_of = {name: label for label, name in enumerate(classes)}
    labels = np.array([label_of[name] for name in split.classes], dtype=np.int64)
    return FileImages(PathTable(split.names, base=str(root)), np.repeat(labels, split.counts))


def open_folder(root: Path) -> Source:
    """Classes are the sorted folder names of train."""
    splits = read_index(root)
    if splits is None:
        splits = [_listed(root, name) for name in ("train", "val")]
        write_index(root, splits)
    train, val = splits
    unknown = sorted(set(val.classes) - set(train.classes))
    if unknown:
        raise DataError(
            f"labels of val not in train: {root / 'val' / unknown[0]} has no folder"
            f" {root / 'train' / unknown[0]} ({len(unknown)} such); add it or remove it from val"
        )
    return Source(
        "folder",
        train.classes,
        3,
        _images(train, train.classes, root),
        _images(val, train.classes, root),
        left_out=train.left_out + val.left_out,
    )
