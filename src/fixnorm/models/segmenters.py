"""Segmenters by name: ``base-oc/BACKBONE`` and ``deeplabv3/BACKBONE``."""

from __future__ import annotations

from typing import Any

from torch import nn

from fixnorm.models.base_oc import BaseOC
from fixnorm.models.registries import need_torchvision

__all__ = ["create_segmenter"]

_DEEPLAB = ("resnet50", "resnet101", "mobilenet_v3_large")


def create_segmenter(name: str, *, num_classes: int, width: int | None = None) -> nn.Module:
    """Build an untrained segmenter: images (B, 3, H, W) to ``out`` and ``aux`` of every pixel.

    Args:
        name: ``base-oc/BACKBONE`` with a ResNet of timm (the paper's is ``base-oc/resnet101s``),
            or ``deeplabv3/BACKBONE`` with one of torchvision's.
        num_classes: outputs.
        width: channels before the head of ``base-oc``; the paper's 512 without it.
    """
    family, slash, backbone = name.partition("/")
    if family == "base-oc" and slash:
        return BaseOC(backbone, num_classes=num_classes, width=512 if width is None else width)
    if family == "deeplabv3" and slash:
        if backbone not in _DEEPLAB:
            raise ValueError(
                f"unknown model {name!r}: torchvision has deeplabv3 on {', '.join(_DEEPLAB)}"
            )
        if width is not None:
            raise ValueError(f"width: {name} has its own; leave it out")
        build: Any = getattr(need_torchvision().models.segmentation, f"deeplabv3_{backbone}")
        model: nn.Module = build(
            weights=None, weights_backbone=None, num_classes=num_classes, aux_loss=True
        )
        return model
    raise ValueError(
        f"unknown segmenter {name!r}: take base-oc/resnet101s, another ResNet of timm, or"
        " deeplabv3/resnet50"
    )
