"""What processes say: any rank's error once, by name; a stray RANK silences nobody."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from test_bad_input import images, train

from fixnorm.system import words
from fixnorm.system.launched import launched, speaks
from helpers.runs import Nursery, nursery, ranks

__all__ = ["images", "nursery"]  # fixtures, which pytest looks up by name


def test_an_error_that_only_the_second_process_meets_is_said_once(
    nursery: Nursery, images: Path, tmp_path: Path
) -> None:
    """Validation images go to the processes in turn: the second one gets the truncated one."""
    broken = sorted((images / "val").rglob("*.png"))[1]
    broken.write_bytes(broken.read_bytes()[:100])
    lives = ranks(nursery, train(images, tmp_path / "run", auto_augment="v0"))
    assert [life.wait() for life in lives] == [2, 2], lives[0].said() + lives[1].said()
    said = [line for life in lives for line in life.said().splitlines() if "fixnorm: " in line]
    assert len(said) == 1, said
    assert str(broken) in said[0]
    assert not any("Traceback" in life.said() for life in lives)


def test_a_stray_rank_is_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    assert launched() is None
    assert speaks()
    for name, value in {"WORLD_SIZE": "2", "MASTER_ADDR": "x", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    assert launched() == (1, 2)
    assert not speaks()
    monkeypatch.setenv("RANK", "2")
    with pytest.raises(ValueError, match="RANK must be a number less than WORLD_SIZE but they are"):
        launched()
    assert speaks()


class Broken(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")


def test_words_that_nobody_takes_are_lost_and_noted() -> None:
    stream = words.Heard(Broken())
    assert stream.write("words") == 5
    assert isinstance(stream.trouble, BrokenPipeError)
    stream.close()
    stream.flush()
    assert not stream.isatty()


def test_a_line_is_one_line_that_a_terminal_does_not_obey(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words.say("a\nb \x1b[31mred\x07 " + "9" * 10_000)
    line = capsys.readouterr().err
    assert line.startswith("fixnorm: a b \\x1b[31mred\\x07 999")
    assert line.count("\n") == 1
    assert len(line) < 2000


def test_an_encoding_that_lacks_characters_gets_plainer_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    words.guard()
    print("1×8×8 – ‖W‖ … 漢")
    sys.stdout.flush()
    assert raw.getvalue() == b"1x8x8 - ||W|| ... ?\n"
