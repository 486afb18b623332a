"""`open_data`: from a name and a folder to the two splits, or one clear error."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fixnorm.data.crops import draws_per_sample
from fixnorm.data.errors import (
    EMBEDDED,
    BrokenImageError,
    DataError,
    check_root,
    check_some_left,
)
from fixnorm.data.folder import open_folder
from fixnorm.data.images import Images, Normalize, Source, read_headers, to_pixels
from fixnorm.data.memory import MemoryLoader, MixedSizesError, decode_all
from fixnorm.data.packed import (
    open_cifar10,
    open_digits,
    open_fashion_mnist,
    open_few_digits,
)
from fixnorm.data.settings import DataSettings, check_channels
from fixnorm.data.split import (
    MEMORY_LIMIT,
    Batch,
    Counter,
    EvalSplit,
    OpenSet,
    Progress,
    TrainSplit,
)
from fixnorm.data.stream import stream_splits
from fixnorm.data.transforms import eval_image, policy, train_base, train_image
from fixnorm.system.nearest import did_you_mean

_EMBEDDED = dict(zip(EMBEDDED, (open_digits, open_few_digits), strict=True))
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
    splits = None
    if in_memory:
        try:
            splits = _into_memory(source, where, settings, seed, Counter(progress, total))
        except MixedSizesError:
            if settings.in_memory:
                raise
    if splits is None:
        splits = _streaming(source, where, settings, seed, Counter(progress, total))
    return Data(
        name=name,
        layout=source.layout,
        classes=source.classes,
        channels=source.channels,
        image_size=settings.image_size,
        left_out=source.left_out,
        **splits._asdict(),
    )


def count_training_images(name: str, root: Path | None, *, settings: DataSettings) -> int:
    """Images of an epoch; a set that `open_data` would refuse at first sight is refused here."""
    source, _ = _listed(name, root, settings)
    return len(source.train.labels)


# -- what there is ---------------------------------------------------------------------------------


def _listed(name: str, root: Path | None, settings: DataSettings) -> tuple[Source, str]:
    """What a set holds, without decoding any of it, and what to call it."""
    if settings.auto_augment is not None:
        policy(settings)  # an unknown name fails here, not in a worker
    source = _find_source(name, root)
    where = name if root is None else str(root)
    source = _cut(source, settings, where)
    check_channels(settings, channels=source.channels, name=name)
    return source, where


def _find_source(name: str, root: Path | None) -> Source:
    if name not in _EMBEDDED and name not in _ROOTED:
        hint = did_you_mean(name, [*_EMBEDDED, *_ROOTED], otherwise="take one of")
        raise DataError(f"no data set is called {name!r}: {hint}")
    check_root(root, name)
    return _EMBEDDED[name]() if root is None else _ROOTED[name](root)


def _cut(source: Source, settings: DataSettings, where: str) -> Source:
    count = settings.classes or len(source.classes)
    if count > len(source.classes):
        raise DataError(f"classes={count} but {where} has {len(source.classes)}: take at most that")
    train = _first_of_each_class(source.train, classes=count, per_class=settings.train_per_class)
    val = _first_of_each_class(source.val, classes=count, per_class=settings.val_per_class)
    if len(val.labels) == 0:
        raise DataError(f"no images: val of {where} has none of the first {count} classes")
    return replace(source, classes=source.classes[:count], train=train, val=val)


def _first_of_each_class(images: Images, *, classes: int, per_class: int | None) -> Images:
    order = np.argsort(images.labels, kind="stable")
    labels = images.labels[order]
    within = np.arange(len(labels)) - np.searchsorted(labels, labels)  # which of its class it is
    most = len(labels) if per_class is None else per_class
    keep = np.sort(order[(labels < classes) & (within < most)])
    return images if len(keep) == len(images.labels) else images.subset(keep)


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


# -- in memory, or streaming -----------------------------------------------------------------------


class _Splits(NamedTuple):
    train: TrainSplit[Batch]
    val: EvalSplit[Batch]
    memory_bytes: int | None
    broken: list[Path]


def _into_memory(
    source: Source, where: str, settings: DataSettings, seed: int, advance: Counter
) -> _Splits:
    decode = partial(decode_all, skip_broken=settings.skip_broken, advance=advance)
    pixels, kept = decode(source.train, partial(train_base, settings=settings))
    val_pixels, val_kept = decode(source.val, partial(eval_image, settings=settings))
    broken = _broken(source, kept, val_kept, where)
    train = MemoryLoader(pixels, source.train.labels[kept], settings, seed=seed)
    val = MemoryLoader(val_pixels, source.val.labels[val_kept], settings, seed=None)
    return _Splits(
        TrainSplit(train, seed=seed), EvalSplit(val), pixels.numel() + val_pixels.numel(), broken
    )


def _streaming(
    source: Source, where: str, settings: DataSettings, seed: int, advance: Counter
) -> _Splits:
    train, val = source.train, source.val
    broken: list[Path] = []
    if settings.skip_broken:
        kept, val_kept = (
            read_headers(len(i.labels), i.size, skip_broken=True, advance=advance)[0]
            for i in (train, val)
        )
        broken = _broken(source, kept, val_kept, where)
        train, val = train.subset(kept), val.subset(val_kept)
    read = partial(ClassReader, settings=settings, channels=source.channels)
    splits = stream_splits(read(train), read(val), settings, seed=seed, broken=broken)
    return _Splits(*splits, memory_bytes=None, broken=broken)


def _broken(
    source: Source, kept: NDArray[np.int64], val_kept: NDArray[np.int64], where: str
) -> list[Path]:
    """The files that are gone; a class or a split of which none is left is an error."""
    gone = np.setdiff1d(source.train.labels, source.train.labels[kept])
    if len(gone):
        name = source.classes[int(gone[0])]
        raise DataError(f"every training image of class {name} in {where} is broken: replace them")
    check_some_left(len(val_kept), "validation", where)
    return [
        path
        for images, left in ((source.train, kept), (source.val, val_kept))
        for i in np.setdiff1d(np.arange(len(images.labels)), left)
        if (path := images.path(int(i))) is not None
    ]


ClassSample = tuple[torch.Tensor, int]
"""uint8 pixels (channels, size, size) and a class."""


class ClassReader:
    """Samples of a streaming set: one image and its class, cropped and augmented by itself."""

    def __init__(self, images: Images, settings: DataSettings, *, channels: int) -> None:
        self.draws = draws_per_sample(settings)
        self._images = images
        self._settings = settings
        self._normalize = Normalize(settings, channels=channels)

    def __len__(self) -> int:
        return len(self._images.labels)

    def path(self, at: int) -> Path | None:
        return self._images.path(at)

    def read(self, at: int, draws: NDArray[np.float64] | None) -> ClassSample:
        image, settings = self._images.image(at), self._settings
        if draws is None:
            image = eval_image(image, settings)
        else:
            image = train_image(image, draws, settings)
        return to_pixels(image), int(self._images.labels[at])

    def collate(self, samples: list[ClassSample]) -> Batch:
        pixels, labels = zip(*samples, strict=True)
        last = self._settings.channels_last
        images = self._normalize.stacked(pixels, channels_last=last)
        return Batch(images, torch.tensor(labels))
