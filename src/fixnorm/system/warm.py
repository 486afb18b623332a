"""Warm starts: trainings as forks of a process that has imported already what they need.

To import torch and what stands on it takes seconds, a fork milliseconds. What
:func:`fixnorm.system.process.start` promises holds of a fork, too: it is a process and a session
of its own, with the environment, folder and log that it is given; killed, it ends alone; it
cannot outlive whoever asked for it, as it dies with the warm process, and that one with us.

Whatever stands in the way of a fork, the training is started from nothing instead.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from fixnorm.system import process
from fixnorm.system.process import Running

__all__ = ["Warm"]

_FORKS = str(Path(__file__).with_name("forks.py"))
_BEGIN = "import runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__')"
"""As a program of its own the file's folder would come first on the path."""
_LOOK_EVERY = 0.01


def _possible() -> bool:
    """Whether this system can: on macOS and Windows its libraries do not survive a fork."""
    if sys.platform != "linux":
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):  # an older kernel
        return False
    return True


class Warm:
    """A warm process, from the first training on; another one whenever somebody has killed it.

    Args:
        modules: what it imports, which must compute nothing and leave no thread behind; none: it
            is not wanted, and every training is started from nothing.
        threads: cores that each training may use; libraries ask once, as they are loaded.
    """

    def __init__(self, modules: Sequence[str] | None, *, threads: int) -> None:
        self._modules = modules if _possible() else None
        self._threads = threads
        self._server: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Let it load from now on; else it does when the first training starts."""
        self._ready()

    def start(self, command: Sequence[str], log: Path, *, devices: str | None = None) -> Running:
        """As :func:`fixnorm.system.process.start`; it returns before the process is there."""

        def cold() -> subprocess.Popen[bytes]:
            return process.start(command, log, threads=self._threads, devices=devices)

        python, *words = command
        if python != sys.executable or words[0] not in ("-m", "-c") or not self._ready():
            return cold()
        order = json.dumps({"words": words, "devices": devices}).encode()
        with process.opened(log) as file:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                try:
                    socket.send_fds(self._orders, [order], [file.fileno(), theirs.fileno()])
                except OSError:  # too long, or too many at once
                    ours.close()
                    return cold()
        return _Fork(ours, cold)

    def stop(self, running: Iterable[Running] = ()) -> None:
        """Stop these trainings, as :func:`fixnorm.system.process.stop` does, and the process."""
        if self._server is not None:
            process.wake(self._server.pid)  # it reports their ends
        process.stop(running)
        self._close()

    def _ready(self) -> bool:
        """Whether the process is there; one that has left by itself had its reason."""
        here = dict(os.environ), _folder()
        if self._modules is None or here[1] is None:
            return False
        if self._server is not None and _hung_up(self._orders) and self._server.wait() < 0:
            self._close()
        if self._server is None:
            self._started_in = here
            self._open(self._modules)
            return True
        return self._server.returncode is None and here == self._started_in  # it knows no other

    def _open(self, modules: Sequence[str]) -> None:
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._orders.setblocking(False)
        with theirs:
            self._server = process.start(
                [sys.executable, "-c", _BEGIN, _FORKS, *modules],
                Path(os.devnull),  # what keeps it from loading is said by a start from nothing
                threads=self._threads,
                stdin=theirs.fileno(),
            )

    def _close(self) -> None:
        if self._server is not None:
            self._server.kill()
            self._server.wait()
            self._orders.close()
            self._server = None


def _folder() -> str | None:
    """Where we are; a folder that somebody has removed is none."""
    try:
        return os.getcwd()
    except OSError:
        return None


def _hung_up(orders: socket.socket) -> bool:
    """Whether the other side is about to end, which closes its files before anything shows."""
    poll = select.poll()
    poll.register(orders, 0)
    return bool(poll.poll(0))


class _Fork:
    """A training under the warm process, with the words of a :class:`subprocess.Popen`."""

    def __init__(self, report: socket.socket, cold: Callable[[], Running]) -> None:
        report.setblocking(False)
        self._report, self._cold = report, cold
        self._instead: Running | None = None
        self._handle: int | None = None
        self.pid = 0
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit code, if it has ended."""
        while self.returncode is None and self._instead is None and self._hears():
            pass
        if self._instead is not None:
            self.returncode = self._instead.poll()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, once it has ended."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("a fork", timeout or 0.0)
            time.sleep(_LOOK_EVERY)
        return code

    def send_signal(self, sig: int) -> None:
        """One that has ended does not hear it; one that is not there yet will never be."""
        if self.poll() is not None:
            return
        if self._instead is not None:
            self._instead.send_signal(sig)
        elif self._handle is None:
            self._end(-sig)
        else:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, sig)

    def _hears(self) -> bool:
        """Whether there is a report: its pid, its exit code, or the end of all who could report.

        The fork and the warm process hold the other end, so that end is the end of both.
        """
        try:
            number, files, *_ = socket.recv_fds(self._report, 32, 1)
        except BlockingIOError:
            return False
        if files:
            self.pid, self._handle = int(number), files[0]
        elif number:
            self._end(int(number))
        elif self._handle is not None:
            self._end(-signal.SIGKILL)
        else:  # the warm process was never ready
            self._report.close()
            self._instead = self._cold()
            self.pid = self._instead.pid
        return True

    def _end(self, code: int) -> None:
        self.returncode = code
        self._report.close()
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
