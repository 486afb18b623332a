"""Several trainings, one after another, by two processes as ``torchrun`` would start them.

Run as a program by each of them, this file trains what the JSON file of its argument lists.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path

from fixnorm.training import Recipe
from fixnorm.training.tasks import recipe_from_dict
from helpers.runs import ranks, shared_nursery


def train_by_two(trainings: Mapping[Path, Recipe], *, data: Path | None, place: Path) -> None:
    """Train each recipe into its folder."""
    listed = [[recipe.to_dict(), str(out)] for out, recipe in trainings.items()]
    orders = place / f"{uuid.uuid4()}.json"
    orders.write_text(json.dumps({"data": None if data is None else str(data), "list": listed}))
    for life in ranks(shared_nursery(), [str(orders)], program=Path(__file__)):
        assert life.wait() == 0, life.said()


def _main() -> None:
    import torch
    import torch.distributed as dist

    from fixnorm.training import train

    torch.set_num_threads(1)
    orders = json.loads(Path(sys.argv[1]).read_text())
    data = None if orders["data"] is None else Path(orders["data"])
    dist.init_process_group("gloo")
    try:
        for recipe, out in orders["list"]:
            train(recipe_from_dict(recipe), data=data, out=Path(out))
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    _main()
