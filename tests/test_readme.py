"""Every Python block of the README runs, in order, in one namespace; the example reaches 97 %."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_python_blocks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(blocks) >= 2
    namespace: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), namespace)
    assert namespace["figures"].groups[0].target > 0
    assert namespace["found"].lr == 1.4


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda path: path.name)
def test_python_blocks_of_the_docs_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        exec(compile(block, page.name, "exec"), namespace)
        told = re.findall(r"^print\(.*\)  # (.*)$", block, re.MULTILINE)
        said = capsys.readouterr().out
        assert all(line in said for line in told)


def test_diff_is_the_three_lines() -> None:
    (diff,) = re.findall(r"```diff\n(.*?)```", README, re.DOTALL)
    added = [line[1:] for line in diff.splitlines() if line.startswith("+")]
    import fixnorm
    from small_nets import ResNet

    namespace = {"fixnorm": fixnorm, "torch": __import__("torch"), "model": ResNet()}
    exec("\n".join(added), namespace)
    assert len(added) == 3


def test_first_screen_is_at_most_forty_lines() -> None:
    assert README.splitlines().index("## Under the hood") <= 40


def test_example_trains_the_digits() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "examples/digits.py", "--epochs", "10"],
        capture_output=True,
        text=True,
        check=True,
    )
    accuracy = re.search(r"validation accuracy ([\d.]+)%", done.stdout)
    assert accuracy is not None
    assert float(accuracy[1]) >= 97
