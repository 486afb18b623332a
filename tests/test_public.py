"""The surface of the package: what it offers, and what importing it costs."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import fixnorm


def test_public_names_are_pinned() -> None:
    assert sorted(fixnorm.__all__) == [
        "Audit",
        "FixNormConv2d",
        "FixNormLinear",
        "Handle",
        "MeanCrossBoundaryRisk",
        "WeightNormConv2d",
        "WeightNormLinear",
        "__version__",
        "attach",
        "audit",
        "convert",
        "fold",
        "fold_state_dict",
        "handle_of",
        "mean_cross_boundary_risk",
        "param_groups",
        "tune",
    ]
    assert all(hasattr(fixnorm, name) for name in fixnorm.__all__)


def test_every_public_name_says_what_it_does() -> None:
    for name in fixnorm.__all__:
        public = getattr(fixnorm, name)
        if not callable(public):
            continue
        methods = vars(public).items() if isinstance(public, type) else ()
        for part, value in ((name, public), *methods):
            if not part.startswith("_") and callable(value):
                assert value.__doc__, f"{name}.{part}"
                assert len(value.__doc__.split()) > 3, f"{name}.{part}"


def test_no_module_has_the_name_of_a_public_name() -> None:
    modules = {module.name for module in pkgutil.iter_modules(fixnorm.__path__)}
    assert not modules & set(fixnorm.__all__)


PACKAGES = ("fixnorm", "fixnorm.data", "fixnorm.models", "fixnorm.training", "fixnorm.recipes")


@pytest.mark.parametrize("name", PACKAGES)
def test_what_is_loaded_late_is_as_good_as_there(name: str) -> None:
    package = importlib.import_module(name)
    there = {public: getattr(package, public) for public in package.__all__}
    assert set(package.__all__) <= set(dir(package))
    for public, value in there.items():
        if isinstance(value, type):  # as the place says from which a pickle imports it
            assert getattr(sys.modules[value.__module__], value.__name__) is value, public
    gained: dict[str, object] = {}
    exec(f"from {name} import *", gained)
    assert gained.keys() - {"__builtins__"} == set(package.__all__)
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'nonsense'"):
        _ = package.nonsense
    assert not any(hasattr(package, strange) for strange in ("__wrapped__", "__main__", "a.b", ""))


@pytest.mark.parametrize("name", PACKAGES)
def test_a_late_package_says_the_same_to_type_checkers(name: str) -> None:
    """They see the imports under ``TYPE_CHECKING``, Python the table of ``lazy``."""
    tree = ast.parse(Path(importlib.import_module(name).__file__ or "").read_text())
    imported = {
        (node.module, alias.name)
        for block in tree.body
        if isinstance(block, ast.If) and getattr(block.test, "id", None) == "TYPE_CHECKING"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    table = {
        (f"{name}.{module}", public)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "lazy"
        for module, names in ast.literal_eval(node.args[1]).items()
        for public in names.split()
    }
    assert table
    assert imported == table


WAKES = """
import sys, fixnorm
def awake():
    return [name for name in sys.argv[1:] if name in sys.modules]
print(awake())
from torch import nn
import fixnorm.layers  # as a pickle of a converted model does
class Adapter(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.base_layer = layer
    def merge(self):
        pass
try:
    Adapter(fixnorm.layers.FixNormLinear(2, 2, alpha=1.0))
except ValueError as error:
    print("refused" if "would merge its adapter" in str(error) else error)
print(fixnorm.structure.__name__)
for name in set(fixnorm.__all__) - {"tune"}:
    getattr(fixnorm, name)
print(awake())
"""


def test_import_wakes_nothing_and_use_nothing_but_torch() -> None:
    asleep = "torch timm torchvision optuna ray lightning transformers accelerate sklearn typer"
    command = [sys.executable, "-c", WAKES, *asleep.split(), "rich", "pydantic"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "refused", "fixnorm.structure", "['torch']"]
