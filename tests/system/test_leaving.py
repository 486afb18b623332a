"""A command that is done goes at once: its code, all its words, and who asked to be called."""

from __future__ import annotations

import subprocess
import sys

import pytest

END = """
import atexit, sys
sys.orig_argv = ["python", "-m", sys.argv[1]]
from fixnorm.leaving import leaving_at_once

class Last:  # torn down with the interpreter's modules
    def __del__(self):
        print("torn down")

with leaving_at_once():
    kept = Last()
    atexit.register(print, "called")
    print("done", end=" ")
    if sys.argv[2] != "0":
        sys.exit(int(sys.argv[2]) if sys.argv[2].isdigit() else sys.argv[2])
"""


@pytest.mark.parametrize(
    ("module", "end", "code", "said"),
    [
        ("fixnorm", "0", 0, "done called\n"),
        ("fixnorm", "3", 3, "done called\n"),
        ("fixnorm", "a word", 1, "done called\ntorn down\n"),  # the interpreter prints it
        ("pytest", "0", 0, "done called\ntorn down\n"),  # who calls us from a program of their own
    ],
)
def test_the_end_of_a_command(module: str, end: str, code: int, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", END, module, end], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (code, said), done.stderr
