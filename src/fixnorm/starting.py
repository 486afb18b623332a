"""While a command is loaded: torch alone takes seconds, and gigabytes of address space.

A command loads what it needs once it knows what it is asked for, so that help and a wrong word are
answered at once. Ctrl-C ends it at once while it loads, as nothing can be lost; memory that does
not suffice is one line.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType

__all__ = ["is_command", "loading", "started"]


def _leave(number: int, frame: FrameType | None) -> None:
    os.write(2, b"fixnorm: interrupted\n")
    os._exit(128 + number)


def is_command() -> bool:
    """Whether this process is ``fixnorm`` or ``python -m fixnorm``."""
    words = getattr(sys, "orig_argv", [])
    module = words[words.index("-m") + 1 :][:1] if "-m" in words else []
    return module == ["fixnorm"] or os.path.basename((sys.argv or [""])[0]) == "fixnorm"


def _lacks_room(error: BaseException) -> bool:
    said = str(error)
    lacking = isinstance(error, MemoryError) or "map segment" in said or "allocate" in said
    return lacking and "--debug" not in sys.argv


def _no_room(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not _lacks_room(error):
        sys.__excepthook__(kind, error, trace)
        return
    said = str(error)
    line = f"fixnorm: not enough memory to load the command ({said or kind.__name__}): free some,"
    os.write(2, f"{line} or raise the limit (ulimit -v)\n".encode(errors="replace"))
    os._exit(2)


def started() -> None:
    """From here on Ctrl-C is an exception, as everywhere."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _start() -> None:
    if (
        is_command()
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    ):
        signal.signal(signal.SIGINT, _leave)


@contextmanager
def loading() -> Iterator[None]:
    """For the imports of what one command needs."""
    _start()
    try:
        yield
    except Exception as error:
        if is_command() and _lacks_room(error):
            _no_room(type(error), error, error.__traceback__)
        raise
    finally:
        started()


if is_command():
    sys.excepthook = _no_room
_start()
