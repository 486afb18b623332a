"""Large sets: images decoded one by one, by loader processes if there are any.

The sampler hands (epoch, position) pairs to the workers, so a worker has no state to keep or to
resume. With `skip_broken`, a training image that fails to decode is replaced by the next position
that does (cyclically, under the failed one's draws) and a validation image is left out of its
batch: both depend on the files alone, never on who reads them.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

from fixnorm.data.crops import draws_per_sample
from fixnorm.data.draws import uniforms_of
from fixnorm.data.errors import BrokenImageError, DataError
from fixnorm.data.images import Images
from fixnorm.data.pixels import Normalize, to_pixels
from fixnorm.data.settings import DataSettings
from fixnorm.data.split import Batch
from fixnorm.data.transforms import eval_image, train_image

_Key = tuple[int, int]  # epoch, position


class _Sample(NamedTuple):
    pixels: torch.Tensor | None
    label: int
    broken: tuple[int, ...] = ()
    error: str | None = None


class _Fetched(NamedTuple):
    batch: Batch | None
    broken: tuple[int, ...]
    error: str | None


class _Samples(Dataset[_Sample]):
    def __init__(self, images: Images, settings: DataSettings, *, seed: int | None) -> None:
        self._images = images
        self._settings = settings
        self._seed = seed  # None: evaluation

    def __len__(self) -> int:
        return len(self._images.labels)

    def __getitem__(self, key: _Key) -> _Sample:
        epoch, position = key
        broken: list[int] = []
        tries = len(self) if self._seed is not None else 1
        for step in range(tries):
            at = (position + step) % len(self)
            try:
                pixels = self._pixels(epoch, position, at)
            except BrokenImageError as error:
                if not self._settings.skip_broken:
                    # raised in the main process, where it stays one line
                    return _Sample(None, 0, (), str(error))
                broken.append(at)
            except DataError as error:
                return _Sample(None, 0, (), str(error))
            else:
                return _Sample(pixels, int(self._images.labels[at]), tuple(broken))
        if self._seed is None:
            return _Sample(None, 0, tuple(broken))
        return _Sample(None, 0, tuple(broken), "no images: every training image is broken")

    def _pixels(self, epoch: int, position: int, at: int) -> torch.Tensor:
        image, settings = self._images.image(at), self._settings
        if self._seed is None:
            return to_pixels(eval_image(image, settings))
        draws = uniforms_of(position, draws_per_sample(settings), seed=self._seed, epoch=epoch)
        return to_pixels(train_image(image, draws, settings))


class _Collate:
    """Stack and normalise in the worker: the main process only receives."""

    def __init__(self, normalize: Normalize) -> None:
        self._normalize = normalize

    def __call__(self, samples: list[_Sample]) -> _Fetched:
        error = next((s.error for s in samples if s.error is not None), None)
        broken = tuple(position for s in samples for position in s.broken)
        good = [s.pixels for s in samples if s.pixels is not None]
        if error is not None or not good:
            return _Fetched(None, broken, error)
        labels = torch.tensor([s.label for s in samples if s.pixels is not None])
        return _Fetched(Batch(self._normalize(torch.stack(good)), labels), broken, None)


class _Plan:
    """The batches of the coming epoch, as a batch sampler whose content is exchanged."""

    def __init__(self) -> None:
        self.epoch = 0
        self.batches: list[NDArray[np.int64]] = []

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[list[_Key]]:
        epoch = self.epoch
        for positions in self.batches:
            yield [(epoch, int(position)) for position in positions]


def _own_process_group(_: int) -> None:
    # Ctrl-C and torchrun signal the trainer's whole group; a worker that died of it would keep the
    # trainer from finishing its step and writing a checkpoint. Workers still end with their parent.
    if hasattr(os, "setpgid"):
        os.setpgid(0, 0)


class StreamLoader:
    """A DataLoader whose workers live from the first epoch to the last."""

    def __init__(
        self,
        images: Images,
        settings: DataSettings,
        *,
        channels: int,
        seed: int | None,
        broken: list[Path],
    ) -> None:
        self._images = images
        self._settings = settings
        self._collate = _Collate(Normalize(settings, channels=channels))
        self._seed = seed
        self._broken = broken
        self._plan = _Plan()
        self._loader: DataLoader[_Sample] | None = None
        self._iterations = 0

    def __len__(self) -> int:
        return len(self._images.labels)

    def load(self, plan: list[NDArray[np.int64]], *, epoch: int) -> Iterator[Batch]:
        """The planned batches; asking again ends an iteration that is still under way."""
        if self._loader is None:
            self._loader = self._start()
        self._iterations += 1
        mine = self._iterations
        self._plan.epoch, self._plan.batches = epoch, plan
        for fetched in self._loader:
            self._count(fetched.broken)
            if fetched.error is not None:
                raise DataError(fetched.error)
            if fetched.batch is not None:
                yield fetched.batch
            if mine != self._iterations:
                raise RuntimeError(
                    "a streaming split is read by one iterator at a time: a newer one was started"
                )

    def _start(self) -> DataLoader[_Sample]:
        workers = self._settings.workers
        return DataLoader(
            _Samples(self._images, self._settings, seed=self._seed),
            batch_sampler=self._plan,
            num_workers=workers,
            collate_fn=self._collate,
            pin_memory=torch.cuda.is_available(),
            persistent_workers=workers > 0,
            worker_init_fn=_own_process_group,
            generator=torch.Generator(),  # else it draws from the user's global generator
        )

    def _count(self, positions: tuple[int, ...]) -> None:
        for position in positions:
            path = self._images.path(position)
            if path is not None and path not in self._broken:
                self._broken.append(path)

    def close(self) -> None:
        """End the workers."""
        self._loader = None
