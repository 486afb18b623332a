"""A run that is killed, and killed again, ends as if nothing had happened: the same bits."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image

from helpers.runs import (
    Command,
    Life,
    Nursery,
    alive,
    command,
    digits,
    nursery,
    parts,
    rank_of,
    ranks,
    same,
    steps_saved,
    strays,
    until,
)

__all__ = ["nursery"]  # a fixture, which pytest looks up by name

KILLED = -signal.SIGKILL
SLOW_DISK = 0.03


class Moments:
    """Where in its life a run is killed."""

    def __init__(self, seed: int | str, kinds: tuple[str, ...] = ("any", "after", "while")) -> None:
        self._random = Random(seed)
        self._kinds = kinds

    def wait(self, life: Life, out: Path) -> None:
        """Any moment, one soon after a checkpoint, or one while the next is being written."""
        saved = steps_saved(out)
        kind = self._random.choice(self._kinds)
        if kind == "any":
            time.sleep(self._random.uniform(0, 1.5))
            return
        until(lambda: steps_saved(out) != saved, life)
        time.sleep(self._random.uniform(0, SLOW_DISK))
        while kind == "while" and until(lambda: is_writing(out), life):
            time.sleep(self._random.uniform(0, SLOW_DISK))
            life.send(signal.SIGSTOP)  # so that it is still so when the kill comes
            if is_writing(out):
                return
            life.send(signal.SIGCONT)


def is_writing(out: Path) -> bool:
    """Whether a checkpoint is half-written."""
    return any(".ckpt" in name for name in parts(out))


class Kills(NamedTuple):
    """What happened to a run."""

    done: int
    while_writing: int
    resumed: int
    """Lives that went on from a step."""


def killed_on_the_way(
    nursery: Nursery, run: Command, out: Path, kills: int, moments: Moments
) -> Kills:
    """Train to the end, killed up to ``kills`` times."""
    done = writing = resumed = 0
    while True:
        life = nursery.start(run(out), slow_disk=SLOW_DISK)
        if done < kills:
            moments.wait(life, out)
            code = life.kill()
            resumed += "going on from step" in life.said()
            if code == KILLED:
                done += 1
                writing += bool(parts(out))
                assert len(parts(out)) <= 1, "half-written files pile up"
                assert len(steps_saved(out)) <= 3, "more checkpoints than keep=2 and the newest"
                continue
        assert life.wait() == 0, life.said()
        return Kills(done, writing, resumed + ("going on from step" in life.said()))


@pytest.mark.slow
def test_ten_kills_at_random_moments(nursery: Nursery, tmp_path: Path) -> None:
    run = digits(epochs=6)
    expected = nursery.uninterrupted(run)
    moments = Moments(2)
    left, writing, number = 10, 0, 0
    while left:  # a run may come to its end before all kills are spent
        number += 1
        out = tmp_path / f"run-{number}"
        kills = killed_on_the_way(nursery, run, out, left, moments)
        left, writing = left - kills.done, writing + kills.while_writing
        same(out, expected)
    assert writing, "no kill came while a checkpoint was being written"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("every", "epochs", "half_written"),
    [
        (3, 1, {"recipe", "step-000000003"}),
        (15, 1, {"recipe", "step-000000015", "metrics", "classes", "weights", "result"}),
    ],
    ids=["checkpoints within the epoch", "one checkpoint at the end"],
)
def test_killed_before_each_operation_on_a_file(
    nursery: Nursery, tmp_path: Path, every: int, epochs: int, half_written: set[str]
) -> None:
    """Life n dies before its n-th operation; anew from 1 once there is a checkpoint to load."""
    run = digits("--checkpoint-steps", str(every), "--no-tensorboard", epochs=epochs)
    expected = nursery.uninterrupted(run)
    out = tmp_path / "run"
    seen: set[str] = set()
    number, has_checkpoint = 1, False
    # the first thing a life does to a half-written file is to clear it away, one more operation
    while (life := nursery.start(run(out), kill_at=number + len(parts(out)))).wait() == KILLED:
        seen |= {name.split(".")[1] for name in parts(out)}
        number = 1 if has_checkpoint != bool(steps_saved(out)) else number + 1
        has_checkpoint = bool(steps_saved(out))
    assert life.wait() == 0, life.said()
    same(out, expected)
    assert seen >= half_written


# -- what a run may have in it ---------------------------------------------------------------------

EVERYTHING_RANDOM = (
    *("--set", "drop_path=0.2", "--set", "drop=0.2", "--set", "ema=0.9"),
    *("--set", "precision=bf16", "--set", "accumulate=2"),
)
VARIANTS = {
    "ema, drop_path, dropout, bf16, accumulate": digits(*EVERYTHING_RANDOM),
    "adamw, weight decay, clip": digits(
        *("--method", "weight-decay", "--set", "lr=0.01"),
        *("--set", "optimizer=adamw", "--set", "clip=1"),
    ),
    "algorithm1, layer scope": digits("--method", "algorithm1", "--set", "scope=layer"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_whatever_the_recipe_has(nursery: Nursery, tmp_path: Path, name: str) -> None:
    expected = nursery.uninterrupted(VARIANTS[name])
    out = tmp_path / "run"
    moments = Moments(name, ("after", "while"))
    assert killed_on_the_way(nursery, VARIANTS[name], out, 2, moments).resumed
    same(out, expected)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ROOT/{train,val}/CLASS/NN.png of noise, the classes in different colours."""
    rng = np.random.default_rng(0)
    root = tmp_path_factory.mktemp("images")
    for split, count in (("train", 24), ("val", 8)):
        for i, name in enumerate(("ant", "bee", "cat")):
            folder = root / split / name
            folder.mkdir(parents=True)
            for n in range(count):
                pixels = rng.integers(0, 160, (24, 24, 3), dtype=np.uint8)
                pixels[..., i] += 60
                Image.fromarray(pixels).save(folder / f"{n:02}.png")
    return root


def streamed(data: Path, workers: int) -> Command:
    """Images with AutoAugment and random-resized crops, which cannot live in memory."""
    changes = {
        "classes": "none",
        "train_per_class": "none",
        "model": "resnet8-s2",
        "image_size": "16",
        "auto_augment": "v0",
        "train_crop": "random-resized",
        "batch_size": "8",
        "epochs": "4",
        "workers": str(workers),
    }
    fixed = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
    fixed += ["--checkpoint-steps", "2", "--data", str(data)]
    return lambda out: ["train", "tiny-imagenet-head", "--out", str(out), *fixed]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_streaming_with_and_without_workers(
    nursery: Nursery, tmp_path: Path, images: Path, workers: int
) -> None:
    """The next life starts at once, while loader processes of the last may still live."""
    expected = nursery.uninterrupted(streamed(images, 0))
    out = tmp_path / "run"
    moments = Moments(workers, ("after", "while"))
    assert killed_on_the_way(nursery, streamed(images, workers), out, 2, moments).resumed
    same(out, expected)  # also: the number of workers changes nothing


def has_saved_after(out: Path, step: int, life: Life) -> bool:
    """Wait for a checkpoint of a later step; false if there never is one."""
    return until(lambda: any(saved > step for saved in steps_saved(out)), life)


# -- the command itself, and many processes --------------------------------------------------------


@pytest.mark.slow
def test_the_command_line_itself(nursery: Nursery, tmp_path: Path) -> None:
    run = digits(epochs=4)
    expected = nursery.uninterrupted(run)
    out = tmp_path / "run"
    life = command(run(out), tmp_path / "killed.log")
    assert has_saved_after(out, 0, life), life.said()
    assert life.kill() == KILLED, life.said()
    assert strays(life.mark) == []
    life = command(run(out), tmp_path / "last.log")
    assert life.wait() == 0, life.said()
    assert "going on from step" in life.said()
    same(out, expected)


@pytest.mark.slow
def test_two_processes_killed_together(nursery: Nursery, tmp_path: Path) -> None:
    run = digits(*EVERYTHING_RANDOM, epochs=3)
    expected = nursery.uninterrupted(run, processes=2)
    out = tmp_path / "run"
    moments = Moments(5)
    for number in range(2):
        lives = ranks(nursery, run(out))
        moments.wait(lives[0], out)
        for life in lives[:: -1 if number % 2 else 1]:
            life.send(signal.SIGKILL)
        assert {life.wait() for life in lives} <= {KILLED, 0}
    for life in ranks(nursery, run(out)):
        assert life.wait() == 0, life.said()
    same(out, expected)


@pytest.mark.slow
def test_torchrun_whose_parts_are_killed(nursery: Nursery, tmp_path: Path) -> None:
    """A rank, which torchrun notices; then torchrun itself, which only the kernel can tell."""
    run = digits(*EVERYTHING_RANDOM, epochs=4)
    expected = nursery.uninterrupted(run, processes=2)
    out = tmp_path / "run"

    def training(victim: str, later_than: int) -> Life:
        life = command(run(out), tmp_path / f"{victim}.log", torchrun=2)
        assert has_saved_after(out, later_than, life), life.said()
        return life

    life = training("rank", 0)
    (rank,) = [pid for pid in alive(life.mark) if rank_of(pid) == 1]
    Life(rank, life.log, lambda: 0, life.mark).kill()
    assert life.wait() == 1  # torchrun's word for a failed process
    assert strays(life.mark) == []

    life = training("launcher", steps_saved(out)[-1])
    assert len({rank_of(pid) for pid in alive(life.mark)}) == 3  # two and the launcher's None
    assert life.kill() == KILLED
    assert strays(life.mark) == []
    assert not (out / "result.json").exists(), "the run ended before the kill"

    life, _ = lives = ranks(nursery, run(out))
    assert [life.wait() for life in lives] == [0, 0], life.said()
    assert "going on from step" in life.said()
    same(out, expected)


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), [(2, 1), (1, 2)])
def test_another_number_of_processes(
    nursery: Nursery, tmp_path: Path, first: int, second: int
) -> None:
    run = digits(epochs=2)
    out = tmp_path / "run"
    lives = ranks(nursery, run(out), first)
    assert until(lambda: steps_saved(out), lives[0]), lives[0].said()
    for life in lives:
        life.send(signal.SIGKILL)
    assert {life.wait() for life in lives} == {KILLED}
    lives = ranks(nursery, run(out), second)
    assert [life.wait() for life in lives] == [0] * second, lives[0].said()
    assert "going on from step" in lives[0].said()

    header, *rows = [line.split(",") for line in (out / "metrics.csv").read_text().splitlines()]
    assert [row[0] for row in rows] == ["1", "2"]
    for row in rows:
        # 15 batches of 32 = 480 images, each counted once: accuracy is a multiple of 100/480
        right = float(row[header.index("train_accuracy")]) * 480 / 100
        assert right == pytest.approx(round(right), abs=1e-6)
