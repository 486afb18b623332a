"""Random numbers that depend on (seed, epoch, sample) and on nothing else.

Philox is a counter-based generator: block k of a stream can be had without the blocks before it.
Row i of a table of `width` numbers is blocks i·width/4 … of four numbers each, so a loader that
needs one row and one that needs the whole table read the same bits. Raw words are used rather than
numpy's distributions, which may change between numpy versions.
"""

import functools
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import get_worker_info

_ORDER, _AUGMENT = 0, 1  # two streams an epoch, so that neither moves the other


@functools.lru_cache(maxsize=16)
def _key(seed: int, epoch: int, purpose: int) -> NDArray[np.uint64]:
    words = np.random.SeedSequence((seed, epoch, purpose)).generate_state(2, np.uint64)
    return words.astype(np.uint64)


def _stream(seed: int, epoch: int, purpose: int, *, block: int = 0) -> np.random.Philox:
    return np.random.Philox(key=_key(seed, epoch, purpose), counter=block)


def permutation(n: int, *, seed: int, epoch: int) -> NDArray[np.int64]:
    """The order in which epoch `epoch` visits n samples."""
    words = _stream(seed, epoch, _ORDER).random_raw(n)
    return np.argsort(words, kind="stable").astype(np.int64)


def _unit(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    # the 53 bits that a float64 in [0, 1) can hold
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def uniforms(n: int, width: int, *, seed: int, epoch: int) -> NDArray[np.float64]:
    """The table (n, width) of numbers in [0, 1) that augments n samples in this epoch."""
    assert width % 4 == 0, "a row is a whole number of Philox blocks"
    return _unit(_stream(seed, epoch, _AUGMENT).random_raw(n * width)).reshape(n, width)


def uniforms_of(index: int, width: int, *, seed: int, epoch: int) -> NDArray[np.float64]:
    """Row `index` of that table as (1, width), without the rest."""
    assert width % 4 == 0, "a row is a whole number of Philox blocks"
    stream = _stream(seed, epoch, _AUGMENT, block=index * width // 4)
    return _unit(stream.random_raw(width)).reshape(1, width)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the global generators that transforms draw from; afterwards they are as before.

    In a loader process nobody else draws from them: there they stay as they are, which is quicker.
    """
    # not torch.manual_seed: it also seeds the user's CUDA generators, which nothing here restores
    generator = torch.default_generator
    before = None
    if get_worker_info() is None:
        before = random.getstate(), np.random.get_state(), generator.get_state()
    random.seed(seed)
    np.random.seed(seed)
    generator.manual_seed(seed)
    try:
        yield
    finally:
        if before is not None:
            random.setstate(before[0])
            np.random.set_state(before[1])
            generator.set_state(before[2])
