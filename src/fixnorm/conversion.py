"""Turn a model into one in which every linear and convolution weight is scale-invariant.

What the audit finds decides: the head becomes a FixNorm layer, other layers whose scale matters
become weight-normalised, layers that a norm follows stay as they are. The model changes in place
and computes the same function as before, unless the head starts above its cap.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from torch import nn

from fixnorm.fast_paths import fast_paths_off, has_fast_path_switch, restore_fast_paths
from fixnorm.layers import can_be_scaled, checked_alpha, is_capped, is_scaled, scale_, unscale_
from fixnorm.norm import frobenius
from fixnorm.roles import Audit, AuditRow, Sample, audit

__all__ = ["Conversion", "Kept", "conversion_of", "convert", "fold"]

ConvertMethod = Literal["fixnorm", "wn-fc", "algorithm1"]

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

    method: ConvertMethod
    alpha: float | None
    heads: tuple[Head, ...]
    weight_normalised: tuple[str, ...]
    """Layers that were given a scale ``g`` of their own."""
    fixed: tuple[str, ...]
    """Names of all weights whose joint norm is to be fixed."""
    kept: tuple[Kept, ...]

    def __str__(self) -> str:
        what = {"fixnorm": "capped scale", "wn-fc": "free scale", "algorithm1": "left plain"}
        lines = [f"method {self.method}: the norm of {len(self.fixed)} weights will be fixed"]
        for head in self.heads:
            line = f"  head {head.name}: {what[self.method]}, ‖W‖ = {head.g:.3g}"
            if head.cap is not None:
                state = "at the cap from the start" if head.g >= head.cap else "under the cap"
                line += f", cap α√C = {head.cap:.3g} (g/cap = {head.g / head.cap:.2f}, {state})"
            lines.append(line)
        if self.weight_normalised:
            lines.append(
                f"  weight-normalised, as no norm follows: {', '.join(self.weight_normalised)}"
            )
        lines += [f"  kept {kept.name}: {kept.reason}" for kept in self.kept]
        return "\n".join(lines)


def convert(
    model: nn.Module,
    *,
    alpha: float | None = None,
    method: ConvertMethod = "fixnorm",
    sample: Sample | None = None,
    head: str | Iterable[str] | None = None,
    exclude: Iterable[str] = (),
) -> Conversion:
    """Make every linear and convolution weight of the model scale-invariant, in place.

    Call it before the optimizer is built, before DDP, ``fully_shard`` and ``torch.compile``.

    Args:
        model: any module.
        alpha: the cap of the head's scale in units of √C (method ``fixnorm``).
        method: ``fixnorm`` caps the head's scale, ``wn-fc`` leaves it free, ``algorithm1`` keeps
            the head a plain layer (to be decayed).
        sample: as in :func:`fixnorm.audit`; needed only where the model does not say its input.
        head: name or names of the head layers, where measurement cannot tell or you know better.
        exclude: names of modules or parameters (with all below them) to leave alone.

    Returns:
        What was changed, what was kept and why. If anything is refused, the model is as before.
    """
    _check_arguments(model, method, alpha)
    excluded = _checked_names(model, exclude, "exclude")
    audited = audit(model, sample)
    modules = dict(model.named_modules(remove_duplicate=False))
    heads = _heads(model, audited, head, method, excluded)

    weight_normalised: list[str] = []
    fixed: list[str] = []
    kept: list[Kept] = []
    for row in audited:
        owners = [name.rpartition(".")[0] for name in (row.name, *row.also)]
        if row.role in ("free", "unused"):
            continue
        if set(owners) & heads.keys():
            if method != "algorithm1":
                fixed.append(row.name)
        elif any(_is_below(name, excluded) for name in (row.name, *row.also)):
            kept.append(Kept(row.name, "excluded by the caller"))
        elif row.role == "fixed":
            fixed.append(row.name)
        elif reason := _bypassed(model, row) or _cannot_be_scaled(
            row, [modules[owner] for owner in owners]
        ):
            kept.append(Kept(row.name, reason))
        else:
            fixed.append(row.name)
            weight_normalised += owners
    _refuse_zero_weights(model, fixed)

    for name in weight_normalised:
        if not is_scaled(modules[name]):  # one module may have two names
            scale_(modules[name])
    if method != "algorithm1":
        for layer in heads.values():
            scale_(layer, alpha=alpha)
    fast_paths_off(model)
    report = Conversion(
        method=method,
        alpha=alpha,
        heads=tuple(_head(name, layer) for name, layer in heads.items()),
        weight_normalised=tuple(weight_normalised),
        fixed=tuple(fixed),
        kept=tuple(kept),
    )
    setattr(model, _ATTRIBUTE, report)
    for row in (audited[kept.name] for kept in kept):
        layer_kinds = nn.Linear | nn.Conv2d
        if isinstance(_owner(model, row), layer_kinds) and not _is_below(row.name, excluded):
            warnings.warn(
                f"the scale of {row.name} matters and it is not fixed: "
                f"{next(k.reason for k in kept if k.name == row.name)}",
                stacklevel=2,
            )
    return report


def conversion_of(model: nn.Module) -> Conversion | None:
    """The model's conversion, if it was converted."""
    found = getattr(model, _ATTRIBUTE, None)
    return found if isinstance(found, Conversion) else None


def fold(model: nn.Module) -> nn.Module:
    """Turn every FixNorm and weight-normalised layer back into the plain one, in place.

    The outputs stay the same; the state dict is that of the original architecture. Returns the
    model.
    """
    for module in model.modules():
        if is_scaled(module):
            unscale_(module)
    restore_fast_paths(model)
    if conversion_of(model) is not None:
        delattr(model, _ATTRIBUTE)
    return model


def _check_arguments(model: nn.Module, method: str, alpha: float | None) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(f"convert needs an nn.Module but got {type(model).__name__}")
    if method not in get_args(ConvertMethod):
        raise ValueError(
            f"method must be one of {', '.join(get_args(ConvertMethod))} but got {method!r}"
            + ("; plain weight decay needs no convert" if method == "weight-decay" else "")
        )
    if method == "fixnorm" and alpha is None:
        raise ValueError("method 'fixnorm' needs a cap: fixnorm.convert(model, alpha=1.0)")
    if method != "fixnorm" and alpha is not None:
        raise ValueError(f"method {method!r} has no cap: leave alpha={alpha} out")
    if alpha is not None:
        checked_alpha(alpha)
    wrapper = type(model).__name__
    if isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel):
        raise ValueError(f"convert the model first, then wrap it in {wrapper}")
    if hasattr(model, "_orig_mod"):
        raise ValueError("convert the model first, then torch.compile it")
    if conversion_of(model) is not None or any(is_scaled(m) for m in model.modules()):
        raise ValueError(
            "the model is converted already; set layer.alpha to change a cap, "
            "or fixnorm.fold(model) to start again"
        )


def _checked_names(model: nn.Module, names: str | Iterable[str], argument: str) -> tuple[str, ...]:
    """The names as a tuple; each is one of a module or a parameter of the model."""
    names = (names,) if isinstance(names, str) else tuple(names)
    known = [name for name, _ in model.named_modules(remove_duplicate=False) if name]
    known += [name for name, _ in model.named_parameters(remove_duplicate=False)]
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise ValueError(f"{argument}: the model has no layer {name!r}{hint}")
    return names


def _heads(
    model: nn.Module,
    audited: Audit,
    given: str | Iterable[str] | None,
    method: str,
    excluded: tuple[str, ...],
) -> dict[str, nn.Module]:
    """The head layers by name: those given, otherwise those measured."""
    if given is not None:
        names = [name.removesuffix(".weight") for name in _checked_names(model, given, "head")]
    else:
        names = [
            name.rpartition(".")[0]
            for name in audited.names("head")
            if not _is_below(name, excluded)
        ]
    candidates = [
        row.name.removesuffix(".weight")
        for row in audited
        if row.role in ("head", "unnormalised")
        and isinstance(_owner(model, row), nn.Linear | nn.Conv2d)
    ]
    if not names:
        listed = ", ".join(reversed(candidates[-5:])) or "none"
        raise ValueError(
            "no head found: no linear or conv layer that the output is linear in. Name it: "
            "fixnorm.convert(model, alpha=..., head=NAME). Layers whose scale matters, "
            f"last first: {listed}"
        )
    heads = {}
    for name in names:
        layer = model.get_submodule(name)
        if not can_be_scaled(layer):
            raise ValueError(
                f"head {name} is a {type(layer).__name__}; only a layer that computes what "
                "nn.Linear or nn.Conv2d does can be a head"
            )
        row = audited[f"{name}.weight"]
        if row.role in ("fixed", "unused"):
            why = (
                "does not depend on its scale"
                if row.role == "fixed"
                else "does not depend on it at all"
            )
            raise ValueError(
                f"{name} cannot be the head: the output {why}. "
                f"Candidates: {', '.join(reversed(candidates[-5:])) or 'none'}"
            )
        if method != "algorithm1":
            if why_not := _bypassed(model, row) or (None if row.called else _NOT_CALLED):
                raise ValueError(f"{name} cannot be the head: {why_not}")
            if given is None and _outputs(layer) == 1:
                raise ValueError(
                    f"{name} has one output, as a value or a regression has: it is not taken for "
                    f"the head of a classifier by itself. Name it if it is meant, head={name!r}, "
                    "or the heads that are"
                )
        heads[name] = layer
    return heads


_NOT_CALLED = "its weight is used without the layer being called"


def _bypassed(model: nn.Module, row: AuditRow) -> str | None:
    """Why no other layer can take the place of one that evaluation passes over."""
    owners = (name.rpartition(".")[0] for name in (row.name, *row.also))
    if row.bypassed_in_eval and not all(has_fast_path_switch(model, name) for name in owners):
        return "evaluation mode uses its weight without the layer being called"
    return None


def _outputs(layer: nn.Module) -> int:
    """How many numbers the layer gives for an example or a position."""
    found = getattr(layer, "out_features", None) or getattr(layer, "out_channels", None)
    return int(found or 0)


def _cannot_be_scaled(row: AuditRow, owners: list[nn.Module]) -> str | None:
    """Why no weight-normalised layer can take the place of the owners."""
    for owner in owners:
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


def _owner(model: nn.Module, row: AuditRow) -> nn.Module:
    return model.get_submodule(row.name.rpartition(".")[0])


def _is_below(name: str, parents: tuple[str, ...]) -> bool:
    return any(name == parent or name.startswith(f"{parent}.") for parent in parents)


def _head(name: str, layer: nn.Module) -> Head:
    weight = layer.weight
    assert isinstance(weight, nn.Parameter)
    norm = frobenius(weight.detach()).item()
    return Head(name, norm, layer.cap if is_capped(layer) else None)
