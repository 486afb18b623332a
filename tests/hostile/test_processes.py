"""Commands as processes: terminals that are not there, limits, signals at any moment.

Most are forked from this process, in which everything is loaded; a few are started anew, where
loading is what is tested.
"""

from __future__ import annotations

import io
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest
import typer

from fixnorm import cli
from fixnorm.commands import app as application
from fixnorm.commands import run

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
LANDSCAPE = str(next((ROOT / "results/landscapes/fixnorm").glob("*.json")))
SMALL = ("--set", "epochs=1", "--set", "warmup_epochs=0", "--set", "train_per_class=20")
TRAIN = ["train", "digits", "--out", "run", "--no-tensorboard", *SMALL]
PATIENCE = 600.0
Prepare = Callable[[], object]


@dataclass(frozen=True)
class Child:
    """A forked command, and where its words go."""

    pid: int
    words: Path

    @property
    def said(self) -> str:
        return self.words.read_bytes().decode(errors="replace")

    def code(self) -> int:
        deadline = time.monotonic() + PATIENCE
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                pytest.fail(f"no end after {PATIENCE:g} s: {self.said}")
            time.sleep(0.01)

    def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain: {self.said}"
            time.sleep(0.005)


def forked(
    arguments: list[str],
    place: Path,
    *,
    out: str = "words",
    err: str = "words",
    encoding: str = "utf-8",
    prepare: Prepare = lambda: None,
) -> Child:
    """Fork the command into a folder; ``out`` and ``err`` are words, closed, full or gone."""
    words = place / "words"
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            _become(arguments, place, {1: out, 2: err}, encoding, prepare)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
        finally:
            try:
                sys.stdout.flush()
                sys.stderr.flush()
            except (OSError, ValueError):
                code = 120  # as the interpreter does
            os._exit(code)
    return Child(pid, words)


def _become(
    arguments: list[str], place: Path, ends: dict[int, str], encoding: str, prepare: Prepare
) -> NoReturn:
    os.setsid()
    os.chdir(place)
    reader, broken = os.pipe()
    os.close(reader)
    kinds = {
        "words": os.open("words", os.O_WRONLY | os.O_CREAT | os.O_APPEND),
        "full": os.open("/dev/full", os.O_WRONLY),
        "gone": broken,
    }
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, name in ((1, "stdout"), (2, "stderr")):
        kind = ends[number]
        if kind == "closed":
            os.close(number)
            setattr(sys, name, None)
        else:
            os.dup2(kinds[kind], number)
            stream = io.TextIOWrapper(open(number, "wb", closefd=False), encoding=encoding)  # noqa: SIM115
            setattr(sys, name, stream)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests themselves may run under nohup
    sys.argv = ["fixnorm", *arguments]
    prepare()
    cli.main()
    raise SystemExit(0)


def only_line(child: Child) -> str:
    """What it said last, once; never a traceback."""
    lines = [line for line in child.said.splitlines() if line.startswith("fixnorm: ")]
    assert len(lines) == 1, child.said
    assert "Traceback" not in child.said, child.said
    return lines[0]


# -- the terminal is not always there --------------------------------------------------------------


@pytest.mark.parametrize("err", ["closed", "full", "gone"])
@pytest.mark.parametrize("out", ["closed", "full", "gone"])
def test_a_training_does_not_die_of_its_words(tmp_path: Path, out: str, err: str) -> None:
    child = forked(TRAIN, tmp_path, out=out, err=err)
    assert child.code() == 0, child.said
    assert (tmp_path / "run" / "result.json").exists()
    assert (tmp_path / "run" / "weights.safetensors").exists()


@pytest.mark.parametrize("arguments", [["audit", "resnet8"], ["--help"]])
def test_a_listing_whose_reader_has_gone_ends_quietly(tmp_path: Path, arguments: list[str]) -> None:
    child = forked(arguments, tmp_path, out="gone")
    assert child.code() == 0, child.said
    assert child.said == ""


def test_a_listing_that_is_lost_is_no_success(tmp_path: Path) -> None:
    child = forked(["audit", "resnet8"], tmp_path, out="full")
    assert child.code() == 2, child.said
    assert "stdout cannot be written: No space left on device" in only_line(child)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
@pytest.mark.parametrize(
    "arguments",
    [
        ["audit", "resnet8"],
        ["--help"],
        ["tune", "--help"],
        TRAIN,
        ["replay", LANDSCAPE, "--strategies", "paper", "--replays", "2", "--out", "replay"],
    ],
    ids=lambda words: words[0],
)
def test_a_terminal_of_few_characters_gets_plain_ones(
    tmp_path: Path, arguments: list[str], encoding: str
) -> None:
    child = forked(arguments, tmp_path, encoding=encoding)
    assert child.code() == 0, child.said
    said = child.words.read_bytes().decode(encoding)
    assert said
    assert "?" not in said


# -- limits ----------------------------------------------------------------------------------------


def limited(kind: int, amount: int) -> Prepare:
    return lambda: resource.setrlimit(kind, (amount, resource.getrlimit(kind)[1]))


def test_files_that_may_not_grow(tmp_path: Path) -> None:
    words = [*TRAIN, "--checkpoint-steps", "1"]
    child = forked(words, tmp_path, prepare=limited(resource.RLIMIT_FSIZE, 100_000))
    assert child.code() == 2, child.said
    assert "File too large" in only_line(child)
    assert "ulimit -f" in only_line(child)
    assert forked(words, tmp_path).code() == 0


def test_no_more_file_handles(tmp_path: Path) -> None:
    words = [*TRAIN, "--set", "auto_augment=v0", "--set", "workers=2"]
    used = len(list(Path("/proc/self/fd").iterdir()))
    child = forked(words, tmp_path, prepare=limited(resource.RLIMIT_NOFILE, used + 14))
    assert child.code() == 2, child.said
    assert "Too many open files" in only_line(child)
    assert forked(words, tmp_path).code() == 0


@pytest.mark.parametrize(
    ("setting", "named"),
    [("image_size=2048", "image_size=2048"), ("eval_batch_size=1000000", None)],
)
def test_no_more_memory(tmp_path: Path, setting: str, named: str | None) -> None:
    """The second asks for no more than there are images."""
    pages = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    words = [*TRAIN, "--set", setting, "--set", "val_per_class=20"]
    child = forked(words, tmp_path, prepare=limited(resource.RLIMIT_AS, pages + 400_000_000))
    assert child.code() == (0 if named is None else 2), child.said
    if named is not None:
        assert "not enough memory for" in only_line(child)
        assert named in only_line(child)


# -- signals ---------------------------------------------------------------------------------------

LONG = ["train", "digits", "--out", "run", "--no-tensorboard", "--checkpoint-steps", "100000"]
LONG += ["--set", "epochs=500", "--set", "warmup_epochs=0", "--set", "train_per_class=20"]


def checkpoints(place: Path) -> list[Path]:
    return list((place / "run" / "checkpoints").glob("step-*.ckpt"))


def test_a_closed_terminal_is_as_good_as_sigterm(tmp_path: Path) -> None:
    child = forked(LONG, tmp_path)
    child.until((tmp_path / "run" / "metrics.csv").exists)
    os.kill(child.pid, signal.SIGHUP)
    assert child.code() == 128 + signal.SIGHUP, child.said
    assert only_line(child).endswith("the same command goes on from there")
    assert len(checkpoints(tmp_path)) == 1


def test_under_nohup_it_goes_on(tmp_path: Path) -> None:
    child = forked(LONG, tmp_path, prepare=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    child.until((tmp_path / "run" / "metrics.csv").exists)
    os.kill(child.pid, signal.SIGHUP)
    rows = (tmp_path / "run" / "metrics.csv").read_text()
    child.until(lambda: (tmp_path / "run" / "metrics.csv").read_text() != rows)
    os.kill(child.pid, signal.SIGTERM)
    assert child.code() == 128 + signal.SIGTERM, child.said


def test_a_second_ctrl_c_while_the_checkpoint_is_written(tmp_path: Path) -> None:
    def slow() -> None:
        fsync = os.fsync

        def slowly(file: Any) -> None:
            name = os.readlink(f"/proc/self/fd/{file if isinstance(file, int) else file.fileno()}")
            time.sleep(30.0 if ".ckpt" in name else 0.0)
            fsync(file)

        os.fsync = slowly

    child = forked(LONG, tmp_path, prepare=slow)
    child.until((tmp_path / "run" / "metrics.csv").exists)
    os.kill(child.pid, signal.SIGINT)
    child.until(lambda: list((tmp_path / "run" / "checkpoints").glob(".*.part")))
    os.kill(child.pid, signal.SIGINT)
    assert child.code() == 130, child.said
    assert only_line(child) == "fixnorm: interrupted"
    assert checkpoints(tmp_path) == []


def test_what_libraries_make_of_ctrl_c_is_ctrl_c(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        try:
            raise KeyboardInterrupt
        finally:
            raise RuntimeError("[enforce fail at inline_container.cc:664] unexpected pos")

    monkeypatch.setattr(application, "app", interrupted)
    with pytest.raises(SystemExit) as stopped:
        run(["train", "digits"])
    assert stopped.value.code == 130
    assert capsys.readouterr().err == "fixnorm: interrupted\n"
    assert application._was_interrupted(typer.Abort())


def started(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "fixnorm", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        **options,
    )


def loads_torch(pid: int) -> bool:
    return "libtorch_cpu" in Path(f"/proc/{pid}/maps").read_text()


def test_ctrl_c_while_torch_is_loaded() -> None:
    process = started("audit", "resnet8")
    while not loads_torch(process.pid):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=PATIENCE)
    assert (process.returncode, said) == (130, "fixnorm: interrupted\n")


def test_no_room_to_load_torch(tmp_path: Path) -> None:
    process = started("audit", "resnet8", preexec_fn=limited(resource.RLIMIT_AS, 1_000_000_000))
    said, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2, said
    assert said.startswith("fixnorm: not enough memory to load the command (")
    assert said.count("\n") == 1


def children(pid: int) -> list[int]:
    """Processes below it that do replays."""
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    pids = [int(word) for word in listed.read_text().split()] if listed.exists() else []
    return [p for p in pids if b"spawn_main" in Path(f"/proc/{p}/cmdline").read_bytes()]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_replays_leave_no_process_behind(tmp_path: Path, number: signal.Signals) -> None:
    words = ("--strategies", "gp", "--replays", "5000", "--workers", "2")
    process = started("replay", LANDSCAPE, *words, cwd=tmp_path)
    while len(found := children(process.pid)) < 2 or not all(map(loads_torch, found)):
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.05)
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal does
    else:
        process.send_signal(number)
    try:
        said, _ = process.communicate(timeout=PATIENCE)  # its end is that of the last who holds it
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    assert process.returncode in (130, -number), said
    assert "Traceback" not in said
    assert number == signal.SIGKILL or said == "fixnorm: interrupted\n"
    deadline = time.monotonic() + PATIENCE
    while any(Path(f"/proc/{pid}").exists() for pid in found):
        assert time.monotonic() < deadline, "a process was left behind"
        time.sleep(0.05)
