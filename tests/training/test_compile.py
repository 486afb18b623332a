"""``compile``: the same training, and one line where the machine has no compiler.

Trainings are traced but run without C++, which takes half a minute; ``test_loop.py`` has it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fixnorm.commands import run
from fixnorm.training import RunOptions, changed, setup, train
from fixnorm.training.checkpoint import read
from fixnorm.training.compiling import check_compiles
from helpers.runs import Outcome
from helpers.small_runs import assert_close, small, weights_of

COMPILED = small(lr=0.1, alpha=16.0, epochs=2, drop=0.3, ema=0.9, compile=True)
"""Four steps, with draws of their own and an average."""


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Trains into a folder of that name, without the C++."""
    torch.compiler.reset()

    def traced(model: nn.Module) -> Any:
        return torch.compile(model, backend="eager")

    monkeypatch.setattr(setup, "compiled", traced)
    monkeypatch.setattr("fixnorm.training.loop.check_compiles", lambda _: None)

    def train_into(name: str, changes: dict[str, Any] | None = None, **options: Any) -> Path:
        out = tmp_path / name
        recipe = changed(COMPILED, **(changes or {}))
        train(recipe, data=None, out=out, options=RunOptions(tensorboard=False, **options))
        return out

    return train_into


@pytest.mark.slow
def test_names_and_averages_are_those_of_a_plain_training(trained: Callable[..., Path]) -> None:
    graphs = torch._dynamo.utils.counters["stats"]
    before = graphs["unique_graphs"]
    plain = trained("plain", {"compile": False})
    assert graphs["unique_graphs"] == before
    faster = trained("compiled", checkpoint_steps=3)
    assert graphs["unique_graphs"] > before
    assert_close(weights_of(faster), weights_of(plain), 1e-3)
    saved = read(faster / "checkpoints" / "step-000000003.ckpt")
    assert saved["model"].keys() == saved["ema"].keys() == weights_of(plain).keys()


@pytest.mark.slow
def test_resumed_runs_and_branches_have_the_same_bits(trained: Callable[..., Path]) -> None:
    longer = {"lr": 0.8, "epochs": 4, "train_per_class": 16, "batch_size": 20}  # g grows
    trunk = trained("trunk", longer, checkpoint_steps=20, branches=(0.6,))
    resumed = trunk.with_name("resumed")
    shutil.copytree(trunk, resumed)
    for name in ("result.json", "weights.safetensors"):
        (resumed / name).unlink()
    torch.compiler.reset()
    trained("resumed", longer)
    assert Outcome.of(resumed) == Outcome.of(trunk)

    full = trained("full", longer | {"alpha": 0.6})
    branch = trained("branch", longer | {"alpha": 0.6}, origin=trunk)
    found, expected = Outcome.of(branch), Outcome.of(full)
    assert found.numbers["share"] < 1
    assert found.weights == expected.weights != Outcome.of(trunk).weights


@pytest.mark.parametrize("command", ["no-such-compiler", "no-such-compiler -m64", ""])
def test_without_a_compiler_nothing_is_begun(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
) -> None:
    monkeypatch.setenv("CXX", command)
    out = tmp_path / "run"
    with pytest.raises(SystemExit) as refused:
        run(["train", "digits", "--set", "compile=true", "--out", str(out)])
    assert refused.value.code == 2
    said = capsys.readouterr().err.strip()
    assert len(said.splitlines()) == 1
    name = "no-such-compiler" if command else "CXX"
    assert f"compile: torch.compile needs a C++ compiler but there is no {name!r}" in said
    assert said.endswith("or set compile=false")
    assert not out.exists()


def test_a_compiler_that_fails_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("fatal error:\n Python.h: No such file")

    monkeypatch.setattr(torch, "compile", lambda *_, **__: fails)
    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/c++")
    message = r"torch\.compile fails on this machine: fatal error: Python\.h: No such file; install"
    with pytest.raises(ValueError, match=message):
        check_compiles(torch.device("cpu"))
