"""Every example runs by the command its docstring gives, and reaches the accuracy it claims.

A new file in ``examples/`` needs no test of its own.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
RUNNERS = {"python": ["-W", "error::UserWarning"], "torchrun": ["-m", "torch.distributed.run"]}


def command(file: Path, text: str) -> list[str]:
    """``python …`` or ``torchrun …`` of the docstring, with this interpreter."""
    found = re.findall(rf"^    (python|torchrun) (.*\b{file.name}.*)$", text, re.MULTILINE)
    assert found, f"the docstring of {file.name} does not say how to run it"
    runner, rest = found[0]
    return [sys.executable, *RUNNERS[runner], *rest.split()]


@pytest.mark.slow
@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_example(file: Path) -> None:
    text = ast.get_docstring(ast.parse(file.read_text()), clean=False) or ""
    paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        command(file, text),
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    claims = re.findall(r"reach(?:es)?\s+(\d+) %", text)
    scores = re.findall(r"accuracy ([\d.]+)%", done.stdout)
    assert len(claims) <= 1
    assert all(scores and float(scores[-1]) >= float(claim) for claim in claims), done.stdout


def test_examples_are_short() -> None:
    """One idea each: what needs a hundred lines belongs into the package."""
    assert {file.name for file in EXAMPLES if len(file.read_text().splitlines()) > 90} == set()
