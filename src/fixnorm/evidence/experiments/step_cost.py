"""What a step of each peer costs: time beside SGD with weight decay, and memory."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import nn

from fixnorm import attach, convert, param_groups, recipes
from fixnorm.evidence.side_by_side import alternate, ratio
from fixnorm.models import create
from fixnorm.training.recipe import changed
from fixnorm.training.setup import make_optimizer

__all__ = ["step_costs"]

_MODEL, _ROUNDS = "resnet50d", 15
_PEERS: dict[str, dict[str, Any]] = {
    "SGD + weight decay": {"method": "weight-decay", "weight_decay": 1e-4},
    "AdamW": {"method": "weight-decay", "weight_decay": 0.05, "optimizer": "adamw"},
    "SGDP": {"method": "weight-decay", "weight_decay": 1e-4, "optimizer": "sgdp"},
    "norm fixed per layer": {"scope": "layer"},
    "FixNorm": {},
}


@cache
def step_costs() -> dict[str, Any]:
    """By peer: the time of ``optimizer.step()`` by that of the first, and bytes a weight."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        optimizers = {name: _optimizer(changes) for name, changes in _PEERS.items()}
        runs = {name: optimizer.step for name, optimizer in optimizers.items()}
        seconds = alternate(runs, rounds=_ROUNDS)
        first = next(iter(runs))
        peers = {
            name: {
                "step_time": round(ratio(seconds, name, first), 3),
                "bytes_per_weight": round(_state_bytes(optimizer), 2),
            }
            for name, optimizer in optimizers.items()
        }
    finally:
        torch.set_num_threads(threads)
    return {"model": _MODEL, "rounds": _ROUNDS, "threads": 1, "peers": peers}


def _optimizer(changes: dict[str, Any]) -> torch.optim.Optimizer:
    """As a training makes it, with gradients at hand."""
    recipe = changed(recipes.get("resnet50d-120"), **changes)
    model: nn.Module = create(_MODEL, num_classes=1000)
    if recipe.method == "fixnorm":
        convert(model, alpha=recipe.alpha, sample=torch.randn(2, 3, 64, 64))
    groups = param_groups(
        model, method=recipe.method, weight_decay=recipe.weight_decay, scope=recipe.scope
    )
    optimizer = make_optimizer(recipe, groups)
    if recipe.method == "fixnorm":
        attach(optimizer)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter) * 1e-3
    return optimizer


def _state_bytes(optimizer: torch.optim.Optimizer) -> float:
    """What the optimizer keeps for each weight, beside the weight and its gradient."""
    weights = sum(p.numel() for group in optimizer.param_groups for p in group["params"])
    kept = [t for state in optimizer.state.values() for t in state.values() if torch.is_tensor(t)]
    return float(sum(t.numel() * t.element_size() for t in kept) / weights)
