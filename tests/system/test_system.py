"""The part for processes and files: the standard library alone, and one word for a value."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import fixnorm
from fixnorm.system import brief
from fixnorm.system.versions import commit, versions

PACKAGE = Path(fixnorm.__file__).parent
MODULES = sorted(path.stem for path in (PACKAGE / "system").glob("[!_]*.py"))


def test_it_needs_the_standard_library_alone() -> None:
    # Without site-packages (-S) any other library fails to load; the package itself needs torch.
    code = (
        "import sys, types, importlib\n"
        f"package = types.ModuleType('fixnorm'); package.__path__ = [{str(PACKAGE)!r}]\n"
        "sys.modules['fixnorm'] = package\n"
        f"for name in {MODULES!r}: importlib.import_module(f'fixnorm.system.{{name}}')\n"
        "parts = {name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names)\n"
        "print(*sorted(parts - {'fixnorm', '__main__', '__mp_main__'}))\n"
        "print(*sorted(n for n in sys.modules if n.startswith('fixnorm.')))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    others, ours = done.stdout.splitlines()
    assert others == ""
    assert ours.split() == sorted(["fixnorm.system", *(f"fixnorm.system.{m}" for m in MODULES)])


@pytest.mark.parametrize(
    ("value", "shown", "plain"),
    [
        (3, "3", "3"),
        ("lr", "'lr'", "lr"),
        ("a\x1b[2J", r"'a\x1b[2J'", r"'a\x1b[2J'"),
        ([1] * 9, "[1, 1, 1, 1, ...]", "[1, 1, 1, 1, ...]"),
        (True, "True", "True"),
        (-(10**15), "about 10^15", "about 10^15"),
        (10**5000, "about 10^5000", "about 10^5000"),
        ([10**5000], "[about 10^5000]", "[about 10^5000]"),
    ],
    ids=lambda value: type(value).__name__,  # Python writes out no number of so many digits
)
def test_a_value_in_few_characters(value: object, shown: str, plain: str) -> None:
    assert (brief(value), brief(value, plain=True)) == (shown, plain)


def test_a_long_text_is_cut() -> None:
    assert len(brief("x" * 10**6)) <= 62
    assert "\n" not in brief(type("Two", (), {"__repr__": lambda _: "a\nb"})())


def test_versions_and_commit() -> None:
    found = versions()
    assert found["fixnorm"] == fixnorm.__version__
    assert {"python", "torch"} <= found.keys()
    assert (commit() is None) == (not (PACKAGE.parents[1] / ".git").exists())


NAMES = ("recipe.json", "metrics.csv", "weights.safetensors", "classes.json")


def test_one_class_knows_the_names_of_a_runs_files() -> None:
    """Docstrings may speak of them; what opens a file asks :class:`RunPaths`."""
    knowing: dict[str, set[str]] = {name: set() for name in NAMES}
    for path in PACKAGE.rglob("*.py"):
        for text in _strings(ast.parse(path.read_text())):
            for name in NAMES:
                if name in text:
                    knowing[name].add(path.relative_to(PACKAGE).as_posix())
    assert knowing == {name: {"system/run_paths.py"} for name in NAMES}


def _strings(tree: ast.Module) -> Iterator[str]:
    """All texts but those that stand alone, which are documentation."""
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node.value
