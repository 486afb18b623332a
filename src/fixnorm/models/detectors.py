"""Detectors by name: ``retinanet/BACKBONE``, torchvision's RetinaNet on a ResNet with an FPN."""

from __future__ import annotations

from typing import Any

from torch import nn

from fixnorm.internals import use_smooth_l1
from fixnorm.models.facts import CLASSIFIER
from fixnorm.models.registries import need_torchvision

__all__ = ["CLASSIFIER", "create_detector"]

_BACKBONES = ("resnet18", "resnet34", "resnet50", "resnet101")


def create_detector(
    name: str,
    *,
    num_classes: int,
    short_side: int = 800,
    long_side: int = 1333,
    width: int = 256,
    smallest_anchor: int = 32,
    he_subnets: bool = False,
    frozen_norms: bool = False,
) -> nn.Module:
    """Build an untrained RetinaNet: lists of images and targets to losses, or to detections.

    Args:
        name: ``retinanet/resnet50``, or on resnet18, 34 or 101.
        num_classes: classes of objects; labels are 0 … num_classes − 1.
        short_side: the shorter side that images are resized to.
        long_side: the most that the longer side may be.
        width: channels of the feature pyramid and of both subnets; 256 in the paper.
        smallest_anchor: side of the anchors on the finest map, one every 8 pixels; it doubles from
            map to map. 32 in the paper, less where objects are small.
        he_subnets: initialise the hidden convs of both subnets as He et al. (2015). The paper's
            normal of deviation 0.01 halves the signal in each of them at 256 channels and a
            pretrained backbone makes up for it; narrow ones from random weights would not learn.
        frozen_norms: batch norms that never change, as detectors on pretrained backbones have
            them. A conv before a frozen norm is not scale-invariant.
    """
    family, slash, backbone = name.partition("/")
    if family != "retinanet" or not slash or backbone not in _BACKBONES:
        raise ValueError(
            f"unknown detector {name!r}: take {', '.join(f'retinanet/{b}' for b in _BACKBONES)}"
        )
    torchvision = need_torchvision()
    detection: Any = torchvision.models.detection
    from torchvision.models.detection import retinanet as parts
    from torchvision.models.detection.backbone_utils import BackboneWithFPN
    from torchvision.ops import FrozenBatchNorm2d
    from torchvision.ops.feature_pyramid_network import LastLevelP6P7

    norm = FrozenBatchNorm2d if frozen_norms else nn.BatchNorm2d
    resnet = torchvision.models.get_model(backbone, weights=None, norm_layer=norm)
    last = resnet.inplanes  # channels of the last stage; each stage before has half of them
    pyramid = BackboneWithFPN(
        resnet,
        return_layers={"layer2": "0", "layer3": "1", "layer4": "2"},
        in_channels_list=[last // 4, last // 2, last],
        out_channels=width,
        extra_blocks=LastLevelP6P7(width, width),
    )
    sides = [smallest_anchor * 2**level for level in range(5)]
    anchors = parts.AnchorGenerator(
        tuple(tuple(int(side * 2 ** (k / 3)) for k in range(3)) for side in sides),
        ((0.5, 1.0, 2.0),) * 5,
    )
    model: nn.Module = detection.RetinaNet(
        pyramid,
        num_classes=num_classes,
        anchor_generator=anchors,
        min_size=short_side,
        max_size=long_side,
    )
    # torchvision's default is L1; the paper has the standard smooth one (β = 1).
    use_smooth_l1(model)
    if he_subnets:
        _initialise_as_he(model)
    return model


def _initialise_as_he(model: nn.Module) -> None:
    for subnet in ("classification_head", "regression_head"):
        for layer in model.get_submodule(f"head.{subnet}.conv").modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
