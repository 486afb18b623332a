"""Record a landscape: every point of a grid over lr and alpha, or weight decay, trained for real.

    python benchmarks/landscape.py cifar10 --data CIFAR10 --out RUNS
    python benchmarks/landscape.py tiny-imagenet --data TINY_IMAGENET --out RUNS
    python benchmarks/landscape.py cifar10 --method weight-decay --data CIFAR10 --out RUNS

One thread, one training after another; what is done is not done again, so the same command goes on
after an interruption. The JSON file is written anew after every training. Points whose cap was
never met are taken from the training of the largest alpha, which is theirs bit for bit.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from fixnorm import recipes
from fixnorm.training import Recipe, RunOptions, changed, train
from fixnorm.training.folder import write_json
from fixnorm.training.result import commit, versions
from fixnorm.tuning.plan import PAPER, Outcome, Search, Slot, Trial
from fixnorm.tuning.run import length_of

LRS = (0.2, 0.5, 0.8, 1.1, 1.4, 2.0, 2.6, 3.2)
SHORT = 0.2
DECAYED_LRS = (0.1, 0.2, 0.4, 0.6, 0.8, 1.2, 1.6, 3.2)
DECAYS = (1e-4, 5e-4, 1e-3, 2e-3, 4e-3, 8e-3)
"""So few images want more decay than the paper's range [1e-5, 5e-4] has."""


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


@dataclass(frozen=True, kw_only=True)
class Point:
    """One training of the grid."""

    lr: float
    alpha: float | None = None
    weight_decay: float | None = None
    fraction: float = 1.0
    seed: int

    def name(self) -> str:
        """Of its folder."""
        tuned = f"alpha{self.alpha:g}" if self.alpha is not None else f"wd{self.weight_decay:g}"
        return f"{self.fraction:g}-lr{self.lr:g}-{tuned}-seed{self.seed}"


def grid(method: str, seed: int) -> Iterator[Point]:
    """All points of a seed; of alphas the largest first, which may stand for others."""
    if method == "weight-decay":
        for lr in DECAYED_LRS:
            for weight_decay in DECAYS:
                yield Point(lr=lr, weight_decay=weight_decay, seed=seed)
        return
    for lr in LRS:
        yield Point(lr=lr, alpha=PAPER.alphas[0], fraction=SHORT, seed=seed)
        for alpha in reversed(PAPER.alphas):
            yield Point(lr=lr, alpha=alpha, seed=seed)


class Recorder:
    """The points of one landscape, as they come."""

    def __init__(self, recipe: Recipe, data: Path, out: Path, file: Path) -> None:
        self.recipe, self.data, self.out, self.file = recipe, data, out, file
        self.points: dict[Point, dict[str, Any]] = {}

    def record(self, point: Point) -> None:
        """Train it, unless it is known."""
        known = self._known(point)
        found = self._train(point) if known is None else self.points[known] | {"free": True}
        self.points[point] = found
        write_json(self.file, self.content())

    def _known(self, point: Point) -> Point | None:
        """A point that is the same training."""
        if point.alpha is None:
            return None
        done = [other for other in self.points if other.lr == point.lr]
        trials = {_trial(other, k): other for k, other in enumerate(done)}
        outcomes = {
            trial: Outcome(self.points[other]["accuracy"], self.points[other]["largest_scale"])
            for trial, other in trials.items()
        }
        source = Search(PAPER, outcomes).source(_trial(point, len(done)))
        return None if source is None else trials[source]

    def _train(self, point: Point) -> dict[str, Any]:
        length = self.recipe.of_length(length_of(self.recipe, point.fraction))
        changes: dict[str, Any] = length | {"lr": point.lr, "seed": point.seed}
        if point.alpha is not None:
            changes["alpha"] = point.alpha
        else:
            changes |= {"method": "weight-decay", "weight_decay": point.weight_decay}
        out = self.out / self.recipe.name / point.name()
        result = train(
            changed(self.recipe, **changes),
            data=self.data,
            out=out,
            options=RunOptions(tensorboard=False),
        )
        with (out / "metrics.csv").open() as file:
            curve = [float(row["val_accuracy"]) for row in csv.DictReader(file)]
        print(
            f"{point.name()}: {result['accuracy']:.2f} % in {result['seconds']:.0f} s", flush=True
        )
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
            "recipe": self.recipe.to_dict(),
            "versions": versions(),
            "commit": commit(),
            "points": [_without_none(asdict(p)) | found for p, found in self.points.items()],
        }


def _trial(point: Point, index: int) -> Trial:
    assert point.alpha is not None
    return Trial(Slot(0, index, point.lr, point.alpha, point.fraction), point.seed)


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("name", choices=sorted(settings()))
    parser.add_argument("--method", choices=("fixnorm", "weight-decay"), default="fixnorm")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--json", type=Path, help="default: results/landscapes/METHOD/NAME.json")
    given = parser.parse_args()
    torch.set_num_threads(1)
    folder = Path(__file__).parents[1] / "results" / "landscapes" / given.method
    file = given.json or folder / f"{given.name}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    recorder = Recorder(settings()[given.name], given.data, given.out, file)
    for seed in range(given.seeds):
        for point in grid(given.method, seed):
            recorder.record(point)
    print(json.dumps({"points": len(recorder.points), "file": file.name}))


if __name__ == "__main__":
    main()
