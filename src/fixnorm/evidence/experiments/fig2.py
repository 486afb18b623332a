"""Figure 2: Algorithm 1, @WN-FC and @FixNorm-FC over training: accuracy, head, MCBR."""

from __future__ import annotations

from typing import Any

from fixnorm.evidence.lab import Lab
from fixnorm.evidence.scales import Scale
from fixnorm.methods import MethodName

__all__ = ["fig2"]

METHODS: tuple[MethodName, ...] = ("algorithm1", "wn-fc", "fixnorm")
COLUMNS = ("epoch", "score", "train_accuracy", "head_scale", "cap", "mcbr_train", "mcbr_val")


def fig2(lab: Lab, scale: Scale) -> dict[str, Any]:
    """The recipe by each method, everything else equal."""
    setting, seeds = scale.fig2, range(scale.seeds)
    trainings = [setting.training(m, seed=seed) for m in METHODS for seed in seeds]
    runs = [
        {
            "method": training.recipe.method,
            "lr": training.recipe.lr,
            "alpha": training.recipe.alpha,
            "weight_decay": training.recipe.weight_decay,
            "seed": training.recipe.seed,
            "score": found.score,
            "mcbr_train": found.mcbr_train,
            "mcbr_val": found.mcbr_val,
            "largest_scale": found.largest_scale,
            "seconds": found.seconds,
            "curve": {name: found.curve.get(name, ()) for name in COLUMNS},
        }
        for training, found in zip(trainings, lab.sound(trainings), strict=True)
    ]
    return {"setting": setting.name, "runs": runs}
