"""The norms that the models of the paper's Table 2 start with: ‖W₀‖ of what FixNorm keeps.

    python benchmarks/sphere_norms.py            writes results/sphere_norms.json, in a minute

No training: each model is built with some seeds, converted, and its joint norm is read where the
optimizer's param group holds it. ``sphere_page.py`` makes tables and a figure of it.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch

import fixnorm
from fixnorm import models, recipes
from fixnorm.system.versions import versions

STORED = Path(__file__).parents[1] / "results" / "sphere_norms.json"
SEEDS = 3


def norm_of(model_name: str, *, seed: int) -> float:
    """‖W₀‖ of a model by name."""
    torch.manual_seed(seed)
    model = models.create(model_name)
    fixnorm.convert(model, alpha=1.0)
    optimizer = torch.optim.SGD(fixnorm.param_groups(model), lr=1.0)
    fixnorm.attach(optimizer)
    (target,) = {g["fixnorm_target"] for g in optimizer.param_groups if "fixnorm_target" in g}
    return float(target)


def main() -> None:
    rows = [recipes.get(name) for name in recipes.groups()["Table 2"]]
    names = dict.fromkeys(recipe.model for recipe in rows)
    norms = {name: [round(norm_of(name, seed=seed), 3) for seed in range(SEEDS)] for name in names}
    content = {
        "command": "python benchmarks/sphere_norms.py",
        "versions": versions(),
        "norms": norms,
    }
    STORED.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
