"""Parameters and multiply-adds of a model."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from fixnorm.internals import flops_of_convolutions
from fixnorm.models.facts import Counts


def count(model: nn.Module, input_size: tuple[int, int, int]) -> Counts:
    """Count parameters, and multiply-adds of one image of (channels, height, width).

    Runs the model once in eval mode on its own device. A model built under
    `torch.device("meta")` is counted without any arithmetic:

    >>> from fixnorm import models
    >>> with torch.device("meta"):
    ...     model = models.create("resnet8")
    >>> models.count(model, (3, 32, 32)).params
    78042
    """
    if len(input_size) != 3 or min(input_size) < 1:
        raise ValueError(f"input_size must be (channels, height, width) but got {input_size}")
    first = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))
    image = torch.zeros(1, *input_size, device=first.device, dtype=first.dtype)
    counter = FlopCounterMode(display=False)
    with _eval_mode(model), _attention_in_parts(), torch.no_grad(), counter:
        model(image)
    flops = counter.get_flop_counts().get("Global", {})
    return Counts(
        params=sum(p.numel() for p in model.parameters()),
        conv_macs=flops_of_convolutions(flops) // 2,
        macs=sum(flops.values()) // 2,
    )


@contextmanager
def _eval_mode(model: nn.Module) -> Iterator[None]:
    """Eval mode touches neither running statistics nor random numbers; give each mode back."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        yield
    finally:
        for module, training in modes:
            module.training = training


@contextmanager
def _attention_in_parts() -> Iterator[None]:
    """`nn.MultiheadAttention`'s fused inference kernel hides its matrix products."""
    fused = torch.backends.mha.get_fastpath_enabled()
    try:
        torch.backends.mha.set_fastpath_enabled(False)
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)
