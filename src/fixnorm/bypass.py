"""What goes past a layer: it takes the weight without calling the module that owns it.

A scaled layer's weight is a direction, so whoever takes it by itself computes something else, and
without a word. Two do: adapters (``adapters.py``), and evaluation by torch's fast paths.

In evaluation mode ``nn.TransformerEncoderLayer`` hands the plain weights of its linear layers to
one kernel. It is seen by running the audit's copy once in that mode with every operation watched: a
weight that is an operand while none of its owners runs. And it can be switched off: the layer takes
that path only while it knows its activation by number. (``nn.TransformerEncoder`` may go on turning
padded inputs into nested tensors, with zeros where the padding was: the layers take those one by
one as well.)
"""

from __future__ import annotations

import functools
import warnings
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from fixnorm.internals import DispatchMode, is_view, tree_leaves
from fixnorm.layers import is_scaled

__all__ = [
    "fast_paths_off",
    "has_fast_path_switch",
    "read_in_eval_outside_owner",
    "restore_fast_paths",
]

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
    """Let encoder layers take the fast path again, once their layers are plain."""
    for module in model.modules():
        if _KEPT in module.__dict__:
            module.activation_relu_or_gelu = module.__dict__.pop(_KEPT)


def read_in_eval_outside_owner(twin: nn.Module, run: Callable[[nn.Module], Any]) -> set[str]:
    """Names of the weights that evaluation reads without calling a layer that owns them.

    The copy is of no use afterwards. A model that cannot be run in evaluation mode on this sample
    (one that wants other inputs there) has none.
    """
    twin.eval()
    reads = _Reads(twin)
    try:
        with torch.no_grad(), warnings.catch_warnings(), reads:
            warnings.simplefilter("ignore")  # of nested tensors, say
            torch.manual_seed(1)
            run(twin)
    except Exception:  # nothing is known then, and the audit stands without it
        return set()
    return reads.outside


class _Reads(DispatchMode):
    """Sees weights as operands; modules are followed by their ``forward``, not by hooks.

    torch leaves its fast paths when a module has a hook or a function mode is on.
    """

    def __init__(self, twin: nn.Module) -> None:
        super().__init__()
        self.outside: set[str] = set()
        self._running: list[nn.Module] = []
        self._names: dict[int, set[str]] = defaultdict(set)
        self._owners: dict[int, set[nn.Module]] = defaultdict(set)
        for name, module in twin.named_modules(remove_duplicate=False):
            for own, parameter in module.named_parameters(recurse=False):
                if parameter.ndim >= 2:
                    key = _storage(parameter)
                    self._names[key].add(f"{name}.{own}" if name else own)
                    self._owners[key].add(module)
        for module in {owner for owners in self._owners.values() for owner in owners}:
            module.__dict__["forward"] = self._followed(module, module.forward)

    def _followed(self, module: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(forward)
        def followed(*args: Any, **kwargs: Any) -> Any:
            self._running.append(module)
            try:
                return forward(*args, **kwargs)
            finally:
                self._running.pop()

        return followed

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if not is_view(func):  # what reads the view is seen in its turn
            for leaf in tree_leaves((args, kwargs)):
                key = _storage(leaf) if isinstance(leaf, Tensor) else 0
                if key in self._owners and self._owners[key].isdisjoint(self._running):
                    self.outside |= self._names[key]
        return func(*args, **kwargs)


def _storage(tensor: Tensor) -> int:
    if tensor.is_nested or tensor.layout is not torch.strided:
        return 0
    return tensor.untyped_storage().data_ptr()
