"""Segmenters by name: ``base-oc/BACKBONE`` and ``deeplabv3/BACKBONE``.

Base-OC (Yuan and Wang 2018) is a backbone at output stride 8, object context and an auxiliary head.
Object context is attention of every pixel over all others:

    context = softmax(k(x)ᵀ k(x) / √d) · v(x),      x ← φ([context, x])

with one embedding k for keys and queries. Weights are not initialised to zero as in the reference:
a zero weight has no direction to keep.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fixnorm.models.registries import need_timm, need_torchvision, unknown

__all__ = ["BaseOC", "ObjectContext", "create_segmenter"]

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


def conv_bn_relu(inputs: int, outputs: int, kernel: int) -> nn.Sequential:
    """A convolution that keeps the size, its norm, and ReLU."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class ObjectContext(nn.Module):
    """Every pixel is described by those that look like it."""

    def __init__(self, channels: int, keys: int) -> None:
        super().__init__()
        self.keys = keys
        self.key = conv_bn_relu(channels, keys, 1)
        self.value = nn.Conv2d(channels, keys, 1)
        self.out = nn.Conv2d(keys, channels, 1)
        self.merge = conv_bn_relu(2 * channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(B, channels, H, W) to the same."""
        key = self.key(x).flatten(2).transpose(1, 2)
        value = self.value(x).flatten(2).transpose(1, 2)
        similarity = torch.softmax(key @ key.transpose(1, 2) / math.sqrt(self.keys), dim=-1)
        context = (similarity @ value).transpose(1, 2).unflatten(2, x.shape[2:])
        return self.merge(torch.cat([self.out(context), x], dim=1))  # type: ignore[no-any-return]


class BaseOC(nn.Module):
    """A segmenter: logits of every pixel from the last stage, and from the one before as help.

    Args:
        backbone: a ResNet-like model of timm.
        num_classes: outputs.
        width: channels between backbone and head; 512 in the paper.
        drop: dropout of whole channels before the heads.
    """

    def __init__(
        self, backbone: str, *, num_classes: int, width: int = 512, drop: float = 0.05
    ) -> None:
        super().__init__()
        self.backbone = _features(backbone)
        third, fourth = self.backbone.feature_info.channels()
        self.reduce = conv_bn_relu(fourth, width, 3)
        self.context = ObjectContext(width, width // 2)
        self.drop = nn.Dropout2d(drop)
        self.head = nn.Conv2d(width, num_classes, 1)
        self.auxiliary = nn.Sequential(
            conv_bn_relu(third, width, 3), nn.Dropout2d(drop), nn.Conv2d(width, num_classes, 1)
        )

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        """``out`` and, in training, ``aux``: (B, classes, H, W), as torchvision's segmenters."""
        size = images.shape[2:]
        third, fourth = self.backbone(images)
        out = self.head(self.drop(self.context(self.reduce(fourth))))
        outputs = {"out": _resized(out, size)}
        if self.training:
            outputs["aux"] = _resized(self.auxiliary(third), size)
        return outputs


def _features(backbone: str) -> Any:
    """The last two stages of a backbone at stride 8."""
    timm = need_timm()
    if not timm.is_model(backbone):
        known = [f"base-oc/{name}" for name in timm.list_models("resne*")]
        raise unknown(f"base-oc/{backbone}", known, listed_by="timm.list_models('resne*')")
    try:
        return timm.create_model(
            backbone, features_only=True, output_stride=8, out_indices=(3, 4), pretrained=False
        )
    except (TypeError, NotImplementedError, AssertionError, ValueError) as error:
        raise ValueError(
            f"{backbone} cannot be a backbone at output stride 8 ({error}): take a ResNet of timm"
        ) from None


def _resized(logits: Tensor, size: torch.Size) -> Tensor:
    return F.interpolate(logits, size=list(size), mode="bilinear", align_corners=False)
