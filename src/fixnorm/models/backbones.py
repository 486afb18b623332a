"""Weights to start a backbone from: a file, or what its library has trained."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import nn

from fixnorm.models.facts import PRETRAINED
from fixnorm.models.registries import need_timm, need_torchvision

__all__ = ["PRETRAINED", "backbone_of", "load_backbone"]


def backbone_of(model: nn.Module) -> nn.Module:
    """The part of a segmenter or detector that a classifier's weights fit."""
    backbone = model.get_submodule("backbone")
    body = getattr(backbone, "body", None)  # a feature pyramid's
    return body if isinstance(body, nn.Module) else backbone


def load_backbone(model: nn.Module, name: str, weights: str) -> tuple[str, ...]:
    """Load a classifier's weights into the backbone of a segmenter or detector.

    Args:
        model: one of :func:`create_segmenter` or :func:`create_detector`.
        name: its name, which says whose backbone it has.
        weights: a file (safetensors, or a state dict of torch), or :data:`PRETRAINED`.

    Returns:
        The names that the weights have and the backbone has not, such as the classifier's.
    """
    state = _downloaded(name) if weights == PRETRAINED else _read(Path(weights))
    backbone = backbone_of(model)
    own = backbone.state_dict()
    missing = [
        name for name in own if name not in state and not name.endswith("num_batches_tracked")
    ]
    wrong = [name for name in own if name in state and state[name].shape != own[name].shape]
    if missing or wrong:
        what = "lack" if missing else "have another shape of"
        raise ValueError(
            f"{weights}: not the weights of this backbone, they {what} {(missing or wrong)[0]}"
            f" ({len(missing)} missing, {len(wrong)} of another shape)"
        )
    backbone.load_state_dict({name: state[name] for name in own if name in state}, strict=False)
    return tuple(name for name in state if name not in own)


def _downloaded(name: str) -> Mapping[str, torch.Tensor]:
    family, _, backbone = name.partition("/")
    try:
        if family == "base-oc":
            model = need_timm().create_model(backbone, pretrained=True)
        else:
            model = need_torchvision().models.get_model(backbone, weights="DEFAULT")
    except Exception as error:  # each library and each hub fails in its own way
        raise ValueError(
            f"the pretrained weights of {backbone} cannot be had ({str(error).splitlines()[0]}):"
            " give a file, or backbone_weights=none for random ones"
        ) from None
    state: Mapping[str, torch.Tensor] = model.state_dict()
    return state


def _read(weights: Path) -> Mapping[str, torch.Tensor]:
    if not weights.is_file():
        what = "is no regular file" if weights.exists() else "does not exist"
        raise ValueError(f"{weights} {what}: give a file of weights")
    try:
        if weights.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(weights)
        content = torch.load(weights, map_location="cpu", weights_only=True)
    except Exception as error:  # torch's own words advise to load it unsafely
        raise ValueError(
            f"{weights} cannot be read as weights ({type(error).__name__}): give a safetensors"
            " file, or torch.save(model.state_dict())"
        ) from None
    state = content.get("state_dict", content) if isinstance(content, dict) else content
    if not isinstance(state, dict) or not all(isinstance(v, torch.Tensor) for v in state.values()):
        raise ValueError(f"{weights} holds no state dict: save model.state_dict()")
    return state
