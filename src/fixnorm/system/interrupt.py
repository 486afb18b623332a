"""SIGTERM, Ctrl-C and a closed terminal: finish the step, write a checkpoint, leave."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Self


class Interrupted(Exception):
    """A signal asked for a stop; what there was to save is saved."""

    def __init__(self, number: int, what: str) -> None:
        super().__init__(f"{what}; the same command goes on from there")
        self.number = number


class Interrupt:
    """Remembers the first such signal; a second Ctrl-C interrupts at once."""

    def __init__(self) -> None:
        self.signal = 0
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                    continue  # nohup: the training is to survive its terminal
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = number
