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
from dataclasses import dataclass

from torch import nn

from fixnorm.adapters import adapters_of
from fixnorm.bypass import fast_paths_off, has_fast_path_switch
from fixnorm.internals import compiled_from
from fixnorm.layers import (
    PLAIN,
    can_be_scaled,
    is_capped,
    is_scaled,
    outputs_of,
    scale_,
)
from fixnorm.methods import METHODS, Method, MethodName, Scope, checked_alpha, checked_scope
from fixnorm.norm import frobenius
from fixnorm.radius import Radius, checked_radius, set_radii_
from fixnorm.roles import Audit, AuditRow, Sample, audit
from fixnorm.structure import Matrix, matrices, need_module, owner_name

__all__ = ["Conversion", "Kept", "conversion_of", "convert", "forget_conversion"]

# Where a converted model keeps its Conversion; a plain attribute, so copies and pickles have it.
_ATTRIBUTE = "_fixnorm_conversion"


@dataclass(frozen=True, slots=True)
class Kept:
    """A weight whose scale matters and that was not made scale-invariant."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Head:
    """A head, with the scale it starts from."""

    name: str
    g: float
    cap: float | None
    """α√C, or none where the head is not capped."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """What ``convert`` did to a model. ``print`` it to read it."""

    method: MethodName
    alpha: float | None
    heads: tuple[Head, ...]
    weight_normalised: tuple[str, ...]
    """Layers that were given a scale ``g`` of their own."""
    fixed: tuple[str, ...]
    """Names of all weights whose joint norm is to be fixed."""
    kept: tuple[Kept, ...]
    unused: tuple[str, ...]
    """Trainable weights that the sample did not reach: nothing is known of them, so not fixed."""
    matrices: tuple[Matrix, ...]
    """All weights of the converted model, by which a later change is noticed."""
    scope: Scope | None = None
    """As given to ``convert``. With ``matrix`` each of the fixed weights has a sphere of its own,
    whatever its role; the others differ for :func:`fixnorm.param_groups` alone."""

    def __str__(self) -> str:
        what = {"capped": "capped scale", "free": "free scale", "plain": "left plain"}
        kind = what[METHODS[self.method].head]
        each = ", each by itself" if self.scope == "matrix" else ""
        count = len(self.fixed)
        lines = [f"method {self.method}: the norm of {count} weights will be fixed{each}"]
        for head in self.heads:
            line = f"  head {head.name}: {kind}, ‖W‖ = {head.g:.3g}"
            if head.cap is not None:
                state = "at the cap from the start" if head.g >= head.cap else "under the cap"
                line += f", cap α√C = {head.cap:.3g} (g/cap = {head.g / head.cap:.2f}, {state})"
            lines.append(line)
        if not self.heads:
            lines.append("  no head: no scale is capped")
        if self.weight_normalised:
            lines.append(
                f"  weight-normalised, as no norm follows: {', '.join(self.weight_normalised)}"
            )
        lines += [f"  kept {kept.name}: {kept.reason}" for kept in self.kept]
        if self.unused:
            lines.append(f"  not reached by the sample, and free: {', '.join(self.unused)}")
        return "\n".join(lines)


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
    heads = _heads(model, audited, given, chosen, excluded, tied_is_plain=own_spheres)
    _check_alpha(alpha, chosen, headless=not heads)

    scaled: dict[str, tuple[str, ...]] = {}
    """The layers to be scaled, by the name of their weight."""
    fixed: list[str] = []
    kept: list[Kept] = []
    unused: list[str] = []
    for row in audited:
        left_out = any(_is_below(name, excluded) for name in row.names)
        at_the_head = [owner for owner in row.owners if owner in heads]
        if row.role == "unused" and row.trainable and not left_out:
            unused.append(row.name)
        if row.role in ("free", "unused") or (at_the_head and not chosen.converts):
            continue
        reason = None
        if at_the_head:
            _refuse_tied_head(at_the_head[0], row, heads, modules)
            _refuse_excluded_head(at_the_head[0], row, excluded)
        elif left_out:
            reason = "excluded by the caller"
        elif own_spheres:
            reason = _no_matrix(row, modules)
        elif row.role != "fixed":
            reason = _bypassed(model, row) or _cannot_be_scaled(row, modules)
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
    setattr(model, _ATTRIBUTE, report)
    for message in _warnings(report, audited, modules):
        warnings.warn(message, stacklevel=2)
    return report


def conversion_of(model: nn.Module) -> Conversion | None:
    """The model's conversion, if it was converted."""
    found = getattr(model, _ATTRIBUTE, None)
    return found if isinstance(found, Conversion) else None


def forget_conversion(model: nn.Module) -> None:
    """Drop the record of the model's conversion, and of its parts': it is plain again."""
    for module in model.modules():
        module.__dict__.pop(_ATTRIBUTE, None)


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


def _heads(
    model: nn.Module,
    audited: Audit,
    given: tuple[str, ...] | None,
    method: Method,
    excluded: tuple[str, ...],
    *,
    tied_is_plain: bool,
) -> dict[str, nn.Module]:
    """The head layers by name: those given, otherwise those measured.

    ``tied_is_plain``: a head that is tied to an embedding may be left as it is.
    """
    if given is not None:
        names = [name.removesuffix(".weight") for name in given]
    else:
        names = [
            owner
            for row in audited
            if row.role == "head" and not any(_is_below(name, excluded) for name in row.names)
            for owner in row.owners
        ]
    candidates = ", ".join(_candidates(model, audited)) or "none"
    tied = any(row.head_uses for row in audited if row.role != "head")
    if not names and given is None and not (tied_is_plain and tied):
        raise ValueError(
            "no head found: no linear or conv layer that the output is linear in. Name it: "
            "fixnorm.convert(model, alpha=..., head=NAME), or head=() if there is none. Layers "
            f"whose scale matters, last first: {candidates}"
        )
    heads = {}
    for name in names:
        layer = model.get_submodule(name)
        if not method.converts and isinstance(getattr(layer, "weight", None), nn.Parameter):
            heads[name] = layer  # it stays as it is, whatever it is
            continue
        if not can_be_scaled(layer):
            raise ValueError(
                f"head {name} is a {type(layer).__name__}; only a layer that computes what "
                "nn.Linear or a convolution does can be a head"
            )
        row = audited[f"{name}.weight"]
        if row.role in ("fixed", "unused"):
            why = (
                "does not depend on its scale"
                if row.role == "fixed"
                else "does not depend on it at all"
            )
            raise ValueError(
                f"{name} cannot be the head: the output {why}. Candidates: {candidates}"
            )
        if why_not := _bypassed(model, row) or (None if row.called else _NOT_CALLED):
            raise ValueError(f"{name} cannot be the head: {why_not}")
        if given is None and outputs_of(layer) == 1:
            raise ValueError(
                f"{name} has one output, as a value or a regression has: it is not taken for "
                f"the head of a classifier by itself. Name it if it is meant, head={name!r}, "
                "or the heads that are; head=() if there is none"
            )
        heads[name] = layer
    return heads


def _candidates(model: nn.Module, audited: Audit) -> list[str]:
    """The last five layers whose scale matters and that have a scaled form, last first."""
    matter = {
        name.removesuffix(".weight")
        for row in audited
        if row.role in ("head", "unnormalised")
        for name in row.names
    }
    layers = model.named_modules(remove_duplicate=False)
    return [n for n, layer in layers if n in matter and isinstance(layer, PLAIN)][:-6:-1]


def _refuse_tied_head(
    head: str, row: AuditRow, heads: dict[str, nn.Module], modules: dict[str, nn.Module]
) -> None:
    """A head may share its weight with heads only: no other use has the same capped scale."""
    others = [owner for owner in row.owners if owner not in heads]
    if others:
        tied = " and ".join(f"{other} ({type(modules[other]).__name__})" for other in others)
        raise ValueError(
            f"{head} cannot be the head while its weight is tied to {tied}, where its scale "
            f"matters, too. Untie it (model.{head}.weight = "
            f"nn.Parameter(model.{head}.weight.detach().clone())), or leave the tied weight to the "
            f"optimizer: convert(model, ..., head=(), exclude=[{head!r}])"
        )


def _refuse_excluded_head(head: str, row: AuditRow, excluded: tuple[str, ...]) -> None:
    for name in row.names:
        if _is_below(name, excluded):
            raise ValueError(
                f"{head} is given as head, and exclude leaves {name} alone, which is its weight: "
                "take it out of one of the two"
            )


def _no_matrix(row: AuditRow, modules: dict[str, nn.Module]) -> str | None:
    """Why the weight is the optimizer's, with no sphere: it is an embedding or a table."""
    others = [n for n in row.names if not _multiplies(modules[owner_name(n)], n.rpartition(".")[2])]
    if not others:
        return None
    owner = modules[owner_name(others[0])]
    if row.head_uses:
        return f"{row.head_uses[0]}, tied to {type(owner).__name__}: no cap, left to the optimizer"
    return f"{type(owner).__name__} does not multiply by it: left to the optimizer"


def _multiplies(owner: nn.Module, own_name: str) -> bool:
    """Whether the weight multiplies activations, as far as can be told.

    A layer of torch's, or a module without parts that calls it a weight (transformers' ``Conv1D``).
    What else is kept, embeddings and tables, has no direction that a norm could keep.
    """
    if isinstance(owner, (*PLAIN, nn.MultiheadAttention)):
        return True
    leaf = not any(True for _ in owner.children())
    embeds = isinstance(owner, nn.Embedding | nn.EmbeddingBag)
    return leaf and not embeds and own_name.startswith("weight")


# A fresh head may start a few times above its cap, and loses nothing by it (timm's of mobile nets:
# 7 times at alpha 1 with 10 classes). From here on it is more likely a trained one.
_CUT = 8.0


def _warnings(report: Conversion, audited: Audit, modules: dict[str, nn.Module]) -> Iterator[str]:
    by_reason: dict[str, list[str]] = {}
    for kept in report.kept:
        row = audited[kept.name]
        owner, _, own = kept.name.rpartition(".")
        wanted = kept.reason == "excluded by the caller" or not row.trainable
        if _multiplies(modules[owner], own) and not wanted and report.scope != "matrix":
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


_NOT_CALLED = "its weight is used without the layer being called"


def _bypassed(model: nn.Module, row: AuditRow) -> str | None:
    """Why no other layer can take the place of one that evaluation passes over."""
    if row.bypassed_in_eval and not all(has_fast_path_switch(model, own) for own in row.owners):
        return "evaluation mode uses its weight without the layer being called"
    return None


def _cannot_be_scaled(row: AuditRow, modules: dict[str, nn.Module]) -> str | None:
    """Why no weight-normalised layer can take the place of the owners."""
    for owner in (modules[name] for name in row.owners):
        if not can_be_scaled(owner):
            tied = f"tied to {' and '.join(row.also)}; " if row.also else ""
            return f"{tied}{type(owner).__name__} has no weight-normalised form"
    return None if row.called else _NOT_CALLED


def _refuse_zero_weights(model: nn.Module, names: Iterable[str]) -> None:
    for name in names:
        if not model.get_parameter(name).detach().any():
            raise ValueError(
                f"{name} is all zeros and has no direction to keep: initialise it "
                "(nn.init.normal_ or kaiming_normal_) or leave it out with exclude"
            )


def _is_below(name: str, parents: tuple[str, ...]) -> bool:
    return any(name == parent or name.startswith(f"{parent}.") for parent in parents)


def _head(name: str, layer: nn.Module) -> Head:
    weight = layer.weight
    assert isinstance(weight, nn.Parameter)
    norm = frobenius(weight.detach()).item()
    return Head(name, norm, layer.cap if is_capped(layer) else None)
