"""Recipes by name, in all four methods."""

from __future__ import annotations

from dataclasses import astuple
from typing import get_args

import pytest

from fixnorm import recipes
from fixnorm.data.transforms import policy
from fixnorm.methods import MethodName
from fixnorm.recipes import cost
from fixnorm.recipes.costs import COSTS, Cost
from fixnorm.training.tasks import estimates_of, recipe_from_dict

METHODS = get_args(MethodName)
# What a method may change; the rest of a recipe is the same training.
OF_THE_METHOD = {"method", "lr", "alpha", "weight_decay"}


def test_small_names() -> None:
    assert recipes.groups()["small"] == (
        "digits",
        "few-digits",
        "cifar10-small",
        "cifar10-quick",
        "cifar10-resnet20",
        "cifar10-mobilenetv2",
        "cifar10-se",
        "fashion-mnist-small",
        "tiny-imagenet-head",
        "tiny-imagenet-lr",
        "tiny-imagenet-quick",
        "cityscapes-small",
        "coco-small",
    )


def test_names_are_all_groups_in_order() -> None:
    assert recipes.names() == tuple(n for names in recipes.groups().values() for n in names)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", recipes.names())
def test_every_method_is_complete(name: str, method: MethodName) -> None:
    recipe, fixnorm = recipes.get(name, method), recipes.get(name)
    assert (recipe.name, recipe.method) == (name, method)
    assert (recipe.alpha is None) == (method != "fixnorm")
    assert (recipe.weight_decay > 0) == (method in ("weight-decay", "algorithm1"))
    assert recipe.model_dump(exclude=OF_THE_METHOD) == fixnorm.model_dump(exclude=OF_THE_METHOD)
    assert recipe_from_dict(recipe.to_dict()) == recipe


@pytest.mark.parametrize("name", recipes.names())
def test_data_settings_are_accepted(name: str) -> None:
    recipe = recipes.get(name)
    settings = recipe.data_settings()
    assert settings.flip == recipe.flip
    if recipe.task == "classification" and settings.auto_augment is not None:
        assert callable(policy(settings))


def test_digits_is_embedded_and_grey() -> None:
    recipe = recipes.get("digits")
    assert (recipe.model, recipe.data, recipe.image_size) == ("digits-resnet", "digits", 8)
    assert not recipe.flip  # a mirrored 2 is no 2
    assert cost(recipe).params == 77_754


@pytest.mark.slow
def test_the_stored_costs_are_those_of_the_models() -> None:
    counted = {}
    for name in recipes.names():
        recipe = recipes.get(name)
        size = estimates_of(recipe).expected().size[1:]
        counted[name] = Cost(size, *astuple(cost(recipe)))
    assert counted == COSTS


def test_cost_follows_classes_and_channels() -> None:
    # 50 classes instead of 10, each with 128 weights and a bias; the same grey net twice
    head = (
        cost(recipes.get("tiny-imagenet-head")).params - cost(recipes.get("cifar10-small")).params
    )
    assert head == 40 * 129
    assert cost(recipes.get("fashion-mnist-small")).params == cost(recipes.get("digits")).params


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("resnet50d-12", "nearest are resnet50d-120"),
        ("resnet50d", "nearest are .*resnet50d-"),
        ("Digit", "nearest are digits"),
        ("cifar-small", "nearest are cifar10-small"),
        ("zzz", "one of mobilenetv2-150, .*, coco-small$"),
    ],
)
def test_an_unknown_name_is_answered_with_near_ones(name: str, hint: str) -> None:
    with pytest.raises(ValueError, match=f"unknown recipe '{name}': {hint}"):
        recipes.get(name)


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(ValueError, match=r"method must be one of fixnorm, .* but got 'sgd'"):
        recipes.get("digits", "sgd")  # type: ignore[arg-type]
