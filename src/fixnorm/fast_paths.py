"""torch's fast path of transformer encoders, which reads weights without calling their layers.

In evaluation mode ``nn.TransformerEncoderLayer`` hands the plain weights of its linear layers to
one kernel, so that a scaled layer would be passed over. It takes that path only while it knows its
activation by number, and ``nn.TransformerEncoder`` turns padded inputs into nested tensors, which
nothing but that path takes, only while it may.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from fixnorm.layers import is_scaled

# Where a module keeps what it had; a plain attribute, so copies and pickles have it.
_KEPT = "_fixnorm_fast_path"


def has_fast_path_switch(model: nn.Module, name: str) -> bool:
    """Whether the module of this name is part of an encoder layer whose fast path can be off."""
    parts = name.split(".")
    above = (model.get_submodule(".".join(parts[:i])) for i in range(len(parts)))
    return any(isinstance(module, nn.TransformerEncoderLayer) for module in above)


def fast_paths_off(model: nn.Module) -> None:
    """Make every encoder that holds a scaled layer call its layers in evaluation mode, too."""
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoderLayer) and _holds_scaled(module):
            _switch_off(module, "activation_relu_or_gelu", 0)
        elif isinstance(module, nn.TransformerEncoder) and _holds_scaled(module):
            _switch_off(module, "use_nested_tensor", False)


def restore_fast_paths(model: nn.Module) -> None:
    """Undo :func:`fast_paths_off`."""
    for module in model.modules():
        for attribute, value in module.__dict__.pop(_KEPT, {}).items():
            setattr(module, attribute, value)


def _holds_scaled(module: nn.Module) -> bool:
    return any(is_scaled(part) for part in module.modules())


def _switch_off(module: nn.Module, attribute: str, off: Any) -> None:
    if hasattr(module, attribute):
        module.__dict__.setdefault(_KEPT, {})[attribute] = getattr(module, attribute)
        setattr(module, attribute, off)
