"""The names: the paper's figures, shapes, stochastic depth and what a wrong name says."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from fixnorm import models

# In millions: parameters, multiply-adds of the convolutions (with squeeze-and-excitation), of all.
# Measured for the rows of the paper's Table 2, which prints 3.5 / 300, 5.3 / 384, 7.8 / 685,
# 4.7 / 386, 8.0 / 682, 25.6 / 4300 and 28.1 / 4300. ResNet50's are torchvision's documented
# 25,557,032 and 4.09 G.
FIGURES = {
    "mobilenetv2": (3.505, 299.5, 300.8),
    "efficientnet-b0": (5.289, 384.5, 385.8),
    "efficientnet-b1": (7.794, 685.5, 686.8),
    "mobilenetv2-x1.12-star": (4.719, 386.8, 388.2),
    "mobilenetv2-x1.54-star": (8.029, 682.9, 684.9),
    "resnet50": (25.557, 4087.1, 4089.2),
    "resnet50d": (25.576, 4326.8, 4328.8),
    "resnet50d-star": (28.107, 4329.3, 4331.3),
}
SMALL = (
    *(name for name in models.names() if name not in FIGURES),
    "resnet8-w32",
    "resnet8-s2",
    "resnet8d-w32-s2",
)


@pytest.mark.parametrize("name", FIGURES)
def test_the_papers_models_have_the_papers_figures(name: str) -> None:
    with torch.device("meta"):
        model = models.create(name)
    side = 240 if name == "efficientnet-b1" else 224
    assert models.input_size(model) == (3, side, side)

    counts = models.count(model, (3, side, side))

    params, conv_macs, macs = FIGURES[name]
    assert counts.params / 1e6 == pytest.approx(params, abs=0.01)
    assert counts.conv_macs / 1e6 == pytest.approx(conv_macs, abs=1)
    assert counts.macs / 1e6 == pytest.approx(macs, abs=1)


# Squeeze-and-excitation has two 1×1 convolutions with bias a block; no other conv has a bias.
@pytest.mark.parametrize(
    ("name", "layers"),
    [
        ("efficientnet-b0", 32),
        ("efficientnet-b1", 46),
        ("mobilenetv2-x1.12-star", 34),
        ("mobilenetv2-x1.54-star", 34),
        ("resnet50d-star", 32),
        ("tinynet-se", 16),
        ("mobilenetv2", 0),
        ("resnet50d", 0),
        ("tinynet-mobilenetv2", 0),
    ],
)
def test_squeeze_and_excitation_layers(name: str, layers: int) -> None:
    with torch.device("meta"):
        model = models.create(name)

    convs = [m for m in model.modules() if isinstance(m, nn.Conv2d)]

    assert sum(conv.bias is not None for conv in convs) == layers


@pytest.mark.parametrize(
    "name", [name for name in models.names() if "star" in name] + ["tinynet-se"]
)
def test_starred_models_use_silu(name: str) -> None:
    with torch.device("meta"):
        model = models.create(name)

    silu = sum(isinstance(m, nn.SiLU) for m in model.modules())

    assert silu > 5
    assert not any(isinstance(m, nn.ReLU6) for m in model.modules())


@pytest.mark.slow
@pytest.mark.parametrize("name", [*FIGURES, *SMALL])
def test_forward_gives_one_row_of_logits_an_image(name: str) -> None:
    channels = 1 if name == "digits-resnet" else 3
    default = 1000 if name in FIGURES else 10
    assert models.create(name).get_classifier().out_features == default  # type: ignore[operator]
    model = models.create(name, num_classes=7).eval()

    for height, width in ((32, 32), (33, 40)):
        with torch.no_grad():
            logits = model(torch.randn(2, channels, height, width))
        assert logits.shape == (2, 7)
        assert logits.isfinite().all()


@pytest.mark.parametrize("name", [*FIGURES, "resnet8", "tinynet-se", "digits-resnet"])
def test_in_chans(name: str) -> None:
    with torch.device("meta"):
        model = models.create(name, in_chans=5)
        logits = model.eval()(torch.empty(2, 5, 32, 32))

    assert models.input_size(model)[0] == 5
    assert logits.shape[0] == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", [*FIGURES, "resnet14", "resnet8d", "tinynet-se", "digits-resnet"])
def test_drop_path_acts_in_train_mode_alone(name: str) -> None:
    torch.manual_seed(0)
    model = models.create(name, drop_path=0.5)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.weight)  # timm starts some at 0, which hides the branch
    x = torch.randn(16, *models.input_size(model)[:1], 32, 32)

    with torch.no_grad():
        first, second = model.train()(x), model(x)
        assert not torch.equal(first, second)
        first, second = model.eval()(x), model(x)
        assert torch.equal(first, second)


@pytest.mark.parametrize("name", ["resnet50d-star", "resnet8", "tinynet-se"])
def test_drop_acts_before_the_head_in_train_mode_alone(name: str) -> None:
    torch.manual_seed(0)
    model = models.create(name, drop=0.5)
    x = torch.randn(4, 3, 32, 32)

    zeros = []
    for mode in (True, False):
        with torch.no_grad():
            features, _ = models.features_and_logits(model.train(mode), x)
        zeros.append((features == 0).float().mean().item())

    assert zeros[0] > 0.4
    assert zeros[1] < 0.1


def test_without_drop_a_train_pass_repeats() -> None:
    model = models.create("tinynet-se").train()
    x = torch.randn(4, 3, 32, 32)

    assert torch.equal(model(x), model(x))


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("resnet50d-stra", "resnet50d-star"),
        ("ResNet50", "resnet50"),
        ("mobilenet-v2", "mobilenetv2"),
        ("resnet9-w32", "resnet8-w32"),
        ("resnet18", "timm/resnet18"),
        ("resnet8-w0", "resnet8"),
        ("timm/resnet50dd", "timm/resnet50d"),
        ("timm/resnet50.a1_in1", "timm/resnet50.a1_in1k"),
        ("torchvision/vgg16bn", "torchvision/vgg16_bn"),
    ],
)
def test_unknown_names_say_the_nearest(name: str, near: str) -> None:
    library = name.partition("/")[0] if "/" in name else "fixnorm"
    with pytest.raises(ValueError, match=rf"^unknown model .* listed by {library}\.") as error:
        models.create(name)

    listed = str(error.value).partition("nearest are ")[2].partition(";")[0].split(", ")
    assert near in listed
    assert error.value.__context__ is None


@pytest.mark.parametrize("name", ["", "timm/", "timm/hf_hub:timm/resnet50", "???", "torchvision/"])
def test_names_that_are_like_nothing(name: str) -> None:
    with pytest.raises(ValueError, match=r"^unknown model"):
        models.create(name)


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match=r"num_classes must be at least 1 but got 0"):
        models.create("resnet8", num_classes=0)
    with pytest.raises(ValueError, match=r"in_chans must be at least 1 but got -1"):
        models.create("resnet8", in_chans=-1)
    with pytest.raises(ValueError, match=r"drop_path must be in \[0, 1\) but got 1.0"):
        models.create("resnet8", drop_path=1.0)
    with pytest.raises(ValueError, match=r"drop must be in \[0, 1\) but got nan"):
        models.create("resnet8", drop=float("nan"))


def test_every_listed_name_is_unique_and_builds() -> None:
    listed = models.names()

    assert len(set(listed)) == len(listed) == 27
    with torch.device("meta"):
        assert all(isinstance(models.create(name), nn.Module) for name in listed)


def test_small_resnets_need_torch_alone() -> None:
    code = (
        "import sys; from fixnorm import models; models.create('digits-resnet');"
        "print({'timm', 'torchvision'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert run.stdout.strip() == "set()"


@pytest.mark.parametrize("name", ["resnet50", "tinynet-se", "timm/resnet18", "torchvision/vgg16"])
def test_without_the_extra_the_message_names_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    monkeypatch.setitem(sys.modules, "torchvision", None)

    with pytest.raises(ImportError, match=r"pip install 'fixnorm\[train\]'"):
        models.create(name)
    with pytest.raises(ValueError, match=r"nearest are .*resnet8"):
        models.create("resnet9")
