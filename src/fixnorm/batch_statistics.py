"""Running statistics of batch norms, taken anew for weights that were not trained with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from fixnorm.internals import NormBase
from fixnorm.structure import need_module, unwrapped

__all__ = ["update_statistics_"]


@torch.no_grad()
def update_statistics_(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    run: Callable[[nn.Module, Any], Any] | None = None,
) -> int:
    """Take the running statistics of batch norms anew, in one pass over the data.

    Only layers with running statistics are in training mode during the pass; dropout and
    stochastic depth are off, so that the statistics are those of what is evaluated. A layer's mean
    and variance are the averages over its batches, each weighted by its number of values. Modes
    and momenta are as before in the end; where something fails, the statistics are, too.

    Args:
        model: an average, or any other module. A wrapper of DDP is passed by: every process takes
            the statistics of the batches it is given, unless its norms are synchronised.
        batches: inputs, or tuples whose first item is the input; moved to the model's device.
        run: runs the model on one batch, where that is not ``model(input)``:
            ``lambda model, batch: model(batch["image"])``.

    Returns:
        How many layers have new statistics; the data is not touched if there are none.
    """
    need_module(model, "update_statistics_")
    model = unwrapped(model)
    layers = [m for m in model.modules() if isinstance(m, NormBase) and m.running_mean is not None]
    if not layers:
        return 0
    run = _run_on_input if run is None else run
    weighers = [_Weigher(layer) for layer in layers]
    with _taking_statistics(model, weighers):
        seen = 0
        for batch in batches:
            run(model, batch)
            seen += 1
        if not seen:
            raise ValueError(
                "no batch to take the statistics of: pass a loader with one batch or more (an "
                "iterator can be used once only)"
            )
        for weigher in weighers:
            if not weigher.values:
                name = next(n for n, m in model.named_modules() if m is weigher.layer)
                raise ValueError(
                    f"{name} was not called in the pass, so it has no statistics: let run call all "
                    "of the model"
                )
    return len(layers)


def _run_on_input(model: nn.Module, batch: Any) -> Any:
    images = batch[0] if isinstance(batch, list | tuple) and batch else batch
    if not isinstance(images, Tensor):
        raise TypeError(
            f"a batch must be a tensor or a tuple that begins with one but got "
            f"{type(images).__name__}; pass run=lambda model, batch: model(batch['image'])"
        )
    device = next(chain(model.parameters(), model.buffers())).device
    return model(images.to(device, non_blocking=True))


class _Weigher:
    """Gives a batch the weight of its values among all so far: momentum n / (n_1 + … + n)."""

    def __init__(self, layer: NormBase) -> None:
        self.layer = layer
        self.values = 0

    def __call__(self, _: nn.Module, args: tuple[Tensor, ...]) -> None:
        count = args[0].numel() // self.layer.num_features
        self.values += count
        self.layer.momentum = count / self.values


@contextmanager
def _taking_statistics(model: nn.Module, weighers: list[_Weigher]) -> Iterator[None]:
    layers = [weigher.layer for weigher in weighers]
    modes = [(module, module.training) for module in model.modules()]
    momenta = [layer.momentum for layer in layers]
    before = [{n: b.clone() for n, b in layer.named_buffers(recurse=False)} for layer in layers]
    model.eval()
    for layer in layers:
        layer.train()
        layer.reset_running_stats()
    hooks = [weigher.layer.register_forward_pre_hook(weigher) for weigher in weighers]
    try:
        yield
    except BaseException:
        for layer, buffers in zip(layers, before, strict=True):
            for name, buffer in buffers.items():
                layer.get_buffer(name).copy_(buffer)
        raise
    finally:
        for hook in hooks:
            hook.remove()
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
        for module, training in modes:
            module.training = training
