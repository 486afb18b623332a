"""torch's fast path of transformer encoders, which reads weights without calling their layers.

In evaluation mode ``nn.TransformerEncoderLayer`` hands the plain weights of its linear layers to
one kernel, so that a scaled layer would be passed over. It takes that path only while it knows its
activation by number. ``nn.TransformerEncoder`` may go on turning padded inputs into nested tensors,
with zeros where the padding was: the layers take those one by one as well.
"""

from __future__ import annotations

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
    """Make every encoder layer that holds a scaled layer call it in evaluation mode, too."""
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoderLayer) and any(map(is_scaled, module.modules())):
            module.__dict__[_KEPT] = module.activation_relu_or_gelu
            module.activation_relu_or_gelu = 0


def restore_fast_paths(model: nn.Module) -> None:
    """Undo :func:`fast_paths_off`."""
    for module in model.modules():
        if _KEPT in module.__dict__:
            module.activation_relu_or_gelu = module.__dict__.pop(_KEPT)
