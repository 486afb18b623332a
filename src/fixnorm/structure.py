"""What a model is made of: the module under its wrappers, and its weights by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn
from torch.optim import Optimizer

from fixnorm.internals import WRAPPERS, compiled_from
from fixnorm.layers import PLAIN

__all__ = [
    "Matrix",
    "is_vector",
    "matrices",
    "need_module",
    "need_optimizer",
    "owner_name",
    "parameters_by_name",
    "unwrapped",
]


def need_module(value: object, function: str) -> None:
    """Refuse what is no model."""
    if not isinstance(value, nn.Module):
        raise TypeError(f"{function} needs an nn.Module but got {_told(value)}")


def need_optimizer(value: object, function: str, *, hint: str = "") -> None:
    """Refuse what is no optimizer of torch's kind."""
    if not isinstance(value, Optimizer):
        raise TypeError(f"{function} needs a torch optimizer but got {_told(value)}{hint}")


def _told(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def unwrapped(model: nn.Module) -> nn.Module:
    """The user's own module under DDP and ``torch.compile``."""
    while True:
        if isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel):
            model = model.module
        elif (inner := compiled_from(model)) is not None:
            model = inner
        else:
            return model


# Layers whose weights are matrices or kernels, also those with one output or one input.
_LAYERS = (
    *PLAIN,
    nn.Bilinear,
    nn.RNNBase,
    nn.RNNCellBase,
    nn.MultiheadAttention,
)


def is_vector(module: nn.Module, own_name: str, parameter: nn.Parameter) -> bool:
    """A bias, an affine, a gain of shape (C, 1, 1, 1), a class token: nothing with a direction.

    The weight of a layer is never one, though a layer with one output has a weight (1, d); the
    affine of a norm always is, though it may have the shape of an image.
    """
    if isinstance(module, nn.LayerNorm | nn.RMSNorm):
        return True
    if isinstance(module, _LAYERS) and "weight" in own_name:
        return False
    return parameter.ndim < 2 or parameter.numel() == max(parameter.shape)


@dataclass(frozen=True, slots=True)
class Matrix:
    """A parameter with a direction, and the layer that owns it."""

    name: str
    kinds: tuple[str, ...]
    """The layer's class and those it derives from; wrappers such as ``fully_shard`` derive anew."""
    shape: tuple[int, ...]

    def is_still(self, earlier: Matrix) -> bool:
        """Whether the layer is of the kind and size that it was."""
        return earlier.kinds[0] in self.kinds and earlier.shape == self.shape

    def __str__(self) -> str:
        return f"{self.kinds[0]} {'×'.join(map(str, self.shape))}"


def owner_name(parameter: str) -> str:
    """``layer1.0.conv1`` of ``layer1.0.conv1.weight``: the module that holds the parameter."""
    return parameter.rpartition(".")[0]


def parameters_by_name(model: nn.Module, *, tied: bool = False) -> dict[str, nn.Parameter]:
    """The model's parameters by the names they had at ``convert``, whatever wraps its layers now.

    ``tied``: also under their second names.
    """
    found = {}
    for name, parameter in model.named_parameters(remove_duplicate=not tied):
        for wrapper in WRAPPERS:
            name = name.replace(wrapper, "")
        found[name] = parameter
    return found


def matrices(model: nn.Module) -> Iterator[Matrix]:
    """Every weight with a direction, under each of its names."""
    modules = dict(model.named_modules(remove_duplicate=False))
    parameters = model.named_parameters(remove_duplicate=False)
    names = parameters_by_name(model, tied=True)
    for (own, parameter), name in zip(parameters, names, strict=True):
        module = modules[owner_name(own)]
        if not is_vector(module, own.rpartition(".")[2], parameter):
            kinds = tuple(kind.__name__ for kind in type(module).__mro__)
            yield Matrix(name, kinds, tuple(parameter.shape))
