"""Table 2: models of several kinds by default weight decay, tuned weight decay, tuned FixNorm."""

from __future__ import annotations

from functools import partial
from typing import Any

from fixnorm.evidence.experiments.table1 import retrained
from fixnorm.evidence.lab import Lab
from fixnorm.evidence.scales import Scale
from fixnorm.evidence.searches import algorithm4, bayesian
from fixnorm.evidence.setting import Setting

__all__ = ["BUDGET", "table2"]

BUDGET = 11
"""Trainings for tuning weight decay: what Algorithm 4 takes at most."""


def table2(lab: Lab, scale: Scale) -> dict[str, Any]:
    """Every model, all at the same budget; the scores are of fresh seeds."""
    return {"models": lab.each([partial(_model, lab, s, scale) for s in scale.table2])}


def _model(lab: Lab, setting: Setting, scale: Scale) -> dict[str, Any]:
    def decayed() -> dict[str, Any]:
        found = bayesian(lab, setting, seed=0, budget=BUDGET)
        return {**found.to_dict(), "scores": retrained(lab, setting, "weight-decay", scale, found)}

    def fixed() -> dict[str, Any]:
        found = algorithm4(lab, setting, seed=0)
        return {**found.to_dict(), "scores": retrained(lab, setting, "fixnorm", scale, found)}

    def default() -> dict[str, Any]:
        recipe = setting.recipe_for("weight-decay")
        return {
            "lr": recipe.lr,
            "second": recipe.weight_decay,
            "cost": 0.0,
            "scores": retrained(lab, setting, "weight-decay", scale),
        }

    rows = lab.each([decayed, fixed, default])
    recipe = setting.recipe_for("fixnorm")
    return {
        "setting": setting.name,
        "recipe": setting.recipe,
        "model": recipe.model,
        "paper": recipe.paper_score,
        "paper_reference": recipe.paper_reference_score,
        **dict(zip(("tuned_weight_decay", "tuned_fixnorm", "default"), rows, strict=True)),
    }
