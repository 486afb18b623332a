"""`timm/NAME` and `torchvision/NAME`."""

import pytest
import torch
from torch import nn

from fixnorm import models


def test_timm_models_take_every_option() -> None:
    model = models.create("timm/regnety_002", num_classes=7, in_chans=1, drop=0.2, drop_path=0.1)
    logits = model.eval()(torch.empty(2, 1, 64, 64))

    assert logits.shape == (2, 7)
    assert models.input_size(model) == (1, 224, 224)
    rates = [m.drop_prob for m in model.modules() if type(m).__name__ == "DropPath"]
    assert max(map(float, rates)) == pytest.approx(0.1)  # type: ignore[arg-type]


def test_timm_classes_default_to_timms() -> None:
    with torch.device("meta"):
        model = models.create("timm/resnet18.a1_in1k")

    assert model.num_classes == 1000


def test_a_rate_of_zero_means_zero() -> None:
    with torch.device("meta"):
        timms = models.create("timm/fasternet_t1")  # 0.02 by its own default
        torchvisions = models.create("torchvision/efficientnet_b0")  # 0.2 and dropout 0.2
        fixed = models.create("torchvision/maxvit_t")  # 0.2, not the caller's to change

    assert not any(type(m).__name__ == "DropPath" for m in timms.modules())
    depths = [
        m
        for m in (*torchvisions.modules(), *fixed.modules())
        if type(m).__name__ == "StochasticDepth"
    ]
    assert len(depths) > 16
    assert all(m.p == 0.0 for m in depths)
    assert [m.p for m in torchvisions.modules() if isinstance(m, nn.Dropout)] == [0.0]


def test_torchvision_takes_rates_where_it_has_them() -> None:
    with torch.device("meta"):
        model = models.create("torchvision/efficientnet_b0", drop=0.3, drop_path=0.1)

    depths = [m.p for m in model.modules() if type(m).__name__ == "StochasticDepth"]
    assert max(depths) == pytest.approx(0.1 * 15 / 16)  # type: ignore[type-var]
    assert [m.p for m in model.modules() if isinstance(m, nn.Dropout)] == [0.3]


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("torchvision/resnet18", "drop"),
        ("torchvision/resnet18", "drop_path"),
        ("torchvision/maxvit_t", "drop_path"),
        ("timm/vgg11", "drop_path"),
    ],
)
def test_a_rate_the_model_has_no_place_for(name: str, option: str) -> None:
    message = f"^{name} has no {option} but got {option}=0.2: leave it at 0$"
    with pytest.raises(ValueError, match=message) as error, torch.device("meta"):
        models.create(name, **{option: 0.2})  # type: ignore[arg-type]

    assert error.value.__context__ is None


def test_torchvision_takes_colour_alone() -> None:
    with pytest.raises(ValueError, match=r"resnet18 takes 3 channels but got in_chans=1: repeat"):
        models.create("torchvision/resnet18", in_chans=1)

    assert models.input_size(models.create("torchvision/resnet18", in_chans=3)) == (3, 224, 224)


@pytest.mark.parametrize("name", ["googlenet", "inception_v3"])
def test_auxiliary_heads_stay_off_in_train_mode(name: str) -> None:
    with torch.device("meta"):
        model = models.create(f"torchvision/{name}", num_classes=7).train()
        size = models.input_size(model)
        logits = model(torch.empty(2, *size))

    assert size[1] == {"googlenet": 224, "inception_v3": 299}[name]
    assert logits.shape == (2, 7)


def test_regnet_builds_and_runs() -> None:
    model = models.create("torchvision/regnet_y_400mf", num_classes=7).eval()

    assert model(torch.randn(2, 3, 32, 32)).shape == (2, 7)


# torchvision documents 17.56 G multiply-adds; 86,567,656 parameters with 1,000 classes.
def test_vision_transformer_figures_are_torchvisions() -> None:
    with torch.device("meta"):
        counts = models.count(models.create("torchvision/vit_b_16"), (3, 224, 224))

    assert counts.params == 86_567_656
    assert counts.macs / 1e9 == pytest.approx(17.56, abs=0.01)
