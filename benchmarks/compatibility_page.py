"""What FixNorm was tried with, from the tests that tried it: fills docs/compatibility.md.

A test says what it tries with a mark::

    @pytest.mark.tried("Optimizers", "SAM (pytorch_optimizer)", "works", "both ways to step")

area, what, verdict (``works``, ``refused``, ``how to``) and, where needed, one more sentence. Run
``python benchmarks/compatibility_page.py`` after a change; a test holds the page equal to them.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "compatibility.md"
BEGIN, END = "<!-- tried -->\n", "<!-- /tried -->\n"
AREAS = ("Trainers", "Optimizers", "Models", "Features of torch", "Leaving FixNorm")
VERDICTS = ("works", "how to", "refused")


class Tried(NamedTuple):
    """One mark of one test."""

    area: str
    what: str
    verdict: str
    note: str
    test: str


def tried() -> list[Tried]:
    """All marks, by area and verdict."""
    found = [mark for file in sorted((ROOT / "tests").rglob("test_*.py")) for mark in _marks(file)]
    for mark in found:
        if mark.area not in AREAS or mark.verdict not in VERDICTS:
            raise ValueError(f"{mark.test}: no such area or verdict: {mark.area}, {mark.verdict}")
    order = lambda m: (AREAS.index(m.area), VERDICTS.index(m.verdict), m.what.lower())  # noqa: E731
    return sorted(found, key=order)


def filled(page: str, marks: list[Tried]) -> str:
    """The page with the marks' tables between its two comments."""
    before, rest = page.split(BEGIN)
    return (
        before + BEGIN + "\n".join(_table(area, marks) for area in AREAS) + END + rest.split(END)[1]
    )


def _marks(file: Path) -> list[Tried]:
    found = []
    for node in ast.walk(ast.parse(file.read_text())):
        if not isinstance(node, ast.FunctionDef):
            continue
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).endswith(
                "mark.tried"
            ):
                words = [ast.literal_eval(argument) for argument in decorator.args]
                area, what, verdict, note = (*words, "")[:4]
                found.append(Tried(area, what, verdict, note, f"{file.stem}::{node.name}"))
    return found


def _table(area: str, marks: list[Tried]) -> str:
    rows = [
        f"| {m.what} | {m.verdict} | {m.note} | `{m.test.partition('::')[0]}` |"
        for m in marks
        if m.area == area
    ]
    head = [f"\n## {area}\n", "| what | verdict | how, or why not | tests |", "|---|---|---|---|"]
    return "\n".join([*head, *rows]) + "\n"


def main() -> None:
    PAGE.write_text(filled(PAGE.read_text(), tried()))


if __name__ == "__main__":
    main()
