"""Every command that the README and the pages show is run, in a folder with small data.

A search and an experiment are run with ``--dry-run``; a training on data that is not here
(ImageNet, Cityscapes, COCO) is taken up to its first step: recipe, method and settings are resolved
and its data is found. ``tests/training/test_recipes_run.py`` trains every recipe for some steps.
"""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer
from PIL import Image
from safetensors.torch import save_file
from torch import nn

import fixnorm
from fixnorm.commands import run
from fixnorm.commands.app import app
from fixnorm.commands.configured import configured
from fixnorm.evidence import cost
from fixnorm.evidence.cost import forward_operations
from fixnorm.evidence.experiments import names_of
from fixnorm.training.tasks import task_of
from fixnorm.tuning import estimate
from helpers.dense_sets import make_cityscapes, make_coco
from helpers.pages import PAGES, README, ROOT, blocks, commands, commands_of
from helpers.runs import shared_nursery

SHORT = ("--set", "epochs=1", "--set", "warmup_epochs=0")
FEW = ("--splits", "2", "--fractions", "1", "--alphas", "0.5", "--workers", "1")


def parsed(words: list[str]) -> tuple[str, dict[str, Any]]:
    """The command's name and arguments, by the command line's own parser; nothing is run."""
    if words[0].startswith("--"):  # an option of all commands
        words = words[1:]
    group: Any = typer.main.get_command(app)
    return words[0], group.commands[words[0]].make_context(words[0], words[1:]).params


def called(*words: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        run(list(words))
    assert not stopped.value.code, words


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a reader stands: their data by the names of the pages, a run, a search, the results."""
    place = tmp_path_factory.mktemp("ground")
    images(place / "imagenet")
    for root in (place, place / "DATA"):
        root.mkdir(exist_ok=True)
        for name in ("cifar10", "tiny_imagenet_100"):
            (root / name).symlink_to(place / "imagenet")
    for lower, make in (("cityscapes", make_cityscapes), ("coco", make_coco)):
        (place / lower.upper()).symlink_to(make(place / lower))
        (place / "DATA" / lower).symlink_to(place / lower)
    (place / "results").symlink_to(ROOT / "results")
    checkpoints(place)
    called("train", "digits", "--out", str(place / "runs/digits-fixnorm-0"), *SHORT)
    search = ["tune", "digits", "--out", str(place / "study"), *SHORT, *FEW]
    shared_nursery().run(search, drawn=False)
    return place


def images(root: Path) -> None:
    rng = np.random.default_rng(0)
    for split in ("train", "val"):
        for name in ("ant", "bee"):
            folder = root / split / name
            folder.mkdir(parents=True)
            for i in range(3):
                pixels = rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{i}.jpg")


def checkpoints(root: Path) -> None:
    """Of a converted model, as others' scripts write them."""
    state = nn.Sequential(fixnorm.FixNormLinear(3, 2, alpha=1.0)).state_dict()
    torch.save({"state_dict": state, "state_dict_ema": state}, root / "model_best.pth.tar")
    torch.save({"state_dict": state}, root / "epoch=9.ckpt")
    (root / "checkpoint-500").mkdir()
    save_file(state, root / "checkpoint-500/model.safetensors")


def run_shown(words: list[str], out: Path) -> None:
    """Run a shown command, cut where what it needs is not here."""
    name, arguments = parsed(words)
    if name == "train" and arguments["recipe"] != "digits":
        recipe = configured(arguments["recipe"], arguments["method"], arguments["settings"])
        assert task_of(recipe).training_images(arguments["data"]) > 0
    elif name == "train":
        called(*words, *SHORT, "--out", str(out))
    elif name == "tune":
        called(*words, "--dry-run")
    elif name == "reproduce" and arguments["stored"] is None:
        names = names_of(arguments["names"])
        small = arguments["scale"] == "small"
        dry_experiment(*(["all"] if small else names), scale=arguments["scale"])
    elif name == "replay":
        called(*words, "--replays", "2", "--budget", "3", "--out", str(out))
    elif name in ("reproduce", "export", "report"):
        called(*words, "--out", str(out.with_suffix(".safetensors" if name == "export" else "")))
    elif name == "fold":  # several pages write to one name
        called(*words, "--force")
    else:
        called(*words)


@cache
def dry_experiment(*names: str, scale: str) -> None:
    """Once for all commands that differ in where trainings go; of the small ones, all at once."""
    called("reproduce", *names, "--scale", scale, "--dry-run")


def unfinished(words: list[str]) -> bool:
    """A command that is named in the text with words to fill in, or a part of one."""
    return words in (["tune", "--engine", "ray"], ["reproduce", "landscapes"]) or "RECIPE" in words


SHOWN = sorted({tuple(words) for page in PAGES for words in commands_of(page)})


OPERATIONS: dict[str, float] = {}


def counted_once(recipe: Any) -> float:
    """Of a network that several experiments have."""
    name = cost._network(recipe)
    if name not in OPERATIONS:
        OPERATIONS[name] = forward_operations(recipe)
    return OPERATIONS[name]


@pytest.mark.slow
@pytest.mark.parametrize("words", SHOWN, ids=" ".join)
def test_command(
    words: tuple[str, ...], ground: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ground)
    monkeypatch.setattr(estimate, "seconds_of_training", lambda *_, **__: 60.0)
    monkeypatch.setattr(estimate, "_MEASURED", 0.05)  # of each network of an experiment
    monkeypatch.setattr(cost, "forward_operations", counted_once)
    if unfinished(list(words)):
        parsed(list(words))
    else:
        run_shown(list(words), tmp_path / "out")


def test_a_wrong_command_is_noticed() -> None:
    (wrong,) = commands(["fixnorm train digits --epochs 3  # an option it has not\n"])
    with pytest.raises(Exception, match="No such option: --epochs"):
        parsed(wrong)
    (split,) = commands(["torchrun -m fixnorm train \\\n  digits\n"])
    assert split == ["train", "digits"]
    assert commands([], "by `fixnorm tune` or `fixnorm tune digits`") == [["tune", "digits"]]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_shell_blocks_are_shell(page: Path) -> None:
    for block in blocks(page, "sh"):
        subprocess.run(["bash", "-n"], input=block, text=True, check=True)


@pytest.mark.parametrize("page", [README, ROOT / "docs/your-model.md"], ids=lambda page: page.name)
def test_what_a_console_shows_is_what_is_printed(
    page: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (block,) = blocks(page, "console")
    (words,) = commands([block])
    called(*words)
    said = [line.split() for line in capsys.readouterr().out.splitlines()]
    shown = [line.split() for line in block.splitlines()[1:] if line != "…"]
    assert len(shown) >= 3
    # Of a parameter all but the last word: what is measured of a zero differs from place to place.
    rows = {tuple(line[:4]) for line in said}
    assert [line for line in shown if tuple(line[:4]) not in rows] == []
    assert shown[-1] in said
