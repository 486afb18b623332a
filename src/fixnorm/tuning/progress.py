"""How far a training function of one's own is: what it says by ``progress(step)``."""

from __future__ import annotations

import inspect
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

__all__ = ["Mark", "Progress", "wants_progress"]

_EVERY = 0.1
"""Seconds between two words of a training; a view is drawn no more often."""
_NUMBER = struct.Struct("d")


class Progress:
    """``progress(step)``: so many of the steps are done. It may be called after every step."""

    def __init__(self, steps: int, tell: Callable[[float], None]) -> None:
        self._steps, self._tell = steps, tell
        self._next = 0.0

    def __call__(self, step: float) -> None:
        done = step / self._steps
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _EVERY
            self._tell(min(done, 1.0) if done > 0 else 0.0)  # NaN is nothing, too


class Mark:
    """A number in a file: one process writes it, another reads it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.write_bytes(_NUMBER.pack(0.0))

    def write(self, value: float) -> None:
        with suppress(OSError), self._path.open("r+b") as file:  # no training ends because of it
            file.write(_NUMBER.pack(value))

    def read(self) -> float:
        try:
            value: float = _NUMBER.unpack(self._path.read_bytes())[0]
        except (OSError, struct.error):
            return 0.0
        return value


def wants_progress(train: Callable[..., object]) -> bool:
    """Whether it has a parameter ``progress`` to be filled: none that has a value of its own."""
    try:
        parameter = inspect.signature(train).parameters.get("progress")
    except (TypeError, ValueError):  # it does not say what it takes
        return False
    return parameter is not None and parameter.default in (inspect.Parameter.empty, None)
