"""Record a landscape: every point of a grid over lr and alpha, trained for real.

    python benchmarks/landscape.py cifar10 --data CIFAR10 --out RUNS
    python benchmarks/landscape.py tiny-imagenet --data TINY_IMAGENET --out RUNS

One thread, one training after another; what is done is not done again, so the same command goes on
after an interruption. The JSON file is written anew after every training. Points whose cap was
never met are taken from the training of the largest alpha, which is theirs bit for bit.
"""

from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path
from typing import Any

import torch

from fixnorm import recipes
from fixnorm.training import Recipe, RunOptions, changed, train
from fixnorm.training.folder import write_json
from fixnorm.training.result import commit, versions
from fixnorm.tuning.plan import PAPER, Outcome, Search, Slot, Trial
from fixnorm.tuning.run import epochs_of

LRS = (0.2, 0.5, 0.8, 1.1, 1.4, 2.0, 2.6, 3.2)
SHORT = 0.2


def settings() -> dict[str, Recipe]:
    """Two settings of half a minute: little data for long, more data for a short time."""
    few = changed(
        recipes.get("tiny-imagenet-head"), model="resnet8-s2", epochs=20, name="tiny-imagenet"
    )
    more = changed(
        recipes.get("cifar10-small"),
        model="resnet8-s2",
        train_per_class=500,
        val_per_class=200,
        epochs=10,
        name="cifar10",
    )
    return {"tiny-imagenet": few, "cifar10": more}


class Recorder:
    """The points of one landscape, as they come."""

    def __init__(self, recipe: Recipe, data: Path, out: Path, file: Path) -> None:
        self.recipe, self.data, self.out, self.file = recipe, data, out, file
        self.points: dict[Trial, dict[str, Any]] = {}

    def record(self, seed: int) -> None:
        """Train the whole grid with a seed."""
        for k, lr in enumerate(LRS):
            self._point(Trial(Slot(0, k, lr, PAPER.alphas[0], SHORT), seed))
            for i, alpha in reversed(list(enumerate(PAPER.alphas))):
                self._point(Trial(Slot(1 + k, i, lr, alpha, 1.0), seed))

    def _point(self, trial: Trial) -> None:
        outcomes = {
            done: Outcome(point["accuracy"], point["largest_scale"])
            for done, point in self.points.items()
        }
        source = Search(PAPER, outcomes).source(trial)
        same = None if source is None else self.points[source]
        self.points[trial] = self._train(trial) if same is None else same | {"free": True}
        write_json(self.file, self.content())

    def _train(self, trial: Trial) -> dict[str, Any]:
        slot, epochs = trial.slot, epochs_of(self.recipe, trial.slot.fraction)
        warmup = min(self.recipe.warmup_epochs, epochs / 4)
        recipe = changed(
            self.recipe,
            lr=slot.lr,
            alpha=slot.alpha,
            epochs=epochs,
            warmup_epochs=warmup,
            seed=trial.seed,
        )
        name = f"{slot.fraction:g}-lr{slot.lr:g}-alpha{slot.alpha:g}-seed{trial.seed}"
        out = self.out / self.recipe.name / name
        result = train(recipe, data=self.data, out=out, options=RunOptions(tensorboard=False))
        with (out / "metrics.csv").open() as file:
            curve = [float(row["val_accuracy"]) for row in csv.DictReader(file)]
        print(f"{name}: {result['accuracy']:.2f} % in {result['seconds']:.0f} s", flush=True)
        return {
            "accuracy": result["accuracy"],
            "largest_scale": result["largest_scale"],
            "mcbr_val": result["mcbr_val"],
            "curve": [round(value, 3) for value in curve],
            "seconds": result["seconds"],
            "free": False,
        }

    def content(self) -> dict[str, Any]:
        """Of the JSON file."""
        return {
            "name": self.recipe.name,
            "tuned": ["lr", "alpha"],
            "recipe": self.recipe.to_dict(),
            "versions": versions(),
            "commit": commit(),
            "points": [
                {
                    "lr": trial.slot.lr,
                    "alpha": trial.slot.alpha,
                    "fraction": trial.slot.fraction,
                    "seed": trial.seed,
                    **point,
                }
                for trial, point in self.points.items()
            ],
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("name", choices=sorted(settings()))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--json", type=Path, help="default: results/landscapes/NAME.json")
    given = parser.parse_args()
    torch.set_num_threads(1)
    file = given.json or Path(__file__).parents[1] / "results" / "landscapes" / f"{given.name}.json"
    recorder = Recorder(settings()[given.name], given.data, given.out, file)
    for seed in range(given.seeds):
        recorder.record(seed)
    print(json.dumps({"points": len(recorder.points), "file": file.name}))


if __name__ == "__main__":
    main()
