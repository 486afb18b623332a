"""Scope ``matrix`` beside AdamW with weight decay, Muon, and FixNorm with one joint norm.

    python benchmarks/matrix_scope.py judge --data DIR --out results/matrix_scope.jsonl
    python benchmarks/matrix_scope.py transfer --data DIR --out results/matrix_scope.jsonl
    python benchmarks/matrix_scope.py choose --data DIR --out results/matrix_scope.jsonl
    python benchmarks/matrix_scope.py auto --data DIR --out results/matrix_scope.jsonl
    python benchmarks/matrix_scope.py longer --data DIR --out results/matrix_scope.jsonl
    python benchmarks/matrix_scope.py gains --data DIR --out results/matrix_scope.jsonl

``DIR`` holds ``cifar10`` as folders of images. Every training is a line of the JSON-lines file; one
that is there is not trained again, so the same command goes on after an interruption.

Every side of a setting has the same number of trainings to choose its numbers by, all with seed 0:
three learning rates (angles), two more radii of the start, two more learning rates around the best,
and a second value of weight decay or alpha. The radius of the start, a factor on what net and
initialisation have given to every linear and convolution weight, is a choice of all sides. What
wins is trained anew with seeds 1 to 3, which share start and order of batches between the sides.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fixnorm.radius import Radius
from matrix_settings import CHOOSING, JUDGED, LONG, WIDTHS, Setting
from matrix_sides import (
    ADAMW,
    AUTO_ADAMW,
    AUTO_MUON,
    CONSTANTS,
    GAINS,
    KNOWN,
    MATRIX,
    MATRIX_MUON,
    MUON,
    MUON_OWN,
    NO_SEARCH,
    TABLES,
    Point,
    Side,
)
from matrix_training import trained

SEEDS = (1, 2, 3)
Get = Callable[[Point], Point]

# -- the search ----------------------------------------------------------------------------------


def best(points: list[Point]) -> Point:
    """The first of the highest score."""
    return max(points, key=lambda point: point.score)


def search(
    lrs: tuple[float, ...], others: tuple[float, ...], get: Get, *, by_fan_in: bool = False
) -> list[Point]:
    """Eight trainings, wherever they lead."""
    start: Radius = "fan_in" if by_fan_in else 3.0
    points = [get(Point(lr=lr, radius=start, other=others[0])) for lr in lrs]
    if not by_fan_in:
        top = best(points)
        points.append(get(replace(top, radius=6.0)))
        points.append(get(replace(top, radius=12.0 if points[-1].score > top.score else 1.0)))
    while len(points) < (7 if len(others) > 1 else 8):
        points.append(get(replace(best(points), lr=next_lr(points))))
    if len(others) > 1:
        points.append(get(replace(best(points), other=others[1])))
    return points


def next_lr(points: list[Point]) -> float:
    """Beyond the edge of what was tried if the best is there, else halfway to the next tried one.

    Of the two neighbours the side on which less is known goes first: the wider gap.
    """
    top, tried = best(points), sorted({point.lr for point in points})
    at = tried.index(top.lr)
    if at == 0:
        lr = tried[0] ** 2 / tried[1]
    elif at == len(tried) - 1:
        lr = tried[-1] ** 2 / tried[-2]
    else:
        below, above = top.lr / tried[at - 1], tried[at + 1] / top.lr
        lr = top.lr / math.sqrt(below) if below >= above else top.lr * math.sqrt(above)
    return float(f"{lr:.2g}")


# -- the file ------------------------------------------------------------------------------------


class Ledger:
    """Lines of trainings, each once."""

    def __init__(self, path: Path, data: Path) -> None:
        self.path, self.data = path, data
        self.known: dict[tuple[str, str, str], dict[str, Any]] = {}
        for line in path.read_text().splitlines() if path.exists() else ():
            row = json.loads(line)
            self.known[row["setting"], row["side"], point_of(row).name] = row

    def getter(self, setting: Setting, side: Side) -> Get:
        """Trains the points of a side, where they are not known."""

        def get(point: Point) -> Point:
            key = (setting.name, side.name, point.name)
            if key not in self.known:
                row = trained(setting, side, point, self.data)
                with self.path.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                self.known[key] = row
                print(*key, row["score"], row["seconds"], sep="  ", flush=True)
            return point_of(self.known[key])

        return get


def point_of(row: dict[str, Any]) -> Point:
    """The training that a line is of."""
    numbers = {key: row[key] for key in ("lr", "radius", "other", "seed")}
    score = row["score"] if row["score"] is not None else -math.inf
    return Point(**numbers, score=score)


def judge(ledger: Ledger, setting: Setting, side: Side) -> Point:
    """A side's search, and its winner trained with the seeds of the judgement."""
    get = ledger.getter(setting, side)
    lrs = side.text_lrs if setting.is_text else side.image_lrs
    capless = setting.tied and not side.decays  # a tied head has no cap
    others = side.others[:1] if capless else side.others
    winner = best(search(lrs, others, get, by_fan_in=side.starts_by_fan_in))
    for seed in SEEDS:
        get(replace(winner, seed=seed))
    return winner


def transfer(ledger: Ledger, sides: tuple[Side, ...]) -> None:
    """What was best at the first width, at the others, beside half and twice its lr there."""
    first, *wider = WIDTHS
    winners = [(side, judge(ledger, first, side)) for side in sides]
    for seed in SEEDS:
        for setting in wider:
            for side, winner in winners:
                get = ledger.getter(setting, side)
                for factor in (1.0, 0.5, 2.0):
                    get(replace(winner, lr=float(f"{winner.lr * factor:.3g}"), seed=seed))


def choose(ledger: Ledger) -> None:
    """Constants of the rule, one after the other: of the matrices, then of all else."""
    for setting in CHOOSING:
        for kind in (AUTO_MUON, AUTO_ADAMW):
            for matrices in CONSTANTS:
                for plain in CONSTANTS:
                    ledger.getter(setting, tried(kind, matrices, plain))(NO_SEARCH)


def tried(kind: Side, matrices: float, plain: float) -> Side:
    """With Muon the matrices that are not its own have the constant of all else."""
    own = plain if kind.has_muon else matrices
    name = f"{kind.name} {matrices:g} {plain:g}"
    return replace(kind, name=name, constants=(matrices, own, plain))


def automatic(ledger: Ledger, settings: Sequence[Setting]) -> None:
    """The rule, with the seeds of the judgement."""
    for setting in settings:
        for side in (AUTO_MUON, AUTO_ADAMW):
            for seed in SEEDS if has_matrices_for(setting, side) else ():
                ledger.getter(setting, side)(replace(NO_SEARCH, seed=seed))


def longer(ledger: Ledger) -> None:
    """What the search chose at the usual length, and half its lr, at four times that length."""
    for long, short in LONG:
        for side in (ADAMW, MUON, MATRIX_MUON, MUON_OWN):
            winner = judge(ledger, short, side)
            for seed in SEEDS:
                for factor in (1.0, 0.5):
                    lr = float(f"{winner.lr * factor:.3g}")
                    ledger.getter(long, side)(replace(winner, lr=lr, seed=seed))


def with_gains(ledger: Ledger) -> None:
    """Row gains beside none, where constants are chosen."""
    for setting in CHOOSING:
        for side in GAINS:
            for seed in SEEDS:
                ledger.getter(setting, side)(replace(NO_SEARCH, seed=seed))


def has_matrices_for(setting: Setting, side: Side) -> bool:
    """torch's Muon is for matrices, and the small ResNets have none but the head."""
    return not (side.has_muon and setting.net.startswith("resnet"))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("phase", choices=("judge", "choose", "auto", "transfer", "longer", "gains"))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--settings", nargs="+", default=[s.name for s in JUDGED])
    parser.add_argument("--sides", nargs="+", default=list(KNOWN))
    options = parser.parse_args()
    ledger = Ledger(options.out, options.data)
    if options.phase == "transfer":
        transfer(ledger, (ADAMW, MATRIX, MUON, MATRIX_MUON))
        return
    if options.phase == "auto":
        automatic(ledger, (*JUDGED, *(long for long, _ in LONG), *WIDTHS))
        return
    plain = {"choose": choose, "longer": longer, "gains": with_gains}
    if options.phase in plain:
        plain[options.phase](ledger)
        return
    for setting in JUDGED:
        for name in options.sides if setting.name in options.settings else ():
            if not has_matrices_for(setting, KNOWN[name]):
                continue
            if name == TABLES.name and not setting.is_text:
                continue
            judge(ledger, setting, KNOWN[name])


if __name__ == "__main__":
    main()
