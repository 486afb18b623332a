"""Names that torch and other libraries keep to themselves, and that are needed here all the same.

A leading underscore promises nothing from one version to the next. So each such name is used in
this file alone (in ``internals_of_others.py``, if that takes no torch), where there is no public
one for what it does, and ``tests/test_internals.py`` goes through them: after an upgrade it says
which is gone, and what was done with it. Two more are overridden in ``layers.py``, as torch's own
modules do: ``_save_to_state_dict`` and ``_load_from_state_dict``.

Nothing but torch is imported with this file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase as NormBase  # all batch and instance norms
from torch.optim import Optimizer
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store

__all__ = [
    "MODULE_PARTS",
    "WRAPPERS",
    "DispatchMode",
    "NormBase",
    "call_step_hooks",
    "compiled_from",
    "convolve",
    "default_store",
    "flops_of_convolutions",
    "foreach_mul_",
    "foreach_mul_each_",
    "foreach_norm",
    "foreach_quotients",
    "is_view",
    "metadata_of",
    "set_metadata",
    "transposed_padding",
    "tree_leaves",
    "tree_map",
    "use_smooth_l1",
    "version_of",
]


# Many tensors at once: one kernel on a GPU where a loop would start hundreds.


def foreach_norm(tensors: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """‖W_i‖ of tensors on one device, each summed in ``dtype``."""
    return list(torch._foreach_norm(list(tensors), 2, dtype=dtype))


def foreach_quotients(numbers: Sequence[float], tensors: Sequence[Tensor]) -> list[Tensor]:
    """Each number divided by its tensor, as ``number / tensor`` does it."""
    return list(torch._foreach_mul(torch._foreach_reciprocal(list(tensors)), list(numbers)))


def foreach_mul_(tensors: Sequence[Tensor], factor: Tensor) -> None:
    """Multiply tensors of one device in place by one number that is there, too."""
    torch._foreach_mul_(list(tensors), factor)


def foreach_mul_each_(tensors: Sequence[Tensor], factors: Sequence[Tensor]) -> None:
    """Multiply each of the tensors in place by a number of its own, all on one device."""
    torch._foreach_mul_(list(tensors), list(factors))


# Optimizers and tensors


def call_step_hooks(optimizer: Optimizer) -> None:
    """Make ``step`` of the optimizer's class call hooks, as ``Optimizer.__init__`` does."""
    optimizer._patch_step_function()


def version_of(tensor: Tensor) -> int:
    """How often the tensor was written to in place; known on the host."""
    return tensor._version


def new_shared(*shape: int) -> Tensor:
    """An unwritten float32 tensor in memory that other processes can be handed without a copy."""
    storage = torch.UntypedStorage._new_shared(4 * math.prod(shape))
    tensor: Tensor = torch.empty(0).set_(storage, 0, shape)  # type: ignore[call-overload]
    return tensor


# Modules and their states

WRAPPERS = ("_orig_mod.", "_checkpoint_wrapped_module.")
"""Parts of a name that torch.compile and activation checkpointing of a submodule put in."""
MODULE_PARTS = ("_modules", "_parameters", "_buffers")
"""Where a module keeps what it is made of."""


def compiled_from(model: nn.Module) -> nn.Module | None:
    """The module that ``torch.compile`` has wrapped; none if it has not."""
    inner = getattr(model, "_orig_mod", None)
    return inner if isinstance(inner, nn.Module) else None


def metadata_of(state: Mapping[str, Any]) -> MutableMapping[str, dict[str, Any]] | None:
    """What ``model.state_dict()`` says of its modules beside their tensors, if it does."""
    found: MutableMapping[str, dict[str, Any]] | None = getattr(state, "_metadata", None)
    return found


def set_metadata(
    state: Mapping[str, Any], metadata: MutableMapping[str, dict[str, Any]] | None
) -> None:
    """Give it to another state dict; none is nothing to give."""
    if metadata is not None:
        state._metadata = metadata  # type: ignore[attr-defined]


def convolve(layer: nn.Module, x: Tensor, weight: Tensor) -> Tensor:
    """What a convolution computes with another weight, padding of every mode included."""
    output: Tensor = layer._conv_forward(x, weight, layer.bias)  # type: ignore[operator]
    return output


def transposed_padding(layer: nn.Module, x: Tensor, output_size: list[int] | None) -> list[int]:
    """The output padding by which a transposed convolution comes to ``output_size``."""
    conv: Any = layer
    size = (conv.stride, conv.padding, conv.kernel_size, len(conv.kernel_size), conv.dilation)
    padding: list[int] = conv._output_padding(x, output_size, *size)
    return padding


class DispatchMode(TorchDispatchMode):
    """Sees every operation in :meth:`__torch_dispatch__`, also those that make up others."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # to skip it torch would import its compiler, which takes seconds


def is_view(operation: Any) -> bool:
    """Whether what the operation returns is a view of an operand."""
    schema = getattr(operation, "_schema", None)  # an operation on operations has none
    return schema is not None and any(
        returned.alias_info and not returned.alias_info.is_write for returned in schema.returns
    )


# Processes


def default_store() -> Store:
    """The key-value store by which the processes of a ``torchrun`` found each other."""
    from torch.distributed import distributed_c10d

    return distributed_c10d._get_default_store()


# Models and counts


def use_smooth_l1(retinanet: nn.Module) -> None:
    """Let torchvision's RetinaNet regress boxes with the smooth L1 loss in place of L1."""
    retinanet.head.regression_head._loss_type = "smooth_l1"  # type: ignore[union-attr]


def flops_of_convolutions(flops: Mapping[Any, int]) -> int:
    """Those of a ``FlopCounterMode``'s counts that convolutions have."""
    return flops.get(torch.ops.aten.convolution, 0) + flops.get(torch.ops.aten._convolution, 0)
