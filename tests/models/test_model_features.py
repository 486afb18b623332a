"""The head's input, caught on its way in."""

import pytest
import torch
from torch import Tensor, nn

from fixnorm import models
from fixnorm.models import HeadInput


@pytest.mark.parametrize(
    "name",
    [
        "resnet50d-star",
        "mobilenetv2-x1.12-star",
        "efficientnet-b0",
        "resnet8d-w32-s2",
        "digits-resnet",
        "tinynet-mobilenetv2",
        "timm/mobilenetv3_small_050",
        "timm/convnext_atto",
        "timm/regnety_002",
        "timm/vit_tiny_patch16_224",
    ],
)
def test_features_are_timms_pre_logits(name: str) -> None:
    torch.manual_seed(0)
    model = models.create(name, num_classes=7).eval()
    channels, side, _ = models.input_size(model)
    x = torch.randn(2, channels, *(2 * [side if "vit" in name else 64]))

    with torch.no_grad():
        features, logits = models.features_and_logits(model, x)
        expected = model.forward_head(model.forward_features(x), pre_logits=True)  # type: ignore[operator]

    assert features.shape == (2, models.find_head(model).in_features)
    assert torch.equal(features, expected)
    assert torch.equal(logits, model(x))


@pytest.mark.parametrize("name", ["resnet18", "vgg11_bn", "mobilenet_v3_small", "squeezenet1_1"])
def test_torchvision_heads(name: str) -> None:
    with torch.device("meta"):
        model = models.create(f"torchvision/{name}", num_classes=7).eval()
        head = models.find_head(model)
        features, logits = models.features_and_logits(model, torch.empty(2, 3, 224, 224))

    assert logits.shape == (2, 7)
    if name == "squeezenet1_1":
        assert isinstance(head, nn.Conv2d)
        assert features.shape == (2, 512, 13, 13)
    else:
        assert isinstance(head, nn.Linear)
        assert features.shape == (2, head.in_features)


def test_logits_are_the_heads_answer_to_the_features() -> None:
    model = models.create("torchvision/shufflenet_v2_x0_5", num_classes=7).eval()

    features, logits = models.features_and_logits(model, torch.randn(2, 3, 64, 64))

    torch.testing.assert_close(models.find_head(model)(features), logits)


def test_the_handle_follows_each_pass_until_removed() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(2, 3), nn.Linear(3, 1))
    nn.init.constant_(model[1].weight, 1.0)  # type: ignore[arg-type]
    nn.init.zeros_(model[1].bias)  # type: ignore[arg-type]
    head = HeadInput(model)

    model(torch.tensor([[1.0, 2.0]]))
    assert head.features.tolist() == [[3.0, 3.0, 3.0]]
    model(torch.tensor([[5.0, 0.0]]))
    assert head.features.tolist() == [[5.0, 5.0, 5.0]]
    assert not head.features.requires_grad

    head.remove()
    model(torch.tensor([[9.0, 9.0]]))
    with pytest.raises(RuntimeError, match="the head has not run yet: call the model first"):
        _ = head.features


def test_a_conv_head_on_pooled_features_gives_rows() -> None:
    with torch.device("meta"):
        model = models.create("timm/dla46_c").eval()
        features, _ = models.features_and_logits(model, torch.empty(2, 3, 64, 64))

    assert isinstance(models.find_head(model), nn.Conv2d)
    assert features.shape == (2, 256)


def test_a_head_inside_timms_classifier_is_found() -> None:
    with torch.device("meta"):
        model = models.create("timm/samvit_base_patch16_224", num_classes=7).eval()
        features, _ = models.features_and_logits(model, torch.empty(2, 3, 224, 224))

    assert isinstance(models.find_head(model), nn.Linear)
    assert features.shape == (2, 768)


def test_a_named_head_wins() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    x = torch.randn(4, 2)

    features, _ = models.features_and_logits(model, x, head=model[0])

    assert torch.equal(features, x)


class Broken(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        raise OSError("disk on fire")


def test_the_hook_goes_when_the_model_fails() -> None:
    model = Broken()

    with pytest.raises(OSError, match="disk on fire"):
        models.features_and_logits(model, torch.randn(1, 2))

    assert not model.fc._forward_pre_hooks


def test_gradients_flow_through_the_logits() -> None:
    model = models.create("resnet8")

    _, logits = models.features_and_logits(model, torch.randn(2, 3, 8, 8))
    torch.autograd.backward(logits.square().sum())

    assert all(parameter.grad is not None for parameter in model.parameters())


def test_models_without_one_head_are_told_so() -> None:
    with torch.device("meta"):
        two_heads = models.create("timm/levit_128s")
        head_list = models.create("timm/crossvit_9_240")
        no_head = models.create("timm/resnet18").eval()
    no_head.reset_classifier(0)  # type: ignore[operator]

    with pytest.raises(ValueError, match=r"no single linear or conv head but tuple .* head=$"):
        models.find_head(two_heads)
    with pytest.raises(ValueError, match=r"no single linear or conv head but ModuleList as its"):
        models.find_head(head_list)
    with pytest.raises(ValueError, match=r"no single linear or conv head but Identity as its"):
        models.find_head(no_head)
    with pytest.raises(ValueError, match=r"^ReLU has no single .* but no layer of weights: pass"):
        models.find_head(nn.ReLU())
