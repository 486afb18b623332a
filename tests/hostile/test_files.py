"""Every file that a command reads, damaged in every way: the promise holds, or nothing is wrong.

A mutation may be harmless, so a command may also come to its end; what it must never do is end in
an exception, hang, write over files of others, or leave something behind when it refuses. The
environment variable ``FIXNORM_FUZZ_MINUTES`` lets each fuzzer run for so long.
"""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fixnorm.training.checkpoint import Checkpoints
from helpers.mutations import Damage, damaged_bytes, damaged_json, fuzz
from helpers.promise import answered, refused
from helpers.spoilt import COMMANDS, TRAIN, clear, kept

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("drawn_not_rendered")]


@pytest.mark.parametrize("name", list(COMMANDS))
def test_damaged_json(name: str, originals: Path, place: Path) -> None:
    clean = (originals / name).read_bytes()
    content = json.loads(clean)

    def check(damage: bytes) -> None:
        for arguments in COMMANDS[name]:
            (place / name).write_bytes(damage)
            kept(answered(arguments, place))
            clear(place)

    fuzz(damaged_json(content) | damaged_json(content) | damaged_bytes(clean), check)


WHOLE = {
    "nothing": b"",
    "not text": b"\xff\xfe\x00{",
    "latin-1": '{"name": "é"}'.encode("latin-1"),
    "a list without end": b"[" * 10_000 + b"]" * 10_000,
    "an object without end": b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
    "a number without end": b"1" * 1_000_000,
    "no number": b'{"name": NaN, "lr": Infinity}',
    "a list": b"[]",
    "null": b"null",
    "two of them": b"{}{}",
}
"""In place of a whole file: never what any of ours is."""


@pytest.mark.parametrize("name", list(COMMANDS))
def test_another_file_in_place_of_ours(name: str, place: Path) -> None:
    for kind, content in WHOLE.items():
        for arguments in COMMANDS[name]:
            (place / name).write_bytes(content)
            answer = answered(arguments, place)
            kept(answer)
            assert answer.code == 2, f"{kind}: {answer}"
            clear(place)


def test_damaged_weights(originals: Path, place: Path) -> None:
    path = place / "run" / "weights.safetensors"
    clean = (originals / "run" / "weights.safetensors").read_bytes()
    length = struct.unpack("<Q", clean[:8])[0]
    header = json.loads(clean[8 : 8 + length])

    def check(damage: bytes) -> None:
        path.write_bytes(damage)
        kept(answered(["export", "run", "--out", "out.safetensors"], place))
        clear(place)

    def with_tensors(header: bytes) -> bytes:
        return struct.pack("<Q", len(header)) + header + clean[8 + length :]

    fuzz(damaged_bytes(clean) | damaged_json(header).map(with_tensors).map(Damage), check)


def test_damaged_weights_are_written_anew_by_the_same_command(place: Path) -> None:
    """What export advises is what train does."""
    path = place / "run" / "weights.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    assert "same fixnorm train command" in refused(["export", "run"], place)
    done = answered(TRAIN, place)
    assert done.code == 0, done
    assert path.read_bytes() == whole
    assert answered(["export", "run"], place).code == 0


def checkpoint_states(place: Path) -> dict[str, Any]:
    found = Checkpoints(place / "run" / "checkpoints").latest()
    assert found is not None
    return found[1]


def _without(key: str) -> Callable[[dict[str, Any]], None]:
    return lambda state: state.pop(key)


def _as(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda state: state.__setitem__(key, value)


def _first_weight(state: dict[str, Any]) -> None:
    name = next(iter(state["model"]))
    state["model"][name] = torch.zeros(3)


def _momentum(state: dict[str, Any]) -> None:
    kept_for = next(iter(state["optimizer"]["state"].values()))
    kept_for["momentum_buffer"] = torch.zeros(2)


def _group(state: dict[str, Any]) -> None:
    state["optimizer"]["param_groups"][0]["lr"] = "fast"


def _row(state: dict[str, Any]) -> None:
    state["rows"] = [{"epoch": 1}]


KEYS = ["step", "model", "optimizer", "ema", "scaler", "running", "angle", "rows", "detail"]
KEYS += ["largest_scale", "seconds"]
SPOILT: dict[str, Callable[[dict[str, Any]], None]] = {
    **{f"no {key}": _without(key) for key in KEYS},
    **{f"text as {key}": _as(key, "x") for key in KEYS},
    "step of the future": _as("step", 10**30),
    "a weight of another shape": _first_weight,
    "a momentum of another shape": _momentum,
    "another option": _group,
    "another row": _row,
    "no sums": _as("running", []),
    "sums of another length": _as("running", [torch.zeros(2)]),
    "time that runs back": _as("seconds", -1.0),
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=list(SPOILT))
def test_a_checkpoint_that_lacks_something_is_passed_over(
    spoil: Callable[[dict[str, Any]], None], place: Path, tmp_path: Path
) -> None:
    """Named in a line, and the run goes on from the one before: the same weights in the end."""
    run = place / "run"
    expected = (run / "weights.safetensors").read_bytes()
    (run / "result.json").unlink()
    checkpoints = Checkpoints(run / "checkpoints", keep=9)
    state = checkpoint_states(place)
    last = state["step"]
    spoil(state)
    checkpoints.save(last, state)
    done = answered(TRAIN, place)
    assert done.code == 0, done
    assert "passed over: " in done.err
    assert f"step-{last:09d}.ckpt is no state of this run: " in done.err
    assert f"going on from step {last - 1} " in done.err
    assert (run / "weights.safetensors").read_bytes() == expected


def test_damaged_checkpoints(originals: Path, place: Path) -> None:
    checkpoints = sorted((place / "run" / "checkpoints").iterdir())
    clean = checkpoints[-1].read_bytes()
    (place / "run" / "result.json").unlink()
    saved = shutil.copytree(place / "run", place / "saved")

    def check(damage: bytes) -> None:
        checkpoints[-1].write_bytes(damage)
        kept(answered(TRAIN, place), chatty=True)
        shutil.rmtree(place / "run")
        shutil.copytree(saved, place / "run")

    fuzz(damaged_bytes(clean), check, share=0.3)
