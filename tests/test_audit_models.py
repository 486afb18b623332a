"""The audit of real networks, against what is known of their architecture."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import timm
import torch
import torchvision
from torch import Tensor, nn
from torchvision.models.detection import RetinaNet
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
from torchvision.ops.feature_pyramid_network import LastLevelP6P7

import fixnorm
from fixnorm import models


def expect(
    audit: fixnorm.Audit, *, heads: set[str], unnormalised: str | None, free: str = r"(?!)"
) -> None:
    """Heads by name, un-normalised weights by pattern, and all other weights fixed."""
    assert set(audit.names("head")) == heads
    assert audit.names("unused") == ()
    for row in audit:
        vector = len(row.shape) < 2 or re.fullmatch(free, row.name)
        if vector:
            assert row.role == "free", row
        elif row.name not in heads:
            scaled = unnormalised is not None and re.fullmatch(unnormalised, row.name)
            assert row.role == ("unnormalised" if scaled else "fixed"), row


# Squeeze-and-excitation layers of the paper's models, as FACTS of the architecture:
# two a block, 1×1 convs with a bias.
PAPER = {
    "resnet50": (53, 0),
    "resnet50d": (55, 0),
    "resnet50d-star": (55, 32),
    "mobilenetv2": (52, 0),
    "mobilenetv2-x1.12-star": (52, 34),
    "mobilenetv2-x1.54-star": (52, 34),
    "efficientnet-b0": (49, 32),
    "efficientnet-b1": (69, 46),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PAPER)
def test_the_papers_models(name: str) -> None:
    model = models.create(name)
    side = 32 if "resnet" in name else 64  # a depthwise kernel needs more than one pixel
    audit = fixnorm.audit(model, torch.randn(4, 3, side, side))
    fixed, squeeze = PAPER[name]
    counts = audit.counts()
    assert (counts["fixed"], counts["unnormalised"], counts["head"]) == (fixed, squeeze, 1)
    (head,) = audit.names("head")
    assert head == ("fc.weight" if "resnet" in name else "classifier.weight")
    assert all(".se." in name for name in audit.names("unnormalised"))
    report = fixnorm.convert(model, alpha=1.0, sample=torch.randn(4, 3, side, side))
    assert len(report.fixed) == fixed + squeeze + 1


TIMM = {
    "resnet50": ({"fc.weight"}, None),
    "seresnet50": ({"fc.weight"}, r".*\.se\.fc[12]\.weight"),
    "mobilenetv3_large_100": ({"classifier.weight"}, r".*\.se\.conv_\w+\.weight|conv_head\.weight"),
    "regnety_008": ({"head.fc.weight"}, r".*\.se\.fc[12]\.weight"),
    "densenet121": ({"classifier.weight"}, None),
    "convnext_tiny": ({"head.fc.weight"}, r"(?!head\.fc).*weight"),
    "vit_tiny_patch16_224": ({"head.weight"}, r"(?!head).*weight|pos_embed"),
}


@pytest.mark.tried(
    "Models",
    "timm: ResNet-D, SE-ResNet, MnasNet, MixNet, LeViT, EfficientNet, DenseNet, SqueezeNet, …",
    "works",
    "roles as measured",
)
@pytest.mark.slow
@pytest.mark.parametrize("name", TIMM)
def test_timm_models(name: str) -> None:
    heads, unnormalised = TIMM[name]
    size = {"img_size": 64} if name.startswith("vit") else {}
    audit = fixnorm.audit(timm.create_model(name, **size), torch.randn(4, 3, 64, 64))
    expect(audit, heads=heads, unnormalised=unnormalised, free=r"cls_token")


@pytest.mark.slow
def test_weight_standardised_net() -> None:
    audit = fixnorm.audit(timm.create_model("nf_resnet50"), torch.randn(4, 3, 32, 32))
    expect(audit, heads={"head.fc.weight"}, unnormalised=None, free=r".*\.gain")
    assert audit.counts()["fixed"] == 53


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "unnormalised"),
    [("vgg16", r".*"), ("vgg16_bn", r"classifier\.[03]\.weight")],
)
def test_vgg_with_and_without_norms(name: str, unnormalised: str) -> None:
    model = torchvision.models.get_model(name, num_classes=10)
    for i, (inputs, outputs) in ((0, (25088, 64)), (3, (64, 64)), (6, (64, 10))):
        model.classifier[i] = nn.Linear(inputs, outputs)  # the full ones take a gigabyte each
    audit = fixnorm.audit(model, torch.randn(4, 3, 32, 32))
    expect(audit, heads={"classifier.6.weight"}, unnormalised=unnormalised)


@pytest.mark.tried("Models", "torchvision: DeepLabV3", "works", "two heads")
@pytest.mark.slow
def test_deeplab_has_a_main_and_an_auxiliary_head() -> None:
    model = torchvision.models.segmentation.deeplabv3_resnet50(
        weights=None, weights_backbone=None, aux_loss=True
    )
    audit = fixnorm.audit(model, torch.randn(4, 3, 32, 32))
    heads = {"classifier.4.weight", "aux_classifier.4.weight"}
    expect(audit, heads=heads, unnormalised=None)


def retinanet() -> nn.Module:
    """As ``retinanet_resnet50_fpn`` from random weights, on a smaller ResNet."""
    backbone = resnet_fpn_backbone(
        backbone_name="resnet18",
        weights=None,
        norm_layer=nn.BatchNorm2d,
        returned_layers=[2, 3, 4],
        extra_blocks=LastLevelP6P7(256, 256),
    )
    return RetinaNet(backbone, num_classes=4, min_size=64, max_size=96)


def losses(model: nn.Module) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    images = [torch.rand(3, 64, 64, generator=generator) for _ in range(4)]
    box = torch.tensor([[8.0, 8.0, 40.0, 48.0]])
    targets = [{"boxes": box, "labels": torch.tensor([1])} for _ in images]
    return model(images, targets)


def raw_outputs(model: nn.Module) -> dict[str, Tensor]:
    maps = model.backbone(torch.randn(4, 3, 64, 64))
    return model.head(list(maps.values()))


NO_NORM = r"backbone\.fpn\..*|head\..*"


@pytest.mark.tried(
    "Models",
    "torchvision: RetinaNet",
    "how to",
    '`head="head.classification_head.cls_logits"`, a callable as sample',
)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("run", "heads"),
    [
        (losses, set()),  # a loss is linear in no weight
        (
            raw_outputs,
            {"head.classification_head.cls_logits.weight", "head.regression_head.bbox_reg.weight"},
        ),
    ],
)
def test_retinanet(run: Callable[[nn.Module], object], heads: set[str]) -> None:
    expect(fixnorm.audit(retinanet(), run), heads=heads, unnormalised=NO_NORM)


@pytest.mark.slow
@pytest.mark.parametrize(
    "build",
    [
        lambda: (models.create("tinynet-se"), None, None),
        lambda: (timm.create_model("mobilenetv3_small_050"), None, None),
        lambda: (timm.create_model("convnext_atto"), None, None),
        lambda: (retinanet(), losses, "head.classification_head.cls_logits"),
    ],
    ids=["tinynet-se", "mobilenetv3", "convnext", "retinanet"],
)
def test_after_convert_no_conv_or_linear_scale_matters(build: Callable[[], tuple]) -> None:
    model, sample, head = build()
    report = fixnorm.convert(model, alpha=1.0, sample=sample, head=head)
    audit = fixnorm.audit(model, sample)
    assert audit.names("unnormalised") == audit.names("head") == ()
    assert set(report.fixed) == set(audit.names("fixed"))
    assert report.kept == ()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet8", "tinynet-se", "timm/mobilenetv3_small_050"])
def test_roles_agree_with_scaling_one_weight_at_a_time(name: str) -> None:
    """The slow twin of Euler's identity: multiply each weight by 3 and look at the output."""
    model = models.create(name)
    audit = fixnorm.audit(model)
    slow = model.double().train()
    with torch.no_grad():
        for module in slow.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eps = 1e-30
        for p in slow.parameters():
            if p.ndim < 2:
                p.add_(torch.randn_like(p), alpha=0.5)
        x = torch.randn(4, 3, 64, 64, dtype=torch.float64)
        before = slow(x)
        for row in audit:
            if row.role in ("fixed", "unnormalised", "head"):
                weight = slow.get_parameter(row.name)
                weight.mul_(3)
                change = ((slow(x) - before).norm() / before.norm()).item()
                weight.div_(3)
                assert (change < 1e-7) is (row.role == "fixed"), (row, change)
