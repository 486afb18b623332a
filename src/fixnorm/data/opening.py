"""`open_data`: from a name and a folder to the two splits, or one clear error."""

import difflib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fixnorm.data.cifar import open_cifar10
from fixnorm.data.decoding import MixedSizesError, decode_all, readable_headers
from fixnorm.data.digits import open_digits
from fixnorm.data.errors import BrokenImageError, DataError
from fixnorm.data.folder import open_folder
from fixnorm.data.idx import open_fashion_mnist
from fixnorm.data.images import Images, Source
from fixnorm.data.memory import MemoryEval, MemoryTrain
from fixnorm.data.settings import DataSettings
from fixnorm.data.split import EvalSplit, TrainSplit
from fixnorm.data.stream import StreamLoader
from fixnorm.data.transforms import eval_image, policy, train_base

Progress = Callable[[int, int], None]
"""Called with (files done, files in all) while a set is opened."""

MEMORY_LIMIT = 2 * 10**9
"""Bytes of pixels up to which `in_memory=None` keeps a set in memory."""

_ROOTED = {
    "imagefolder": open_folder,
    "cifar10": open_cifar10,
    "fashion-mnist": open_fashion_mnist,
}


@dataclass
class Data:
    """A set that is ready to train on."""

    name: str
    layout: str
    classes: tuple[str, ...]
    channels: int
    image_size: int
    train: TrainSplit
    val: EvalSplit
    memory_bytes: int | None
    """Bytes of pixels held, None for a set that streams."""
    broken: list[Path] = field(default_factory=list)
    """Files left out by `skip_broken`; a streaming set adds those it meets (on this rank)."""

    def describe(self) -> str:
        """The set in one line."""
        place = (
            "streaming"
            if self.memory_bytes is None
            else f"{self.memory_bytes / 1e6:.0f} MB in memory"
        )
        line = (
            f"{self.name} ({self.layout}): {len(self.train):,} train and {len(self.val):,} val"
            f" images, {len(self.classes)} classes, {self.channels}×{self.image_size}×"
            f"{self.image_size}, {place}"
        )
        return f"{line}; {len(self.broken)} broken left out" if self.broken else line

    def close(self) -> None:
        """End the loader processes, if there are any."""
        self.train.close()
        self.val.close()


class _Counter:
    """One count over both splits for the progress callback."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0

    def __call__(self, n: int) -> None:
        self._done += n
        if self._progress is not None:
            self._progress(self._done, self._total)


def _find_source(name: str, root: Path | None) -> Source:
    if name == "digits":
        if root is not None:
            raise DataError(f"digits is embedded and takes no folder but got {root}: leave it out")
        return open_digits()
    if name not in _ROOTED:
        known = ["digits", *_ROOTED]
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"take one of {', '.join(known)}"
        raise DataError(f"no data set is called {name!r}: {hint}")
    if root is None:
        raise DataError(f"{name} needs a folder: give the one that holds its files")
    if not root.is_dir():
        what = "is not a folder" if root.exists() else "does not exist"
        raise DataError(f"data folder {root} {what}: give the folder that holds the {name} files")
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
    return Source(source.layout, source.classes[:count], source.channels, train, val)


def _check_channels(source: Source, settings: DataSettings, name: str) -> None:
    for option, values in (("mean", settings.mean), ("std", settings.std)):
        if len(values) not in (1, source.channels):
            raise ValueError(
                f"{option} must hold 1 or {source.channels} values for {name} but got {values}"
            )


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
    name: str, where: str, source: Source, settings: DataSettings, seed: int, advance: _Counter
) -> Data:
    decode = partial(decode_all, skip_broken=settings.skip_broken, advance=advance)
    train = decode(source.train, partial(train_base, settings=settings))
    val = decode(source.val, partial(eval_image, settings=settings))
    _check_classes_left(source, train.kept, where)
    if len(val.kept) == 0:
        raise DataError(f"every validation image in {where} is broken: replace them")
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
    )


def _streaming(
    name: str, where: str, source: Source, settings: DataSettings, seed: int, advance: _Counter
) -> Data:
    train, val = source.train, source.val
    broken: list[Path] = []
    if settings.skip_broken:
        kept, val_kept = (readable_headers(images, advance=advance) for images in (train, val))
        _check_classes_left(source, kept, where)
        if len(val_kept) == 0:
            raise DataError(f"every validation image in {where} is broken: replace them")
        broken += _broken(train, kept) + _broken(val, val_kept)
        train, val = train.subset(kept), val.subset(val_kept)
    channels = source.channels
    return Data(
        name=name,
        layout=source.layout,
        classes=source.classes,
        channels=channels,
        image_size=settings.image_size,
        train=TrainSplit(
            StreamLoader(train, settings, channels=channels, seed=seed, broken=broken), seed=seed
        ),
        val=EvalSplit(StreamLoader(val, settings, channels=channels, seed=None, broken=broken)),
        memory_bytes=None,
        broken=broken,
    )


def _listed(name: str, root: Path | None, settings: DataSettings) -> tuple[Source, str]:
    """What a set holds, without decoding any of it, and what to call it."""
    if settings.auto_augment is not None:
        policy(settings)  # an unknown name fails here, not in a worker
    source = _find_source(name, root)
    where = name if root is None else str(root)
    source = _cut(source, settings, where)
    _check_channels(source, settings, name)
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
            return _into_memory(name, where, source, settings, seed, _Counter(progress, total))
        except MixedSizesError:
            if settings.in_memory:
                raise
    return _streaming(name, where, source, settings, seed, _Counter(progress, total))
