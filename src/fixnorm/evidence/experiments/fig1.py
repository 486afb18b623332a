"""Figure 1: ‖W^Conv‖ under weight decay; Algorithm 1 against weight decay over learning rates."""

from __future__ import annotations

from typing import Any

from fixnorm.evidence.lab import Lab
from fixnorm.evidence.scales import Scale
from fixnorm.methods import MethodName

__all__ = ["fig1"]

LRS: dict[MethodName, tuple[float, ...]] = {
    "weight-decay": (0.1, 0.2, 0.4, 0.8, 1.6, 3.2),
    "algorithm1": (0.2, 0.5, 0.8, 1.4, 2.0, 3.2),
}
"""Each method has its own grid, as the fixed norm is another than the one weight decay ends at."""


def fig1(lab: Lab, scale: Scale) -> dict[str, Any]:
    """Both grids with the recipe's λ, for Algorithm 1 on the head alone."""
    setting, seeds = scale.fig1, range(scale.seeds)
    recipe = setting.recipe_for("weight-decay")
    grid = [(method, lr, seed) for method, lrs in LRS.items() for lr in lrs for seed in seeds]
    decays = [
        (decay, seed) for decay in (recipe.weight_decay, *scale.norm_decays) for seed in seeds
    ]
    scores, norms = lab.each(
        [
            lambda: lab.all(setting.training(m, seed=seed, lr=lr) for m, lr, seed in grid),
            lambda: lab.all(
                setting.training("weight-decay", seed=seed, lr=recipe.lr, weight_decay=decay)
                for decay, seed in decays
            ),
        ]
    )
    return {
        "setting": setting.name,
        "weight_decay": recipe.weight_decay,
        "default_lr": recipe.lr,
        "norms": [
            {
                "weight_decay": decay,
                "seed": seed,
                "curve": {name: one.curve.get(name, ()) for name in ("epoch", "conv_norm")},
                "steps": one.steps,
            }
            for (decay, seed), one in zip(decays, norms, strict=True)
        ],
        "points": [
            {"method": method, "lr": lr, "seed": seed, "score": one.score}
            for (method, lr, seed), one in zip(grid, scores, strict=True)
        ],
    }
