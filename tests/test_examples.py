"""Every example runs by the command its docstring gives, and reaches the accuracy it claims.

A new file in ``examples/`` needs no test of its own.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from helpers.runs import Nursery, nursery, ranks

__all__ = ["nursery"]  # a fixture, which pytest looks up by name

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def command(file: Path, text: str) -> tuple[str, list[str]]:
    """``python`` or ``torchrun`` of the docstring, and the words that follow."""
    found = re.findall(rf"^    (python|torchrun) (.*\b{file.name}.*)$", text, re.MULTILINE)
    assert found, f"the docstring of {file.name} does not say how to run it"
    runner, rest = found[0]
    return runner, rest.split()


def printed(runner: str, words: list[str], nursery: Nursery) -> str:
    """``python``, and the processes of ``torchrun``, as forks of one that has loaded torch."""
    number = 1
    if runner == "torchrun":
        option, count, *words = words
        assert option == "--nproc-per-node"
        number = int(count)
    file, *arguments = words
    first, *others = ranks(nursery, arguments, number, program=ROOT / file, strict=number == 1)
    for life in (first, *others):
        assert life.wait() == 0, life.said()
    return first.said()


@pytest.mark.slow
@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_example(file: Path, nursery: Nursery) -> None:
    text = ast.get_docstring(ast.parse(file.read_text()), clean=False) or ""
    said = printed(*command(file, text), nursery)
    claims = re.findall(r"reach(?:es)?\s+(\d+) %", text)
    scores = re.findall(r"accuracy ([\d.]+)%", said)
    assert len(claims) <= 1
    assert all(scores and float(scores[-1]) >= float(claim) for claim in claims), said


def test_examples_are_short() -> None:
    """One idea each: what needs a hundred lines belongs into the package."""
    assert {file.name for file in EXAMPLES if len(file.read_text().splitlines()) > 90} == set()
