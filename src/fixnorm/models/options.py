"""What every builder is asked for, and the images that a model says it was made for."""

from dataclasses import dataclass
from typing import Any

from torch import nn


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of `create`, checked; `None` leaves the choice to the model."""

    num_classes: int | None
    drop_path: float
    drop: float
    in_chans: int | None

    def __post_init__(self) -> None:
        for name, count in (("num_classes", self.num_classes), ("in_chans", self.in_chans)):
            if count is not None and count < 1:
                raise ValueError(f"{name} must be at least 1 but got {count}")
        for name, rate in (("drop_path", self.drop_path), ("drop", self.drop)):
            if not 0.0 <= rate < 1.0:
                raise ValueError(f"{name} must be in [0, 1) but got {rate}")


def set_input_size(model: nn.Module, size: tuple[int, int, int]) -> None:
    """Let the model say its (channels, height, width), where timm keeps it: `pretrained_cfg`."""
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
