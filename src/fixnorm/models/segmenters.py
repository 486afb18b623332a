"""Segmenters by name: ``base-oc/BACKBONE`` and ``deeplabv3/BACKBONE``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fixnorm.models.base_oc import BaseOC
from fixnorm.models.extra import need_torchvision

__all__ = ["create_segmenter", "load_backbone"]

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


def load_backbone(backbone: nn.Module, weights: Path) -> tuple[str, ...]:
    """Load a classifier's weights (safetensors, or a state dict of torch) into a backbone.

    Returns the names that the file has and the backbone has not, such as the classifier's.
    """
    state = _read(weights)
    own = backbone.state_dict()
    missing = [
        name for name in own if name not in state and not name.endswith("num_batches_tracked")
    ]
    wrong = [name for name in own if name in state and state[name].shape != own[name].shape]
    if missing or wrong:
        what = "lacks" if missing else "has another shape of"
        raise ValueError(
            f"{weights} is not a file of this backbone: it {what} {(missing or wrong)[0]}"
            f" ({len(missing)} missing, {len(wrong)} of another shape)"
        )
    backbone.load_state_dict({name: state[name] for name in own if name in state}, strict=False)
    return tuple(name for name in state if name not in own)


def _read(weights: Path) -> Mapping[str, torch.Tensor]:
    if not weights.is_file():
        raise ValueError(f"{weights} does not exist: give a file of weights")
    if weights.suffix == ".safetensors":
        from safetensors.torch import load_file

        return load_file(weights)
    try:
        content = torch.load(weights, map_location="cpu", weights_only=True)
    except Exception as error:
        raise ValueError(f"{weights} cannot be read as weights: {error}") from None
    state = content.get("state_dict", content) if isinstance(content, dict) else content
    if not isinstance(state, dict) or not all(isinstance(v, torch.Tensor) for v in state.values()):
        raise ValueError(f"{weights} holds no state dict: save model.state_dict()")
    return state
