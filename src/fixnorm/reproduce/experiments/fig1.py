"""Figure 1: ‖W^Conv‖ under weight decay; Algorithm 1 against weight decay over learning rates."""

from __future__ import annotations

from typing import Any

from fixnorm.groups import Method
from fixnorm.reproduce.lab import Lab
from fixnorm.reproduce.scales import Scale

__all__ = ["fig1"]

LRS: dict[Method, tuple[float, ...]] = {
    "weight-decay": (0.1, 0.2, 0.4, 0.8, 1.6, 3.2),
    "algorithm1": (0.2, 0.5, 0.8, 1.4, 2.0, 3.2),
}
"""Each method has its own grid, as the fixed norm is another than the one weight decay ends at."""


def fig1(lab: Lab, scale: Scale) -> dict[str, Any]:
    """Both grids with the recipe's λ, for Algorithm 1 on the head alone."""
    setting, seeds = scale.fig1, range(scale.seeds)
    found = lab.all(
        setting.training(method, seed=seed, lr=lr)
        for method, lrs in LRS.items()
        for lr in lrs
        for seed in seeds
    )
    by_point = iter(found)
    points = [
        {"method": method, "lr": lr, "seed": seed, "score": one.score}
        for method, lrs in LRS.items()
        for lr in lrs
        for seed in seeds
        for one in [next(by_point)]
    ]
    recipe = setting.recipe_for("weight-decay")
    decays = [recipe.weight_decay, *scale.norm_decays]
    wanted = [(decay, seed) for decay in decays for seed in seeds]
    norms = [
        {
            "weight_decay": decay,
            "seed": seed,
            "curve": _curve(one.curve),
            "steps": one.steps,
        }
        for (decay, seed), one in zip(
            wanted,
            lab.all(
                setting.training("weight-decay", seed=seed, lr=recipe.lr, weight_decay=decay)
                for decay, seed in wanted
            ),
            strict=True,
        )
    ]
    return {
        "setting": setting.name,
        "weight_decay": recipe.weight_decay,
        "default_lr": recipe.lr,
        "norms": norms,
        "points": points,
    }


def _curve(curve: Any) -> dict[str, Any]:
    return {name: curve.get(name, ()) for name in ("epoch", "conv_norm")}
