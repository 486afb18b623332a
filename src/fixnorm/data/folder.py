"""ImageNet's layout: DIR/train/CLASS/*.jpg and DIR/val/CLASS/*.jpg."""

import os
from pathlib import Path

import numpy as np

from fixnorm.data.errors import DataError
from fixnorm.data.images import FileImages, PathTable, Source

# torchvision.datasets.ImageFolder's
EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


def _image_files(folder: Path) -> list[str]:
    """Files below `folder`, in torchvision's order: folder by folder, names sorted."""
    return [
        os.path.join(parent, name)
        for parent, _, names in sorted(os.walk(folder, followlinks=True))
        for name in sorted(names)
        if name.lower().endswith(EXTENSIONS)
    ]


def _split_files(split: Path) -> dict[str, list[str]]:
    if not split.is_dir():
        raise DataError(
            f"no {split.name} split: {split} is missing; lay the images out as"
            f" {split.parent}/train/CLASS/* and {split.parent}/val/CLASS/*"
        )
    names = sorted(entry.name for entry in split.iterdir() if entry.is_dir())
    if not names:
        raise DataError(
            f"no images: {split} has no class folders; sort its images into {split}/CLASS/"
        )
    files = {name: _image_files(split / name) for name in names}
    if not any(files.values()):
        raise DataError(f"no images: nothing below {split} ends in {', '.join(EXTENSIONS)}")
    for name, found in files.items():
        if not found:
            raise DataError(
                f"empty class folder: {split / name} holds no image; fill it or remove it"
                " from train and val"
            )
    return files


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
    train, val = _split_files(root / "train"), _split_files(root / "val")
    unknown = sorted(set(val) - set(train))
    if unknown:
        raise DataError(
            f"labels of val not in train: {root / 'val' / unknown[0]} has no folder"
            f" {root / 'train' / unknown[0]} ({len(unknown)} such); add it or remove it from val"
        )
    classes = tuple(train)
    return Source("folder", classes, 3, _images(train, classes), _images(val, classes))
