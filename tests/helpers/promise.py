"""The promise, and a command line run in this process to hold against it.

Whatever is wrong with what a user gives: one line on stderr that begins with ``fixnorm: ``, exit
code 2, nothing on stdout, no traceback, and every file and folder as it was before. Imports are
paid once, so hundreds of cases take seconds.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import os
import signal
import stat
import threading
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import typer.main

from fixnorm.commands import run

typer.main.get_command = functools.cache(typer.main.get_command)
"""Every call would make all the commands anew: a quarter of a second's work in a hundred calls."""
__all__ = ["Answer", "Hung", "answered", "listing", "refused"]

LONGEST = 2000
"""Characters of a line that a person still reads: a value of a million digits is not repeated."""


class Hung(BaseException):
    """The command did not come to its end."""


@dataclass(frozen=True)
class Answer:
    """What a command line said and did."""

    arguments: tuple[str, ...]
    code: int | None
    """None where it ended in an exception."""
    out: str
    err: str
    crash: str | None
    """The traceback, where it ended in an exception."""
    before: Mapping[str, str]
    after: Mapping[str, str]

    @property
    def line(self) -> str:
        """Its one line, without the beginning."""
        return self.err.strip().removeprefix("fixnorm: ")

    @property
    def changes(self) -> list[str]:
        """Paths that were made, changed or removed."""
        names = self.before.keys() | self.after.keys()
        return sorted(n for n in names if self.before.get(n) != self.after.get(n))

    def __str__(self) -> str:
        said = self.crash or self.err
        return f"fixnorm {' '.join(self.arguments)!r} → {self.code}\n{said[-3000:]}"


def answered(arguments: list[str], folder: Path, *, seconds: float = 600.0) -> Answer:
    """Run the command in ``folder``, which is compared before and after, contents included."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    before, code, crash = listing(folder), None, None
    with contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            with _limited(seconds):
                run(list(arguments))
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else 0
        except (Exception, Hung):
            crash = traceback.format_exc()
    told = [_text(stream) for stream in (out, err)]
    return Answer(tuple(arguments), code, *told, crash, before, listing(folder))


def refused(arguments: list[str], folder: Path, *, seconds: float = 600.0) -> str:
    """Run a command line that must be refused; returns its line when the promise was kept."""
    answer = answered(arguments, folder, seconds=seconds)
    assert answer.crash is None, f"ended in an exception: {answer}"
    assert answer.code == 2, f"exit code {answer.code}: {answer}"
    check_line(answer)
    assert answer.changes == [], f"changed {answer.changes}: {answer}"
    return answer.line


def check_line(answer: Answer) -> None:
    """One line, of ours, that a person can read."""
    lines = answer.err.rstrip("\n").split("\n")
    assert len(lines) == 1, f"{len(lines)} lines: {answer}"
    assert lines[0].startswith("fixnorm: "), f"not our line: {answer}"
    assert answer.line, f"says nothing: {answer}"
    assert "Traceback" not in answer.err, f"a traceback: {answer}"
    assert len(lines[0]) <= LONGEST, f"a line of {len(lines[0])} characters: {answer}"
    assert lines[0].isprintable(), f"a line that a terminal would obey: {lines[0]!r}"
    assert answer.out == "", f"words on stdout: {answer.out!r}"


def listing(folder: Path) -> dict[str, str]:
    """Every path below a folder with what is there: kind, rights, content. Follows no link."""
    found: dict[str, str] = {}
    for at, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(at, name)
            found[os.path.relpath(path, folder)] = _entry(path)
    return found


def _entry(path: str) -> str:
    found = os.lstat(path)
    mode, size = found.st_mode, found.st_size
    kind = f"{stat.S_IFMT(mode):o} {stat.S_IMODE(mode):o}"
    if stat.S_ISLNK(mode):
        return f"{kind} {os.readlink(path)}"
    if not stat.S_ISREG(mode):  # reading a FIFO would wait for ever
        return kind
    if size > 2**28:
        return f"{kind} {size} bytes"
    try:
        with open(path, "rb") as file:
            return f"{kind} {hashlib.file_digest(file, 'sha256').hexdigest()}"
    except PermissionError:
        return f"{kind} unreadable"


@contextlib.contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """End what hangs; only the main thread can be told."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: object) -> None:
        raise Hung(f"no end after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    stream.seek(0)
    return stream.read()
