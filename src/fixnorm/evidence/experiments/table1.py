"""Table 1 and Figure 5: tuned FixNorm against BO + weight decay, at equal data, model and epochs.

Each search is repeated, with other seeds for everything. A search's own best score is the best of
many and so too good: its winner is trained again with seeds that no search has seen, the same for
both methods.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from fixnorm.evidence.lab import Lab
from fixnorm.evidence.scales import Scale
from fixnorm.evidence.searches import Searched, algorithm4, bayesian
from fixnorm.evidence.setting import Setting
from fixnorm.methods import MethodName

__all__ = ["FRESH", "retrained", "table1"]

FRESH = 100
"""The first of the seeds that no search uses."""


def table1(lab: Lab, scale: Scale) -> dict[str, Any]:
    """All searches of all settings, their winners, and the reference as it stands."""
    parts = [
        partial(_setting, lab, setting, budget, scale)
        for setting, budget in zip(scale.table1, scale.budgets, strict=True)
    ]
    return {"settings": lab.each(parts)}


def _setting(lab: Lab, setting: Setting, budget: int, scale: Scale) -> dict[str, Any]:
    def fixnorm(seed: int) -> dict[str, Any]:
        found = algorithm4(lab, setting, seed=seed)
        return _told("fixnorm", found, retrained(lab, setting, "fixnorm", scale, found))

    def weight_decay(seed: int) -> dict[str, Any]:
        found = bayesian(lab, setting, seed=seed, budget=budget)
        return _told("weight-decay", found, retrained(lab, setting, "weight-decay", scale, found))

    def reference() -> list[float]:
        return retrained(lab, setting, "weight-decay", scale)

    seeds = range(scale.searches)
    parts: list[Any] = [partial(weight_decay, s) for s in seeds]
    parts += [partial(fixnorm, s) for s in seeds]
    *searches, scores = lab.each([*parts, reference])
    recipe = setting.recipe_for("weight-decay")
    return {
        "setting": setting.name,
        "recipe": setting.recipe,
        "metric": setting.metric.label,
        "paper": setting.recipe_for("fixnorm").paper_score,
        "searches": searches,
        "reference": {"lr": recipe.lr, "weight_decay": recipe.weight_decay, "scores": scores},
    }


def retrained(
    lab: Lab,
    setting: Setting,
    method: MethodName,
    scale: Scale,
    found: Searched | None = None,
    **more: Any,
) -> list[float]:
    """Scores of the winner, or of the recipe as it stands, with fresh seeds; 0 if it diverged."""
    numbers = {} if found is None else found.winner
    seeds = range(FRESH, FRESH + scale.seeds)
    return [
        one.counted
        for one in lab.all(setting.training(method, seed=seed, **numbers, **more) for seed in seeds)
    ]


def _told(method: MethodName, found: Searched, scores: list[float]) -> dict[str, Any]:
    return {"method": method, **found.to_dict(), "scores": scores}
