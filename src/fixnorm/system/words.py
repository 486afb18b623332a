"""What a command says, whether or not anybody hears it.

A terminal may close, a disk under a log may fill up, a pipe may lose its reader: a training never
ends because of its own words. A terminal that knows fewer characters gets plainer ones.
"""

from __future__ import annotations

import codecs
import errno
import os
import sys
from collections.abc import Iterable
from typing import Any, TextIO

from fixnorm.system.extras import EXTRAS, needs
from fixnorm.system.machine import advice, of_machine

__all__ = ["Heard", "guard", "hush", "lost", "mistake", "say"]

_PLAIN = "fixnorm.plain"
_PLAINER = {
    "–": "-",
    "—": "-",
    "−": "-",
    "─": "-",
    "━": "-",
    "╸": "-",
    "╺": "-",
    "…": "...",
    "×": "x",
    "±": "+-",
    "≥": ">=",
    "≤": "<=",
    "≈": "~",
    "√": "sqrt ",
    "α": "alpha",
    "λ": "lambda",
    "‖": "||",
    "⟨": "<",
    "⟩": ">",
    "∂": "d",
    "→": "->",
    "↑": "^",
    "↓": "v",
    "◂": "<",
    "·": ".",
    "•": "*",
    "²": "^2",
    "ᵀ": "^T",
    "’": "'",
    "“": '"',
    "”": '"',
    "│": "|",
    "┃": "|",
}
"""What stands for a character that an encoding lacks."""


def _plainer(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(_PLAINER.get(letter, "?") for letter in lacking), error.end


class Heard:
    """A stream that is written to as long as it takes words, and missed by nobody after that."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.trouble: OSError | None = None
        """Why words were lost, if some were."""

    def write(self, text: str) -> int:
        try:
            self._stream.write(text)
        except (OSError, ValueError) as error:  # a closed file is a ValueError
            self._lose(error)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except (OSError, ValueError) as error:
            self._lose(error)

    def isatty(self) -> bool:
        """A terminal that is gone is none."""
        try:
            return self._stream.isatty()
        except (OSError, ValueError):
            return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _lose(self, error: Exception) -> None:
        if self.trouble is None:
            self.trouble = error if isinstance(error, OSError) else OSError(errno.EPIPE, "closed")


def guard() -> None:
    """Make this process's stdout and stderr such streams; a closed one becomes nobody's."""
    codecs.register_error(_PLAIN, _plainer)
    if "--debug" not in sys.argv:  # a destructor of a library that fails follows from an error
        sys.unraisablehook = lambda unraisable: None
    for number in range(3):  # else the next file that is opened would take the words
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    for name in ("stdout", "stderr"):
        stream: Any = getattr(sys, name) or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=_PLAIN)
        setattr(sys, name, stream if isinstance(stream, Heard) else Heard(stream))


def lost() -> OSError | None:
    """Why stdout has lost words, unless its reader had enough of them."""
    if not isinstance(sys.stdout, Heard):
        return None
    sys.stdout.flush()  # some may be on their way
    trouble: OSError | None = sys.stdout.trouble
    return None if trouble is None or trouble.errno == errno.EPIPE else trouble


def hush() -> None:
    """Nothing more will be said: what cannot be written must not spoil the exit code."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, Heard):
            stream.flush()
            if stream.trouble is not None:  # else the interpreter tries again, in vain
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, 1 if name == "stdout" else 2)
                os.close(null)


def say(message: str) -> None:
    """One line on stderr, if it takes it; what a terminal would obey is shown instead."""
    line = " ".join(message.split())
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
    if len(shown) > _LONGEST:
        shown = f"{shown[: _LONGEST // 2]} ... {shown[-_LONGEST // 2 :]}"
    try:
        print(f"fixnorm: {shown}", file=sys.stderr, flush=True)
    except (OSError, ValueError, AttributeError):
        return


_LONGEST = 1500
"""Characters of a line: a value of a million digits is not repeated."""


def mistake(error: BaseException) -> str | None:
    """What to tell the user, if the error is about what they asked for or about their machine."""
    usage = getattr(error, "format_message", None)  # typer's own: unknown option, missing argument
    if usage is not None:
        return " ".join(str(usage()).split()) or "no command given; try fixnorm --help"
    if isinstance(error, ModuleNotFoundError):
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        return needs("this", str(error.name), extra) if extra else None
    if isinstance(error, ValueError | OSError) or of_machine(error):
        return (" ".join(str(error).split()) or type(error).__name__) + advice(error)
    return None
