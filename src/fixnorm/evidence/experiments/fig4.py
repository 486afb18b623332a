"""Figure 4: accuracy over learning rates and alphas; is the best of one independent of the other?

The recordings that ``fixnorm replay`` runs searches on: over lr and alpha, and over lr and weight
decay.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from fixnorm.evidence.lab import Lab
from fixnorm.evidence.scales import Scale
from fixnorm.evidence.setting import Setting
from fixnorm.evidence.training import Found
from fixnorm.tuning.plan import PAPER, Rounds
from fixnorm.tuning.trial import Result, Round, Trial

__all__ = ["decay_grid", "fig4", "landscapes"]

LRS = (0.2, 0.5, 0.8, 1.1, 1.4, 2.0, 2.6, 3.2)
DECAYED_LRS = (0.1, 0.2, 0.4, 0.6, 0.8, 1.2, 1.6, 3.2)
DECAYS = (1e-4, 5e-4, 1e-3, 2e-3, 4e-3, 8e-3)
SHORT = 0.2
SEEDS = 2


def fig4(lab: Lab, scale: Scale) -> dict[str, Any]:
    """The grid of lr and alpha, of each setting; the curves are with the recordings."""
    grids = lab.each([partial(alpha_grid, lab, setting) for setting in scale.fig4])
    for grid in grids:
        grid["points"] = [{k: v for k, v in p.items() if k != "curve"} for p in grid["points"]]
    return {"landscapes": grids}


def landscapes(lab: Lab, scale: Scale) -> dict[str, Any]:
    """Both grids of each setting."""
    kinds = (alpha_grid, decay_grid)
    grids = lab.each([partial(grid, lab, setting) for setting in scale.fig4 for grid in kinds])
    return {"landscapes": grids}


def alpha_grid(lab: Lab, setting: Setting) -> dict[str, Any]:
    """All points of lr and alpha, and the short trainings of the smallest alpha.

    Of alphas the largest is trained first: where its g stays under a smaller cap, that is the same
    training.
    """
    rows = lab.each([partial(_row, lab, setting, lr, seed) for seed in range(SEEDS) for lr in LRS])
    return {
        "name": setting.recipe,
        "method": "fixnorm",
        "recipe": setting.recipe_for("fixnorm").to_dict(),
        "points": [point for row in rows for point in row],
    }


def _row(lab: Lab, setting: Setting, lr: float, seed: int) -> list[dict[str, Any]]:
    short = setting.training("fixnorm", seed=seed, fraction=SHORT, lr=lr, alpha=PAPER.alphas[0])
    largest = setting.training("fixnorm", seed=seed, lr=lr, alpha=PAPER.alphas[-1])
    first, last = lab.all([short, largest])
    known = {PAPER.alphas[-1]: last}
    slots = {
        alpha: Trial(round=Round("alpha"), index=k, lr=lr, alpha=alpha)
        for k, alpha in enumerate(PAPER.alphas)
    }
    result = Result(accuracy=last.score, largest_scale=last.largest_scale)
    rounds = Rounds(PAPER, {slots[PAPER.alphas[-1]]: result})
    free = {alpha for alpha in PAPER.alphas[:-1] if rounds.is_free(slots[alpha])}
    asked = [alpha for alpha in PAPER.alphas[:-1] if alpha not in free]
    found = lab.all(setting.training("fixnorm", seed=seed, lr=lr, alpha=alpha) for alpha in asked)
    known |= dict(zip(asked, found, strict=True))
    point = {"lr": lr, "seed": seed}
    return [
        {**point, "alpha": PAPER.alphas[0], "fraction": SHORT, **_told(first), "free": False},
        *(
            {
                **point,
                "alpha": alpha,
                "fraction": 1.0,
                **_told(known.get(alpha, last)),
                "free": alpha in free,
            }
            for alpha in reversed(PAPER.alphas)
        ),
    ]


def decay_grid(lab: Lab, setting: Setting) -> dict[str, Any]:
    """All points of lr and weight decay."""
    points = [(seed, lr, decay) for seed in range(SEEDS) for lr in DECAYED_LRS for decay in DECAYS]
    found = lab.all(
        setting.training("weight-decay", seed=seed, lr=lr, weight_decay=decay)
        for seed, lr, decay in points
    )
    return {
        "name": setting.recipe,
        "method": "weight-decay",
        "recipe": setting.recipe_for("weight-decay").to_dict(),
        "points": [
            {"lr": lr, "weight_decay": decay, "fraction": 1.0, "seed": seed, **_told(one)}
            for (seed, lr, decay), one in zip(points, found, strict=True)
        ],
    }


def _told(found: Found) -> dict[str, Any]:
    return {
        "accuracy": found.score,
        "largest_scale": found.largest_scale,
        "mcbr_val": found.mcbr_val,
        "curve": found.curve.get("score", ()),
        "seconds": found.seconds,
    }
