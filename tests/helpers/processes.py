"""Several trainings, one after another, in the processes of one ``torchrun``.

Starting the processes takes longer than a small training. Run as a program under ``torchrun``,
this file trains what the JSON file of its argument lists.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from fixnorm.training import Recipe
from fixnorm.training.tasks import recipe_from_dict


def train_under_torchrun(
    trainings: Mapping[Path, Recipe], *, data: Path | None, place: Path, processes: int = 2
) -> None:
    """Train each recipe into its folder."""
    listed = [[recipe.to_dict(), str(out)] for out, recipe in trainings.items()]
    orders = place / "trainings.json"
    orders.write_text(json.dumps({"data": None if data is None else str(data), "list": listed}))
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    done = subprocess.run(
        [sys.executable, *launcher, __file__, str(orders)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stdout


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
