"""Any value as a few characters of one line."""

from __future__ import annotations

import math
import re
import reprlib
from typing import Any

__all__ = ["brief", "printable", "short"]

_PLAIN = re.compile(r"[\w .+/-]{1,60}", re.ASCII)


class _Short(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxdict, self.maxlist, self.maxtuple = 2, 3, 4, 4
        self.maxstring = self.maxlong = self.maxother = 60


_SHORT = _Short()


def short(value: Any, *, plain: bool = True) -> str:
    """A value for people, however large it is; ``plain``: words without quotes."""
    if plain and isinstance(value, str) and _PLAIN.fullmatch(value):
        return value
    return _SHORT.repr(value)


def printable(error: Exception) -> str:
    """The words of another library's error in one line, without what a terminal would obey."""
    words = " ".join(str(error).split())[:300]
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in words)


def brief(value: object) -> str:
    """Any value in a few characters."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**15:
        return f"about 10^{math.floor(math.log10(abs(value)))}"
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."
