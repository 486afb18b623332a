"""The end of a command: all is done, and to take torch's modules apart would take a second or two.

What is registered to be called at the end is called; after that the process goes.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from fixnorm.starting import is_command

__all__ = ["leaving_at_once"]

_code: int | None = None
"""How this process ends, once it is known."""


@contextmanager
def leaving_at_once() -> Iterator[None]:
    """Around all that a command does. Anything out of the ordinary is left to the interpreter."""
    global _code
    if is_command():
        atexit.register(_leave)  # before those of what is imported later, so called after them
    try:
        yield
        _code = 0
    except SystemExit as end:
        _code = end.code or 0 if isinstance(end.code, int | None) else None
        raise


def _leave() -> None:
    if _code is not None:
        with suppress(OSError, ValueError, AttributeError):  # streams that are closed, or not there
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(_code)
