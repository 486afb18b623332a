"""The run's folder: one owner at a time, one recipe, nothing lost when the disk is full."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixnorm import recipes
from fixnorm.training import changed, train
from fixnorm.training.folder import RunFolder
from helpers.runs import Nursery, digits, nursery, one_line, parts, same, steps_saved, until
from helpers.small_disk import SmallDisk, small_disk

__all__ = ["nursery"]  # a fixture, which pytest looks up by name

RECIPE = recipes.get("digits", None)


def files(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Content and time of all files, to see that nothing was touched."""
    return {
        str(p.relative_to(folder)): (p.read_bytes(), p.stat().st_mtime_ns)
        for p in folder.rglob("*")
        if p.is_file()
    }


@pytest.mark.slow
def test_a_second_run_is_refused_with_the_owners_process_id(
    nursery: Nursery, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    first = nursery.start(digits(epochs=200)(out))
    assert until(lambda: steps_saved(out), first), first.said()
    second = nursery.start(digits(epochs=200)(out))
    assert second.wait() == 2
    line = one_line(second)
    assert f"{out} is in use by process {first.pid} on {os.uname().nodename}: wait for it" in line
    assert not first.has_ended()
    assert first.kill() == -signal.SIGKILL
    third = nursery.start(digits(epochs=200)(out))  # free again at once
    assert until(lambda: "going on from step" in third.said(), third), third.said()
    third.kill()


def test_another_recipe_is_told_what_differs(nursery: Nursery, tmp_path: Path) -> None:
    out = tmp_path / "run"
    nursery.run(digits()(out))
    before = files(out)
    life = nursery.start(digits("--set", "lr=0.4", "--set", "seed=7")(out))
    assert life.wait() == 2
    assert one_line(life) == (
        f"fixnorm: {out} holds a run of another recipe: lr (0.8 there, 0.4 here), "
        "seed (0 there, 7 here); give another --out"
    )
    assert files(out) == before


def test_a_finished_run_is_not_trained_again(nursery: Nursery, tmp_path: Path) -> None:
    out = tmp_path / "run"
    nursery.run(digits()(out))
    before = files(out)
    life = nursery.run(digits()(out))
    assert f"{out} is finished; give another --out to train again" in life.said()
    assert "digits by fixnorm, lr 0.8, alpha 1: accuracy" in life.said()
    assert "epoch" not in life.said()
    assert files(out) == before


def test_many_differences_are_counted(tmp_path: Path) -> None:
    RunFolder(tmp_path).prepare(RECIPE)
    other = changed(RECIPE, lr=0.1, seed=1, epochs=3, batch_size=64, ema=0.5, momentum=0.5)
    with pytest.raises(ValueError, match=r"lr \(0.8 there, 0.1 here\), .* and 2 more; give"):
        RunFolder(tmp_path).check(other)


@pytest.mark.parametrize("name", ["notes.txt", ".hidden", "recipe.jsn"])
def test_a_folder_with_foreign_files_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(ValueError, match="holds other files: give an empty or new folder as --out"):
        train(RECIPE, data=None, out=tmp_path)
    assert files(tmp_path).keys() == {name}


def test_a_file_as_out_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "run"
    out.write_text("mine")
    with pytest.raises(ValueError, match="run is a file: give another --out"):
        train(RECIPE, data=None, out=out)
    assert out.read_text() == "mine"


def test_out_below_a_file_is_one_line(nursery: Nursery, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    life = nursery.start(digits()(tmp_path / "file" / "run"))
    assert life.wait() == 2
    assert "Not a directory" in one_line(life)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe"])
@pytest.mark.parametrize("name", ["recipe.json", "result.json"])
def test_small_files_that_cannot_be_read_are_named(
    tmp_path: Path, name: str, content: bytes
) -> None:
    RunFolder(tmp_path).prepare(RECIPE)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=rf"{name} is not (a recipe|the result of a training): it"):
        train(RECIPE, data=None, out=tmp_path)


def test_what_a_run_killed_at_its_first_word_leaves_is_no_foreign_file(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("process 1 on here")
    (tmp_path / ".recipe.json.1.part").write_text("{")
    folder = RunFolder(tmp_path)
    with folder.owned():
        folder.prepare(RECIPE)
    assert {p.name for p in tmp_path.iterdir()} == {".lock", "recipe.json"}


# -- no disk space ---------------------------------------------------------------------------------


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A small disk; needs the right to mount."""
    with small_disk(tmp_path / "disk", "1600k") as disk:
        yield disk


@pytest.mark.slow
def test_no_space_for_a_checkpoint(nursery: Nursery, disk: SmallDisk) -> None:
    """Two checkpoints of 0.65 MB fit, the third does not."""
    out = disk.path / "run"
    life = nursery.start(digits()(out))
    assert life.wait() == 2, life.said()
    line = one_line(life)
    assert "No space left on device; nothing was lost, make room and run again" in line
    assert "step-000000009.ckpt" in line
    assert steps_saved(out) == [3, 6]
    assert parts(out) == []

    life = nursery.start(digits()(out))  # without making room
    assert life.wait() == 2, life.said()
    assert "No space left on device" in one_line(life)
    assert steps_saved(out) == [3, 6]

    assert disk.resize("8m") == ""
    life = nursery.run(digits()(out))
    assert "going on from step 6 of 30" in life.said()
    same(out, nursery.uninterrupted(digits()))


@pytest.mark.slow
def test_no_space_for_the_curves(nursery: Nursery, disk: SmallDisk) -> None:
    """Not one byte is left in the middle of an epoch."""
    run = digits("--checkpoint-steps", "5", epochs=4)
    out = disk.path / "run"
    assert disk.resize("8m") == ""
    life = nursery.start(run(out), slow_disk=0.2)
    assert until(lambda: steps_saved(out), life), life.said()
    disk.fill()
    assert life.wait() == 2, life.said()
    assert "No space left on device" in one_line(life)
    assert parts(out) == []
    (disk.path / "filler").unlink()
    nursery.run(run(out))
    same(out, nursery.uninterrupted(run))


@pytest.mark.slow
def test_no_space_for_the_weights(nursery: Nursery, disk: SmallDisk) -> None:
    run = digits("--checkpoint-steps", "100000", epochs=1)
    out = disk.path / "run"
    assert disk.resize("200k") == ""
    life = nursery.start(run(out))
    assert life.wait() == 2, life.said()
    assert "weights.safetensors" in one_line(life)
    assert not (out / "weights.safetensors").exists()
    assert not (out / "result.json").exists(), "it must not pass for a finished run"
    assert disk.resize("8m") == ""
    nursery.run(run(out))
    same(out, nursery.uninterrupted(run))
