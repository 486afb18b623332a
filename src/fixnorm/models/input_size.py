"""The images a model was made for, kept where timm keeps it: `model.pretrained_cfg`."""

from typing import Any

from torch import nn


def set_input_size(model: nn.Module, size: tuple[int, int, int]) -> None:
    """Let the model say its (channels, height, width); the rest of the entry stays."""
    cfg: Any = {**getattr(model, "pretrained_cfg", {}), "input_size": size}
    model.pretrained_cfg = cfg


def input_size(model: nn.Module) -> tuple[int, int, int]:
    """Return the (channels, height, width) the model says it was made for."""
    cfg = getattr(model, "pretrained_cfg", None)
    if not isinstance(cfg, dict) or "input_size" not in cfg:
        raise ValueError(
            f"{type(model).__name__} does not say its input size: "
            f'set model.pretrained_cfg = {{"input_size": (channels, height, width)}}'
        )
    channels, height, width = cfg["input_size"]
    return channels, height, width
