"""Segmenters and detectors: shapes, the paper's parts, and what conversion makes of them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

import fixnorm
from fixnorm.models.backbones import load_backbone
from fixnorm.models.detectors import CLASSIFIER, create_detector
from fixnorm.models.segmenters import BaseOC, ObjectContext, create_segmenter


def small_oc(classes: int = 5) -> nn.Module:
    return create_segmenter("base-oc/resnet18", num_classes=classes, width=32)


def test_a_segmenter_labels_every_pixel() -> None:
    model, images = small_oc(), torch.randn(2, 3, 40, 56)
    outputs = model(images)
    assert {name: tuple(t.shape) for name, t in outputs.items()} == {
        "out": (2, 5, 40, 56),
        "aux": (2, 5, 40, 56),
    }
    assert model.eval()(images).keys() == {"out"}


def test_the_papers_backbone_runs_at_stride_8() -> None:
    with torch.device("meta"):
        model = create_segmenter("base-oc/resnet101s", num_classes=19)
    assert isinstance(model, BaseOC)
    assert model.backbone.feature_info.reduction() == [8, 8]
    assert model.backbone.feature_info.channels() == [1024, 2048]
    assert model.head.weight.shape == (19, 512, 1, 1)
    assert model.context.key[0].weight.shape == (256, 512, 1, 1)
    assert model.context.merge[0].weight.shape == (512, 1024, 1, 1)


@torch.no_grad()
def test_object_context_is_attention_over_pixels() -> None:
    """Against a loop over the pixels of one image."""
    context = ObjectContext(6, 4).eval()
    x = torch.randn(1, 6, 3, 2)
    keys = context.key(x)[0].flatten(1)
    values = context.value(x)[0].flatten(1)
    mixed = torch.zeros(4, 6)
    for i in range(6):
        weights = torch.tensor([math.exp(keys[:, i] @ keys[:, j] / 2) for j in range(6)])
        mixed[:, i] = sum(w * values[:, j] for j, w in enumerate(weights / weights.sum()))
    expected = context.merge(torch.cat([context.out(mixed.view(1, 4, 3, 2)), x], dim=1))
    torch.testing.assert_close(context(x), expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("build", "heads"),
    [
        (small_oc, ["head", "auxiliary.2"]),
        (
            lambda: create_segmenter("deeplabv3/mobilenet_v3_large", num_classes=5),
            ["classifier.4", "aux_classifier"],
        ),
    ],
    ids=["base-oc", "deeplabv3"],
)
def test_both_heads_of_a_segmenter_are_found_by_measurement(build, heads: list[str]) -> None:
    model, images = build(), torch.randn(4, 3, 64, 64)
    report = fixnorm.convert(model, alpha=1.0, sample=images)
    names = [head.name for head in report.heads]
    assert len(names) == 2
    assert all(name.startswith(start) for name, start in zip(names, heads, strict=True))
    assert all(isinstance(model.get_submodule(n), fixnorm.FixNormConv2d) for n in names)
    audited = fixnorm.audit(model, images)
    assert audited.names("unnormalised") == audited.names("head") == ()


@pytest.mark.slow
def test_the_context_has_no_norm_and_gets_scales_of_its_own() -> None:
    report = fixnorm.convert(small_oc(), alpha=1.0, sample=torch.randn(4, 3, 64, 64))
    assert report.weight_normalised == ("context.value", "context.out")


# -- detection -------------------------------------------------------------------------------------


def images_and_targets() -> tuple[list[Tensor], list[dict[str, Tensor]]]:
    images = [torch.rand(3, 96, 96), torch.rand(3, 80, 96)]
    boxes = torch.tensor([[10.0, 10.0, 50.0, 60.0]])
    return images, [{"boxes": boxes, "labels": torch.tensor([k])} for k in (0, 2)]


def small_retinanet(**options: object) -> nn.Module:
    return create_detector(
        "retinanet/resnet18",
        num_classes=3,
        short_side=96,
        long_side=128,
        **options,  # type: ignore[arg-type]
    )


def test_a_detector_gives_losses_and_detections() -> None:
    model = small_retinanet()
    images, targets = images_and_targets()
    assert model(images, targets).keys() == {"classification", "bbox_regression"}
    found = model.eval()(images)
    assert len(found) == 2
    assert found[0].keys() == {"boxes", "scores", "labels"}
    assert all(label in (0, 1, 2) for label in found[0]["labels"].tolist())


def test_anchors_double_from_map_to_map() -> None:
    papers, small = (
        create_detector("retinanet/resnet18", num_classes=3, smallest_anchor=side)
        for side in (32, 16)
    )
    assert papers.anchor_generator.sizes[0] == (32, 40, 50)
    assert papers.anchor_generator.sizes[4] == (512, 645, 812)
    assert small.anchor_generator.sizes[:2] == ((16, 20, 25), (32, 40, 50))


@pytest.mark.slow
def test_a_converted_retinanet_has_no_conv_whose_scale_matters() -> None:
    model = small_retinanet()
    images, targets = images_and_targets()
    report = fixnorm.convert(model, alpha=0.5, sample=lambda m: m(images, targets), head=CLASSIFIER)
    assert [head.name for head in report.heads] == [CLASSIFIER]
    normalised = report.weight_normalised
    assert sum(name.startswith("backbone.fpn.") for name in normalised) == 8  # 3 + 3, P6, P7
    assert sum(name.startswith("head.") for name in normalised) == 9  # 4 + 4, and the boxes' last
    audited = fixnorm.audit(model, lambda m: m(images, targets))
    assert audited.names("unnormalised") == audited.names("head") == ()


@pytest.mark.slow
def test_under_a_frozen_norm_a_conv_is_not_scale_invariant() -> None:
    images, targets = images_and_targets()
    audited = fixnorm.audit(small_retinanet(frozen_norms=True), lambda m: m(images, targets))
    under_frozen = [n for n in audited.names("unnormalised") if n.startswith("backbone.body.")]
    assert len(under_frozen) == 20  # every conv of a ResNet-18
    assert [n for n in audited.names("fixed") if n.startswith("backbone.body.")] == []


# -- names and weights -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "name", "message"),
    [
        (create_segmenter, "unet", "unknown segmenter 'unet'"),
        (create_segmenter, "base-oc/resnet1O1", "base-oc/resnet101"),
        (create_segmenter, "base-oc/vit_tiny_patch16_224", "cannot be a backbone at output stride"),
        (create_segmenter, "deeplabv3/resnet18", "torchvision has deeplabv3 on resnet50"),
        (create_detector, "fasterrcnn/resnet50", "unknown detector 'fasterrcnn/resnet50'"),
        (create_detector, "retinanet/vgg", "take retinanet/resnet18"),
    ],
)
def test_unknown_names(build, name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(name, num_classes=3)


def test_a_backbone_from_a_file(tmp_path: Path) -> None:
    import timm

    classifier = timm.create_model("resnet18", num_classes=7)
    state = classifier.state_dict()
    safetensors.torch.save_file(state, tmp_path / "w.safetensors")
    torch.save({"state_dict": state}, tmp_path / "w.pth")
    for name in ("w.safetensors", "w.pth"):
        model = small_oc()
        left = load_backbone(model, "base-oc/resnet18", str(tmp_path / name))
        assert set(left) == {"fc.weight", "fc.bias"}
        assert torch.equal(
            model.backbone.state_dict()["layer4.1.conv2.weight"], state["layer4.1.conv2.weight"]
        )


def test_weights_that_do_not_fit(tmp_path: Path) -> None:
    model = small_oc()
    torch.save({"conv1.weight": torch.zeros(1)}, tmp_path / "other.pth")
    with pytest.raises(ValueError, match=r"not the weights of this backbone, .* lack bn1\.weight"):
        load_backbone(model, "base-oc/resnet18", str(tmp_path / "other.pth"))
    (tmp_path / "text.pth").write_text("hello")
    with pytest.raises(ValueError, match="cannot be read as weights"):
        load_backbone(model, "base-oc/resnet18", str(tmp_path / "text.pth"))
    with pytest.raises(ValueError, match="does not exist"):
        load_backbone(model, "base-oc/resnet18", str(tmp_path / "none.pth"))
