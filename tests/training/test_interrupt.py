"""SIGTERM and Ctrl-C: a checkpoint is written, one line is said, the same command goes on."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from fixnorm.system.interrupt import Interrupt
from helpers.runs import (
    Command,
    Life,
    Nursery,
    command,
    digits,
    nursery,
    one_line,
    ranks,
    same,
    steps_saved,
    strays,
    until,
)

__all__ = ["nursery"]  # a fixture, which pytest looks up by name

SIGNALS = [signal.SIGTERM, signal.SIGINT]


def without_checkpoints(epochs: int, *extra: str) -> Command:
    """A run that writes none of its own accord."""
    return digits("--checkpoint-steps", "100000", *extra, epochs=epochs)


def stopped_at(line: str) -> int:
    match = re.fullmatch(
        r"fixnorm: stopped after step (\d+) of \d+; the same command goes on from there", line
    )
    assert match, line
    return int(match[1])


def is_under_way(life: Life) -> bool:
    """Wait for a first sign of training; false if there never is one."""
    return until(lambda: "going on from" in life.said() or "epoch   1/" in life.said(), life)


@pytest.mark.slow
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_leaves_a_run_that_goes_on(
    nursery: Nursery, tmp_path: Path, number: signal.Signals
) -> None:
    run = without_checkpoints(8)
    out = tmp_path / "run"
    life = nursery.start(run(out))
    assert until((out / "metrics.csv").exists, life), life.said()
    assert steps_saved(out) == []
    assert life.kill(number) == 128 + number, life.said()
    step = stopped_at(one_line(life))
    assert 15 <= step < 120
    assert steps_saved(out) == [step]
    life = nursery.run(run(out))
    assert f"going on from step {step} of 120" in life.said()
    same(out, nursery.uninterrupted(run))


@pytest.mark.slow
def test_signals_again_and_again(nursery: Nursery, tmp_path: Path) -> None:
    """At any moment of the training, evaluation and the end of an epoch included."""
    run = without_checkpoints(8)
    out = tmp_path / "run"
    seen = [0]
    while True:
        life = nursery.start(run(out))
        if not is_under_way(life):
            break
        if (code := life.kill(SIGNALS[len(seen) % 2])) == 0:
            break
        assert code in (143, 130), life.said()
        step = stopped_at(one_line(life))
        assert step > seen[-1]  # each life does at least one step
        seen.append(step)
        if len(seen) == 9:
            nursery.run(run(out))
            break
    assert len(seen) > 2
    same(out, nursery.uninterrupted(run))


@pytest.mark.slow
def test_ctrl_c_in_a_terminal_with_loader_processes(nursery: Nursery, tmp_path: Path) -> None:
    run = without_checkpoints(6, "--set", "auto_augment=v0", "--set", "workers=2")
    out = tmp_path / "run"
    life = nursery.start(run(out))
    assert until((out / "metrics.csv").exists, life), life.said()
    os.killpg(life.pid, signal.SIGINT)
    assert life.wait() == 130, life.said()
    assert steps_saved(out) == [stopped_at(one_line(life))]
    nursery.run(run(out))
    same(out, nursery.uninterrupted(run))


@pytest.mark.slow
def test_two_processes_leave_at_the_same_step(nursery: Nursery, tmp_path: Path) -> None:
    """One of them is told; all of them stop, and only the first one talks."""
    run = without_checkpoints(6)
    out = tmp_path / "run"
    first, second = ranks(nursery, run(out))
    assert until((out / "metrics.csv").exists, first), first.said()
    second.send(signal.SIGTERM)
    assert [first.wait(), second.wait()] == [143, 143], first.said() + second.said()
    assert steps_saved(out) == [stopped_at(one_line(first))]
    assert second.said() == ""
    for life in ranks(nursery, run(out)):
        assert life.wait() == 0, life.said()
    same(out, nursery.uninterrupted(run, processes=2))


@pytest.mark.slow
def test_under_torchrun(nursery: Nursery, tmp_path: Path) -> None:
    run = without_checkpoints(8)
    out = tmp_path / "run"
    step = 0
    for number in SIGNALS:
        life = command(run(out), tmp_path / f"{number}.log", torchrun=2)
        assert is_under_way(life), life.said()
        assert life.kill(number) != 0, life.said()
        lines = [line for line in life.said().splitlines() if line.startswith("fixnorm: ")]
        assert len(lines) == 1, life.said()
        assert stopped_at(lines[0]) > step
        step = stopped_at(lines[0])
        assert steps_saved(out)[-1] == step
        assert strays(life.mark) == []
    life, _ = lives = ranks(nursery, run(out))
    assert [life.wait() for life in lives] == [0, 0], life.said()
    assert f"going on from step {step} of 120" in life.said()
    same(out, nursery.uninterrupted(run, processes=2))


# -- by itself -------------------------------------------------------------------------------------


def test_the_first_signal_is_noted_and_a_second_ctrl_c_does_not_wait() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with Interrupt() as interrupt:
        assert interrupt.signal == 0
        signal.raise_signal(signal.SIGTERM)
        assert interrupt.signal == signal.SIGTERM
        signal.raise_signal(signal.SIGTERM)  # asked for already
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert [signal.getsignal(number) for number in SIGNALS] == before
