"""Adapters (PEFT: LoRA and its kin) go around plain layers, not around scaled ones.

An adapter computes ``base_layer(x) + Δx`` while it is trained, and is merged in the end by adding Δ
to ``base_layer.weight``. In a scaled layer that weight is a direction: W + Δ would be normalised,
and the merged model would compute something else without a word. Nothing is lost by folding first,
as an adapter leaves its base frozen; so a scaled layer refuses to become a base.

PEFT is not imported for this. Every adapter of its kind holds the layer it wraps as ``base_layer``
and has a ``merge``; torch tells when a module becomes another's part.
"""

from __future__ import annotations

from torch import nn
from torch.nn.modules.module import register_module_module_registration_hook

from fixnorm.layers import is_scaled

__all__ = ["adapters_of", "refuse_adapters"]


def refuse_adapters() -> None:
    """From now on a scaled layer cannot be wrapped by an adapter that would merge into it."""
    register_module_module_registration_hook(_refuse)


def adapters_of(model: nn.Module) -> list[str]:
    """Names of the adapters that a model has."""
    return [
        n
        for n, m in model.named_modules()
        if "base_layer" in dict(m.named_children()) and _merges(m)
    ]


def _merges(module: nn.Module) -> bool:
    return hasattr(type(module), "merge")


def _refuse(module: nn.Module, name: str, submodule: nn.Module | None) -> None:
    if name == "base_layer" and submodule is not None and is_scaled(submodule) and _merges(module):
        raise ValueError(
            f"{type(module).__module__}.{type(module).__name__} would merge its adapter into the "
            f"weight of a {type(submodule).__name__}, which is then normalised: call "
            "fixnorm.fold(model) first, then add adapters"
        )
