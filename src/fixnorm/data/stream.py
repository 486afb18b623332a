"""Samples made one by one, by loader processes if there are any.

A `Reader` knows what a sample is. The sampler hands (epoch, position) pairs to the workers, so a
worker has no state to keep or to resume. With `skip_broken`, a training image that fails to decode
is replaced by the next position that does (cyclically, under the failed one's draws) and a
validation image is left out of its batch: both depend on the files alone, never on who reads them.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

from fixnorm.data.draws import uniforms_of
from fixnorm.data.errors import BrokenImageError, DataError
from fixnorm.data.settings import Loading
from fixnorm.data.split import EvalSplit, TrainSplit

_Key = tuple[int, int]  # epoch, position
S = TypeVar("S")
T = TypeVar("T")
B = TypeVar("B")
B_co = TypeVar("B_co", covariant=True)


class Reader(Protocol[S, B_co]):
    """Makes samples and joins them; it is sent to the workers."""

    @property
    def draws(self) -> int:
        """Random numbers that augment one sample: a multiple of four."""

    def __len__(self) -> int: ...

    def path(self, at: int) -> Path | None:
        """The file that a broken sample is known by."""

    def read(self, at: int, draws: NDArray[np.float64] | None) -> S:
        """Sample `at`, augmented by these (1, n) numbers; None: as evaluation sees it."""

    def collate(self, samples: list[S]) -> B_co:
        """The batch of these samples."""


class _Fetched(NamedTuple, Generic[T]):
    """A sample or a batch, or why there is none, and the positions found broken on the way."""

    value: T | None
    broken: tuple[int, ...] = ()
    error: str | None = None


class _Samples(Dataset[_Fetched[S]], Generic[S, B]):
    def __init__(self, reader: Reader[S, B], *, seed: int | None, skip_broken: bool) -> None:
        self._reader = reader
        self._seed = seed  # None: evaluation
        self._skip_broken = skip_broken

    def __len__(self) -> int:
        return len(self._reader)

    def __getitem__(self, key: _Key) -> _Fetched[S]:
        epoch, position = key
        draws = None
        if self._seed is not None:
            draws = uniforms_of(position, self._reader.draws, seed=self._seed, epoch=epoch)
        broken: list[int] = []
        for step in range(1 if draws is None else len(self)):
            at = (position + step) % len(self)
            try:
                return _Fetched(self._reader.read(at, draws), tuple(broken))
            except DataError as error:
                if not (self._skip_broken and isinstance(error, BrokenImageError)):
                    # raised in the main process, where it stays one line
                    return _Fetched(None, (), str(error))
                broken.append(at)
        none_left = None if draws is None else "no images: every training image is broken"
        return _Fetched(None, tuple(broken), none_left)

    def collate(self, samples: list[_Fetched[S]]) -> _Fetched[B]:
        """Batches are made in the worker: the main process only receives."""
        error = next((s.error for s in samples if s.error is not None), None)
        broken = tuple(position for s in samples for position in s.broken)
        good = [s.value for s in samples if s.value is not None]
        if error is not None or not good:
            return _Fetched(None, broken, error)
        return _Fetched(self._reader.collate(good), broken)


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


class StreamLoader(Generic[S, B]):
    """A DataLoader whose workers live from the first epoch to the last."""

    def __init__(
        self, reader: Reader[S, B], settings: Loading, *, seed: int | None, broken: list[Path]
    ) -> None:
        """`seed` None is evaluation; files found broken are added to `broken`."""
        self._reader = reader
        self._samples = _Samples(reader, seed=seed, skip_broken=settings.skip_broken)
        self._workers = settings.workers
        self._broken = broken
        self._plan = _Plan()
        self._loader: DataLoader[_Fetched[S]] | None = None
        self._iterations = 0

    def __len__(self) -> int:
        return len(self._reader)

    def load(self, plan: list[NDArray[np.int64]], *, epoch: int) -> Iterator[B]:
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
            if fetched.value is not None:
                yield fetched.value
            if mine != self._iterations:
                raise RuntimeError(
                    "a streaming split is read by one iterator at a time: a newer one was started"
                )

    def _start(self) -> DataLoader[_Fetched[S]]:
        return DataLoader(
            self._samples,
            batch_sampler=self._plan,
            num_workers=self._workers,
            collate_fn=self._samples.collate,
            pin_memory=torch.cuda.is_available(),
            persistent_workers=self._workers > 0,
            worker_init_fn=_own_process_group,
            generator=torch.Generator(),  # else it draws from the user's global generator
        )

    def _count(self, positions: tuple[int, ...]) -> None:
        for position in positions:
            path = self._reader.path(position)
            if path is not None and path not in self._broken:
                self._broken.append(path)

    def close(self) -> None:
        self._loader = None


def stream_splits(
    train: Reader[S, B],
    val: Reader[S, B],
    settings: Loading,
    *,
    seed: int,
    broken: list[Path],
    breaks: Sequence[int] = (),
) -> tuple[TrainSplit[B], EvalSplit[B]]:
    """Both splits of a set whose samples are made one by one."""
    return (
        TrainSplit(StreamLoader(train, settings, seed=seed, broken=broken), seed=seed),
        EvalSplit(StreamLoader(val, settings, seed=None, broken=broken), breaks=breaks),
    )
