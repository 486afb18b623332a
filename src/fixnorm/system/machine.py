"""How the machine fails: no room, no memory, no file handles, a lost connection. And what it has.

Failures say nothing about a training, so they are never its outcome: what was under way stays open.
"""

from __future__ import annotations

import errno
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = [
    "OutOfMemory",
    "advice",
    "is_full",
    "may_have_gpus",
    "memory_for",
    "of_machine",
    "of_memory",
]

_ROOM = {errno.ENOSPC, errno.EDQUOT}
_HANDLES = {errno.EMFILE, errno.ENFILE}
_LOST = {errno.EFBIG, errno.EIO, errno.ESTALE, errno.ENODEV, errno.EROFS, errno.ENOLCK}
_MEMORY = {errno.ENOMEM, errno.EAGAIN}
_MEMORY_WORDS = (
    "allocate memory",
    "out of memory",
    "enough memory",
    "bad_alloc",
    "bad allocation",
    "could not create a primitive",
    "could not create a memory",
    "could not execute a primitive",
    "ALLOC_FAILED",
    "can't start new thread",
    "failed to map segment",
    "unable to mmap",
    "unable to allocate",
    "Storage size calculation overflowed",
    "Invalid size: storage size is too big",
)
"""How libraries word it, where all they raise is a RuntimeError: torch, oneDNN, CUDA."""
_HANDLE_WORDS = ("Too many open files", "unable to open shared memory object")
_SMALL = 64 * 1024
_GPU_FILES = ("nvidia[0-9]*", "nvgpu*", "nvhost*", "kfd", "dxg")
"""Of NVIDIA's cards and boards, of AMD's, of Windows' under its Linux."""


def may_have_gpus() -> bool:
    """Whether it is worth to ask torch, whose import takes seconds, how many there are."""
    return sys.platform != "linux" or any(any(Path("/dev").glob(name)) for name in _GPU_FILES)


def of_memory(error: BaseException) -> bool:
    """Whether there was not enough memory, or address space, or threads."""
    if isinstance(error, MemoryError):
        return True
    if isinstance(error, OSError):
        return error.errno in _MEMORY
    return isinstance(error, RuntimeError | ImportError) and _says(error, _MEMORY_WORDS)


def of_machine(error: BaseException) -> bool:
    """Whether the machine failed, not what ran on it."""
    if isinstance(error, ConnectionError | TimeoutError) or of_memory(error):
        return True
    if isinstance(error, OSError):
        return error.errno in _ROOM | _HANDLES | _LOST
    return isinstance(error, RuntimeError) and _says(error, _HANDLE_WORDS)


def is_full(folder: Path) -> bool:
    """Whether the disk of a folder has no room for even a few words."""
    place = folder.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        return shutil.disk_usage(place).free < _SMALL
    except OSError:
        return False


def _says(error: BaseException, words: tuple[str, ...]) -> bool:
    text = str(error).lower()
    return any(word.lower() in text for word in words)


class OutOfMemory(MemoryError):
    """Names the setting that asks for too much."""


@contextmanager
def memory_for(**settings: object) -> Iterator[None]:
    """Where memory runs out, name what asks for it and can ask for less."""
    try:
        yield
    except (MemoryError, RuntimeError, OSError) as error:
        if isinstance(error, OutOfMemory) or not of_memory(error):
            raise
        asking = ", ".join(f"{name}={value}" for name, value in settings.items())
        raise OutOfMemory(f"not enough memory for {asking}{_word(error)}: ask for less") from error


def _word(error: BaseException) -> str:
    """The library's own, cut to what a person reads."""
    text = " ".join(str(error).split())
    found = re.search(r"tried to allocate (\d+) bytes", text)
    if found:
        return f" ({int(found[1]) / 2**30:.3g} GiB were asked for at once)"
    return f" ({text[:100]})" if text else ""


def advice(error: BaseException) -> str:
    """What helps against a failure of the machine; nothing where it is said already."""
    if isinstance(error, OutOfMemory):
        return ""
    if of_memory(error):
        return (
            "; there is not enough memory or address space (ulimit -v): free some, or ask for less"
        )
    if isinstance(error, OSError) and error.errno in _ROOM and "make room" not in str(error):
        return "; nothing was lost, make room and run again"
    if isinstance(error, OSError) and error.errno == errno.EFBIG:
        return "; raise the limit (ulimit -f), then the same command goes on"
    handles = isinstance(error, OSError) and error.errno in _HANDLES
    if handles or (isinstance(error, RuntimeError) and _says(error, _HANDLE_WORDS)):
        return "; raise the limit (ulimit -n) or lower workers, then the same command goes on"
    return ""
