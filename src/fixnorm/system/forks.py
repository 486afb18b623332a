"""The warm process: imports what trainings need once, then forks a process for each that is asked.

Run as a file by :mod:`fixnorm.system.warm`, with the modules to import as its arguments; of the
package it imports those alone. Its stdin is a socket. An order is one message: the command in
JSON, with two open files, where the words of the fork go and where its end is reported.

No thread may be there when it forks, as a fork has but one: OpenMP would wait for its others for
ever. So it imports and computes nothing; where an import leaves a thread behind it ends, and the
trainings are started from nothing, as they are where this process never gets so far.
"""

import atexit
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

_LONGEST = 2**18
"""Bytes of an order, more than the socket takes."""
_HOLD = runpy.run_path(str(Path(__file__).with_name("leash.py")))["hold"]


class Order(NamedTuple):
    """What to run: the words after ``python``, and GPUs it may use if they are not ours."""

    words: list[str]
    devices: str | None


_code: int | None = None
"""How this fork ends, once it is known."""


def _main() -> None:
    atexit.register(_leave)  # the first of all, so the last to be called
    orders = socket.socket(fileno=os.dup(0))
    _put(os.open(os.devnull, os.O_RDWR), 0)
    sys.orig_argv = [sys.executable, "-m", "fixnorm"]  # a module that looks sees what forks will be
    for name in sys.argv[2:]:
        with suppress(Exception):  # a training that needs it says what is wrong
            importlib.import_module(name)
    if not _alone():
        sys.exit("an import has left a thread behind")
    order = _fork_for(orders)
    global _code
    try:
        _run(order)
        _code = 0
    except SystemExit as end:
        _code = end.code or 0 if isinstance(end.code, int | None) else None
        raise


def _leave() -> None:
    """Go, as all is done but taking the modules apart: with torch that takes a second or two.

    Anything out of the ordinary is left to the interpreter.
    """
    if _code is not None:
        with suppress(OSError, ValueError, AttributeError):  # streams that are closed, or not there
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(_code)


def _alone() -> bool:
    """Whether this is the only thread, once those have gone that leave for a fork (OpenBLAS)."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return len(os.listdir("/proc/self/task")) == 1


def _fork_for(orders: socket.socket) -> Order:
    """Fork for every order, and report how it ended. Only the forks return, with their order."""
    forks: dict[int, tuple[int, socket.socket]] = {}
    poll = select.poll()
    poll.register(orders, select.POLLIN)
    while True:
        for number, _ in poll.poll():
            if number in forks:
                pid, report = forks.pop(number)
                poll.unregister(number)
                os.close(number)
                _told(report, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                report.close()
                continue
            text, files, *_ = socket.recv_fds(orders, _LONGEST, 2)
            if not text:  # whoever asked is gone or needs nothing more
                os._exit(0)
            log, report = files[0], socket.socket(fileno=files[1])
            ours = os.getpid()
            pid = os.fork()
            if pid == 0:
                for other, (_, its_report) in forks.items():
                    os.close(other)
                    its_report.close()
                orders.close()
                report.detach()  # open as long as this lives: its end is the end of both of us
                _leave_home(log, ours)
                return Order(**json.loads(text))
            os.close(log)
            pidfd = os.pidfd_open(pid)
            forks[pidfd] = pid, report
            poll.register(pidfd, select.POLLIN)
            if not _told(report, pid, pidfd):  # it was called off
                os.kill(pid, signal.SIGKILL)


def _told(report: socket.socket, number: int, *files: int) -> bool:
    """Whether somebody listens to the number."""
    try:
        socket.send_fds(report, [str(number).encode()], files)
    except OSError:
        return False
    return True


def _leave_home(log: int, parent: int) -> None:
    """Be a process as :func:`fixnorm.system.process.start` makes them."""
    os.setsid()
    _put(log, 1, 2)
    _HOLD(str(parent))


def _put(file: int, *places: int) -> None:
    for place in places:
        os.dup2(file, place)
    os.close(file)


def _run(order: Order) -> None:
    """What ``python -m MODULE`` or ``python -c CODE`` does."""
    if order.devices is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = order.devices
    kind, what, *rest = order.words
    sys.orig_argv = [sys.executable, *order.words]
    sys.argv = [kind, *rest]
    if kind == "-m":
        if not sys.flags.safe_path:
            sys.path[0] = os.getcwd()
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        sys.modules["__main__"] = main = ModuleType("__main__")
        exec(compile(what, "<string>", "exec"), vars(main))


if __name__ == "__main__":
    _main()
