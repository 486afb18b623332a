"""Any value as a few characters of one line."""

from __future__ import annotations

import math
import re
import reprlib

__all__ = ["brief", "printable"]

_PLAIN = re.compile(r"[\w .+/-]{1,60}", re.ASCII)


class _Brief(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxdict, self.maxlist, self.maxtuple = 2, 3, 4, 4
        self.maxstring = self.maxother = 60

    def repr_int(self, value: int, level: int) -> str:
        if abs(value) >= 10**15:  # Python writes out no number of many thousand digits
            return f"about 10^{math.floor(math.log10(abs(value)))}"
        return repr(value)


_BRIEF = _Brief()


def brief(value: object, *, plain: bool = False) -> str:
    """A value for people, however large it is; ``plain``: words without quotes."""
    if plain and isinstance(value, str) and _PLAIN.fullmatch(value):
        return value
    return " ".join(_BRIEF.repr(value).split())


def printable(error: Exception) -> str:
    """The words of another library's error in one line, without what a terminal would obey."""
    words = " ".join(str(error).split())[:300]
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in words)
