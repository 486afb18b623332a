"""Detectors by name: ``retinanet/BACKBONE``, torchvision's RetinaNet on a ResNet with an FPN."""

from __future__ import annotations

from typing import Any

from torch import nn

from fixnorm.models.extra import need_torchvision

__all__ = ["CLASSIFIER", "create_detector"]

CLASSIFIER = "head.classification_head.cls_logits"
"""The last conv of the classification subnet: FixNorm's head."""
_BACKBONES = ("resnet18", "resnet34", "resnet50", "resnet101")


def create_detector(
    name: str,
    *,
    num_classes: int,
    short_side: int = 800,
    long_side: int = 1333,
    frozen_norms: bool = False,
) -> nn.Module:
    """Build an untrained RetinaNet: lists of images and targets to losses, or to detections.

    Args:
        name: ``retinanet/resnet50``, or on resnet18, 34 or 101.
        num_classes: classes of objects; labels are 0 … num_classes − 1.
        short_side: the shorter side that images are resized to.
        long_side: the most that the longer side may be.
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
    from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
    from torchvision.ops import FrozenBatchNorm2d
    from torchvision.ops.feature_pyramid_network import LastLevelP6P7

    body = resnet_fpn_backbone(
        backbone_name=backbone,
        weights=None,
        norm_layer=FrozenBatchNorm2d if frozen_norms else nn.BatchNorm2d,
        trainable_layers=5,
        returned_layers=[2, 3, 4],
        extra_blocks=LastLevelP6P7(256, 256),
    )
    scale = short_side / 800
    anchors = parts.AnchorGenerator(
        tuple(
            tuple(int(size * scale * 2 ** (k / 3)) for k in range(3))
            for size in (32, 64, 128, 256, 512)
        ),
        ((0.5, 1.0, 2.0),) * 5,
    )
    model: nn.Module = detection.RetinaNet(
        body,
        num_classes=num_classes,
        anchor_generator=anchors,
        min_size=short_side,
        max_size=long_side,
    )
    return model
