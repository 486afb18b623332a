"""A recipe and a task of somebody else's package, as CONTRIBUTING says to add them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixnorm import recipes
from fixnorm.training import changed, kinds, tasks
from fixnorm.training.folder import RunFolder
from fixnorm.training.recipe import differences
from fixnorm.training.tasks import (
    ClassificationRecipe,
    Metric,
    Task,
    estimates_of,
    exports_of,
    recipe_from_dict,
    register,
    task_of,
)
from fixnorm.training.tasks.classification import Classification
from helpers.promise import answered, refused

RECIPES = '''
from fixnorm.recipes.small import digits
from fixnorm.training import changed

def mine(method="fixnorm"):
    """The digits, quickly."""
    return changed(digits(method), name="mine", epochs=1, warmup_epochs=0, train_per_class=26)

def stubborn(method):
    return digits("wn-fc")

def wrong(method):
    return changed(digits(method), epochs=-1)

def invalid(method):
    return type(digits())(name="x")

def failing(method):
    raise KeyError("lr")

def leaving(method):
    raise SystemExit(3)

def other(method):
    return {"lr": 1}

def without():
    return digits()

number = 3
'''
PARITY = """
from typing import Literal

import torch
from torch.nn import functional as F

from fixnorm.data import DataSettings, open_data
from fixnorm.models import create
from fixnorm.training import EpochRecipe
from fixnorm.training.tasks import Metric, Score, Scorer, Task, register


class ParityRecipe(EpochRecipe):
    task: Literal["parity"] = "parity"
    data: Literal["digits"] = "digits"


class Right(Scorer):
    def __init__(self):
        self.counts = torch.zeros(2)

    def update(self, outputs, labels):
        self.counts += torch.tensor([(outputs.argmax(1) == labels % 2).sum(), len(labels)])

    def compute(self, world):
        right, seen = world.sum(self.counts).tolist()
        return Score(100 * right / seen)


@register
class Parity(Task):
    recipe_kind, metric = ParityRecipe, Metric("parity", "parity")

    def open(self, root, *, skip_broken=False, progress=None):
        return open_data("digits", root, settings=DataSettings(image_size=8), seed=self.recipe.seed)

    def network(self, classes, channels):
        return create(self.recipe.model, num_classes=2, in_chans=channels)

    def loss(self, outputs, part):
        return F.cross_entropy(outputs, part.labels % 2)

    def scorer(self, data, device):
        return Right()


def parity(method):
    return ParityRecipe(
        name="parity", model="digits-resnet", method=method, lr=0.4, alpha=1.0, epochs=3,
        warmup_epochs=0, batch_size=128, workers=0,
    )
"""


@pytest.fixture(autouse=True)
def _no_task_stays_known() -> Iterator[None]:
    known = [(names, set(names)) for names in (tasks._TASKS, kinds._KINDS, kinds.METRICS)]
    yield
    for names, before in known:
        for name in names.keys() - before:
            del names[name]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a package; commands are run there."""
    package = tmp_path / "strange"
    package.mkdir()
    for name, text in {
        "__init__": "",
        "recipes": RECIPES,
        "tasks": PARITY,
        "lacking": "import no_such_library",
        "broken": "x = undefined",
        "unfinished": "def mine(",
        "leaving": "raise SystemExit(1)",
    }.items():
        (package / f"{name}.py").write_text(text)
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a refused command changes nothing
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "strange"]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("name", "line"),
    {
        "absent.recipes:mine": "there is no module absent: run fixnorm where it is",
        "strange.absent:mine": "there is no module strange.absent: run fixnorm where it is",
        "strange.recipes:mime": "has no mime: did you mean strange.recipes:mine?",
        "strange.recipes:xyz": "module strange.recipes has no xyz: define it there",
        "strange.recipes:number": "strange.recipes:number is 3: give a function",
        "strange.recipes:changed": "changed failed for method fixnorm: AttributeError: ",
        "strange.tasks:Parity": "Parity'>: give a function",
        "strange.recipes:other": "returned {'lr': 1} for method fixnorm: no recipe",
        "strange.recipes:stubborn": "returned a recipe of wn-fc for method fixnorm",
        "strange.recipes:wrong": "ValueError: epochs: Input should be greater",
        "strange.recipes:invalid": "makes no recipe of method fixnorm: ",
        "strange.recipes:failing": "KeyError: 'lr' (recipes.py, line 19)",
        "strange.recipes:leaving": "failed for method fixnorm: SystemExit: 3",
        "strange.recipes:without": "TypeError: without() takes 0 positional arguments",
        "strange.lacking:mine": "ModuleNotFoundError: No module named 'no_such_library'",
        "strange.broken:mine": "NameError: name 'undefined' is not defined (broken.py, line 1)",
        "strange.unfinished:mine": "SyntaxError: '(' was never closed (unfinished.py, line 1)",
        "strange.leaving:mine": "module strange.leaving cannot be imported: SystemExit: 1",
        "strange.recipes:": "a recipe of another package is package.module:function but got",
        ":mine": "a recipe of another package is package.module:function but got ':mine'",
        "../strange:mine": "package.module:function but got '../strange:mine'",
        "a:b:c": "package.module:function but got 'a:b:c'",
    }.items(),
)
@pytest.mark.parametrize("command", ["train", "tune"])
def test_a_wrong_name_is_one_line(place: Path, command: str, name: str, line: str) -> None:
    assert line in refused([command, name, "--out", "run"], place)


@pytest.mark.slow
def test_a_recipe_of_another_package_is_trained_tuned_and_exported(place: Path) -> None:
    trained = answered(["train", "strange.recipes:mine", "--out", "run"], place)
    assert trained.code == 0, trained
    folder = RunFolder(place / "run")
    stored = json.loads(folder.recipe.read_text())
    assert stored["origin"] == "strange.recipes:mine"
    recipe = recipes.get("strange.recipes:mine")
    assert folder.read_recipe() == recipe
    again = answered(["train", "strange.recipes:mine", "--out", "run"], place)
    assert "run is finished" in again.err
    other = refused(["train", "strange.recipes:mine", "--out", "run", "--set", "lr=0.1"], place)
    assert "holds a run of another recipe: lr (0.8 there, 0.1 here)" in other
    exported = answered(["export", "run", "--recipe", "strange.recipes:mine"], place)
    assert exported.code == 0, exported

    wanted = ["--method", "bo-weight-decay", "--sampler", "random", "--budget", "1", "--json"]
    tuned = answered(["tune", "strange.recipes:mine", "--out", "search", *wanted], place)
    assert tuned.code == 0, tuned
    (trial,) = (place / "search").glob("*/point-000")
    assert RunFolder(trial).read_recipe().origin == "strange.recipes:mine"
    assert "fixnorm train strange.recipes:mine --method weight-decay" in " ".join(tuned.err.split())


def test_its_place_is_no_part_of_what_is_trained(place: Path) -> None:
    ours = recipes.get("digits")
    assert "origin" not in ours.to_dict()
    assert ours.command_name == "digits"
    moved = changed(ours, origin="elsewhere.recipes:digits")
    assert moved.command_name == "elsewhere.recipes:digits"
    assert differences(ours.to_dict(), moved) == ""
    assert recipe_from_dict(moved.to_dict()) == moved


@pytest.mark.slow
def test_a_task_of_another_package_trains(place: Path) -> None:
    trained = answered(["train", "strange.tasks:parity", "--out", "run", "--keep", "1"], place)
    assert trained.code == 0, trained
    result = json.loads(RunFolder(place / "run").result.read_text())
    assert result["metric"] == "parity"
    assert result["parity"] > 60  # half of the digits are even
    assert f"parity {result['parity']:.2f} %" in trained.out
    assert "is finished" in answered(["train", "strange.tasks:parity", "--out", "run"], place).err
    assert "does not say how its models are exported" in refused(["export", "run"], place)
    recipe = recipes.get("strange.tasks:parity")
    assert task_of(recipe).training_images(None) == 1442
    with pytest.raises(ValueError, match="task 'parity' says nothing of its data"):
        estimates_of(recipe)
    with pytest.raises(ValueError, match="task 'parity' does not say how its models are exported"):
        exports_of(recipe)


def test_a_task_that_nobody_has_registered() -> None:
    values = recipes.get("digits").to_dict() | {"task": "depth", "origin": "far.away:recipe"}
    line = "but got depth; give 'far.away:recipe', which made it, as --recipe"
    with pytest.raises(ValueError, match=line):
        recipe_from_dict(values)


def test_a_name_is_registered_once() -> None:
    class Mine(ClassificationRecipe):
        pass

    class Another(Classification):
        recipe_kind = Mine

    class Renamed(Classification):
        metric = Metric("accuracy", "hits")

    class Nameless(Classification):
        recipe_kind = type("Nameless", (ClassificationRecipe,), {})

    Nameless.recipe_kind.model_fields["task"].default = "no name"  # type: ignore[attr-defined]
    assert register(Classification) is Classification
    with pytest.raises(ValueError, match="task 'classification' is Classification already"):
        register(Another)
    with pytest.raises(ValueError, match="metric 'accuracy' has the title 'accuracy'"):
        register(Renamed)
    with pytest.raises(ValueError, match="needs a task, a name, but has 'no name'"):
        register(Nameless)
    assert issubclass(Another, Task)


def shown(section: str) -> str:
    """The code of a section of CONTRIBUTING."""
    text = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
    return text.partition(f"## {section}\n")[2].partition("```python\n")[2].partition("```")[0]


def test_the_recipe_that_contributing_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shown_recipes.py").write_text(shown("A recipe"))
    monkeypatch.syspath_prepend(tmp_path)
    recipe = recipes.get("shown_recipes:my_recipe")
    assert (recipe.name, recipe.length, recipe.method) == ("mine", 30, "fixnorm")


def test_the_task_that_contributing_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shown_task.py").write_text(shown("A task"))
    monkeypatch.syspath_prepend(tmp_path)
    import shown_task  # type: ignore[import-not-found]

    assert not shown_task.Depth.__abstractmethods__  # it shows all that a task must say
    assert set(vars(shown_task.Depth)) >= Task.__abstractmethods__
    recipe = shown_task.DepthRecipe(
        name="depth", model="resnet8", data="digits", lr=1.0, alpha=1.0, batch_size=8, epochs=9
    )
    assert type(task_of(recipe)) is shown_task.Depth
    assert recipe_from_dict(recipe.to_dict()) == recipe
