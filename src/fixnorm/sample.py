"""Inputs to try on a model that says, more or less, what it eats, the smallest first.

What is invariant is so at any size, so that a small image measures as well as a large one, unless
it starves a layer: a norm over one value gives zero, a kernel on one pixel is a 1×1 kernel. A size
is large enough when every such layer sees four positions of each example.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fixnorm.internals import NormBase
from fixnorm.layers import CONVOLUTIONS

# Enough examples that a norm over the batch alone is no sign function.
_BATCH = 4
# Positions of one example, for a layer that looks over them.
_POSITIONS = 4
# Lengths of one side to try, by the kind of the first layer. The last ones are for models that
# insist: Inception's auxiliary head needs 299, a digit has 8.
_SIDES: dict[type[nn.Module], tuple[int, ...]] = {
    nn.Conv1d: (16, 64, 256, 1024, 4096, 16384),
    nn.Conv2d: (16, 28, 32, 64, 96, 128, 224, 299, 8),
    nn.Conv3d: (8, 16, 32, 64),
    nn.ConvTranspose1d: (1, 4, 16),  # a generator's: it grows from there
    nn.ConvTranspose2d: (1, 4, 16),
    nn.ConvTranspose3d: (1, 4, 16),
}
# Stride 32 leaves 4×4 positions: nothing is gained beyond, if the model runs at all.
LARGE = 128**2


@dataclass(frozen=True, slots=True)
class Guess:
    """Runs a model on a random input of this shape."""

    shape: tuple[int, ...]
    device: torch.device

    def __call__(self, model: nn.Module) -> Any:
        """Run it; the input is the same each time."""
        generator = torch.Generator(self.device).manual_seed(0)
        return model(torch.randn(_BATCH, *self.shape, generator=generator, device=self.device))

    @property
    def positions(self) -> int:
        """Of one example, in one channel."""
        return math.prod(self.shape[1:])


def default_guesses(model: nn.Module) -> list[Guess]:
    """Random inputs, the likeliest first; of images the smallest.

    A timm model says its size in ``pretrained_cfg``; otherwise the first layer that owns a weight
    tells the channels or features.
    """
    device = next(model.parameters()).device
    return [Guess(shape, device) for shape in dict.fromkeys(_shapes(model))]


def _shapes(model: nn.Module) -> Iterator[tuple[int, ...]]:
    config: Any = getattr(model, "pretrained_cfg", None) or getattr(model, "default_cfg", None)
    size = config.get("input_size") if hasattr(config, "get") else None
    if size:
        channels = next((m.in_channels for m in model.modules() if isinstance(m, nn.Conv2d)), None)
        channels = size[0] if channels is None or size[0] % channels == 0 else channels
        if not config.get("fixed_input_size"):
            for side in sorted(_SIDES[nn.Conv2d])[1:]:
                yield (channels, *(min(own, side) for own in size[1:]))
        yield (channels, *size[1:])
    kinds = (nn.Linear, nn.RNNBase, *_SIDES)
    first = next((m for m in model.modules() if isinstance(m, kinds)), None)
    if isinstance(first, nn.Linear):
        yield (first.in_features,)
    elif isinstance(first, nn.RNNBase):
        yield (8, first.input_size)
    elif isinstance(first, CONVOLUTIONS):
        sides = next(sides for kind, sides in _SIDES.items() if isinstance(first, kind))
        for side in sides:
            yield (first.in_channels, *[side] * len(first.kernel_size))


@torch.no_grad()
def starved_layers(model: nn.Module, run: Callable[[nn.Module], Any]) -> int:
    """How many norms and kernels see fewer than four positions when the model is run."""
    starved: set[nn.Module] = set()

    def look(module: nn.Module, args: tuple[Any, ...]) -> None:
        if args and isinstance(args[0], Tensor) and args[0].ndim > 2:
            positions = math.prod(args[0].shape[2:])
            if positions < _POSITIONS:
                starved.add(module)

    handles = [
        module.register_forward_pre_hook(look)
        for module in model.modules()
        if _looks_over_positions(module)
    ]
    try:
        run(model)
    finally:
        for handle in handles:
            handle.remove()
    return len(starved)


def _looks_over_positions(module: nn.Module) -> bool:
    if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return max(module.kernel_size) > 1
    return isinstance(module, NormBase | nn.GroupNorm)
