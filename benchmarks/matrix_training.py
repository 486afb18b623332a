"""One training of ``matrix_scope.py``, by any of its sides."""

from __future__ import annotations

import functools
import math
import platform
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import fixnorm
import matrix_settings
from fixnorm.radius import set_radii_
from matrix_settings import Setting
from matrix_sides import OWN_LENGTH, TABLES, Point, Side

__all__ = ["optimizers", "trained"]

WARMUP = 0.1
"""Share of the steps."""
HEADS = ("head.weight", "head.fc.weight", "fc.weight")
FACTOR = "factor"
"""Key of a group with an lr of its own: what multiplies the one of all."""


def weights_of(model: nn.Module) -> list[nn.Parameter]:
    """Of linear and convolution layers, less an embedding's that a head is tied to."""
    tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    layers = (m for m in model.modules() if isinstance(m, nn.Linear | nn.Conv2d))
    weights = [layer.weight for layer in layers if id(layer.weight) not in tables]
    return [weight for weight in weights if isinstance(weight, nn.Parameter)]


def hidden_of(model: nn.Module) -> list[nn.Parameter]:
    """What Muon is for: matrices between the first layer and the head."""
    heads = {id(p) for name, p in model.named_parameters() if name in HEADS}
    return [p for p in weights_of(model) if p.ndim == 2 and id(p) not in heads]


def optimizers(
    setting: Setting, side: Side, point: Point, model: nn.Module, sample: Tensor, steps: int
) -> list[torch.optim.Optimizer]:
    """Of a side, attached where it is FixNorm's."""
    adam: Any = functools.partial(
        torch.optim.AdamW, lr=point.lr, betas=(0.9, 0.95 if setting.is_text else 0.999)
    )
    # of an lr that fits AdamW's steps as well
    muon: Any = functools.partial(torch.optim.Muon, lr=point.lr, adjust_lr_fn="match_rms_adamw")
    if side.decays:
        groups = fixnorm.param_groups(model, method="weight-decay", weight_decay=point.other)
        if side.name in ("adamw", "adamw-fan"):
            return [adam(groups)]
        if side == TABLES:
            tables = [m.weight for m in model.modules() if isinstance(m, nn.Embedding)]
            apart = {id(p) for p in tables}
            for group in groups:
                group["params"] = [p for p in group["params"] if id(p) not in apart]
            faster = {"params": tables, "weight_decay": point.other, FACTOR: 10.0}
            return [adam([*groups, faster])]
        mine = {id(p) for p in hidden_of(model)}
        for group in groups:
            group["params"] = [p for p in group["params"] if id(p) not in mine]
        return [muon(hidden_of(model), weight_decay=point.other), adam(groups)]
    if side.finds_lr:
        return by_rule(setting, side, point, model, sample, steps)
    caps: dict[str, Any] = {"head": (), "exclude": ["head"]} if setting.tied else {}
    caps = {} if setting.tied and side.name != "global" else caps
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scope: Any = None if side.name == "global" else "matrix"
        fixnorm.convert(model, alpha=point.other, scope=scope, sample=sample, **caps)
    groups = fixnorm.param_groups(model, length="own" if side in OWN_LENGTH else None)
    if not side.has_muon:
        made = [adam(groups, weight_decay=0.0)]
    else:
        mine = {id(p) for p in hidden_of(model)}
        turning, rest = groups
        for_muon = [p for p in turning["params"] if id(p) in mine]
        others = [p for p in turning["params"] if id(p) not in mine]
        parts = [turning | {"params": others}] if others else []
        made = [
            muon([turning | {"params": for_muon}], weight_decay=0.0),
            adam([*parts, rest], weight_decay=0.0),
        ]
    fixnorm.attach(*made)
    return made


def by_rule(
    setting: Setting, side: Side, point: Point, model: nn.Module, sample: Tensor, steps: int
) -> list[torch.optim.Optimizer]:
    """As a user would write it; constants that are tried take the place of the rule's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fixnorm.convert(
            model, alpha=point.other, scope="matrix", radius=point.radius, sample=sample
        )
    betas = (0.9, 0.95 if setting.is_text else 0.999)
    made: list[torch.optim.Optimizer] = []
    groups = fixnorm.param_groups(model, length="own", hidden_apart=side.has_muon)
    if side.gains:
        groups[-1]["params"] += gains_of(model)
    if side.has_muon:
        hidden, *groups = groups
        made.append(torch.optim.Muon([hidden], lr=1.0, weight_decay=0.0))
    made.append(torch.optim.AdamW(groups, lr=1.0, betas=betas, weight_decay=0.0))
    if side.constants is None:
        fixnorm.attach(*made, lr="auto", steps=steps)
        return made
    fixnorm.attach(*made)
    by_angle, own, plain = side.constants
    for optimizer in made:
        for group in optimizer.param_groups:
            length = group.get("fixnorm_length")
            c = plain if length is None else own if length == "own" else by_angle
            group[FACTOR] = c / math.sqrt(steps)
    return made


def gains_of(model: nn.Module) -> list[nn.Parameter]:
    """One for each row of the hidden matrices, which from now on multiply what comes out of it."""
    hidden = {id(p) for p in hidden_of(model)}
    made = []
    for layer in model.modules():
        if isinstance(layer, nn.Linear) and id(layer.weight) in hidden:
            gain = nn.Parameter(torch.ones(layer.out_features))
            layer.forward = functools.partial(_gained, layer, gain)  # type: ignore[method-assign]
            made.append(gain)
    return made


def _gained(layer: nn.Linear, gain: Tensor, x: Tensor) -> Tensor:
    return nn.functional.linear(x, layer.weight * gain[:, None], layer.bias)


def schedule(step: int, total: int) -> float:
    """Linear warm-up, then a cosine to zero."""
    warm = WARMUP * total
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / (total - warm)))


def trained(setting: Setting, side: Side, point: Point, data: Path) -> dict[str, Any]:
    """A training from its first step to its last, as a line of the file."""
    began = time.process_time()
    torch.manual_seed(point.seed)
    model = matrix_settings.network(setting)
    total = matrix_settings.steps_of(setting, data)
    if not side.finds_lr:  # else convert does it
        ours = {id(weight) for weight in weights_of(model)}
        set_radii_(model, [n for n, p in model.named_parameters() if id(p) in ours], point.radius)
    made: list[torch.optim.Optimizer] = []
    loss = math.nan
    for step, (x, y) in enumerate(matrix_settings.batches(setting, data, point.seed)):
        if not made:
            made = optimizers(setting, side, point, model, x[:4], total)
            model.train()
        for optimizer in made:
            for group in optimizer.param_groups:
                group["lr"] = point.lr * group.get(FACTOR, 1.0) * schedule(step, total)
            optimizer.zero_grad()
        objective = matrix_settings.loss_of(setting, model(x), y)
        objective.backward()
        for optimizer in made:
            optimizer.step()
        loss = float(objective.detach())
        if not math.isfinite(loss):
            break
    capped = [m for m in model.modules() if isinstance(m, fixnorm.FixNormLinear)]
    score = matrix_settings.score_of(setting, model, data) if math.isfinite(loss) else math.nan
    return {
        "setting": setting.name,
        "side": side.name,
        "lr": point.lr,
        "radius": point.radius,
        "other": point.other,
        "seed": point.seed,
        "steps": total,
        "score": round(score, 5) if math.isfinite(score) else None,
        "loss": round(loss, 5) if math.isfinite(loss) else None,
        "scale": round(abs(float(capped[0].g.detach())) * capped[0].alpha / capped[0].cap, 4)
        if capped
        else None,
        "seconds": round(time.process_time() - began, 1),
        "text": matrix_settings.text(setting.files).digest if setting.is_text else None,
        "versions": f"python {platform.python_version()}, torch {torch.__version__}",
    }
