"""FixNorm among its peers, each tuned with the same budget."""

from __future__ import annotations

from functools import partial
from typing import Any

from fixnorm.evidence.experiments.step_cost import step_costs
from fixnorm.evidence.experiments.table1 import retrained
from fixnorm.evidence.experiments.table2 import BUDGET
from fixnorm.evidence.lab import Lab
from fixnorm.evidence.scales import Scale
from fixnorm.evidence.searches import algorithm4, bayesian

__all__ = ["peers"]

OPTIMIZERS = {"SGD + weight decay": None, "AdamW": "adamw", "SGDP": "sgdp"}
SCOPES = {"norm fixed per layer": "layer", "FixNorm": "global"}


def peers(lab: Lab, scale: Scale) -> dict[str, Any]:
    """Bayesian optimisation of lr and λ for the optimizers, Algorithm 4 where norms are fixed."""
    setting = scale.peers
    ranges = {"adamw": scale.adamw, "sgdp": scale.sgdp, None: setting.decay}

    def optimizer(name: str | None) -> dict[str, Any]:
        found = bayesian(lab, setting, seed=0, budget=BUDGET, optimizer=name, ranges=ranges[name])
        scores = retrained(lab, setting, "weight-decay", scale, found, optimizer=name)
        return {**found.to_dict(), "scores": scores}

    def scope(name: Any) -> dict[str, Any]:
        found = algorithm4(lab, setting, seed=0, scope=name)
        more = {"scope": name} if name != "global" else {}
        return {
            **found.to_dict(),
            "scores": retrained(lab, setting, "fixnorm", scale, found, **more),
        }

    parts: list[Any] = [partial(optimizer, name) for name in OPTIMIZERS.values()]
    parts += [partial(scope, name) for name in SCOPES.values()]
    rows = lab.each(parts)
    names = [*OPTIMIZERS, *SCOPES]
    costs = {} if lab.dry else step_costs()
    return {
        "setting": setting.name,
        "recipe": setting.recipe,
        "metric": setting.metric.label,
        "budget": BUDGET,
        "step": costs,
        "rows": [{"peer": name, **row} for name, row in zip(names, rows, strict=True)],
    }
