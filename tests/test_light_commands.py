"""Commands that answer at once: what needs no torch does not load it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

LANDSCAPE = next(
    (Path(__file__).parents[1] / "results" / "landscapes" / "fixnorm").glob("*.json")
).as_posix()

ALL = """
import contextlib, io, json, sys
import fixnorm
from fixnorm.commands import run
def train(lr, alpha, steps):
    return -abs(lr - 1) - abs(alpha - 2)
fixnorm.tune(train, steps=10, splits=2, alphas=(0.5, 2.0), out="study")
assert "torch" not in sys.modules
answers = []
for words in json.loads(sys.argv[1]):
    said, before = io.StringIO(), "torch" in sys.modules
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        try:
            run(words)
        except SystemExit as end:
            answers.append([end.code, said.getvalue(), "torch" in sys.modules and not before])
print(json.dumps(answers))
"""
"""One process for all of them; each says whether it is the one that has loaded torch."""

COMMANDS = ("audit", "recipes", "train", "tune", "report", "replay", "reproduce", "export", "fold")
RIGHT = [
    "--help",
    "--version",
    *(f"{command} --help" for command in COMMANDS),
    "recipes",
    "recipes --json",
    "report study",
    f"replay {LANDSCAPE} --strategies paper,random,tpe --replays 2",
]
WRONG = {
    "nonsense": "No such command 'nonsense'",
    "train --nonsense": "No such option: --nonsense",
    "train": "Missing argument",
    "train digit": "unknown recipe 'digit': nearest are digits",
    "train digits --method sgd": "method must be one of",
    "train digits --set lrr=1": "a recipe has no field 'lrr'",
    "train digits --set lr=-1": "lr: ",
    "train digits --keep 0": "Invalid value for '--keep'",
    "train digits --branches a": "--branches needs numbers",
    "train digits --out file": "file is a file: give another --out",
    "train digits --data .": "digits is embedded and takes no folder",
    "train cifar10-small --data nowhere": "data folder nowhere does not exist",
    "train coco-small --data nowhere": "holds the COCO files",
    "train cityscapes-small": "cityscapes needs a folder",
    "tune digit": "unknown recipe 'digit'",
    "tune digits --method sgd": "method must be fixnorm or bo-weight-decay",
    "tune digits --plan nonsense": "plan must be one of",
    "tune digits --alphas a": "--alphas needs numbers",
    "tune digits --splits 0": "splits",
    "tune digits --engine slurm": "engine must be local or ray",
    "tune cifar10-small --data nowhere": "data folder nowhere does not exist",
    "report nowhere": "nowhere/study.db does not exist",
    "replay nowhere": "nowhere does not exist",
    "replay --strategies nonsense": "unknown strategy 'nonsense'",
    "replay --replays 0": "replays must be",
    "reproduce fig9": "no experiment 'fig9'",
    "reproduce fig1 --scale huge": "scale must be small or paper",
    "reproduce fig1 --out file": "file is a file",
    "export nowhere": "nowhere does not exist",
    "fold nowhere out.pth": "there is no nowhere",
    "fold file out.pth --alpha -1": "--alpha must be a positive number",
    "audit timm/resnet50d --size 3x": "--size must look like 3x224x224",
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str, bool]]:
    place = tmp_path_factory.mktemp("light")
    (place / "file").touch()
    lines = [*WRONG, *RIGHT]
    words = json.dumps([line.split() for line in lines])
    done = subprocess.run(
        [sys.executable, "-c", ALL, words], cwd=place, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(lines, json.loads(done.stdout.splitlines()[-1]), strict=True))


@pytest.mark.parametrize("line", RIGHT, ids=lambda line: line.replace(LANDSCAPE, "LANDSCAPE"))
def test_what_needs_no_torch_does_without(
    line: str, answers: dict[str, tuple[int, str, bool]]
) -> None:
    code, said, torch = answers[line]
    assert code == 0, said
    assert not torch


@pytest.mark.parametrize("line", WRONG)
def test_a_mistake_is_told_without_torch(
    line: str, answers: dict[str, tuple[int, str, bool]]
) -> None:
    code, said, torch = answers[line]
    assert code == 2
    assert WRONG[line] in said
    assert len(said.splitlines()) == 1
    assert not torch
