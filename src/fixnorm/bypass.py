"""Which layers evaluation bypasses: it reads their weight and does not call them.

torch's fast paths do so (``nn.TransformerEncoderLayer``), and a layer that computes something else
than the plain one is then passed over in evaluation mode alone. Seen by running the copy once in
that mode with every operation watched: a weight that is an operand while none of its owners runs.
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
