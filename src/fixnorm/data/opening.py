"""`open_data`: from a name and a folder to the two splits, or one clear error."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fixnorm.data.checks import check_channels
from fixnorm.data.cifar import open_cifar10
from fixnorm.data.classes import ClassReader
from fixnorm.data.decoding import MixedSizesError, decode_all, readable_headers
from fixnorm.data.digits import open_digits
from fixnorm.data.errors import BrokenImageError, DataError
from fixnorm.data.folder import open_folder
from fixnorm.data.idx import open_fashion_mnist
from fixnorm.data.images import Images, Source
from fixnorm.data.memory import MemoryEval, MemoryTrain
from fixnorm.data.opened import (
    MEMORY_LIMIT,
    Counter,
    OpenSet,
    Progress,
    check_folder,
    check_some_left,
)
from fixnorm.data.settings import DataSettings
from fixnorm.data.split import Batch, EvalSplit, TrainSplit
from fixnorm.data.stream import stream_splits
from fixnorm.data.transforms import eval_image, policy, train_base
from fixnorm.system.nearest import did_you_mean

_ROOTED = {
    "imagefolder": open_folder,
    "cifar10": open_cifar10,
    "fashion-mnist": open_fashion_mnist,
}


@dataclass(kw_only=True)
class Data(OpenSet[Batch]):
    """A classification set that is ready to train on."""

    layout: str
    image_size: int

    def _title(self) -> str:
        return f"{self.name} ({self.layout})"

    def _shape(self) -> str:
        return f"{self.channels}×{self.image_size}×{self.image_size}"


def _find_source(name: str, root: Path | None) -> Source:
    if name == "digits":
        if root is not None:
            raise DataError(f"digits is embedded and takes no folder but got {root}: leave it out")
        return open_digits()
    if name not in _ROOTED:
        hint = did_you_mean(name, ["digits", *_ROOTED], otherwise="take one of")
        raise DataError(f"no data set is called {name!r}: {hint}")
    if root is None:
        raise DataError(f"{name} needs a folder: give the one that holds its files")
    check_folder(root, name)
    return _ROOTED[name](root)


def _first_of_each_class(images: Images, *, classes: int, per_class: int | None) -> Images:
    """The first `per_class` images of the first `classes` classes."""
    chosen = [np.flatnonzero(images.labels == label)[:per_class] for label in range(classes)]
    keep = np.sort(np.concatenate(chosen))
    return images if len(keep) == len(images.labels) else images.subset(keep)


def _cut(source: Source, settings: DataSettings, where: str) -> Source:
    count = settings.classes or len(source.classes)
    if count > len(source.classes):
        raise DataError(f"classes={count} but {where} has {len(source.classes)}: take at most that")
    train = _first_of_each_class(source.train, classes=count, per_class=settings.train_per_class)
    val = _first_of_each_class(source.val, classes=count, per_class=settings.val_per_class)
    if len(val.labels) == 0:
        raise DataError(f"no images: val of {where} has none of the first {count} classes")
    return replace(source, classes=source.classes[:count], train=train, val=val)


def _check_classes_left(source: Source, kept: NDArray[np.int64], where: str) -> None:
    gone = np.setdiff1d(source.train.labels, source.train.labels[kept])
    if len(gone):
        name = source.classes[int(gone[0])]
        raise DataError(f"every training image of class {name} in {where} is broken: replace them")


def _memory_bytes(source: Source, settings: DataSettings) -> int:
    """Bytes of pixels, by the first readable training image where its own size is kept."""
    height = width = settings.image_size
    if settings.train_crop == "random-resized":
        for i in range(len(source.train.labels)):
            try:
                height, width = source.train.size(i)
                break
            except BrokenImageError:
                continue
    train = len(source.train.labels) * height * width
    return source.channels * (train + len(source.val.labels) * settings.image_size**2)


def _broken(images: Images, kept: NDArray[np.int64]) -> list[Path]:
    missing = np.setdiff1d(np.arange(len(images.labels)), kept)
    return [path for i in missing if (path := images.path(int(i))) is not None]


def _into_memory(
    name: str, where: str, source: Source, settings: DataSettings, seed: int, advance: Counter
) -> Data:
    decode = partial(decode_all, skip_broken=settings.skip_broken, advance=advance)
    train = decode(source.train, partial(train_base, settings=settings))
    val = decode(source.val, partial(eval_image, settings=settings))
    _check_classes_left(source, train.kept, where)
    check_some_left(len(val.kept), "validation", where)
    return Data(
        name=name,
        layout=source.layout,
        classes=source.classes,
        channels=source.channels,
        image_size=settings.image_size,
        train=TrainSplit(
            MemoryTrain(train.pixels, source.train.labels[train.kept], settings, seed=seed),
            seed=seed,
        ),
        val=EvalSplit(MemoryEval(val.pixels, source.val.labels[val.kept], settings)),
        memory_bytes=train.pixels.numel() + val.pixels.numel(),
        broken=_broken(source.train, train.kept) + _broken(source.val, val.kept),
        left_out=source.left_out,
    )


def _streaming(
    name: str, where: str, source: Source, settings: DataSettings, seed: int, advance: Counter
) -> Data:
    train, val = source.train, source.val
    broken: list[Path] = []
    if settings.skip_broken:
        kept, val_kept = (readable_headers(images, advance=advance) for images in (train, val))
        _check_classes_left(source, kept, where)
        check_some_left(len(val_kept), "validation", where)
        broken += _broken(train, kept) + _broken(val, val_kept)
        train, val = train.subset(kept), val.subset(val_kept)
    read = partial(ClassReader, settings=settings, channels=source.channels)
    splits = stream_splits(read(train), read(val), settings, seed=seed, broken=broken)
    return Data(
        name=name,
        layout=source.layout,
        classes=source.classes,
        channels=source.channels,
        image_size=settings.image_size,
        train=splits.train,
        val=splits.val,
        memory_bytes=None,
        broken=broken,
        left_out=source.left_out,
    )


def _listed(name: str, root: Path | None, settings: DataSettings) -> tuple[Source, str]:
    """What a set holds, without decoding any of it, and what to call it."""
    if settings.auto_augment is not None:
        policy(settings)  # an unknown name fails here, not in a worker
    source = _find_source(name, root)
    where = name if root is None else str(root)
    source = _cut(source, settings, where)
    check_channels(settings, channels=source.channels, name=name)
    return source, where


def count_training_images(name: str, root: Path | None, *, settings: DataSettings) -> int:
    """Images of an epoch; a set that `open_data` would refuse at first sight is refused here."""
    source, _ = _listed(name, root, settings)
    return len(source.train.labels)


def open_data(
    name: str,
    root: Path | None,
    *,
    settings: DataSettings,
    seed: int,
    progress: Progress | None = None,
) -> Data:
    """Open `digits`, `imagefolder`, `cifar10` or `fashion-mnist`; nothing is written to `root`.

    With several processes each one opens the set: a set in memory is held once a process.
    Broken files: a set in memory decodes all of them here. A streaming one raises when it meets
    one; with `skip_broken` it reads every header here, and what only fails when it is decoded is
    replaced (train) or left out (val) and added to `Data.broken` then.
    """
    source, where = _listed(name, root, settings)
    total = len(source.train.labels) + len(source.val.labels)

    in_memory = settings.in_memory
    if in_memory is None:
        fits = settings.auto_augment is None and _memory_bytes(source, settings) <= MEMORY_LIMIT
        in_memory = fits
    if in_memory:
        try:
            return _into_memory(name, where, source, settings, seed, Counter(progress, total))
        except MixedSizesError:
            if settings.in_memory:
                raise
    return _streaming(name, where, source, settings, seed, Counter(progress, total))
