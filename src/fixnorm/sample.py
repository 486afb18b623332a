"""Inputs to try on a model that says, more or less, what it eats."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

# Enough examples that a norm over the batch alone is no sign function.
_BATCH = 4
# Stride 32 leaves 4×4 positions; models that insist on their own size come next.
_SMALL_IMAGE = 128


def default_samples(model: nn.Module) -> Iterator[Tensor]:
    """Random inputs, the likeliest first.

    A timm model says its size in ``pretrained_cfg``; otherwise the first layer that owns a weight
    tells the channels or features.
    """
    device = next(model.parameters()).device
    for shape in dict.fromkeys(_shapes(model)):
        yield torch.randn(_BATCH, *shape, device=device)


def _shapes(model: nn.Module) -> Iterator[tuple[int, ...]]:
    config: Any = getattr(model, "pretrained_cfg", None) or getattr(model, "default_cfg", None)
    size = config.get("input_size") if hasattr(config, "get") else None
    if size:
        channels = next((m.in_channels for m in model.modules() if isinstance(m, nn.Conv2d)), None)
        channels = size[0] if channels is None or size[0] % channels == 0 else channels
        if not config.get("fixed_input_size"):
            yield (channels, *(min(side, _SMALL_IMAGE) for side in size[1:]))
        yield (channels, *size[1:])
    first = next((m for m in model.modules() if isinstance(m, nn.Linear | nn.Conv2d)), None)
    if isinstance(first, nn.Linear):
        yield (first.in_features,)
    elif first is not None:
        for side in (_SMALL_IMAGE, 224, 32, 28, 8):
            yield (first.in_channels, side, side)
