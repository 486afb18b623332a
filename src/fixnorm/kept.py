"""Why a weight stays as it is: its layer has no scaled form, or it has no direction to keep."""

from __future__ import annotations

from torch import nn

from fixnorm.bypass import has_fast_path_switch
from fixnorm.layers import PLAIN, can_be_scaled
from fixnorm.roles import AuditRow
from fixnorm.structure import owner_name

__all__ = ["NOT_CALLED", "bypassed", "cannot_be_scaled", "is_below", "multiplies", "no_matrix"]

NOT_CALLED = "its weight is used without the layer being called"


def bypassed(model: nn.Module, row: AuditRow) -> str | None:
    """Why no other layer can take the place of one that evaluation passes over."""
    if row.bypassed_in_eval and not all(has_fast_path_switch(model, own) for own in row.owners):
        return "evaluation mode uses its weight without the layer being called"
    return None


def cannot_be_scaled(row: AuditRow, modules: dict[str, nn.Module]) -> str | None:
    """Why no weight-normalised layer can take the place of the owners."""
    for owner in (modules[name] for name in row.owners):
        if not can_be_scaled(owner):
            tied = f"tied to {' and '.join(row.also)}; " if row.also else ""
            return f"{tied}{type(owner).__name__} has no weight-normalised form"
    return None if row.called else NOT_CALLED


def no_matrix(row: AuditRow, modules: dict[str, nn.Module]) -> str | None:
    """Why the weight is the optimizer's, with no sphere: it is an embedding or a table."""
    others = [n for n in row.names if not multiplies(modules[owner_name(n)], n.rpartition(".")[2])]
    if not others:
        return None
    owner = modules[owner_name(others[0])]
    if row.head_uses:
        return f"{row.head_uses[0]}, tied to {type(owner).__name__}: no cap, left to the optimizer"
    return f"{type(owner).__name__} does not multiply by it: left to the optimizer"


def multiplies(owner: nn.Module, own_name: str) -> bool:
    """Whether the weight multiplies activations, as far as can be told.

    A layer of torch's, or a module without parts that calls it a weight (transformers' ``Conv1D``).
    What else is kept, embeddings and tables, has no direction that a norm could keep.
    """
    if isinstance(owner, (*PLAIN, nn.MultiheadAttention)):
        return True
    leaf = not any(True for _ in owner.children())
    embeds = isinstance(owner, nn.Embedding | nn.EmbeddingBag)
    return leaf and not embeds and own_name.startswith("weight")


def is_below(name: str, parents: tuple[str, ...]) -> bool:
    """Whether it is one of the parents, or in one of them."""
    return any(name == parent or name.startswith(f"{parent}.") for parent in parents)
