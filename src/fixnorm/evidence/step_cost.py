"""What a step of each peer costs: time beside SGD with weight decay, and memory.

Timing is side by side: in alternated rounds, so that a busy machine slows all of them alike.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from functools import cache

import torch
from torch import nn

from fixnorm import attach, convert, param_groups, recipes
from fixnorm.evidence.experiment import NotNegative
from fixnorm.evidence.trainings import Value
from fixnorm.methods import METHODS
from fixnorm.models import create
from fixnorm.training.bounded import Count, Name
from fixnorm.training.checked import Part
from fixnorm.training.recipe import changed
from fixnorm.training.setup import make_optimizer

__all__ = ["StepCost", "StepCosts", "alternate", "ratio", "step_costs"]

_MODEL, _ROUNDS = "resnet50d", 15
_PEERS: dict[str, dict[str, Value]] = {
    "SGD + weight decay": {"method": "weight-decay", "weight_decay": 1e-4},
    "AdamW": {"method": "weight-decay", "weight_decay": 0.05, "optimizer": "adamw"},
    "SGDP": {"method": "weight-decay", "weight_decay": 1e-4, "optimizer": "sgdp"},
    "norm fixed per layer": {"scope": "layer"},
    "FixNorm": {},
}


class StepCost(Part):
    """What a step of one peer costs."""

    step_time: NotNegative
    """Of ``optimizer.step()``, by that of the first peer."""
    bytes_per_weight: NotNegative
    """What the optimizer keeps for each weight, beside the weight and its gradient."""


class StepCosts(Part):
    """How it was measured, and the costs by peer."""

    model: Name
    rounds: Count = 0
    threads: Count = 1
    peers: dict[str, StepCost]


@cache
def step_costs(*, measure: bool = True) -> StepCosts:
    """By peer; zeros where nothing is to be measured."""
    if measure:
        peers = _measured()
    else:
        peers = dict.fromkeys(_PEERS, StepCost(step_time=0.0, bytes_per_weight=0.0))
    return StepCosts(model=_MODEL, rounds=_ROUNDS, threads=1, peers=peers)


def _measured() -> dict[str, StepCost]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        optimizers = {name: _optimizer(changes) for name, changes in _PEERS.items()}
        runs = {name: optimizer.step for name, optimizer in optimizers.items()}
        seconds = alternate(runs, rounds=_ROUNDS)
    finally:
        torch.set_num_threads(threads)
    first = next(iter(runs))
    return {
        name: StepCost(
            step_time=round(ratio(seconds, name, first), 3),
            bytes_per_weight=round(_state_bytes(optimizer), 2),
        )
        for name, optimizer in optimizers.items()
    }


def _optimizer(changes: dict[str, Value]) -> torch.optim.Optimizer:
    """As a training makes it, with gradients at hand."""
    recipe = changed(recipes.get("resnet50d-120"), **changes)
    model: nn.Module = create(_MODEL, num_classes=1000)
    if METHODS[recipe.method].fixes:
        convert(model, alpha=recipe.alpha, sample=torch.randn(2, 3, 64, 64))
    groups = param_groups(
        model, method=recipe.method, weight_decay=recipe.weight_decay, scope=recipe.scope
    )
    optimizer = make_optimizer(recipe, groups)
    if METHODS[recipe.method].fixes:
        attach(optimizer)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter) * 1e-3
    return optimizer


def _state_bytes(optimizer: torch.optim.Optimizer) -> float:
    weights = sum(p.numel() for group in optimizer.param_groups for p in group["params"])
    kept = [t for state in optimizer.state.values() for t in state.values() if torch.is_tensor(t)]
    return float(sum(t.numel() * t.element_size() for t in kept) / weights)


def alternate(
    runs: Mapping[str, Callable[[], object]],
    *,
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of each run in each round; one round runs every one of them once."""
    for run in runs.values():
        run()  # warm-up: caches, lazily made state
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            start = clock()
            run()
            seconds[name].append(clock() - start)
    return seconds


def ratio(seconds: Mapping[str, list[float]], one: str, other: str) -> float:
    """Median over the rounds of one run's time by the other's in the same round."""
    return statistics.median(a / b for a, b in zip(seconds[one], seconds[other], strict=True))
