"""While a copy is measured, the model itself is not to run.

A callable that takes the model from around it (``sample=lambda m: model(x)``) would measure nothing
and move the running statistics of the model's norms. It is stopped before the first layer runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook


class RanTheOriginal(ValueError):
    """A layer of the model was called where the copy was to be run."""


@contextmanager
def refusing_to_run(model: nn.Module, *, instead_of: nn.Module) -> Iterator[None]:
    """Raise as soon as a module of the model runs that is not the copy's as well."""
    originals = {id(module) for module in model.modules()}
    originals -= {id(module) for module in instead_of.modules()}

    def refuse(module: nn.Module, _: Any) -> None:
        if id(module) in originals:
            raise RanTheOriginal(
                "the callable ran the model itself, not the copy it was given: "
                "write sample=lambda m: m(x)"
            )

    handle = register_module_forward_pre_hook(refuse)
    try:
        yield
    finally:
        handle.remove()
