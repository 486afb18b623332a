"""Which layers are the head: those that are named, or those that the audit has measured."""

from __future__ import annotations

from torch import nn

from fixnorm.kept import NOT_CALLED, bypassed, is_below
from fixnorm.layers import PLAIN, can_be_scaled, outputs_of
from fixnorm.methods import Method
from fixnorm.roles import Audit, AuditRow

__all__ = ["find_heads", "refuse_excluded_head", "refuse_tied_head"]


def find_heads(
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
            if row.role == "head" and not any(is_below(name, excluded) for name in row.names)
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
        if why_not := bypassed(model, row) or (None if row.called else NOT_CALLED):
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


def refuse_tied_head(
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


def refuse_excluded_head(head: str, row: AuditRow, excluded: tuple[str, ...]) -> None:
    for name in row.names:
        if is_below(name, excluded):
            raise ValueError(
                f"{head} is given as head, and exclude leaves {name} alone, which is its weight: "
                "take it out of one of the two"
            )
