"""Checkpoints that are damaged, foreign, of another recipe, or too many."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fixnorm.training.checkpoint import Checkpoints
from helpers.runs import Nursery, digits, nursery, one_line, parts, same, steps_saved, until

__all__ = ["nursery"]  # a fixture, which pytest looks up by name

Damage = Callable[[Path], None]


class Touch:
    """What a malicious pickle does when it is loaded: here, make a file."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.target),)


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1000])


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def flipped_header(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[30] ^= 1
    path.write_bytes(content)


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def text(path: Path) -> None:
    path.write_text("see step 6\n")


def plain_pickle(path: Path) -> None:
    torch.save({"recipe": {}, "model": Touch(path.parent / "executed")}, path)


def sealed(state: Any, path: Path) -> None:
    """A file with the header and checksum of a checkpoint."""
    body = io.BytesIO()
    torch.save(state, body)
    digest = hashlib.sha256(body.getvalue()).hexdigest().encode()
    path.write_bytes(b"fixnorm checkpoint 1\n" + digest + b"\n" + body.getvalue())


def sealed_pickle(path: Path) -> None:
    sealed({"recipe": {}, "model": Touch(path.parent / "executed")}, path)


def sealed_weights(path: Path) -> None:
    sealed({"fc.weight": torch.zeros(2)}, path)


DAMAGES = (
    truncated,
    flipped,
    flipped_header,
    emptied,
    text,
    plain_pickle,
    sealed_pickle,
    sealed_weights,
)

# -- in a run --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def killed_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Nursery], Path]:
    """A run with two checkpoints, killed by the first test that needs it."""
    out = tmp_path_factory.mktemp("killed") / "run"

    def make(nursery: Nursery) -> Path:
        if not out.exists():
            life = nursery.start(digits()(out))
            assert until(lambda: len(steps_saved(out)) > 1, life), life.said()
            life.kill()
        return out

    return make


@pytest.fixture
def killed(nursery: Nursery, killed_run: Callable[[Nursery], Path], tmp_path: Path) -> Path:
    """A copy of it to spoil."""
    return shutil.copytree(killed_run(nursery), tmp_path / "run")


def newest(out: Path) -> Path:
    return sorted((out / "checkpoints").glob("step-*.ckpt"))[-1]


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(
    nursery: Nursery, killed: Path, damage: Damage
) -> None:
    before = steps_saved(killed)[-2]
    spoilt = newest(killed)
    damage(spoilt)
    life = nursery.run(digits()(killed))
    (line,) = [line for line in life.said().splitlines() if line.startswith("passed over: ")]
    assert str(spoilt) in line
    assert f"going on from step {before} of 30" in life.said()
    same(killed, nursery.uninterrupted(digits()))
    assert not (killed / "checkpoints" / "executed").exists(), "a foreign pickle was executed"


def test_the_malicious_pickle_would_act_if_it_were_loaded(tmp_path: Path) -> None:
    plain_pickle(tmp_path / "file")
    torch.load(tmp_path / "file", weights_only=False)
    assert (tmp_path / "executed").is_dir()


def test_no_whole_checkpoint_means_the_beginning_and_is_said(
    nursery: Nursery, killed: Path
) -> None:
    for path in (killed / "checkpoints").glob("step-*.ckpt"):
        truncated(path)
    life = nursery.run(digits()(killed))
    assert life.said().count("passed over: ") == 2
    assert "no whole checkpoint is left: starting from the beginning" in life.said()
    assert "going on from" not in life.said()
    same(killed, nursery.uninterrupted(digits()))


@pytest.mark.slow
def test_a_checkpoint_of_another_recipe_is_refused_by_name(
    nursery: Nursery, killed: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    life = nursery.start(digits("--set", "lr=0.5")(other))
    assert until(lambda: steps_saved(other), life), life.said()
    life.kill()
    stranger = killed / "checkpoints" / "step-000000029.ckpt"
    shutil.copy(newest(other), stranger)
    life = nursery.start(digits()(killed))
    assert life.wait() == 2
    line = one_line(life)
    assert f"{stranger} is a checkpoint of another recipe: lr (0.5 there, 0.8 here);" in line
    stranger.unlink()  # what the message says
    nursery.run(digits()(killed))
    same(killed, nursery.uninterrupted(digits()))


@pytest.mark.slow
@pytest.mark.parametrize(("keep", "left"), [(1, [30]), (3, [24, 27, 30])])
def test_as_many_are_kept_as_asked_for(
    nursery: Nursery, tmp_path: Path, keep: int, left: list[int]
) -> None:
    out = tmp_path / "run"
    nursery.run(digits("--keep", str(keep))(out))
    assert steps_saved(out) == left
    same(out, nursery.uninterrupted(digits()))  # and it is no part of the training


def test_half_written_files_are_cleared_away(nursery: Nursery, killed: Path) -> None:
    leftovers = [
        killed / "checkpoints" / ".step-000000009.ckpt.123.part",
        killed / ".metrics.csv.123.part",
    ]
    for path in leftovers:
        path.write_bytes(b"half")
    assert len(parts(killed)) >= 2
    nursery.run(digits()(killed))
    assert parts(killed) == []


# -- by themselves ---------------------------------------------------------------------------------


def state(step: int) -> dict[str, Any]:
    return {"recipe": {"name": "r"}, "step": step, "weight": torch.full((3,), float(step))}


def loaded_step(checkpoints: Checkpoints) -> int:
    found = checkpoints.latest()
    assert found is not None
    assert found[1]["weight"].tolist() == [found[1]["step"]] * 3
    return int(found[1]["step"])


def test_the_newest_is_by_number_not_by_name(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(9, state(9))
    checkpoints.save(10**9, state(10**9))  # one digit more than names are padded to
    assert loaded_step(checkpoints) == 10**9


@pytest.mark.parametrize("keep", [1, 2])
def test_a_damaged_later_one_takes_no_place(tmp_path: Path, keep: int) -> None:
    checkpoints = Checkpoints(tmp_path, keep=keep)
    checkpoints.save(3, state(3))
    checkpoints.save(9, state(9))
    truncated(tmp_path / "step-000000009.ckpt")
    checkpoints.save(3, state(3))  # keep=1 had dropped it
    assert loaded_step(checkpoints) == 3
    checkpoints.save(7, state(7))
    assert [p.name for p in checkpoints._paths()] == [
        f"step-{step:09d}.ckpt" for step in (3, 7)[-keep:]
    ]
    assert loaded_step(checkpoints) == 7


def test_a_failed_write_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(3, state(3))

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device; nothing was lost, make room"):
        checkpoints.save(3, state(4))
    assert [p.name for p in tmp_path.iterdir()] == ["step-000000003.ckpt"]
    assert loaded_step(checkpoints) == 3


def test_an_empty_or_missing_folder_has_none(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "none").latest() is None
    (tmp_path / "notes.ckpt").write_text("not named as one")
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.latest() is None
    assert checkpoints.damaged == []
