"""A recipe's fields: what is refused, and with which words."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from pydantic import ValidationError

from fixnorm import recipes
from fixnorm.data import DataSettings
from fixnorm.training import ClassificationRecipe, Recipe, SegmentationRecipe
from fixnorm.training.recipe import changed, parsed_settings
from fixnorm.training.schedule import Timetable
from fixnorm.training.tasks import recipe_from_dict

LEAST: dict[str, Any] = {
    "name": "r",
    "model": "resnet8",
    "data": "cifar10",
    "image_size": 32,
    "lr": 0.5,
    "alpha": 2.0,
    "epochs": 10,
}
DENSE = {"task": "segmentation", "name": "s", "model": "m", "lr": 1, "alpha": 1, "iterations": 9}


def recipe(**fields: Any) -> Recipe:
    return recipe_from_dict(LEAST | fields)


def parsed(pairs: list[str]) -> dict[str, str | None]:
    return parsed_settings(ClassificationRecipe, pairs)


def test_the_paper_is_the_default() -> None:
    found = recipe()
    assert (found.method, found.scope) == ("fixnorm", "global")
    assert (found.optimizer, found.momentum) == ("sgd", 0.9)
    assert (found.batch_size, found.warmup_epochs, found.label_smoothing) == (1024, 4.0, 0.1)


def test_a_recipe_is_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        recipe().lr = 1.0  # type: ignore[misc]


def test_it_is_the_same_after_json() -> None:
    there = recipe(mean=(0.1, 0.2, 0.3), ema=0.99, clip=1.0)
    assert recipe_from_dict(json.loads(json.dumps(there.to_dict()))) == there


def test_every_data_setting_is_a_field_or_the_commands() -> None:
    found = recipe(image_size=28, flip=True, train_crop="pad", workers=3).data_settings()
    assert (found.image_size, found.flip, found.train_crop, found.workers) == (28, True, "pad", 3)
    left = DataSettings.__dataclass_fields__.keys() - ClassificationRecipe.model_fields.keys()
    assert left == {"in_memory", "skip_broken"}
    assert recipe().data_settings(skip_broken=True).skip_broken


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"alpha": 0}, "alpha: Input should be greater than 0 but got 0"),
        ({"alpha": math.nan}, "alpha: Input should be .* but got nan"),
        ({"alpha": math.inf}, "alpha: Input should be a finite number but got inf"),
        ({"alpha": None}, "alpha: method 'fixnorm' needs it"),
        ({"lr": math.nan}, "lr: Input should be a finite number or 'auto' but got nan"),
        ({"lr": 0}, "lr: Input should be greater than 0 or 'auto' but got 0"),
        ({"lr": "fast"}, "lr: Input should be a valid number or 'auto' but got 'fast'"),
        ({"momentum": 1}, "momentum: Input should be less than 1 but got 1"),
        ({"weight_decay": 1e-4}, "weight_decay: method 'fixnorm' has none but got 0.0001"),
        ({"method": "wn-fc"}, "alpha: method 'wn-fc' has no cap but got 2; leave it out"),
        ({"method": "weight-decay"}, "alpha: method 'weight-decay' has no cap but got 2"),
        ({"method": "sam"}, "method: Input should be 'fixnorm', .* but got 'sam'"),
        (
            {"scope": "channel"},
            "scope: Input should be 'global', 'layer' or 'matrix' but got 'channel'",
        ),
        ({"lr": "auto", "optimizer": "adamw"}, "lr: auto is for SGD, or for scope=matrix, but got"),
        (
            {"lr": "auto", "method": "weight-decay", "alpha": None},
            "lr: auto needs norms that are kept but got method=weight-decay",
        ),
        ({"radius": "fan_in"}, "radius: fan_in is for scope=matrix but got scope=global"),
        ({"radius": "wide"}, "radius: Input should be a valid number or 'fan_in' but got 'wide'"),
        ({"step_length": "own"}, "step_length: own is for scope=matrix but got scope=global"),
        (
            {"scope": "matrix", "lr": "auto", "step_length": "own"},
            "step_length: with lr=auto 'own' is for optimizers .* got optimizer=sgd",
        ),
        ({"epochs": 0}, "epochs: Input should be greater than or equal to 1 but got 0"),
        ({"epochs": 1.5}, "epochs: Input should be a valid integer.* but got 1.5"),
        ({"epochs": 3}, r"warmup_epochs: 4 is more than epochs=3"),
        ({"warmup_epochs": math.nan}, "warmup_epochs: Input should be .* but got nan"),
        ({"batch_size": 10, "accumulate": 4}, "accumulate: batch_size=10 does not divide by 4"),
        ({"ema": 1.0}, "ema: Input should be less than 1 but got 1.0"),
        ({"ema_on_sphere": True}, "ema_on_sphere: the recipe lacks an average; set ema=0.999"),
        ({"clip": 0.0}, "clip: Input should be greater than 0 but got 0.0"),
        ({"precision": "fp8"}, "precision: Input should be 'fp32', 'bf16' or 'fp16' but got 'fp8'"),
        ({"seed": -1}, "seed: Input should be greater than or equal to 0 but got -1"),
        ({"mean": "red"}, "mean: numbers with commas between but got 'red'"),
        ({"learning_rate": 1}, "a recipe has no field 'learning_rate'"),
        # what the data package refuses is refused with the recipe
        ({"padding": -1}, "^padding must be at least 0 but got -1"),
        ({"classes": 0}, "^classes must be at least 1 but got 0"),
        ({"min_scale": 2}, r"^min_scale must be in \(0, 1\] but got 2"),
        ({"train_crop": "five"}, "train_crop: Input should be 'none', 'pad' or 'random-resized'"),
        (DENSE | {"crop": (0, 8)}, r"^crop must be a side or .* but got \(0, 8\)"),
        (DENSE | {"scale": (2, 1)}, r"^scale must be \(lowest, highest\) above 0 but got \(2"),
    ],
)
def test_a_wrong_field_is_one_line(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        recipe_from_dict(fields) if "task" in fields else recipe(**fields)
    assert "\n" not in str(caught.value)


def test_changes_are_checked_again() -> None:
    assert changed(recipe(), lr=0.25).lr == 0.25
    with pytest.raises(ValueError, match="lr: Input should be greater than 0"):
        changed(recipe(), lr=-1)


def test_a_change_of_method_drops_the_number_of_the_old_one() -> None:
    decayed = changed(recipe(), method="weight-decay", weight_decay=1e-3)
    assert (decayed.alpha, decayed.weight_decay) == (None, 1e-3)
    again = changed(decayed, method="fixnorm", alpha=1.0)
    assert (again.alpha, again.weight_decay) == (1.0, 0.0)
    with pytest.raises(ValueError, match="alpha: method 'fixnorm' needs it"):
        changed(decayed, method="fixnorm")
    with pytest.raises(ValueError, match="alpha: method 'algorithm1' has no cap but got 3"):
        changed(recipe(), method="algorithm1", alpha=3)


def test_settings_of_the_command_line() -> None:
    settings = parsed_settings(
        ClassificationRecipe, ["lr=0.8", "ema=None", "auto_augment=rand-m9=1", "mean=0.1,0.2"]
    )
    assert settings == {
        "lr": "0.8",
        "ema": None,
        "auto_augment": "rand-m9=1",  # only the first sign divides
        "mean": "0.1,0.2",
    }
    found = changed(
        recipe(ema=0.9),
        **parsed(["lr=8e-1", "ema=none", "flip=true"]),
    )
    assert (found.lr, found.ema, found.flip) == (0.8, None, True)
    assert changed(recipe(), mean="0.1,0.2,0.3", std="0.5").mean == (0.1, 0.2, 0.3)


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ("lr", "--set needs key=value but got 'lr'"),
        ("lrr=1", "a recipe has no field 'lrr'; did you mean lr\\?"),
        ("weightdecay=1", "did you mean weight_decay\\?"),
        ("Alpha=1", "did you mean alpha\\?"),
        ("qqq=1", "a recipe has no field 'qqq'; one of name, task, model, "),
    ],
)
def test_a_wrong_setting_is_answered_with_the_nearest_name(pair: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parsed([pair])


# -- lengths ---------------------------------------------------------------------------------------


def test_a_classifier_counts_epochs() -> None:
    found = recipe(epochs=10, warmup_epochs=2.5, eval_every=2)
    assert (found.length, found.unit, found.rows()) == (10, "epochs", 10)
    assert found.timetable(40) == Timetable(steps=400, warmup=100, row=40, evaluation=80)
    assert found.of_length(4) == {"epochs": 4, "warmup_epochs": 1.0}


def test_dense_tasks_count_iterations() -> None:
    found = SegmentationRecipe(
        name="s", model="m", lr=0.1, alpha=1.0, iterations=10, warmup_iterations=3, eval_every=4
    )
    assert (found.length, found.unit, found.rows()) == (10, "iterations", 3)
    assert found.timetable(40) == Timetable(steps=10, warmup=3, row=4, evaluation=4)
    assert found.of_length(4) == {"iterations": 4, "warmup_iterations": 1}


def test_the_appendix() -> None:
    """lr, alpha and λ as its tables print them."""
    names = ("cityscapes-baseoc-r101", "cityscapes-baseoc-r101-cos", "coco-retinanet-r50")
    found = [recipes.get(name) for name in (*names, "coco-retinanet-r50-cos")]
    assert [(r.lr, r.alpha) for r in found] == [
        (0.0335, 1),
        (0.043, 1),
        (0.0145, 0.5),
        (0.0145, 0.5),
    ]
    assert [r.schedule for r in found] == ["poly", "cosine", "step", "cosine"]
    assert [r.length for r in found] == [40_000, 40_000, 90_000, 90_000]
    assert [r.batch_size for r in found] == [8, 8, 16, 16]
    plain = [recipes.get(r.name, "weight-decay") for r in found]
    assert [(r.lr, r.weight_decay) for r in plain] == [(0.01, 5e-4)] * 2 + [(0.01, 1e-4)] * 2
    assert [(r.paper_reference_score, r.paper_score) for r in found] == [
        (78.7, 79.4),
        (78.3, 79.7),
        (36.5, 36.9),
        (36.2, 37.1),
    ]
    assert all(r.lr_range == (0.005, 0.1) for r in found)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"task": "translation"}, "task: one of classification, segmentation, detection but got"),
        ({"task": "segmentation", "name": "s"}, "model: Field required"),
        ({"task": "detection", "epochs": 3}, "a recipe has no field 'epochs'"),
    ],
)
def test_a_stored_recipe_that_is_none(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        recipe_from_dict(values)
