"""Programs in forks of the process that tests run in, which has loaded what they import."""

from __future__ import annotations

import io
import os
import runpy
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import pytest

PATIENCE = 600.0
"""Seconds after which a test gives up on a process: far beyond what any takes."""


def run_forked(
    program: Path, arguments: list[str], *, log: Path, env: Mapping[str, str] | None = None
) -> int:
    """Run a file as ``python FILE ARGUMENTS``; minus the number of the signal that killed it."""
    with warnings.catch_warnings():  # threads that wait for the next test do no harm to a fork
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        _become(program, arguments, log, env or {})
    deadline = time.monotonic() + PATIENCE
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            pytest.fail(f"no end after {PATIENCE:g} s: {log.read_text()}")
        time.sleep(0.005)


def _become(program: Path, arguments: list[str], log: Path, env: Mapping[str, str]) -> NoReturn:
    code: int | None = 1
    try:
        os.environ.update(env)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        words = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(words, number)
            setattr(sys, name, io.TextIOWrapper(open(number, "wb", closefd=False)))  # noqa: SIM115
        warnings.resetwarnings()
        sys.argv = [str(program), *arguments]
        runpy.run_path(str(program), run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int | None) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code or 0)
