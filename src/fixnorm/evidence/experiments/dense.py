"""Tables 3 and 4 (appendix): segmentation and detection, weight decay against FixNorm."""

from __future__ import annotations

from typing import Any

from fixnorm.evidence.lab import Lab
from fixnorm.evidence.scales import Scale
from fixnorm.evidence.setting import Setting
from fixnorm.methods import MethodName

__all__ = ["table3", "table4"]

METHODS: tuple[MethodName, ...] = ("weight-decay", "fixnorm")


def table3(lab: Lab, scale: Scale) -> dict[str, Any]:
    """Segmentation."""
    return _table(lab, scale.table3, scale.seeds)


def table4(lab: Lab, scale: Scale) -> dict[str, Any]:
    """Detection."""
    return _table(lab, scale.table4, scale.seeds)


def _table(lab: Lab, settings: tuple[Setting, ...], seeds: int) -> dict[str, Any]:
    """The recipes with their numbers: FixNorm's are those of a search by ``fixnorm tune``."""
    wanted = [(s, method, seed) for s in settings for method in METHODS for seed in range(seeds)]
    trainings = [setting.training(method, seed=seed) for setting, method, seed in wanted]
    runs = []
    for (setting, method, seed), training, found in zip(
        wanted, trainings, lab.sound(trainings), strict=True
    ):
        recipe = training.recipe
        runs.append(
            {
                "setting": setting.name,
                "recipe": setting.recipe,
                "method": method,
                "seed": seed,
                "lr": recipe.lr,
                "alpha": recipe.alpha,
                "weight_decay": recipe.weight_decay,
                "score": found.score,
                "mcbr_val": found.mcbr_val,
                "largest_scale": found.largest_scale,
                "seconds": found.seconds,
                "paper": recipe.paper_score
                if method == "fixnorm"
                else recipe.paper_reference_score,
            }
        )
    return {"metric": settings[0].metric.label, "runs": runs}
