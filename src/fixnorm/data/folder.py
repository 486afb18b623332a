"""ImageNet's layout: DIR/train/CLASS/*.jpg and DIR/val/CLASS/*.jpg."""

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
from torchvision.datasets.folder import IMG_EXTENSIONS

from fixnorm.data.errors import DataError
from fixnorm.data.images import FileImages, PathTable, Source


class _Files(NamedTuple):
    """The images below a folder, and how much else was there."""

    paths: list[str]
    left_out: int
    """What has an image's name and is no regular file, and links that lead in a circle."""


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


def _image_files(folder: str, split: str) -> _Files:
    """Files below `folder`, in torchvision's order: folder by folder, names sorted."""
    found: dict[str, list[str]] = {}
    left_out, seen, waiting = 0, {os.path.realpath(folder)}, [folder]
    while waiting:
        at = waiting.pop()
        found[at] = []
        for entry in entries_of(at):
            if is_folder(entry):
                real = os.path.realpath(entry.path) if entry.is_symlink() else entry.path
                if real in seen or _circular(entry, split):
                    left_out += 1
                    continue
                seen.add(real)
                waiting.append(entry.path)
            elif entry.name.lower().endswith(IMG_EXTENSIONS):
                if _is_special(entry):
                    left_out += 1
                else:
                    found[at].append(entry.path)
    return _Files([path for at in sorted(found) for path in found[at]], left_out)


def _split_files(split: Path) -> tuple[dict[str, list[str]], int]:
    if not split.is_dir():
        raise DataError(
            f"no {split.name} split: {split} is missing; lay the images out as"
            f" {split.parent}/train/CLASS/* and {split.parent}/val/CLASS/*"
        )
    real = os.path.realpath(split)
    folders = [entry for entry in entries_of(split) if is_folder(entry)]
    classes = [entry for entry in folders if not _circular(entry, real)]
    if not classes:
        raise DataError(
            f"no images: {split} has no class folders; sort its images into {split}/CLASS/"
        )
    found = {entry.name: _image_files(entry.path, real) for entry in classes}
    if not any(files.paths for files in found.values()):
        raise DataError(f"no images: nothing below {split} ends in {', '.join(IMG_EXTENSIONS)}")
    for name, files in found.items():
        if not files.paths:
            raise DataError(
                f"empty class folder: {split / name} holds no image; fill it or remove it"
                " from train and val"
            )
    left_out = len(folders) - len(classes) + sum(files.left_out for files in found.values())
    return {name: files.paths for name, files in found.items()}, left_out


def _images(files: dict[str, list[str]], classes: tuple[str, ...]) -> FileImages:
    label_of = {name: label for label, name in enumerate(classes)}
    paths = [path for name in files for path in files[name]]
    labels = np.repeat(
        np.array([label_of[name] for name in files], dtype=np.int64),
        [len(f) for f in files.values()],
    )
    return FileImages(PathTable(paths), labels)


def open_folder(root: Path) -> Source:
    """Classes are the sorted folder names of train."""
    (train, train_left), (val, val_left) = (_split_files(root / name) for name in ("train", "val"))
    unknown = sorted(set(val) - set(train))
    if unknown:
        raise DataError(
            f"labels of val not in train: {root / 'val' / unknown[0]} has no folder"
            f" {root / 'train' / unknown[0]} ({len(unknown)} such); add it or remove it from val"
        )
    classes = tuple(train)
    return Source(
        "folder",
        classes,
        3,
        _images(train, classes),
        _images(val, classes),
        left_out=train_left + val_left,
    )
