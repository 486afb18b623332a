"""The images of a setting, and batches that are the same for every side of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from auto_lr_settings import Setting


@dataclass(frozen=True, slots=True)
class Images:
    """Training and validation images, as floats."""

    train: Tensor
    train_labels: Tensor
    val: Tensor
    val_labels: Tensor
    pad: int
    flip: bool


@cache
def _folder(path: Path, classes: int, size: int) -> tuple[Tensor, Tensor]:
    """The first classes of a folder of images, sorted by name; read once."""
    kept = path.parent / f".{path.name}-{classes}-{size}.npz"
    if not kept.exists():
        pixels, labels = [], []
        for label, folder in enumerate(sorted(p for p in path.iterdir() if p.is_dir())[:classes]):
            for file in sorted(folder.iterdir()):
                with Image.open(file) as image:
                    small = image.convert("RGB").resize((size, size), Image.Resampling.BOX)
                pixels.append(np.asarray(small))
                labels.append(label)
        np.savez(kept, pixels=np.stack(pixels), labels=np.asarray(labels))
    content = np.load(kept)
    images = torch.from_numpy(content["pixels"]).permute(0, 3, 1, 2).float().div_(255)
    return images, torch.from_numpy(content["labels"]).long()


@cache
def images_of(setting: Setting, data: Path) -> Images:
    """Those of a setting; the first images of each class train."""
    if setting.source == "digits":
        from sklearn.datasets import load_digits

        found = load_digits()
        everything = torch.from_numpy(found.images).float()[:, None] / 16
        labels = torch.from_numpy(found.target).long()
        chosen = _first(labels, setting.per_class)
        rest = torch.ones(len(labels), dtype=torch.bool)
        rest[chosen] = False
        train, val = everything[chosen], everything[rest]
        train_labels, val_labels = labels[chosen], labels[rest]
        pad, flip = 1, False
    else:
        folder = data / ("cifar10" if "cifar10" in setting.source else "tiny_imagenet_100")
        size = {"cifar10-16": 16, "tiny-imagenet": 64}.get(setting.source, 32)
        train, train_labels = _folder(folder / "train", setting.classes, size)
        val, val_labels = _folder(folder / "val", setting.classes, size)
        chosen = _first(train_labels, setting.per_class)
        train, train_labels = train[chosen], train_labels[chosen]
        pad, flip = size // 8, True
    mean, std = train.mean((0, 2, 3), keepdim=True), train.std((0, 2, 3), keepdim=True)
    return Images((train - mean) / std, train_labels, (val - mean) / std, val_labels, pad, flip)


def _first(labels: Tensor, per_class: int) -> Tensor:
    return torch.cat([(labels == c).nonzero()[:per_class, 0] for c in labels.unique()])


def batches(setting: Setting, images: Images, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The same for every side: order, crops and flips follow from the seed."""
    generator = torch.Generator().manual_seed(seed)
    count, size, pad = len(images.train), images.train.shape[-1], images.pad
    padded = nn.functional.pad(images.train, (pad,) * 4)
    for _ in range(setting.epochs):
        order = torch.randperm(count, generator=generator)
        for chosen in order.split(setting.batch)[: count // setting.batch]:
            down, right = torch.randint(2 * pad + 1, (2, len(chosen)), generator=generator)
            rows = (down[:, None] + torch.arange(size))[:, None, :, None]
            columns = (right[:, None] + torch.arange(size))[:, None, None, :]
            channels = torch.arange(padded.shape[1])[None, :, None, None]
            batch = padded[chosen[:, None, None, None], channels, rows, columns]
            if images.flip:
                flipped = torch.rand(len(chosen), generator=generator) < 0.5
                batch = torch.where(flipped[:, None, None, None], batch.flip(-1), batch)
            yield batch.contiguous(memory_format=torch.channels_last), images.train_labels[chosen]


def val_batches(images: Images) -> Iterator[tuple[Tensor, Tensor]]:
    """All validation images, in order."""
    for x, y in zip(images.val.split(1000), images.val_labels.split(1000), strict=True):
        yield x.contiguous(memory_format=torch.channels_last), y


def steps_of(setting: Setting, images: Images) -> int:
    """T."""
    return setting.epochs * (len(images.train) // setting.batch)
