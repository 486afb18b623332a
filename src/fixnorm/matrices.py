"""The weights of a model by name: what was converted, and is it still there?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from fixnorm.internals import WRAPPERS
from fixnorm.roles import is_vector

__all__ = ["Matrix", "matrices", "parameters_by_name"]


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
        module = modules[own.rpartition(".")[0]]
        if not is_vector(module, own.rpartition(".")[2], parameter):
            kinds = tuple(kind.__name__ for kind in type(module).__mro__)
            yield Matrix(name, kinds, tuple(parameter.shape))
