"""What the README and the pages say is so: files are there, messages are ours, costs counted."""

from __future__ import annotations

import ast
import importlib.util
import re
from functools import cache
from pathlib import Path

import pytest

from fixnorm import recipes
from fixnorm.evidence.cost import Counter
from fixnorm.tuning.estimate import training_images
from helpers.pages import PAGES, ROOT, blocks


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_scripts_that_commands_name_are_there(page: Path) -> None:
    for script in re.findall(r"python (\w+/\w+\.py)", page.read_text()):
        assert (ROOT / script).exists()


def test_the_map_of_the_code_is_the_code() -> None:
    (drawn,) = blocks(ROOT / "docs/code.md", "")
    names = {line.split()[0].rstrip("/") for line in drawn.splitlines()[1:]}
    package = ROOT / "src/fixnorm"
    assert {name for name in names if not any(package.rglob(name))} == set()
    folders = {path.name for path in package.iterdir() if path.is_dir()} - {"__pycache__"}
    assert folders <= names


def test_the_page_of_what_was_tried_is_what_the_tests_say() -> None:
    spec = importlib.util.spec_from_file_location("page", ROOT / "benchmarks/compatibility_page.py")
    assert spec is not None
    assert spec.loader is not None
    page = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(page)
    written = page.PAGE.read_text()
    assert page.filled(written, page.tried()) == written


@cache
def strings_of_the_source() -> list[str]:
    """Every string of the package, with … for what is filled in."""
    found = []
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Expr):  # a docstring is not said to anybody
                node.value = ast.Constant(None)
            elif isinstance(node, ast.JoinedStr):
                parts = [v.value if isinstance(v, ast.Constant) else "…" for v in node.values]
                found.append("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return found


def said(message: str) -> bool:
    """Whether the package can say this; … stands for anything."""
    pattern = re.compile(".*".join(map(re.escape, message.strip("… ").split("…"))), re.DOTALL)
    return any(pattern.search(string) for string in strings_of_the_source())


def messages() -> list[str]:
    text = (ROOT / "docs/troubleshooting.md").read_text()
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    about_errors = [part for part in sections if not part.startswith("It trains")]
    return re.findall(r"\*\*(.+?)\*\*", "\n".join(about_errors))


def test_messages_explained_are_those_of_the_source() -> None:
    assert len(messages()) > 40
    assert [message for message in messages() if not said(message)] == []
    assert not said("the model has no … wheels")


COSTS = re.findall(
    r"^\| `([\w.-]+)` \|.*\| ([\d.]+) \| (\d+) \|$",
    (ROOT / "docs/scale.md").read_text(),
    re.MULTILINE,
)


@pytest.mark.parametrize(("name", "training", "search"), COSTS)
def test_gpu_hours_are_as_counted(name: str, training: str, search: str) -> None:
    recipe = recipes.get(name)
    operations = training_images(recipe, None) * Counter(measure=False).operations(recipe)
    hours = operations / 40e12 / 3600
    assert float(training) == pytest.approx(hours, abs=0.06)
    assert float(search) == pytest.approx(11 * hours, abs=0.6)


def test_every_recipe_of_the_paper_has_its_cost() -> None:
    text = (ROOT / "docs/scale.md").read_text()
    paper = [name for name in recipes.names() if recipes.get(name).paper_score is not None]
    assert len(COSTS) >= 9
    assert [name for name in paper if f"`{name.removesuffix('-cos')}`" not in text] == []
