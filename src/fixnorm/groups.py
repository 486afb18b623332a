"""A model's parameters as optimizer groups: fixed weights, decayed weights, and the rest.

A fixed group is an ordinary group with more keys. :data:`TARGET` is the norm that its weights have
together; it lives in the group so that whatever saves ``optimizer.state_dict()`` saves it. Groups
with the same :data:`SPHERE` share one joint norm, also over several optimizers. A group that joined
a running optimizer may hold other parameters besides: then :data:`FIXED` tells which are fixed. A
group of scope ``matrix`` has :data:`RADII` in the place of a target: one norm for each weight.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, get_args

from torch import nn
from torch.optim import Optimizer
from torch.utils.weak import WeakIdKeyDictionary

from fixnorm.converted import Conversion, conversion_of
from fixnorm.methods import (
    METHODS,
    Length,
    Method,
    MethodName,
    Scope,
    checked_scope,
    method_named,
)
from fixnorm.roles import Sample, audit
from fixnorm.structure import matrices, need_module, parameters_by_name, unwrapped

__all__ = ["FIXED", "LENGTH", "RADII", "SPHERE", "TARGET", "Scope", "fixed_weights", "param_groups"]

TARGET = "fixnorm_target"
"""Key of a fixed group: its target norm, none until ``attach`` has measured it."""
SPHERE = "fixnorm_sphere"
"""Key of a fixed group that may share its norm: groups of one model with the same number have one
joint norm, and the same target. A group without it is alone."""
FIXED = "fixnorm_fixed"
"""Key of a fixed group that holds other parameters, too: the positions of its fixed weights."""

RADII = "fixnorm_radii"
"""Key of a fixed group of scope ``matrix``: the norm of each of its fixed weights, none until
``attach`` has measured them."""

LENGTH = "fixnorm_length"
"""Key of a fixed group of scope ``matrix``: how far its steps go, ``angle`` unless it says
``own``."""
NOT_MUON = "use_fallback"
"""Key by which timm's Muon leaves a group to its AdamW."""

_JOINT = 0


def is_fixed(group: dict[str, Any]) -> bool:
    """Whether the norm of some of its weights is kept."""
    return TARGET in group or RADII in group


def kept_norm(group: dict[str, Any]) -> float | list[float] | None:
    """The norm that a fixed group keeps, or those of its matrices; none if there is none yet."""
    found: float | list[float] | None = group.get(TARGET, group.get(RADII))
    return found


def fixed_weights(group: dict[str, Any]) -> list[nn.Parameter]:
    """The weights of a fixed group whose norm is kept."""
    params: list[nn.Parameter] = group["params"]
    return params if FIXED not in group else [params[i] for i in group[FIXED]]


def param_groups(
    model: nn.Module,
    *,
    scope: Scope | None = None,
    length: Length | None = None,
    hidden_apart: bool = False,
    method: MethodName | None = None,
    weight_decay: float = 0.0,
    sample: Sample | None = None,
    beside: Optimizer | None = None,
) -> list[dict[str, Any]]:
    """Optimizer groups for the model; pass them to any optimizer, then ``attach`` it.

    Args:
        model: a converted model; DDP, ``fully_shard`` and ``torch.compile`` may have wrapped it. Or
            a module with a part that was converted: all its other parameters are in the rest.
        scope: ``global`` fixes the joint norm of all fixed weights (the paper), ``layer`` that of
            each weight alone; ``matrix`` likewise, with a step that is relative to the norm
            (:mod:`fixnorm.relative_step`), so that its group's lr is an angle. As given to
            ``convert`` unless said otherwise, and then ``global``.
        length: of the steps of scope ``matrix``. ``angle``, the default, turns every matrix by lr,
            whatever the optimizer. ``own`` keeps the optimizer's own length, in units of the
            matrix's root mean square: for Adam and its kin, whose steps have entries of about lr.
        hidden_apart: of scope ``matrix``, the weights of linear layers other than the head in a
            group of their own, the first one, whose steps turn by lr: for Muon. The other groups
            are AdamW's: of a second optimizer, or of timm's Muon, which they tell so.
        method: the paper's algorithm; as given to ``convert`` unless said otherwise.

            - ``fixnorm``, ``wn-fc``: all fixed weights in fixed groups, nothing is decayed.
            - ``algorithm1``: scale-invariant weights are fixed, the plain head (and any other
              weight whose scale matters) is decayed. The model need not be converted.
            - ``weight-decay``: every weight is decayed, none is fixed. Any model.
        weight_decay: λ of the decayed weights; biases and norm affines are never decayed.
        sample: as in :func:`fixnorm.audit`, where ``algorithm1`` has to audit the model.
        beside: an optimizer that holds some of the model already. Its parameters are left out, so
            that what was unfrozen can join it by ``optimizer.add_param_group``.

    Returns:
        Groups that hold every trainable parameter of the model once.
    """
    model = _checked_model(model)
    asked = None if method is None else method_named(method)
    if (asked is None or asked.fixes) and (part := _converted_part(model)) is not model:
        groups = param_groups(
            part,
            scope=scope,
            length=length,
            hidden_apart=hidden_apart,
            method=method,
            weight_decay=weight_decay,
            sample=sample,
            beside=beside,
        )
        return groups + _other_groups(model, groups, weight_decay, beside)
    scope = _checked_scope(model, scope)
    _check_length(length, scope)
    if hidden_apart and scope != "matrix":
        raise ValueError(f"hidden_apart is for scope='matrix' but got scope={scope!r}")
    chosen = _checked_method(model, asked)
    _check_decay(weight_decay, chosen)
    parameters = parameters_by_name(model)
    trainable = {n: p for n, p in parameters.items() if p.requires_grad}
    if beside is not None:
        held = {id(p) for group in _groups_of(beside) for p in group["params"]}
        trainable = {n: p for n, p in trainable.items() if id(p) not in held}
    to_fix = _fixed_names(model, chosen, sample)
    for name in to_fix:
        _origins[parameters[name]] = Origin(weakref.ref(model), name, to_fix)
    fixed = [name for name in to_fix if name in trainable]
    if not fixed and chosen.fixes and beside is None:
        raise ValueError("no trainable weight of the model is fixed: nothing for FixNorm to do")
    decayed = _decayed_names(model, trainable, fixed) if chosen.decays else []
    rest = [name for name in trainable if name not in {*fixed, *decayed}]

    groups = []
    if fixed and scope == "global":
        groups.append(_group(trainable, fixed, 0.0) | {TARGET: None, SPHERE: _JOINT})
    elif fixed and scope == "matrix":
        hidden = _hidden_names(model, trainable, fixed) if hidden_apart else []
        others = [name for name in fixed if name not in hidden]
        parts = ((hidden, "angle"), (others, length or "angle"))
        groups += [_group(trainable, n, 0.0) | {RADII: None, LENGTH: how} for n, how in parts if n]
    elif fixed:
        groups += [_group(trainable, [name], 0.0) | {TARGET: None} for name in fixed]
    if decayed:
        groups.append(_group(trainable, decayed, weight_decay))
    if rest:
        groups.append(_group(trainable, rest, 0.0))
    if hidden_apart:
        groups[1:] = [group | {NOT_MUON: True} for group in groups[1:]]
    return groups


def _checked_scope(model: nn.Module, scope: Scope | None) -> Scope:
    """The scope that is asked for; one that the model was not converted for is refused."""
    checked_scope(scope)
    conversion = conversion_of(model)
    converted = getattr(conversion, "scope", None)  # one of an older version has none
    if converted == "matrix" and scope not in (None, "matrix"):
        raise ValueError(
            f"the model was converted with scope='matrix' but param_groups got {scope!r}, which "
            "needs every weight free of scale: leave scope out of both, or of param_groups"
        )
    if scope == "matrix" and converted != "matrix":
        raise ValueError(
            "scope 'matrix' needs a model that was converted for it, with no layer but the head "
            "normalised: fixnorm.convert(model, alpha=..., scope='matrix')"
        )
    return scope or converted or "global"


def _check_length(length: Length | None, scope: Scope) -> None:
    if length is not None and length not in get_args(Length):
        raise ValueError(f"length must be 'angle' or 'own' but got {length!r}")
    if length is not None and scope != "matrix":
        raise ValueError(f"length={length!r} is for scope='matrix' but got scope={scope!r}")


def _converted_part(model: nn.Module) -> nn.Module:
    """The one converted module in a model that is not converted itself; otherwise the model."""
    if conversion_of(model) is not None:
        return model
    parts = {
        name: module
        for name, module in model.named_modules()
        if conversion_of(module) is not None
        and unwrapped(module) is module
        and any(p.requires_grad for p in module.parameters())  # not an average of another
    }
    if len(parts) > 1:
        raise ValueError(
            f"the model has {len(parts)} converted parts ({', '.join(parts)}), each with a norm of "
            "its own: call param_groups for each and add the groups up"
        )
    return next(iter(parts.values()), model)


def _other_groups(
    model: nn.Module,
    groups: list[dict[str, Any]],
    weight_decay: float,
    beside: Optimizer | None,
) -> list[dict[str, Any]]:
    """Groups of what the groups of a part leave out: matrices decayed, if that is asked for."""
    taken = groups if beside is None else groups + _groups_of(beside)
    held = {id(p) for group in taken for p in group["params"]}
    others = {n: p for n, p in model.named_parameters() if p.requires_grad and id(p) not in held}
    decayed = _decayed_names(model, others, ()) if weight_decay else []
    rest = [name for name in others if name not in decayed]
    parts = ((decayed, weight_decay), (rest, 0.0))
    return [_group(others, names, decay) for names, decay in parts if names]


def _checked_model(model: nn.Module) -> nn.Module:
    """The user's own module, as it was converted."""
    need_module(model, "param_groups")
    model = unwrapped(model)
    conversion = conversion_of(model)
    if conversion is not None:
        _check_unchanged(model, conversion)
    return model


def _check_unchanged(model: nn.Module, conversion: Conversion) -> None:
    """Refuse a model whose layers are not those that were converted."""
    known = {matrix.name: matrix for matrix in conversion.matrices}
    now = {matrix.name: matrix for matrix in matrices(model)}
    parameters = parameters_by_name(model, tied=True)
    changes = [f"{name} is gone" for name in known if name not in parameters]
    for name, matrix in now.items():
        if name not in known:
            if parameters[name].requires_grad:
                changes.append(f"{name} is new")
        elif not matrix.is_still(known[name]):
            changes.append(f"{name} is {matrix}, was {known[name]}")
    if changes:
        more = f" and {len(changes) - 3} more" if len(changes) > 3 else ""
        raise ValueError(
            f"the model has changed since convert: {'; '.join(changes[:3])}{more}. Replace, prune, "
            "parametrize and wrap layers first, then convert (fixnorm.fold(model) undoes it)"
        )


def _check_decay(weight_decay: float, method: Method) -> None:
    number = isinstance(weight_decay, int | float) and not isinstance(weight_decay, bool)
    if not number or not 0 <= weight_decay < float("inf"):
        raise ValueError(f"weight_decay must be a number of 0 or more but got {weight_decay!r}")
    if weight_decay and not method.decays:
        decaying = " or ".join(repr(known.name) for known in METHODS.values() if known.decays)
        raise ValueError(
            f"method {method.name!r} has no weight decay but got weight_decay={weight_decay}; "
            f"leave it out, or use method={decaying}"
        )


def _groups_of(optimizer: Optimizer) -> list[dict[str, Any]]:
    groups: list[dict[str, Any]] | None = getattr(optimizer, "param_groups", None)
    if groups is None:
        raise TypeError(f"beside needs an optimizer but got {type(optimizer).__name__}")
    return groups


def _checked_method(model: nn.Module, method: Method | None) -> Method:
    conversion = conversion_of(model)
    if method is None:
        if conversion is None:
            raise ValueError(
                "the model is not converted: call fixnorm.convert(model, alpha=...) first, then "
                "param_groups and the optimizer"
            )
        return METHODS[conversion.method]
    if method.converts and conversion is None:
        alpha = ", alpha=..." if method.caps else ""
        raise ValueError(
            f"method {method.name!r} needs a converted model: call "
            f"fixnorm.convert(model, method={method.name!r}{alpha}) first"
        )
    if method.fixes and conversion is not None and conversion.method != method.name:
        raise ValueError(
            f"the model was converted for method {conversion.method!r} but param_groups got "
            f"{method.name!r}; convert it with method={method.name!r}"
        )
    return method


def _fixed_names(model: nn.Module, method: Method, sample: Sample | None) -> tuple[str, ...]:
    if not method.fixes:
        return ()
    conversion = conversion_of(model)
    return conversion.fixed if conversion else audit(model, sample).names("fixed")


def _hidden_names(
    model: nn.Module, trainable: dict[str, nn.Parameter], fixed: Iterable[str]
) -> list[str]:
    """What maps activations to activations: for optimizers of matrices."""
    conversion = conversion_of(model)
    heads = {f"{head.name}.weight" for head in conversion.heads} if conversion else set()
    hidden = [name for name in fixed if trainable[name].ndim == 2 and name not in heads]
    if not hidden:
        raise ValueError(
            "hidden_apart but the model has no linear layer other than its head: leave it out"
        )
    return hidden


def _decayed_names(
    model: nn.Module, trainable: dict[str, nn.Parameter], fixed: Iterable[str]
) -> list[str]:
    """Matrices and kernels that are not fixed, less those the model itself exempts."""
    exempt: Iterable[str] = getattr(model, "no_weight_decay", tuple)()  # timm's way to say so
    return [
        name
        for name, parameter in trainable.items()
        if parameter.ndim >= 2 and name not in {*fixed, *exempt}
    ]


def _group(
    parameters: dict[str, nn.Parameter], names: Iterable[str], weight_decay: float
) -> dict[str, Any]:
    return {"params": [parameters[name] for name in names], "weight_decay": weight_decay}


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a weight that is fixed, or will be once it is trained, comes from."""

    model: weakref.ref[nn.Module]
    name: str
    fixed: tuple[str, ...]
    """Names of all weights of the model that are fixed when they are trained."""

    def fixed_now(self) -> dict[str, nn.Parameter]:
        """The model's trainable weights that should be in fixed groups, by name."""
        model = self.model()
        if model is None:
            return {}
        conversion = conversion_of(model)
        names = conversion.fixed if conversion else self.fixed
        parameters = parameters_by_name(model)
        return {n: parameters[n] for n in names if n in parameters and parameters[n].requires_grad}


# Lets attach(optimizer) name weights and find heads. Nothing depends on it after a load.
_origins: WeakIdKeyDictionary = WeakIdKeyDictionary()


def origin_of(parameter: nn.Parameter) -> Origin | None:
    """Where ``param_groups`` took the parameter from."""
    found: Origin | None = _origins.get(parameter)
    return found
