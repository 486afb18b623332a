"""The process of a :class:`helpers.runs.Nursery`: it has loaded all and forks the command.

An order is one line of JSON on stdin; what was started and how it ended is said on stdout.

A command that trains in processes of its own would load everything once more, in a warm process
(``fixnorm.system.warm``). Each life therefore has a seed: a fork from before it began, which
becomes that process when it is first asked for. The next one, after a kill, starts from nothing.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import signal
import socket
import sys
import time
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn


def serve() -> None:
    """Load, then start what is ordered."""
    import matplotlib.backends.backend_agg
    import matplotlib.backends.backend_svg
    import sklearn.datasets
    import timm.utils.model_ema
    import torch.utils.tensorboard
    import torchvision.transforms

    import fixnorm.commands
    import fixnorm.evidence
    import fixnorm.recipes.catalogue
    import fixnorm.report.write
    import fixnorm.training.export
    import fixnorm.training.view
    import fixnorm.tuning.run
    import fixnorm.tuning.view

    del matplotlib, sklearn, timm, torch, torchvision, fixnorm
    sys.path[0] = str(Path(__file__).parents[1])  # programs of tests import their helpers
    signal.signal(signal.SIGCHLD, lambda *_: _report())
    _tell("ready")
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _live(**order)
        _tell(f"started {pid}")


def _report() -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        _tell(f"ended {pid} {os.waitstatus_to_exitcode(status)}")


def _tell(text: str) -> None:
    os.write(1, f"{text}\n".encode())


def _live(
    arguments: list[str],
    program: str | None,
    log: str,
    errors: str,
    strict: bool,
    drawn: bool,
    env: dict[str, str],
    kill_at: int,
    slow_disk: float,
) -> NoReturn:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests themselves may run under nohup
    os.setsid()
    os.environ.update(env)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for place, number in ((log, 1), (errors, 2)):
        os.dup2(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    if "train" not in arguments[:1]:
        _plant_a_seed()
    if strict:
        warnings.simplefilter("error", UserWarning)
    if not drawn:
        _render_nothing()
    if kill_at:
        _kill_before_operation(kill_at, arguments[arguments.index("--out") + 1])
    if slow_disk:
        _slow_down_the_disk(slow_disk)
    from fixnorm.commands import run

    code: Any = 1
    try:
        if program is None:
            sys.argv = ["fixnorm", *arguments]
            run(arguments)
        else:
            sys.argv = [program, *arguments]
            sys.path.insert(0, str(Path(program).parent))
            runpy.run_path(program, run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else code is not None)  # to unload costs seconds


# -- the seed of a warm process --------------------------------------------------------------------


def _plant_a_seed() -> None:
    """Fork what will be the command's warm process; a fork of a process with threads may hang."""
    from fixnorm.system import leash, warm

    ours, theirs = socket.socketpair()
    parent, pid = os.getpid(), os.fork()
    if pid == 0:
        ours.close()
        leash.hold(str(parent))
        _wait_and_become_warm(theirs, warm._FORKS)
    theirs.close()
    warm.process = _Starts(warm.process, ours, pid)  # as that module sees it, and no other


def _wait_and_become_warm(orders: socket.socket, program: str) -> NoReturn:
    text, files, *_ = socket.recv_fds(orders, 2**16, 1)
    if not text:
        os._exit(0)
    order = json.loads(text)
    os.setsid()
    os.dup2(files[0], 0)
    os.close(files[0])
    orders.close()
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    os.environ["OMP_NUM_THREADS"] = str(order["threads"])
    sys.argv = ["-c", program, *order["modules"]]
    code: Any = 1
    try:
        runpy.run_path(program, run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int | None) else 1
    except BaseException:
        traceback.print_exc()
    atexit._run_exitfuncs()
    os._exit(code or 0)


class _Starts:
    """``fixnorm.system.process``, but for the first start of a warm process."""

    def __init__(self, process: Any, orders: socket.socket, seed: int) -> None:
        self._process, self._orders = process, orders
        self._seeds = [seed]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._process, name)

    def start(self, command: Sequence[str], log: Path, **options: Any) -> Any:
        _, kind, _, *words = command
        if not self._seeds or kind != "-c" or not words or not words[0].endswith("forks.py"):
            return self._process.start(command, log, **options)
        order = {"modules": words[1:], "threads": options["threads"]}
        socket.send_fds(self._orders, [json.dumps(order).encode()], [options["stdin"]])
        return _Seedling(self._seeds.pop())


class _Seedling:
    """With the words of a :class:`subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        while (code := self.poll()) is None:
            time.sleep(0.002)
        return code

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


# -- what may happen to a life ---------------------------------------------------------------------


def _render_nothing() -> None:
    """To render the drawings of a report takes longer than the trainings of a small search."""
    from fixnorm.report import html, write

    write.png = lambda drawing: b"a picture"
    html.svg = lambda panel, prefix: "<svg></svg>"


def _kill_before_operation(number: int, folder: str) -> None:
    """Count what is done to files of the folder; flushing to the disk counts, too."""
    left = [number]

    def count() -> None:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        watched = ("open", "os.mkdir", "os.rename", "os.remove", "fcntl.lockf", "os.truncate")
        if event == "fcntl.lockf" or (event in watched and folder in str(arguments[0])):
            count()

    fsync = os.fsync

    def counted(file: Any) -> None:
        count()
        fsync(file)

    os.fsync = counted  # type: ignore[assignment]
    sys.addaudithook(hook)


def _slow_down_the_disk(seconds: float) -> None:
    fsync = os.fsync

    def slow(file: Any) -> None:
        time.sleep(seconds)
        fsync(file)

    os.fsync = slow  # type: ignore[assignment]


if __name__ == "__main__":
    serve()
