r"""Linear and convolution layers whose weight is a direction and whose scale is one number ``g``.

The paper's layers, with C classes (output channels):

========================  ==================================================
``nn.Linear``             FC(x; W) = xᵀW
``WeightNormLinear``      WN-FC(x; W, g) = xᵀW / ‖W‖ · g
``FixNormLinear``         FixNorm-FC(x; W, g, α) = xᵀW / ‖W‖ · min(g, α√C)
``FixNormConv2d``         FixNorm-Conv(x; W, g, α) = Conv(x, W) / ‖W‖ · min(g, α√C)
========================  ==================================================

and the same two of every other convolution, transposed ones too. ‖W‖ is the norm of the whole
weight, so one scalar ``g`` serves all classes. A bias is added after the scaling, as in the plain
layer. ``g`` starts at ‖W‖: until it meets the cap, the layer computes what the plain one did. Above
the cap the gradient in ``g`` is zero, as the formula says.

The paper's min(g, α√C) supposes g > 0. A learnable g may cross zero (seen at high learning rates),
and then min would cap nothing: here the cap holds on both sides, max(−α√C, min(g, α√C)), which is
the paper's for every g it speaks of.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, TypeGuard

import torch
from torch import Tensor, nn

from fixnorm.adapters import refuse_adapters
from fixnorm.internals import convolve, metadata_of, transposed_padding
from fixnorm.methods import checked_alpha
from fixnorm.norm import frobenius, is_sharded, joint_norm

__all__ = [
    "FixNormConv1d",
    "FixNormConv2d",
    "FixNormConv3d",
    "FixNormConvTranspose1d",
    "FixNormConvTranspose2d",
    "FixNormConvTranspose3d",
    "FixNormLinear",
    "WeightNormConv1d",
    "WeightNormConv2d",
    "WeightNormConv3d",
    "WeightNormConvTranspose1d",
    "WeightNormConvTranspose2d",
    "WeightNormConvTranspose3d",
    "WeightNormLinear",
]

CAP = "fixnorm_cap"
"""Key of a layer's metadata in a state dict: the largest scale it applies, ``inf`` for any."""


class _Scaled(nn.Module):
    """What all layers here share: parameters ``weight``, ``bias`` and ``g`` (shape (1,)).

    ``g`` has one dimension because ``fully_shard`` takes no scalar parameters.
    """

    weight: Tensor
    g: nn.Parameter
    _plain_class: type[nn.Module]

    @property
    def outputs(self) -> int:
        """C: classes of a head, output channels of a convolution."""
        return outputs_of(self)

    def effective_scale(self) -> Tensor:
        """The norm of the weight that the layer applies, with its sign, shape (1,)."""
        return self.g

    def effective_weight(self) -> Tensor:
        """The weight that the layer applies: W / ‖W‖ times the effective scale."""
        return with_norm(self.weight, self.effective_scale())

    def reset_parameters(self) -> None:
        """Initialise as the plain layer does, with g = ‖W‖."""
        super().reset_parameters()  # type: ignore[misc]
        if hasattr(self, "g"):
            with torch.no_grad():
                self.g.copy_(frobenius(self.weight))
        else:  # the plain layer's constructor comes here first
            self._start_scale()

    def __prepare_scriptable__(self) -> nn.Module:
        """What torch.jit.script asks first; it cannot read these layers."""
        raise TypeError(
            f"torch.jit.script cannot read a {type(self).__name__}: call fixnorm.fold(model) first"
        )

    def _start_scale(self) -> None:
        start = frobenius(self.weight.detach()).to(self.weight.dtype).reshape(1)
        self.g = nn.Parameter(start, requires_grad=self.weight.requires_grad)

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        """Note the cap in the state dict's metadata: without it the scale cannot be folded in."""
        super()._save_to_state_dict(destination, prefix, keep_vars)
        metadata = metadata_of(destination)
        if metadata is not None:
            cap = self.cap if is_capped(self) else math.inf
            metadata.setdefault(prefix[:-1], {})[CAP] = cap

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        """Take a plain layer's state, too: one without ``g`` gives g = ‖W‖."""
        weight, key = state_dict.get(f"{prefix}weight"), f"{prefix}g"
        if weight is not None and key not in state_dict:
            state_dict[key] = frobenius(weight.detach()).to(weight.dtype).reshape(1)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


class _Capped(_Scaled):
    """A scale that is capped on both sides: −α√C ≤ scale ≤ α√C."""

    _alpha: float

    def __init__(self, *args: Any, alpha: float, **kwargs: Any) -> None:
        self._alpha = checked_alpha(alpha)
        super().__init__(*args, **kwargs)

    @property
    def alpha(self) -> float:
        """The cap in units of √C; may be changed at any time."""
        return self._alpha

    @alpha.setter
    def alpha(self, value: float) -> None:
        self._alpha = checked_alpha(value)

    @property
    def cap(self) -> float:
        """α√C, the largest scale the layer applies."""
        return self._alpha * math.sqrt(self.outputs)

    def effective_scale(self) -> Tensor:
        """max(−α√C, min(g, α√C)), shape (1,)."""
        return self.g.clamp(-self.cap, self.cap)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, alpha={self.alpha:g}"


class WeightNormLinear(_Scaled, nn.Linear):
    """``nn.Linear`` with xᵀW / ‖W‖ · g; same arguments."""

    def forward(self, input: Tensor) -> Tensor:
        """The output of the linear layer whose weight has the scale ``g``."""
        return nn.functional.linear(input, self.effective_weight(), self.bias)


class _ScaledConv(_Scaled):
    """Conv(x, W) / ‖W‖ · g."""

    def forward(self, input: Tensor) -> Tensor:
        return convolve(self, input, self.effective_weight())


class _ScaledConvTranspose(_Scaled):
    """ConvTranspose(x, W) / ‖W‖ · g."""

    _apply_transposed: ClassVar[Callable[..., Tensor]]

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        layer: Any = self
        return type(self)._apply_transposed(
            input,
            self.effective_weight(),
            layer.bias,
            layer.stride,
            layer.padding,
            transposed_padding(self, input, output_size),
            layer.groups,
            layer.dilation,
        )


class WeightNormConv1d(_ScaledConv, nn.Conv1d):
    """``nn.Conv1d`` with Conv(x, W) / ‖W‖ · g; same arguments."""


class WeightNormConv2d(_ScaledConv, nn.Conv2d):
    """``nn.Conv2d`` with Conv(x, W) / ‖W‖ · g; same arguments."""


class WeightNormConv3d(_ScaledConv, nn.Conv3d):
    """``nn.Conv3d`` with Conv(x, W) / ‖W‖ · g; same arguments."""


class WeightNormConvTranspose1d(_ScaledConvTranspose, nn.ConvTranspose1d):
    """``nn.ConvTranspose1d`` with its output, less bias, divided by ‖W‖ and times g."""

    _apply_transposed = staticmethod(nn.functional.conv_transpose1d)


class WeightNormConvTranspose2d(_ScaledConvTranspose, nn.ConvTranspose2d):
    """``nn.ConvTranspose2d`` with its output, less bias, divided by ‖W‖ and times g."""

    _apply_transposed = staticmethod(nn.functional.conv_transpose2d)


class WeightNormConvTranspose3d(_ScaledConvTranspose, nn.ConvTranspose3d):
    """``nn.ConvTranspose3d`` with its output, less bias, divided by ‖W‖ and times g."""

    _apply_transposed = staticmethod(nn.functional.conv_transpose3d)


class FixNormLinear(_Capped, WeightNormLinear):
    """``nn.Linear`` with xᵀW / ‖W‖ · min(g, α√C); same arguments and ``alpha``.

    >>> layer = FixNormLinear(64, 100, alpha=0.5)
    >>> layer.cap
    5.0
    """


class FixNormConv1d(_Capped, WeightNormConv1d):
    """``nn.Conv1d`` with Conv(x, W) / ‖W‖ · min(g, α√C); same arguments and ``alpha``."""


class FixNormConv2d(_Capped, WeightNormConv2d):
    """``nn.Conv2d`` with Conv(x, W) / ‖W‖ · min(g, α√C); same arguments and ``alpha``."""


class FixNormConv3d(_Capped, WeightNormConv3d):
    """``nn.Conv3d`` with Conv(x, W) / ‖W‖ · min(g, α√C); same arguments and ``alpha``."""


class FixNormConvTranspose1d(_Capped, WeightNormConvTranspose1d):
    """``WeightNormConvTranspose1d`` with g capped at α√C; ``alpha`` besides its arguments."""


class FixNormConvTranspose2d(_Capped, WeightNormConvTranspose2d):
    """``WeightNormConvTranspose2d`` with g capped at α√C; ``alpha`` besides its arguments."""


class FixNormConvTranspose3d(_Capped, WeightNormConvTranspose3d):
    """``WeightNormConvTranspose3d`` with g capped at α√C; ``alpha`` besides its arguments."""


_SCALED: dict[type[nn.Module], type[_Scaled]] = {
    nn.Linear: WeightNormLinear,
    nn.Conv1d: WeightNormConv1d,
    nn.Conv2d: WeightNormConv2d,
    nn.Conv3d: WeightNormConv3d,
    nn.ConvTranspose1d: WeightNormConvTranspose1d,
    nn.ConvTranspose2d: WeightNormConvTranspose2d,
    nn.ConvTranspose3d: WeightNormConvTranspose3d,
}
_CAPPED: dict[type[nn.Module], type[_Capped]] = {
    nn.Linear: FixNormLinear,
    nn.Conv1d: FixNormConv1d,
    nn.Conv2d: FixNormConv2d,
    nn.Conv3d: FixNormConv3d,
    nn.ConvTranspose1d: FixNormConvTranspose1d,
    nn.ConvTranspose2d: FixNormConvTranspose2d,
    nn.ConvTranspose3d: FixNormConvTranspose3d,
}
CONVOLUTIONS = (
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
)
PLAIN = (nn.Linear, *CONVOLUTIONS)
"""The plain layers that have a scaled form."""


def outputs_of(layer: nn.Module) -> int:
    """How many numbers a layer gives for an example or a position."""
    return int(getattr(layer, "out_features", 0) or getattr(layer, "out_channels", 0))


def with_norm(weight: Tensor, scale: Tensor) -> Tensor:
    """W / ‖W‖ · s in the weight's dtype."""
    return weight * (scale / frobenius(weight)).to(weight.dtype)


@torch.no_grad()
def folded_weight(weight: Tensor, scale: Tensor) -> Tensor:
    """W / ‖W‖ · s as a tensor of its own; zero stays zero. A collective where W is sharded."""
    weight = weight.detach()
    if not is_sharded(weight):
        return with_norm(weight, scale.to(weight.device)) if weight.any() else weight.clone()
    # Of the whole weight: what one process holds of it may be zero, or nothing.
    norm = joint_norm([weight])
    factor = (scale.to(norm.device) / norm).to(weight.dtype).item() if norm else 1.0
    return weight * factor


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor, detached, also where it is sharded: then it is a collective."""
    tensor = tensor.detach()
    return tensor.full_tensor() if is_sharded(tensor) else tensor


def can_be_scaled(layer: nn.Module) -> bool:
    """Whether ``scale_`` may take the layer: one that computes what its plain base does.

    A subclass may have a forward of its own (padding of another kind, say), which a change of class
    would lose; so it is tried on inputs of two sizes.
    """
    base = _plain_base(layer)
    return base is not None and (type(layer) is base or _computes_like(base, layer))


def is_scaled(layer: nn.Module) -> TypeGuard[_Scaled]:
    """Whether the layer is one of the layers of this file."""
    return isinstance(layer, _Scaled)


refuse_adapters(is_scaled)


def is_capped(layer: nn.Module) -> TypeGuard[_Capped]:
    """Whether the layer is a FixNorm layer."""
    return isinstance(layer, _Capped)


def scale_(
    layer: nn.Module, *, alpha: float | None = None, g: nn.Parameter | None = None
) -> nn.Parameter:
    """Turn a plain layer into a scaled one, in place: capped if ``alpha`` is given.

    The object, its parameters, its hooks and everything that refers to it stay. ``g``: the scale of
    a layer that has the same weight, to be shared as the weight is. Returns the layer's scale.
    """
    base = _plain_base(layer)
    assert base is not None
    plain_class = type(layer)
    layer.__class__ = _SCALED[base] if alpha is None else _CAPPED[base]
    assert is_scaled(layer)
    layer._plain_class = plain_class
    if is_capped(layer):
        layer._alpha = checked_alpha(math.inf if alpha is None else alpha)
    if g is None:
        layer._start_scale()
    else:
        layer.g = g
    return layer.g


@torch.no_grad()
def unscale_(layer: nn.Module) -> None:
    """Turn a scaled layer back into the plain one that computes the same, in place."""
    assert is_scaled(layer)
    trainable = layer.weight.requires_grad
    weight = folded_weight(layer.weight, whole(layer.effective_scale()))
    folded = nn.Parameter(weight, requires_grad=trainable)
    plain_class = layer.__dict__.pop("_plain_class", None) or _plain_base(layer)
    layer.__dict__.pop("_alpha", None)
    del layer.g
    layer.__class__ = plain_class  # type: ignore[assignment]
    layer.weight = folded


def _plain_base(layer: nn.Module) -> type[nn.Module] | None:
    return next((base for base in _SCALED if isinstance(layer, base)), None)


@torch.no_grad()
def _computes_like(base: type[nn.Module], layer: nn.Module) -> bool:
    weight = layer.weight
    assert isinstance(weight, Tensor)
    for size in (15, 16):
        shape: tuple[int, ...] = (size, weight.shape[1])
        if isinstance(layer, CONVOLUTIONS):
            shape = (1, layer.in_channels, *[size] * len(layer.kernel_size))
        x = torch.linspace(-1, 1, math.prod(shape)).to(weight).reshape(shape)
        try:
            own, plain = type(layer).forward(layer, x), base.forward(layer, x)
        except (RuntimeError, TypeError, ValueError):
            return False
        if not (isinstance(own, Tensor) and own.shape == plain.shape and torch.equal(own, plain)):
            return False
    return True
