"""Ctrl-C while a command is loaded: torch alone takes seconds, in which nothing can be lost."""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType

__all__ = ["started"]


def _leave(number: int, frame: FrameType | None) -> None:
    os.write(2, b"fixnorm: interrupted\n")
    os._exit(128 + number)


def _is_command() -> bool:
    """Whether this process is ``fixnorm`` or ``python -m fixnorm``."""
    words = getattr(sys, "orig_argv", [])
    module = words[words.index("-m") + 1 :][:1] if "-m" in words else []
    return module == ["fixnorm"] or os.path.basename((sys.argv or [""])[0]) == "fixnorm"


def started() -> None:
    """From here on Ctrl-C is an exception, as everywhere."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


if (
    _is_command()
    and threading.current_thread() is threading.main_thread()
    and signal.getsignal(signal.SIGINT) is signal.default_int_handler
):
    signal.signal(signal.SIGINT, _leave)
