r"""Back to plain layers: every FixNorm and weight-normalised layer takes its scale into its weight.

    W  ←  W / ‖W‖ · s,    s = g, held within ±α√C where the layer is capped

A model is folded in place (:func:`fold`), the state dict of one is folded without the model
(:func:`fold_state_dict`). What is folded loads into the original architecture; it loads into a
converted one, too, where g = ‖W‖ makes the same function of it.

Weights that are tied stay tied. Two layers with one weight and two scales have no plain form: that
is refused.
"""

from __future__ import annotations

import math
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from fixnorm.bypass import restore_fast_paths
from fixnorm.converted import forget_conversion
from fixnorm.internals import metadata_of, set_metadata
from fixnorm.layers import (
    CAP,
    folded_weight,
    is_capped,
    is_scaled,
    unscale_,
    whole,
)
from fixnorm.methods import checked_alpha
from fixnorm.norm import local
from fixnorm.structure import need_module

__all__ = ["fold", "fold_state_dict"]


def fold(model: nn.Module) -> nn.Module:
    """Turn every FixNorm and weight-normalised layer back into the plain one, in place.

    The outputs stay the same; the state dict is that of the original architecture. Tied weights
    stay tied. Returns the model. If it is refused, the model is as before.
    """
    need_module(model, "fold")
    refuse_untying(model)
    layers = [module for module in model.modules() if is_scaled(module)]
    weights = [layer.weight for layer in layers]  # all kept, so that no id is used again
    plain: dict[int, Tensor] = {}
    for layer, weight in zip(layers, weights, strict=True):
        unscale_(layer)
        layer.weight = plain.setdefault(id(weight), layer.weight)
    restore_fast_paths(model)
    forget_conversion(model)
    return model


def refuse_untying(model: nn.Module) -> None:
    """Raise if a scaled layer shares its weight with one that does not apply the same scale."""
    owners: dict[int, dict[str, Tensor | None]] = defaultdict(dict)
    for name, module in model.named_modules():
        for own, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            scaled = is_scaled(module) and own == "weight"
            scale = whole(module.effective_scale()) if scaled else None
            owners[id(parameter)][_join(name, own)] = scale
    for scales in owners.values():
        _refuse_other_scales(scales)


def fold_state_dict(
    state: Mapping[str, Any],
    *,
    alpha: float | None = None,
    head: str | Iterable[str] | None = None,
) -> dict[str, Any]:
    """The state dict of the plain model that computes the same; nothing given is changed.

    What ``model.state_dict()`` returns says the caps of its layers itself, in its metadata, which
    ``torch.save`` keeps. A copy in another dict or in a safetensors file does not: there the caller
    has to.

    Args:
        state: names to tensors, ``NAME.weight`` and ``NAME.g`` for each scaled layer.
        alpha: the cap of the heads in units of √C, as given to ``convert``; ``inf`` if nothing is
            capped (method ``wn-fc``). Needed only where the state does not say it. C is then the
            first size of the weight, which it is not in a transposed convolution: fold the model.
        head: name or names of the heads. Needed only where, beyond that, a scale is above α√C.
    """
    if not isinstance(state, Mapping):
        raise TypeError(
            f"fold_state_dict needs a state dict but got {type(state).__name__}: give "
            "model.state_dict(), or what torch.load(file, weights_only=True) returns"
        )
    return fold_with(state, caps_of(state, alpha=alpha, head=head))


def saved_caps(state: Mapping[str, Any]) -> dict[str, float]:
    """The caps of the scaled layers, as far as the state dict says them."""
    metadata = metadata_of(state) or {}
    return {
        name: float(about[CAP])
        for name, about in metadata.items()
        if CAP in about and _join(name, "g") in state
    }


def scaled_layers(state: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the layers that have a scale ``g`` beside their weight."""
    if known := saved_caps(state):
        return tuple(known)
    found = []
    for key, g in state.items():
        name, _, last = key.rpartition(".") if isinstance(key, str) else ("", "", "")
        if last == "g" and isinstance(g, Tensor) and g.shape == (1,):
            weight = state.get(_join(name, "weight"))
            if weight is None or (isinstance(weight, Tensor) and weight.ndim > 1):
                found.append(name)
    return tuple(found)


def caps_of(
    state: Mapping[str, Any],
    *,
    alpha: float | None = None,
    head: str | Iterable[str] | None = None,
    known: Mapping[str, float] = MappingProxyType({}),
) -> dict[str, float]:
    """The cap of every scaled layer: as the state says, as ``known``, or as the caller says."""
    layers = scaled_layers(state)
    if head is not None and not isinstance(head, Iterable):
        raise TypeError(f"head must be a name or several of the state's layers but got {head!r}")
    heads = (head,) if isinstance(head, str) else tuple(head or ())
    for name in layers:
        if _join(name, "weight") not in state:
            raise ValueError(
                f"{_join(name, 'g')} has no weight beside it, as where tied weights are stored "
                "once: fold the model itself, fixnorm.fold(model), and save that"
            )
    if wrong := [name for name in heads if name not in layers]:
        raise ValueError(
            f"head: {wrong[0]!r} has no scale g in the state; those that have: {_listed(layers)}"
        )
    caps = saved_caps(state) or {name: known[name] for name in layers if name in known}
    if caps.keys() >= set(layers):
        _refuse_other_alpha(state, caps, alpha, heads)
        return caps
    if alpha is None:
        raise ValueError(
            f"the state does not say where the scale of {_listed(layers)} is cut: give the alpha "
            "of the training, alpha=1.0 for convert(model, alpha=1.0), alpha=inf if nothing was "
            "capped (method wn-fc)"
        )
    asked = {name: _cap(state, name, checked_alpha(alpha)) for name in layers}
    if heads:
        return {name: cap if name in heads else math.inf for name, cap in asked.items()}
    over = above_caps(state, asked)
    if over and len(layers) > 1:
        raise ValueError(
            f"the scale of {_listed(over)} is above α√C: whether it is cut there depends on which "
            f"layers are heads, which the state does not say. Give head, one or more of: "
            f"{_listed(layers)}"
        )
    return asked


def above_caps(state: Mapping[str, Any], caps: Mapping[str, float]) -> list[str]:
    """The layers whose scale is beyond its cap, which cuts it."""
    return [name for name, cap in caps.items() if abs(float(_whole(state, name, "g"))) > cap]


@torch.no_grad()
def fold_with(state: Mapping[str, Any], caps: Mapping[str, float]) -> dict[str, Any]:
    """The state with the layers of these caps folded."""
    owners: dict[object, dict[str, Tensor | None]] = defaultdict(dict)
    for key, value in state.items():
        if isinstance(value, Tensor):
            name, _, last = key.rpartition(".")
            scale = _scale(state, name, caps[name]) if last == "weight" and name in caps else None
            owners[_place(value)][key] = scale
    plain: dict[str, Tensor] = {}
    for scales in owners.values():
        _refuse_other_scales(scales)
        for key, scale in scales.items():
            if scale is not None:
                plain |= dict.fromkeys(scales, folded_weight(state[key], scale))
                break

    folded = OrderedDict(
        (key, plain.get(key, value))
        for key, value in state.items()
        if not (key.rpartition(".")[2] == "g" and key.rpartition(".")[0] in caps)
    )
    metadata = metadata_of(state)
    if metadata is not None:
        rest = {n: {k: v for k, v in about.items() if k != CAP} for n, about in metadata.items()}
        set_metadata(folded, OrderedDict(rest))
    return folded


@contextmanager
def folded_state_dicts(model: nn.Module) -> Iterator[None]:
    """Inside, ``model.state_dict()`` is folded; the model stays as it is."""
    handle = model.register_state_dict_post_hook(_fold_in_place)
    try:
        yield
    finally:
        handle.remove()


def _fold_in_place(
    module: nn.Module, state: dict[str, Any], prefix: str, local_metadata: dict[str, Any]
) -> None:
    # By name, and where a wrapper has renamed it, by the tensor itself.
    layers = dict(module.named_modules(prefix=prefix[:-1], remove_duplicate=False))
    scaled = {n: m.cap if is_capped(m) else math.inf for n, m in layers.items() if is_scaled(m)}
    places = {_place(layers[name].g): cap for name, cap in scaled.items()}
    caps = {}
    for key, value in state.items():
        name, _, last = key.rpartition(".")
        if last == "g" and (name in scaled or _place(value) in places):
            caps[name] = scaled[name] if name in scaled else places[_place(value)]
    folded = fold_with(state, caps)
    for key in list(state):
        if key not in folded:
            del state[key]
    state.update(folded)
    set_metadata(state, metadata_of(folded))


def _scale(state: Mapping[str, Any], name: str, cap: float) -> Tensor:
    return _whole(state, name, "g").clamp(-cap, cap)


def _whole(state: Mapping[str, Any], name: str, own: str) -> Tensor:
    return whole(state[_join(name, own)])


def _cap(state: Mapping[str, Any], name: str, alpha: float) -> float:
    return alpha * math.sqrt(state[_join(name, "weight")].shape[0])


def _place(tensor: Tensor) -> object:
    """Equal for two tensors that are one; no two others have it while both are alive."""
    held = local(tensor)
    if held.numel() == 0 or held.is_meta:
        return id(tensor)
    return held.untyped_storage().data_ptr(), held.storage_offset(), held.numel()


def _refuse_other_scales(scales: Mapping[str, Tensor | None]) -> None:
    """``scales``: what each owner of one weight multiplies its direction by; none if plain."""
    values = list(scales.values())
    first = values[0]
    for scale in values[1:]:
        if (scale is None) != (first is None) or (
            scale is not None and first is not None and not torch.equal(scale, first)
        ):
            told = ", ".join(
                f"{name} (plain)" if scale is None else f"{name} (scale {scale.item():g})"
                for name, scale in scales.items()
            )
            raise ValueError(
                f"folding would untie what is one weight under several names: {told}. Keep the "
                "model converted, or give each a weight of its own first, in a model that does not "
                "tie them: layer.weight = nn.Parameter(layer.weight.detach().clone())"
            )


def _refuse_other_alpha(
    state: Mapping[str, Any],
    caps: Mapping[str, float],
    alpha: float | None,
    heads: tuple[str, ...],
) -> None:
    capped = {name: cap for name, cap in caps.items() if cap < math.inf}
    if heads and set(heads) != capped.keys():
        raise ValueError(
            f"the state says that {_listed(capped) or 'no layer'} is capped but got "
            f"head={_listed(heads)}: leave head out"
        )
    for name, cap in capped.items():
        if alpha is not None and not math.isclose(_cap(state, name, alpha), cap, rel_tol=1e-6):
            raise ValueError(
                f"the state says that the scale of {name} is cut at {cap:g} but got "
                f"alpha={alpha:g}, which is {_cap(state, name, alpha):g} there: leave alpha out"
            )


def _join(name: str, own: str) -> str:
    return f"{name}.{own}" if name else own


def _listed(names: Iterable[str]) -> str:
    return ", ".join(name or "the layer" for name in names)
