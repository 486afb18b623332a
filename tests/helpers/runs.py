"""``fixnorm`` in processes that a test can kill.

The command takes seconds to import its libraries. A :class:`Nursery` is one process that has done
so and forks a child for each command (``nursery.py`` is that process): the child is the command in
all else (arguments, signals, exit code, files).
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

Command = Callable[[Path], list[str]]
"""The arguments of ``fixnorm`` that train into a folder."""

PATIENCE = 600.0
"""Seconds after which a test gives up on a process: far beyond what any takes."""
MARK = "FIXNORM_TEST_MARK"
"""In the environment of all processes a test starts, and of theirs."""
SMALL = (
    *("--set", "train_per_class=48", "--set", "val_per_class=20", "--set", "batch_size=32"),
    *("--set", "warmup_epochs=1", "--checkpoint-steps", "3"),
)
"""480 digits in 15 steps an epoch; every fifth checkpoint is at the end of an epoch."""


def digits(*extra: str, epochs: int = 2) -> Command:
    """A small training; of two values of an option the later one counts."""
    fixed = ["--set", f"epochs={epochs}", *SMALL, *extra]
    return lambda out: ["train", "digits", "--out", str(out), *fixed]


# -- lives of a run --------------------------------------------------------------------------------


class Life:
    """One process that runs the command."""

    def __init__(self, pid: int, log: Path, wait: Callable[[], int], mark: str) -> None:
        self.pid, self.log, self.mark = pid, log, mark
        self._wait = wait
        try:
            self._handle: int | None = os.pidfd_open(pid)  # a number may be used again, this not
        except ProcessLookupError:
            self._handle = None

    def has_ended(self) -> bool:
        """Whether the process is dead."""
        return self._handle is None or bool(select.select([self._handle], [], [], 0)[0])

    def wait(self) -> int:
        """The exit code; minus the number of the signal that killed it."""
        code = self._wait()
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
        return code

    def kill(self, number: int = signal.SIGKILL) -> int:
        """Send a signal, wait for the end; to a process that has ended nothing is sent."""
        self.send(number)
        return self.wait()

    def send(self, number: int) -> None:
        """Send a signal."""
        if self._handle is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, number)

    def said(self) -> str:
        """All it wrote, to both streams."""
        return self.log.read_text() if self.log.exists() else ""


class Nursery:
    """A process with all libraries loaded, whose children are the command."""

    def __init__(self) -> None:
        self.home = Path(tempfile.mkdtemp())
        self.place = self.home
        """Where logs go."""
        self.mark = uuid.uuid4().hex
        self._count = 0
        self._ended: dict[int, int] = {}
        self._outcomes: dict[str, Outcome] = {}
        self._server = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("nursery.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(self.mark),
            cwd=Path(__file__).parents[2],
        )
        assert self._line() == ["ready"]

    def start(
        self,
        arguments: list[str],
        *,
        program: Path | None = None,
        log: Path | None = None,
        errors: Path | None = None,
        strict: bool = False,
        drawn: bool = True,
        env: dict[str, str] | None = None,
        kill_at: int = 0,
        slow_disk: float = 0.0,
    ) -> Life:
        """Start the command.

        Args:
            arguments: of ``fixnorm``.
            program: a file to run instead of the command.
            log: where its words go (default: a file of its own).
            errors: where those of stderr go (default: to the others).
            strict: a warning for users is an error.
            drawn: the drawings of a report are rendered.
            env: environment on top.
            kill_at: the process kills itself just before its n-th operation on a file.
            slow_disk: seconds that a file takes to reach the disk.
        """
        self._count += 1
        log = log or self.place / f"life-{self._count}.log"
        order = {
            "arguments": arguments,
            "program": None if program is None else str(program),
            "log": str(log),
            "errors": str(errors or log),
            "strict": strict,
            "drawn": drawn,
            "env": env or {},
            "kill_at": kill_at,
            "slow_disk": slow_disk,
        }
        assert self._server.stdin is not None
        self._server.stdin.write((json.dumps(order) + "\n").encode())
        self._server.stdin.flush()
        while True:
            word, pid, *code = self._line()
            if word == "started":
                wait = functools.partial(self._end_of, int(pid))
                return Life(int(pid), log, wait, self.mark)
            self._ended[int(pid)] = int(code[0])

    def run(self, arguments: list[str], **options: Any) -> Life:
        """Run the command to its good end."""
        life = self.start(arguments, **options)
        assert life.wait() == 0, life.said()
        return life

    def uninterrupted(self, command: Command, *, processes: int = 1) -> Outcome:
        """What the command leads to when nothing happens to it; run once a session."""
        key = json.dumps([command(Path("OUT")), processes])
        if key not in self._outcomes:
            out = Path(tempfile.mkdtemp()) / "run"
            lives = ranks(self, command(out), processes)
            for life in lives:
                assert life.wait() == 0, life.said()
            self._outcomes[key] = Outcome.of(out)
            shutil.rmtree(out.parent)
        return self._outcomes[key]

    def strays(self) -> list[int]:
        """Its children, and theirs, that still live after the time they have to notice."""
        return strays(self.mark, besides=self._server.pid)

    def close(self) -> None:
        """End the process."""
        self._server.communicate()
        shutil.rmtree(self.home, ignore_errors=True)

    def _end_of(self, pid: int) -> int:
        while pid not in self._ended:
            word, other, code = self._line()
            assert word == "ended"
            self._ended[int(other)] = int(code)
        return self._ended[pid]

    def _line(self) -> list[str]:
        assert self._server.stdout is not None
        line = b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([self._server.stdout], [], [], PATIENCE)
            assert ready, f"nothing happened for {PATIENCE} s"
            piece = os.read(self._server.stdout.fileno(), 1)
            assert piece, "the process that starts the others has died"
            line += piece
        return line.decode().split()


@functools.cache
def shared_nursery() -> Nursery:
    """One for all tests of a session."""
    made = Nursery()
    atexit.register(made.close)
    return made


@pytest.fixture
def nursery(tmp_path: Path) -> Iterator[Nursery]:
    """The nursery; a test that leaves a process behind fails."""
    found = shared_nursery()
    found.place = tmp_path
    yield found
    found.place = found.home
    left = found.strays()
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == [], "processes were left behind"


def environment(mark: str, **more: str) -> dict[str, str]:
    """One thread a process, and a mark by which all processes are found."""
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return os.environ | threads | {MARK: mark} | more


def command(arguments: list[str], log: Path, *, torchrun: int = 0, **env: str) -> Life:
    """The command as a user starts it, in a session of its own."""
    mark = uuid.uuid4().hex
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={torchrun}"]
    program = [sys.executable, *(launcher if torchrun else []), "-m", "fixnorm", *arguments]
    with log.open("wb") as file:
        process = subprocess.Popen(
            program,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment(mark, **env),
            start_new_session=True,
        )
    return Life(process.pid, log, lambda: process.wait(PATIENCE), mark)


def ranks(nursery: Nursery, arguments: list[str], size: int = 2, **options: Any) -> list[Life]:
    """The processes that torchrun would start, forked; one needs no launcher."""
    if size == 1:
        return [nursery.start(arguments, **options)]
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    shared = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return [
        nursery.start(arguments, env=shared | {"RANK": str(r), "LOCAL_RANK": str(r)}, **options)
        for r in range(size)
    ]


# -- what is seen of them --------------------------------------------------------------------------


def alive(mark: str) -> list[int]:
    """Processes with the mark in their environment; one that is dead but not reaped has none."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if f"{MARK}={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def strays(mark: str, *, besides: int = 0) -> list[int]:
    """Marked processes that are still there when all have had time to notice."""
    deadline = time.monotonic() + PATIENCE
    while left := [pid for pid in alive(mark) if pid != besides]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.1)
    return left


def rank_of(pid: int) -> int | None:
    """The rank that torchrun gave to a process."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    values = [v.partition(b"=")[2] for v in variables if v.startswith(b"RANK=")]
    return int(values[0]) if values else None


def until(condition: Callable[[], Any], life: Life) -> bool:
    """Wait until the condition holds; false if the life ends before it does."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if life.has_ended():
            return bool(condition())
        assert time.monotonic() < deadline, f"waited in vain: {life.said()}"
        time.sleep(0.002)
    return True


def steps_saved(out: Path) -> list[int]:
    """Steps of the checkpoints that are there."""
    return sorted(int(p.stem[5:]) for p in (out / "checkpoints").glob("step-*.ckpt"))


def parts(out: Path) -> list[str]:
    """Files that are only half there."""
    return [p.name for p in out.rglob("*.part")]


@dataclass(frozen=True)
class Outcome:
    """What must not depend on how often a run was killed."""

    weights: tuple[Any, bytes]
    """The header, whose metadata safetensors writes in any order, and the numbers themselves."""
    metrics: str
    numbers: dict[str, Any]

    @classmethod
    def of(cls, out: Path) -> Outcome:
        """Of a finished run."""
        result = json.loads((out / "result.json").read_text())
        varying = ("seconds", "images_per_second", "processes", "device", "recipe", "commit")
        weights = (out / "weights.safetensors").read_bytes()
        start = 8 + int.from_bytes(weights[:8], "little")
        return cls(
            (json.loads(weights[8:start]), weights[start:]),
            (out / "metrics.csv").read_text(),
            {key: value for key, value in result.items() if key not in varying},
        )


def one_line(life: Life) -> str:
    """What the command said went wrong: one line and no traceback."""
    said = life.said()
    assert "Traceback" not in said, said
    (line,) = [line for line in said.splitlines() if line.startswith("fixnorm: ")]
    return line


def same(out: Path, expected: Outcome) -> None:
    """The run ended with the very bits of the other, and left nothing half-written."""
    found = Outcome.of(out)
    assert found.metrics == expected.metrics
    assert found.weights == expected.weights, "the weights differ"
    assert found.numbers == expected.numbers
    assert parts(out) == []
