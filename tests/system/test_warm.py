"""Forks of a warm process: what holds of a process that is started from nothing holds of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from fixnorm.system import process, warm
from fixnorm.system.process import Running
from fixnorm.system.warm import Warm

PATIENCE = 600.0
SLEEPS = "import os, time; print('here', os.getppid(), flush=True); time.sleep(600)"


def until(there: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not there():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def code(program: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", program, *arguments]


@contextmanager
def warmed(*modules: str, threads: int = 1) -> Iterator[Warm]:
    starts = Warm(modules, threads=threads)
    try:
        yield starts
    finally:
        starts.stop()


def pid_of(starts: Warm) -> int:
    assert starts._server is not None
    return starts._server.pid


def says(log: Path) -> list[str]:
    return log.read_text().split() if log.exists() else []


def running(starts: Warm, log: Path) -> Running:
    """A fork that sleeps, once it does; its own words may come before the report of its pid."""
    fork = starts.start(code(SLEEPS), log)
    until(lambda: fork.poll() or (fork.pid and len(says(log)) == 2))
    assert fork.poll() is None
    assert says(log)[1] == str(pid_of(starts))
    return fork


def is_there(pid: int) -> bool:
    """Whether a process lives; one that nobody has asked for its end does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# -- a process like any other ----------------------------------------------------------------------

FACTS = """
import json, os, signal, sys
print(json.dumps({
    "environment": dict(os.environ), "folder": os.getcwd(), "path": sys.path,
    "arguments": [sys.argv, sys.orig_argv], "main": sorted(vars(sys.modules["__main__"])),
    "leads": [os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()],
    "input": sys.stdin.read(), "files": [os.readlink(f"/proc/self/fd/{k}") for k in range(3)],
    "streams": [[s.encoding, s.errors, s.line_buffering] for s in (sys.stdout, sys.stderr)],
    "handlers": [str(signal.getsignal(k)) for k in (signal.SIGTERM, signal.SIGHUP)],
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
}))
"""


def facts(log: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads(log.read_text())
    log.unlink()
    return found


@pytest.mark.parametrize("kind", ["-c", "-m"])
def test_it_finds_what_a_process_from_nothing_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    (tmp_path / "facts.py").write_text(FACTS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FIXNORM_TEST_MARK", "ö=1\n2")
    command = [sys.executable, kind, FACTS if kind == "-c" else "facts", "--set", "lr=1"]
    log = tmp_path / "log"
    process.start(command, log, threads=3, devices="5,7").wait()
    cold = facts(log)
    with warmed(threads=3) as starts:
        fork = starts.start(command, log, devices="5,7")
        assert fork.wait() == 0
        assert fork.pid
        found = facts(log)
        if kind == "-m":  # what runpy adds to the names of a module
            assert {"__cached__", "__file__"} <= set(found.pop("main"))  # type: ignore[call-overload]
            del cold["main"]
        else:
            assert set(cold.pop("main")) >= {"json", "os"} <= set(found.pop("main"))  # type: ignore[call-overload]
        assert found == cold
        monkeypatch.setenv("FIXNORM_TEST_MARK", "another")
        starts.start(command, log).wait()
        assert facts(log)["environment"]["FIXNORM_TEST_MARK"] == "another"  # type: ignore[index]


ENDS = {
    "good": "print('good')",
    "refused": "import sys; print('no'); sys.exit(2)",
    "with words": "import sys; sys.exit('words')",
    "no code": "import sys; sys.exit()",
    "a number that is too large": "import sys; sys.exit(300)",
    "an error": "print('first'); raise RuntimeError('no such kernel')",
    "interrupted": "raise KeyboardInterrupt",
    "killed": "import os; print('x', flush=True); os.kill(os.getpid(), 9)",
    "aborted": "import os; os.abort()",
    "told to leave": "import os, signal, time; os.kill(os.getpid(), 15); time.sleep(9)",
    "at once": "import os; os._exit(7)",
    "later": "import atexit; atexit.register(print, 'bye')\nprint('hello')",
    "by another thread": (
        "import threading, time\n"
        "threading.Thread(target=lambda: (time.sleep(0.2), print('late'))).start()"
    ),
    "unheard": "import os; print('x'); os.close(1)",
}


End = tuple[int, list[str], str]


def end_of(started: Running, log: Path) -> End:
    """Its exit code, the first words of its log and the last."""
    number = started.wait(PATIENCE)
    lines = log.read_text().splitlines()
    log.write_text("said before\n")
    return number, lines[:2], lines[-1]


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[End, End]]:
    """How each program ends, from nothing and as a fork."""
    log = tmp_path_factory.mktemp("ends") / "log"
    log.write_text("said before\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONUNBUFFERED", raising=False)  # words may be lost
        return dict(both_ends(log))


def both_ends(log: Path) -> Iterator[tuple[str, tuple[End, End]]]:
    with warmed() as starts:
        for name, program in ENDS.items():
            cold = end_of(process.start(code(program), log, threads=1), log)
            yield name, (cold, end_of(starts.start(code(program), log), log))


@pytest.mark.parametrize("name", ENDS)
def test_it_ends_as_a_process_from_nothing(ends: dict[str, tuple[End, End]], name: str) -> None:
    cold, fork = ends[name]
    assert fork == cold


def test_other_commands_are_started_from_nothing(tmp_path: Path) -> None:
    with warmed() as starts:
        shell = starts.start(["sh", "-c", "echo $PPID"], tmp_path / "shell")
        options = starts.start([sys.executable, "-I", *code(SLEEPS)[1:]], tmp_path / "options")
        assert shell.wait() == 0
        until(lambda: len(says(tmp_path / "options")) == 2)
        starts.stop([shell, options])
    assert says(tmp_path / "shell") == [str(os.getpid())] == says(tmp_path / "options")[1:]


# -- killed and stopped ----------------------------------------------------------------------------


def test_a_killed_fork_is_one_fork(tmp_path: Path) -> None:
    with warmed() as starts:
        first, second = (running(starts, tmp_path / name) for name in ("first", "second"))
        os.kill(first.pid, signal.SIGKILL)
        assert first.wait(PATIENCE) == -signal.SIGKILL
        assert second.poll() is None
        starts.stop([second])
        assert second.returncode == -signal.SIGTERM


def test_the_warm_process_killed(tmp_path: Path) -> None:
    """Its forks end with it, and others follow from a new one."""
    with warmed() as starts:
        forks = [running(starts, tmp_path / name) for name in ("first", "second")]
        before = pid_of(starts)
        os.kill(before, signal.SIGKILL)
        assert [fork.wait(PATIENCE) for fork in forks] == [-signal.SIGKILL] * 2
        assert not any(is_there(fork.pid) for fork in forks)
        third = running(starts, tmp_path / "third")
        assert pid_of(starts) != before
        starts.stop([third])


SLOW = "import time\nopen('loading', 'w').close()\ntime.sleep(600)\n"


def test_killed_while_it_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for it is started from nothing."""
    (tmp_path / "slow.py").write_text(SLOW)
    monkeypatch.chdir(tmp_path)
    with warmed("slow") as starts:
        fork = starts.start(code("import os; print(os.getppid())"), tmp_path / "log")
        until((tmp_path / "loading").exists)
        assert fork.poll() is None
        os.kill(pid_of(starts), signal.SIGKILL)
        assert fork.wait(PATIENCE) == 0
    assert says(tmp_path / "log") == [str(os.getpid())]


def test_stopped_while_it_loads_it_never_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    monkeypatch.chdir(tmp_path)
    with warmed("slow") as starts:
        fork = starts.start(code(SLEEPS), tmp_path / "log")
        until((tmp_path / "loading").exists)
        starts.stop([fork])
        assert fork.returncode == -signal.SIGTERM
    assert says(tmp_path / "log") == []


def test_called_off_it_does_not_go_on(tmp_path: Path) -> None:
    """The warm process is held while one is asked for and called off again, then let go."""
    with warmed() as starts:
        first = running(starts, tmp_path / "first")
        os.kill(pid_of(starts), signal.SIGSTOP)
        fork = starts.start(code(f"open({str(tmp_path / 'ran')!r}, 'w')\n{SLEEPS}"), tmp_path / "x")
        fork.send_signal(signal.SIGTERM)
        assert fork.poll() == -signal.SIGTERM
        os.kill(pid_of(starts), signal.SIGCONT)
        again = running(starts, tmp_path / "again")  # orders are taken one after the other
        children = Path(f"/proc/{pid_of(starts)}/task/{pid_of(starts)}/children")
        until(lambda: set(children.read_text().split()) == {str(first.pid), str(again.pid)})
        starts.stop([first, again])


def test_somebody_has_stopped_the_warm_process(tmp_path: Path) -> None:
    with warmed() as starts:
        fork = running(starts, tmp_path / "log")
        os.kill(pid_of(starts), signal.SIGSTOP)
        os.kill(fork.pid, signal.SIGSTOP)
        starts.stop([fork])
        assert fork.returncode == -signal.SIGTERM


DRIVER = """
import sys, time
from pathlib import Path
from types import ModuleType
package = ModuleType("fixnorm"); package.__path__ = [sys.argv[1]]
sys.modules["fixnorm"] = package  # without torch
from fixnorm.system.warm import Warm
starts = Warm((), threads=1)
fork = starts.start([sys.executable, "-c", sys.argv[2]], Path(sys.argv[3]))
while fork.poll() is None and not fork.pid:
    time.sleep(0.01)
print(fork.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("stopped", [False, True])
def test_no_fork_outlives_whoever_asked_for_it(tmp_path: Path, stopped: bool) -> None:
    package, log = str(Path(warm.__file__).parents[1]), tmp_path / "log"
    words = [sys.executable, "-c", DRIVER, package, SLEEPS, str(log)]
    driver = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    fork = int(driver.stdout.readline())
    until(lambda: len(says(log)) == 2)
    server = int(says(log)[1])
    assert server != driver.pid
    for pid in (server, fork) if stopped else ():
        os.kill(pid, signal.SIGSTOP)
    driver.kill()
    driver.wait()
    driver.stdout.close()
    try:
        until(lambda: not is_there(server) and not is_there(fork))
    finally:
        for pid in (server, fork):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


# -- when it cannot be -----------------------------------------------------------------------------

PARENT = "import os; print(os.getppid())"


def test_an_import_that_leaves_a_thread_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fork would have one thread, and wait for the other."""
    lasting = (
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()"
    )
    (tmp_path / "lasting.py").write_text(lasting)
    monkeypatch.chdir(tmp_path)
    with warmed("lasting") as starts:
        assert starts.start(code(PARENT), tmp_path / "log").wait(PATIENCE) == 0
        before = pid_of(starts)
        assert starts.start(code(PARENT), tmp_path / "log").wait(PATIENCE) == 0
        assert pid_of(starts) == before  # it has its reason: no other is tried
    assert says(tmp_path / "log") == [str(os.getpid())] * 2


def test_an_import_that_fails_is_for_the_training_to_name(tmp_path: Path) -> None:
    with warmed("no_such_module") as starts:
        assert starts.start(code(PARENT), tmp_path / "log").wait(PATIENCE) == 0
        assert says(tmp_path / "log") == [str(pid_of(starts))]


@pytest.mark.parametrize("where", ["darwin", "win32", "an old kernel", "not wanted"])
def test_systems_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    if where == "an old kernel":
        monkeypatch.delattr(os, "pidfd_open")
    elif where != "not wanted":
        monkeypatch.setattr(sys, "platform", where)
    starts = Warm(None if where == "not wanted" else (), threads=1)
    monkeypatch.undo()
    assert starts.start(code(PARENT), tmp_path / "log").wait(PATIENCE) == 0
    starts.stop()
    assert says(tmp_path / "log") == [str(os.getpid())]
