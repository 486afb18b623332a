"""FixNorm in other people's trainers; each module needs its own library and imports no other."""

from __future__ import annotations

from typing import Literal

from torch.optim import Optimizer

from fixnorm.hook import Handle, handle_of
from fixnorm.telemetry import Figures

__all__ = ["scalars"]


def scalars(figures: Figures, *, prefix: str = "fixnorm/") -> dict[str, float]:
    """Flatten figures.

    ========================  ===============================================================
    ``norm``, ``target``      ‖W‖ before the rescale, and what it is brought back to
    ``implied_decay``         the weight decay that the rescale stands in for
    ``effective_lr``          lr / target²
    ``g/LAYER``               scale of a head or weight-normalised layer
    ``cap/LAYER``             α√C, where the layer is capped
    ``angle/WEIGHT``          radians the weight turned in the last step that was measured; with
                              scope ``matrix`` in the last step
    ``lr``, ``gradient``      of ``lr="auto"``: what it came to, and √(mean ‖ĝ‖²)
    ``progress``              of ``lr="auto"``: the part of its steps that is done, 1 at the end
    ========================  ===============================================================

    With several fixed groups the first three rows are ``norm/GROUP`` and so on, where a group of
    one weight has its name.
    """
    found: dict[str, float] = {}
    for name, group in zip(_group_names(figures), figures.groups, strict=True):
        found |= {
            f"norm{name}": group.norm,
            f"target{name}": group.target,
            f"implied_decay{name}": group.implied_decay,
            f"effective_lr{name}": group.effective_lr,
        }
    rule = figures.rule
    if rule is not None:
        found["progress"] = rule.seen / rule.steps
        if rule.gradient is not None and figures.groups:
            found |= {"lr": figures.groups[0].lr, "gradient": rule.gradient}
    for layer, head in figures.heads.items():
        found[f"g/{layer}"] = head.g
        if head.cap is not None:
            found[f"cap/{layer}"] = head.cap
    for weight, turned in figures.weights.items():
        if turned.angle is not None:
            found[f"angle/{weight}"] = turned.angle
    found |= {f"angle/{name}": matrix.angle for name, matrix in figures.matrices.items()}
    return {f"{prefix}{name}": value for name, value in found.items()}


def given_handle(optimizer: Optimizer, *, lr: Literal["auto"] | None) -> Handle | None:
    """That of an optimizer which comes to a trainer attached; it has to do what is asked for."""
    handle = handle_of(optimizer)
    if handle is not None and lr is not None and handle.lr != lr:
        raise ValueError(
            "the optimizer is attached already, without lr='auto': leave attach to the trainer, or "
            "say it there: fixnorm.attach(optimizer, lr='auto', steps=…)"
        )
    return handle


def _group_names(figures: Figures) -> list[str]:
    count = len(figures.groups)
    if count == 1:
        return [""]
    if len(figures.weights) == count:  # one weight a group: scope "layer"
        return [f"/{weight}" for weight in figures.weights]
    return [f"/{i}" for i in range(count)]
