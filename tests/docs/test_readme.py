"""Every Python block of the README and of the docs runs, and so do the three lines of the diff."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import fixnorm
from helpers.pages import PAGES, README, ROOT, added, blocks
from helpers.small_nets import ResNet


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In order, in one namespace; what a comment says is printed is printed."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    for block in blocks(page, "python"):
        exec(compile(block, page.name, "exec"), namespace)
        told = re.findall(r"^print\(.*\)  # (.*)$", block, re.MULTILINE)
        said = capsys.readouterr().out
        assert [line for line in told if line not in said] == []


def test_there_are_blocks_to_run() -> None:
    assert len(blocks(README, "python")) >= 2
    assert sum(len(blocks(page, "python")) for page in PAGES) >= 12


@pytest.mark.parametrize("page", [README, ROOT / "docs/index.md"], ids=lambda page: page.name)
def test_diff_is_the_three_lines(page: Path) -> None:
    (diff,) = blocks(page, "diff")
    model = ResNet()
    script = {"model": model, "epochs": 2, "loader": range(10)}
    namespace = {"fixnorm": fixnorm, "torch": torch, **script}
    exec("\n".join(added(diff)), namespace)
    assert len(added(diff)) == 3
    optimizer = namespace["optimizer"]
    model(torch.randn(4, 3, 8, 8)).square().sum().backward()
    optimizer.step()
    fixed = optimizer.param_groups[0]
    norm = sum(float(p.detach().double().square().sum()) for p in fixed["params"]) ** 0.5
    assert norm == pytest.approx(fixed["fixnorm_target"], rel=1e-6)


def test_first_screen_is_at_most_forty_lines() -> None:
    assert README.read_text().splitlines().index("## Under the hood") <= 40


def test_the_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) <= 150
