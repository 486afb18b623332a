"""The paper's numbers, letter for letter."""

from __future__ import annotations

import pytest

from fixnorm import recipes
from fixnorm.methods import MethodName
from fixnorm.recipes import cost

# name: epochs, top-1, top-1 (ref.), params in M, multiply-adds in M, lr, alpha
TABLE_2 = {
    "mobilenetv2-150": (150, 73.20, 72.04, 3.505, 299.5, 0.5, 16.0),
    "mobilenetv2-350": (350, 73.97, 73.38, 3.505, 299.5, 0.35, 8.0),
    "efficientnet-b0-350": (350, 77.72, 77.30, 5.289, 384.5, 0.5, 4.0),
    "efficientnet-b1-350": (350, 79.52, 79.20, 7.794, 685.5, 0.8, 8.0),
    "mobilenetv2-x1.12-star-350": (350, 77.40, 76.72, 4.719, 386.8, 0.5, 8.0),
    "mobilenetv2-x1.54-star-350": (350, 79.18, 78.75, 8.029, 682.9, 0.65, 4.0),
    "resnet50d-120": (120, 78.62, 78.37, 25.576, 4326.8, 1.4, 0.5),
    "resnet50d-350": (350, 79.29, 79.04, 25.576, 4326.8, 1.1, 0.5),
    "resnet50d-star-350": (350, 81.27, 80.80, 28.107, 4329.3, 1.1, 1.0),
}
SECTION_2 = {"resnet50-100": 100, "resnet50-50": 50}
STARRED = {name for name in TABLE_2 if "-star-" in name}
EFFICIENTNETS = {"efficientnet-b0-350", "efficientnet-b1-350"}


def test_the_names_are_the_rows_of_the_paper_in_its_order() -> None:
    assert recipes.groups()["Table 2"] == tuple(TABLE_2)
    assert recipes.groups()["section 2"] == tuple(SECTION_2)


@pytest.mark.parametrize("name", TABLE_2)
def test_row(name: str) -> None:
    epochs, top1, reference_top1, params, macs, lr, alpha = TABLE_2[name]
    recipe = recipes.get(name)
    assert recipe.name == name
    assert recipe.method == "fixnorm"
    assert recipe.epochs == epochs
    assert recipe.paper_score == top1
    assert recipe.paper_reference_score == reference_top1
    assert recipe.lr == lr
    assert recipe.alpha == alpha
    assert recipe.weight_decay == 0
    counts = cost(recipe)
    assert counts.params / 1e6 == pytest.approx(params, abs=0.01)
    assert counts.conv_macs / 1e6 == pytest.approx(macs, abs=1)


@pytest.mark.parametrize("name", [*TABLE_2, *SECTION_2])
def test_general_setups_of_section_3(name: str) -> None:
    recipe = recipes.get(name)
    assert recipe.data == "imagefolder"
    assert recipe.classes is None
    assert recipe.batch_size == 1024
    assert recipe.warmup_epochs == 4
    assert recipe.label_smoothing == 0.1
    assert (recipe.optimizer, recipe.momentum) == ("sgd", 0.9)
    assert (recipe.train_crop, recipe.min_scale, recipe.flip) == ("random-resized", 0.08, True)
    assert recipe.mean == (0.485, 0.456, 0.406)
    assert recipe.std == (0.229, 0.224, 0.225)


@pytest.mark.parametrize("name", [*TABLE_2, *SECTION_2])
def test_tricks_are_where_the_paper_has_them(name: str) -> None:
    recipe = recipes.get(name)
    tricks = name in STARRED | EFFICIENTNETS
    assert recipe.auto_augment == ("v0" if tricks else None)
    assert recipe.drop_path == (0.2 if tricks else 0)
    assert recipe.drop == (0.2 if name in EFFICIENTNETS else 0)
    assert recipe.eval_crop == ("efficientnet" if name in EFFICIENTNETS else "resnet")
    assert recipe.train_interpolation == ("bicubic" if name in EFFICIENTNETS else "bilinear")
    assert recipe.image_size == (240 if name == "efficientnet-b1-350" else 224)


@pytest.mark.parametrize("name", [*TABLE_2, *SECTION_2])
def test_weight_decay_has_the_references_of_table_1(name: str) -> None:
    recipe = recipes.get(name, "weight-decay")
    resnet = (0.4, 1e-4)
    mobilenet = (0.2, 4e-5)
    assert (recipe.lr, recipe.weight_decay) == (resnet if "resnet" in name else mobilenet)
    assert recipe.alpha is None


@pytest.mark.parametrize("name", [*TABLE_2, *SECTION_2])
def test_the_others_take_fixnorms_learning_rate(name: str) -> None:
    fixnorm, reference = recipes.get(name), recipes.get(name, "weight-decay")
    algorithm1, wn_fc = recipes.get(name, "algorithm1"), recipes.get(name, "wn-fc")
    assert algorithm1.lr == wn_fc.lr == fixnorm.lr
    assert algorithm1.weight_decay == reference.weight_decay
    assert wn_fc.weight_decay == 0
    assert algorithm1.alpha is wn_fc.alpha is None


@pytest.mark.parametrize("name", SECTION_2)
@pytest.mark.parametrize("method", ["fixnorm", "weight-decay"])
def test_section_2_has_no_printed_accuracy(name: str, method: MethodName) -> None:
    recipe = recipes.get(name, method)
    assert recipe.epochs == SECTION_2[name]
    assert recipe.model == "resnet50"
    assert recipe.paper_score is recipe.paper_reference_score is None
