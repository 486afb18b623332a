"""FixNorm on nets with layer norms, beside AdamW with weight decay: a small ViT and ConvNeXt.

    python benchmarks/beyond_cnns.py --data cifar10 --out runs/beyond --json beyond_cnns.json

Every side gets the same search with seed 0: three learning rates, then one beyond the edge as long
as the best is there, or one beside the best, then two more values of the other number (weight decay
or alpha) at the best learning rate. What wins is trained again with seeds 1 to 3, which took no
part in the choice.

Trainings that are done are not done again: the same command goes on after an interruption. The
JSON file is written after each side and holds what is there so far.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fixnorm import recipes
from fixnorm.methods import METHODS, MethodName
from fixnorm.report.statistics import mean_of, paired
from fixnorm.training import ClassificationRecipe, RunOptions, changed, train
from fixnorm.training.view import ProgressView

MODELS = ("micronet-vit", "micronet-convnext")
SEEDS = (1, 2, 3)
BEYOND = 3
"""How many learning rates may follow the first three."""
COMMAND = "python benchmarks/beyond_cnns.py --data DIR --out RUNS --json results/beyond_cnns.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """One way to train, with where its search begins."""

    method: MethodName
    optimizer: str
    lrs: tuple[float, float, float]
    others: tuple[float, float, float]
    """Weight decay or alpha: the first goes with the learning rates, the others come last."""

    @property
    def name(self) -> str:
        """Method and optimizer."""
        return f"{self.method}-{self.optimizer}"

    @property
    def other(self) -> str:
        """The recipe's field that is tuned beside lr."""
        tuned = METHODS[self.method].tunes
        assert tuned is not None
        return tuned


SIDES = (
    Side(method="weight-decay", optimizer="adamw", lrs=(1e-3, 3e-3, 9e-3), others=(0.05, 0.5, 2.0)),
    Side(method="fixnorm", optimizer="adamw", lrs=(1e-3, 3e-3, 9e-3), others=(1.0, 0.5, 0.2)),
    Side(method="fixnorm", optimizer="sgd", lrs=(0.3, 0.9, 2.7), others=(1.0, 0.5, 0.2)),
    Side(method="weight-decay", optimizer="sgd", lrs=(0.03, 0.1, 0.3), others=(1e-4, 1e-3, 5e-3)),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """A training, and what came of it."""

    lr: float
    other: float
    seed: int = 0
    accuracy: float = -math.inf
    largest_scale: float | None = None
    """The largest g/√C of the head."""
    seconds: float = 0.0
    free: bool = False
    """Known without training: the head's g had never met the larger cap."""


Train = Callable[[Point], Point]


def search(side: Side, trained: Train) -> list[Point]:
    """The points of one side: learning rates, then the other number at the best of them."""
    points = [trained(Point(lr=lr, other=side.others[0])) for lr in side.lrs]
    for _ in range(BEYOND):
        inside = 0 < points.index(best(points)) < len(points) - 1
        points.append(trained(Point(lr=next_lr(points), other=side.others[0])))
        points.sort(key=lambda point: point.lr)
        if inside:
            break
    at = best(points)
    for other in side.others[1:]:
        scale = at.largest_scale
        if side.other == "alpha" and scale is not None and scale < min(other, at.other):
            points.append(replace(at, other=other, seconds=0.0, free=True))
        else:
            points.append(trained(Point(lr=at.lr, other=other)))
    return points


def next_lr(points: list[Point]) -> float:
    """Beyond the edge if the best is there, else halfway to its better neighbour."""
    lrs, top = [p.lr for p in points], points.index(best(points))
    if top == 0:
        lr = lrs[0] ** 2 / lrs[1]
    elif top == len(lrs) - 1:
        lr = lrs[-1] ** 2 / lrs[-2]
    else:
        neighbour = best([points[top - 1], points[top + 1]])
        lr = math.sqrt(lrs[top] * neighbour.lr)
    return float(f"{lr:.2g}")


def best(points: list[Point]) -> Point:
    """The first of the most accurate."""
    return max(points, key=lambda p: p.accuracy)


def recipe_of(model: str, side: Side, point: Point) -> ClassificationRecipe:
    """The recipe of one training: about half a minute on one core."""
    base = recipes.get("cifar10-quick", side.method)
    assert isinstance(base, ClassificationRecipe)
    numbers = {"lr": point.lr, side.other: point.other, "seed": point.seed}
    return changed(
        base,
        model=model,
        optimizer=side.optimizer,
        epochs=8,
        eval_every=8,
        batch_size=64,
        val_per_class=None,
        **numbers,
    )


def in_folder(out: Path, data: Path, model: str, side: Side, seen: list[dict[str, Any]]) -> Train:
    """Trains a point in a folder of its own, once."""

    def trained(point: Point) -> Point:
        name = f"{model}-{side.name}-{point.lr:g}-{point.other:g}-{point.seed}"
        found = train(
            recipe_of(model, side, point),
            data=data,
            out=out / name,
            options=RunOptions(tensorboard=False),
            view=ProgressView(),
        )
        seen.append(found)
        return replace(
            point,
            accuracy=-math.inf if found["diverged"] else found["accuracy"],
            largest_scale=found["largest_scale"],
            seconds=found["seconds"],
        )

    return trained


def told(side: Side, point: Point) -> dict[str, Any]:
    return {
        "lr": point.lr,
        side.other: point.other,
        "seed": point.seed,
        "accuracy": point.accuracy if math.isfinite(point.accuracy) else None,
        "largest_scale": point.largest_scale,
        "seconds": round(point.seconds, 1),
    } | ({"free": True} if point.free else {})


def table(outcomes: list[dict[str, Any]]) -> str:
    lines = [
        "| model | training | setting | accuracy (%) | − AdamW + weight decay | g/√C | seconds |"
    ]
    lines.append("|---|---|---|---:|---:|---:|---:|")
    references = {o["model"]: scores_of(o) for o in outcomes if o["side"] == SIDES[0].name}
    for outcome in outcomes:
        finals, scores = outcome["finals"], scores_of(outcome)
        scale, other = finals[0]["largest_scale"], outcome["other"]
        first = outcome["side"] == SIDES[0].name
        cells = (
            f"`{outcome['model']}`",
            outcome["side"],
            f"lr {finals[0]['lr']:g}, {other} {finals[0][other]:g}",
            mean_of(scores).spread(),
            "" if first else paired(scores, references[outcome["model"]]).interval(),
            "" if scale is None else f"{scale:.2f}",
            f"{statistics.median(f['seconds'] for f in finals):.0f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def scores_of(outcome: dict[str, Any]) -> list[float]:
    """0 where a training diverged."""
    return [final["accuracy"] or 0.0 for final in outcome["finals"]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of CIFAR-10")
    parser.add_argument("--out", type=Path, required=True, help="folder of the trainings")
    parser.add_argument("--json", type=Path, required=True, help="where to write the figures")
    parser.add_argument("--models", nargs="+", default=MODELS, choices=MODELS)
    options = parser.parse_args()

    outcomes: list[dict[str, Any]] = []
    for model in options.models:
        for side in SIDES:
            outcome: dict[str, Any] = {"model": model, "side": side.name, "other": side.other}
            outcome |= {"search": [], "finals": []}
            outcomes.append(outcome)
            seen: list[dict[str, Any]] = []
            trained = in_folder(options.out, options.data, model, side, seen)
            points = search(side, trained)
            outcome["search"] = [told(side, point) for point in points]
            for seed in SEEDS:
                top = best(points)
                outcome["finals"].append(
                    told(side, trained(Point(lr=top.lr, other=top.other, seed=seed)))
                )
            last = seen[-1]
            outcome |= {key: last[key] for key in ("recipe", "versions", "device", "commit")}
            content = {"command": COMMAND, "outcomes": outcomes}
            options.json.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")
            print(table(outcomes), flush=True)


if __name__ == "__main__":
    main()
