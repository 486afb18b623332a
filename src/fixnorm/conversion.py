"""Turn a model into one in which every linear and convolution weight is scale-invariant.

What the audit finds decides: the head becomes a FixNorm layer, other layers whose scale matters
become weight-normalised, layers that a norm follows stay as they are. The model changes in place
and computes the same function as before, unless the head starts above its cap.

A weight that several layers share is fixed only if each of its uses is free of scale afterwards:
tied layers that are scaled share one ``g`` as they share the weight, so that they stay tied.

With ``scope="matrix"`` the head alone is converted. Every other weight that multiplies activations
stays what it is, and is given a sphere of its own; embeddings and tables are the optimizer's.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable, Iterator

from torch import nn

from fixnorm.adapters import adapters_of
from fixnorm.bypass import fast_paths_off
from fixnorm.converted import Conversion, Head, Kept, conversion_of, record_conversion
from fixnorm.heads import find_heads, refuse_excluded_head, refuse_tied_head
from fixnorm.internals import compiled_from
from fixnorm.kept import bypassed, cannot_be_scaled, is_below, multiplies, no_matrix
from fixnorm.layers import is_capped, is_scaled, scale_
from fixnorm.methods import METHODS, Method, MethodName, Scope, checked_alpha, checked_scope
from fixnorm.norm import frobenius
from fixnorm.radius import Radius, checked_radius, set_radii_
from fixnorm.roles import Audit, Sample, audit
from fixnorm.structure import matrices, need_module

__all__ = ["Conversion", "conversion_of", "convert"]


def convert(
    model: nn.Module,
    *,
    alpha: float | None = None,
    method: MethodName = "fixnorm",
    scope: Scope | None = None,
    radius: Radius | None = None,
    sample: Sample | None = None,
    head: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] = (),
) -> Conversion:
    """Make every linear and convolution weight of the model scale-invariant, in place.

    Call it before the optimizer is built, before DDP, ``fully_shard`` and ``torch.compile``.

    Args:
        model: any module.
        alpha: the cap of the head's scale in units of √C (method ``fixnorm``).
        method: ``fixnorm`` caps the head's scale, ``wn-fc`` leaves it free, ``algorithm1`` keeps
            the head a plain layer (to be decayed).
        scope: ``"matrix"`` for a net whose weights are not scale-free (transformers, ConvNeXt):
            each weight that multiplies activations gets a sphere of its own, and no layer but the
            head is changed. Another scope is what ``param_groups`` takes where it is given none.
        radius: with ``scope="matrix"``, the spheres' radii where the weights should not keep the
            norms that they have: a number that multiplies them, or ``"fan_in"``
            (:mod:`fixnorm.radius`). It rescales the weights: for fresh ones, not for pretrained.
        sample: as in :func:`fixnorm.audit`; needed only where the model does not say its input.
        head: name or names of the head layers, where measurement cannot tell or you know better;
            ``()`` for a model that has none.
        exclude: names of modules or parameters (with all below them) to leave alone.

    Returns:
        What was changed, what was kept and why. If anything is refused, the model is as before.
    """
    chosen = _checked_method(model, method)
    own_spheres = checked_scope(scope) == "matrix"
    radius = checked_radius(radius, scope)
    given = None if head is None else _names(model, head, "head")
    _check_alpha(alpha, chosen, headless=given == () or (own_spheres and alpha is None))
    excluded = _names(model, exclude, "exclude")
    audited = audit(model, sample)
    modules = dict(model.named_modules(remove_duplicate=False))
    heads = find_heads(model, audited, given, chosen, excluded, tied_is_plain=own_spheres)
    _check_alpha(alpha, chosen, headless=not heads)

    scaled: dict[str, tuple[str, ...]] = {}
    """The layers to be scaled, by the name of their weight."""
    fixed: list[str] = []
    kept: list[Kept] = []
    unused: list[str] = []
    for row in audited:
        left_out = any(is_below(name, excluded) for name in row.names)
        at_the_head = [owner for owner in row.owners if owner in heads]
        if row.role == "unused" and row.trainable and not left_out:
            unused.append(row.name)
        if row.role in ("free", "unused") or (at_the_head and not chosen.converts):
            continue
        reason = None
        if at_the_head:
            refuse_tied_head(at_the_head[0], row, heads, modules)
            refuse_excluded_head(at_the_head[0], row, excluded)
        elif left_out:
            reason = "excluded by the caller"
        elif own_spheres:
            reason = no_matrix(row, modules)
        elif row.role != "fixed":
            reason = bypassed(model, row) or cannot_be_scaled(row, modules)
        if reason is not None:
            kept.append(Kept(row.name, reason))
            continue
        fixed.append(row.name)
        if at_the_head or (row.role != "fixed" and not own_spheres):
            scaled[row.name] = row.owners
    _refuse_zero_weights(model, fixed)
    if radius is not None:
        set_radii_(model, fixed, radius)

    for owners in scaled.values():
        g: nn.Parameter | None = None
        for name in owners:
            if not is_scaled(modules[name]):  # one module may have two names
                g = scale_(modules[name], alpha=alpha if name in heads else None, g=g)
    fast_paths_off(model)
    report = Conversion(
        method=method,
        alpha=alpha,
        heads=tuple(_head(name, layer) for name, layer in heads.items()),
        weight_normalised=tuple(n for owners in scaled.values() for n in owners if n not in heads),
        fixed=tuple(fixed),
        kept=tuple(kept),
        unused=tuple(unused),
        matrices=tuple(matrices(model)),
        scope=scope,
    )
    record_conversion(model, report)
    for message in _warnings(report, audited, modules):
        warnings.warn(message, stacklevel=2)
    return report


def _checked_method(model: nn.Module, name: MethodName) -> Method:
    need_module(model, "convert")
    method = METHODS.get(name) if isinstance(name, str) else None
    if method is None or not method.fixes:
        fixing = ", ".join(known.name for known in METHODS.values() if known.fixes)
        raise ValueError(
            f"method must be one of {fixing} but got {name!r}"
            + ("; plain weight decay needs no convert" if method else "")
        )
    wrapper = type(model).__name__
    if isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel):
        raise ValueError(f"convert the model first, then wrap it in {wrapper}")
    if compiled_from(model) is not None:
        raise ValueError("convert the model first, then torch.compile it")
    if adapters := adapters_of(model):
        raise ValueError(
            f"{adapters[0]} is an adapter, which leaves its base frozen and cannot be merged into "
            "a scaled layer: convert and train the model first, fixnorm.fold it, then add adapters"
        )
    if conversion_of(model) is not None or any(is_scaled(m) for m in model.modules()):
        raise ValueError(
            "the model is converted already; set layer.alpha to change a cap, "
            "or fixnorm.fold(model) to start again"
        )
    return method


def _check_alpha(alpha: float | None, method: Method, *, headless: bool) -> None:
    if method.caps and alpha is None and not headless:
        raise ValueError(f"method {method.name!r} needs a cap: fixnorm.convert(model, alpha=1.0)")
    if not method.caps and alpha is not None:
        raise ValueError(f"method {method.name!r} has no cap: leave alpha={alpha} out")
    if alpha is not None:
        checked_alpha(alpha)


def _names(model: nn.Module, names: str | Iterable[str], argument: str) -> tuple[str, ...]:
    """The names as a tuple; each is one of a module or a parameter of the model."""
    given = [names] if isinstance(names, str) else [*names] if isinstance(names, Iterable) else [0]
    if not all(isinstance(name, str) for name in given):
        raise TypeError(
            f"{argument} must be a name or several of the model's layers, such as "
            f"{argument}=['fc'], but got {names!r:.80}"
        )
    known = [name for name, _ in model.named_modules(remove_duplicate=False) if name]
    known += [name for name, _ in model.named_parameters(remove_duplicate=False)]
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise ValueError(f"{argument}: the model has no layer {name!r}{hint}")
    return tuple(given)


# A fresh head may start a few times above its cap, and loses nothing by it (timm's of mobile nets:
# 7 times at alpha 1 with 10 classes). From here on it is more likely a trained one.
_CUT = 8.0


def _warnings(report: Conversion, audited: Audit, modules: dict[str, nn.Module]) -> Iterator[str]:
    by_reason: dict[str, list[str]] = {}
    for kept in report.kept:
        row = audited[kept.name]
        owner, _, own = kept.name.rpartition(".")
        wanted = kept.reason == "excluded by the caller" or not row.trainable
        if multiplies(modules[owner], own) and not wanted and report.scope != "matrix":
            by_reason.setdefault(kept.reason, []).append(kept.name)
    for reason, names in by_reason.items():
        yield f"the scale of {_few(names)} matters and it is not fixed: {reason}"
    if report.unused:
        yield (
            f"the sample did not reach {_few(report.unused)}: not fixed. Pass a sample that uses "
            "all of the model (layer drop off, more than one token), or exclude them"
        )
    for head in report.heads:
        if head.cap is not None and head.g > _CUT * head.cap:
            yield (
                f"the scale of {head.name} starts at {head.g:.3g} and is cut to its cap of "
                f"{head.cap:.3g}: the model's outputs have changed. For pretrained weights take "
                f"alpha ≥ {head.g / head.cap * (report.alpha or 1):.2g}"
            )


def _few(names: Iterable[str]) -> str:
    first, *more = names
    return f"{first} and {len(more)} more" if more else first


def _refuse_zero_weights(model: nn.Module, names: Iterable[str]) -> None:
    for name in names:
        if not model.get_parameter(name).detach().any():
            raise ValueError(
                f"{name} is all zeros and has no direction to keep: initialise it "
                "(nn.init.normal_ or kaiming_normal_) or leave it out with exclude"
            )


def _head(name: str, layer: nn.Module) -> Head:
    weight = layer.weight
    assert isinstance(weight, nn.Parameter)
    norm = frobenius(weight.detach()).item()
    return Head(name, norm, layer.cap if is_capped(layer) else None)
