"""The diffs of docs/integrations.md: few lines, and the script after the change is FixNorm's."""

from __future__ import annotations

import math
import re
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from helpers.frameworks import CLASSES, Rescales, images, loss, need_ray

PAGE = (Path(__file__).parents[2] / "docs/integrations.md").read_text()
SECTIONS = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE))
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*(num_workers|log_every_n_steps|pin_memory|CUDA|logger)"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


def make_model() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, bias=False), nn.BatchNorm2d(6), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, CLASSES),
    )  # fmt: skip


def names() -> dict[str, Any]:
    """What a user's script has already."""
    loader = DataLoader(images(), batch_size=8)
    return {
        "torch": torch,
        "F": nn.functional,
        "make_model": make_model,
        "model": make_model(),
        "loader": loader,
    }


def changed(section: str) -> tuple[list[str], str]:
    """The added lines of a section's diff, and the script after the change."""
    (diff,) = re.findall(r"```diff\n(.*?)```", SECTIONS[section], re.DOTALL)
    lines = diff.splitlines()
    return [line[1:] for line in lines if line.startswith("+")], "\n".join(
        line[1:] for line in lines if not line.startswith("-")
    )


@pytest.mark.parametrize("section", SECTIONS)
def test_at_most_four_lines(section: str) -> None:
    added, _ = changed(section)
    assert 1 <= len(added) <= 4


def lightning(space: dict[str, Any], folder: Path) -> None:
    pytest.importorskip("lightning")


def transformers(space: dict[str, Any], folder: Path) -> None:
    pytest.importorskip("transformers")
    from transformers import ResNetConfig, ResNetForImageClassification

    from helpers.transformers_run import arguments, examples

    config = ResNetConfig(
        embedding_size=6, hidden_sizes=[6], depths=[1], layer_type="basic", num_labels=CLASSES
    )
    space["model"] = ResNetForImageClassification(config)
    space["args"] = arguments(folder, num_train_epochs=1, learning_rate=1.4)
    space["dataset"] = examples()


def accelerate(space: dict[str, Any], folder: Path) -> None:
    library = pytest.importorskip("accelerate")
    space["accelerator"] = library.Accelerator(cpu=True)


def timm(space: dict[str, Any], folder: Path) -> None:
    pytest.importorskip("timm")
    space["args"] = Namespace(opt="sgd", lr=1.4, weight_decay=0.0, momentum=0.9, opt_kwargs={})


PREPARE: dict[str, Callable[[dict[str, Any], Path], None]] = {
    "Lightning": lightning,
    "transformers": transformers,
    "Accelerate": accelerate,
    "timm": timm,
}


@pytest.mark.parametrize("section", PREPARE)
def test_the_changed_script_trains(
    section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: Rescales
) -> None:
    monkeypatch.chdir(tmp_path)
    space = names()
    PREPARE[section](space, tmp_path)
    _, script = changed(section)
    exec(compile(script, f"docs/integrations.md, {section}", "exec"), space)
    if section == "timm":  # the script goes on to train
        for x, y in space["loader"]:
            loss(space["model"], x, y).backward()
            space["optimizer"].step()
    assert seen.count == 4  # 32 images, 8 a batch
    assert seen.norms == pytest.approx(seen.targets, rel=1e-6)


def test_the_changed_optuna_script_finds() -> None:
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)

    def objective(trial: Any) -> float:
        lr = trial.suggest_float("lr", 0.2, 3.2)
        return -(math.log(lr / 1.4) ** 2) - abs(trial.params["alpha"] - 2)

    space: dict[str, Any] = {"optuna": optuna, "objective": objective}
    exec(changed("Optuna")[1], space)
    assert (space["best"].lr, space["best"].alpha) == (1.4, 2.0)
    assert len(space["study"].trials) == 15


def test_the_changed_ray_script_calls_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real thing is in test_ray_function.py; starting a cluster takes ten seconds."""
    need_ray()
    import inspect

    import optuna

    import fixnorm.integrations.ray

    real, calls = fixnorm.integrations.ray.optimize, []

    def kept(*args: Any, **kwargs: Any) -> None:
        inspect.signature(real).bind(*args, **kwargs)
        calls.append(kwargs)

    monkeypatch.setattr(fixnorm.integrations.ray, "optimize", kept)
    monkeypatch.chdir(tmp_path)
    exec(changed("Ray")[1], {"optuna": optuna, "train": print})
    assert calls == [{"steps": 10_000, "gpus": 1}]
