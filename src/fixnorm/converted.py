"""What ``convert`` did to a model: a record that the model carries with it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from fixnorm.methods import METHODS, MethodName, Scope
from fixnorm.structure import Matrix

__all__ = ["Conversion", "Head", "Kept", "conversion_of", "forget_conversion", "record_conversion"]

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


def record_conversion(model: nn.Module, done: Conversion) -> None:
    """Keep with the model what was done to it."""
    setattr(model, _ATTRIBUTE, done)


def conversion_of(model: nn.Module) -> Conversion | None:
    """The model's conversion, if it was converted."""
    found = getattr(model, _ATTRIBUTE, None)
    return found if isinstance(found, Conversion) else None


def forget_conversion(model: nn.Module) -> None:
    """Drop the record of the model's conversion, and of its parts': it is plain again."""
    for module in model.modules():
        module.__dict__.pop(_ATTRIBUTE, None)
