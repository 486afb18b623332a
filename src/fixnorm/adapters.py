"""Adapters (PEFT: LoRA and its kin), which take a weight past its layer when they are merged.

They compute ``base_layer(x) + Δx`` while they are trained, and in the end Δ is added to
``base_layer.weight``. A scaled layer would normalise W + Δ: something else, and without a word.
Nothing is lost by folding first, as an adapter leaves its base frozen; so a scaled layer refuses to
become a base. PEFT is not imported for this: every adapter of its kind holds the layer it wraps as
``base_layer`` and has a ``merge``; torch tells when a module becomes another's part.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import nn
from torch.nn.modules.module import register_module_module_registration_hook

__all__ = ["adapters_of", "refuse_adapters"]


def refuse_adapters(is_scaled: Callable[[nn.Module], bool]) -> None:
    """From now on such a layer cannot be wrapped by an adapter that would merge into it."""

    def refuse(module: nn.Module, name: str, submodule: nn.Module | None) -> None:
        if name != "base_layer" or submodule is None:
            return
        if is_scaled(submodule) and _merges(module):
            raise ValueError(
                f"{type(module).__module__}.{type(module).__name__} would merge its adapter into "
                f"the weight of a {type(submodule).__name__}, which is then normalised: call "
                "fixnorm.fold(model) first, then add adapters"
            )

    register_module_module_registration_hook(refuse)


def adapters_of(model: nn.Module) -> list[str]:
    """Names of the adapters that a model has."""
    return [
        n
        for n, m in model.named_modules()
        if "base_layer" in dict(m.named_children()) and _merges(m)
    ]


def _merges(module: nn.Module) -> bool:
    return hasattr(type(module), "merge")
