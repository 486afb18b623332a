"""Scope ``matrix`` beside AdamW with weight decay, Muon, and FixNorm with one joint norm.

    python benchmarks/matrix_scope.py judge --data DIR --out results/matrix_scope.jsonl
    python benchmarks/matrix_scope.py transfer --data DIR --out results/matrix_scope.jsonl
    python benchmarks/matrix_scope.py choose --data DIR --out results/matrix_scope.jsonl
    python benchmarks/matrix_scope.py auto --data DIR --out results/matrix_scope.jsonl

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
import functools
import json
import math
import platform
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

import fixnorm
import matrix_settings
from matrix_settings import CHOOSING, JUDGED, LONG, WIDTHS, Setting

SEEDS = (1, 2, 3)
WARMUP = 0.1
"""Share of the steps."""
HEADS = ("head.weight", "head.fc.weight", "fc.weight")
FACTOR = "factor"
"""Key of a group with an lr of its own: what multiplies the one of all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """A way to train, with where its search begins."""

    name: str
    image_lrs: tuple[float, float, float] = (1e-3, 3e-3, 9e-3)
    text_lrs: tuple[float, float, float] = (3e-3, 1e-2, 3e-2)
    others: tuple[float, ...] = (0.1, 1.0)
    """Weight decay or alpha."""
    constants: tuple[float, float, float] | None = None
    """Of a rule that is tried: c of steps by angle, of steps of their own length, of all else."""

    @property
    def finds_lr(self) -> bool:
        """Whether lr follows from the length of the training."""
        return self.name.startswith("auto")

    @property
    def has_muon(self) -> bool:
        """Whether matrices between the first layer and the head are Muon's."""
        return "muon" in self.name

    @property
    def decays(self) -> bool:
        """Whether the other number is a weight decay."""
        return self.name in ("adamw", "adamw-tables", "muon")


ANGLES = (0.007, 0.02, 0.06)
CAPS = (2.0, 0.5)
CONSTANTS = (0.25, 0.5, 1.0, 2.0)
ADAMW = Side(name="adamw")
TABLES = Side(name="adamw-tables")
"""A control: AdamW with ten times the lr for embeddings, as relative steps leave them a larger one
than is good for matrices."""
MATRIX = Side(name="matrix", image_lrs=ANGLES, text_lrs=ANGLES, others=CAPS)
SIDES = (ADAMW, MATRIX, Side(name="muon"), Side(name="global", others=CAPS))
OWN_LRS = (0.01, 0.03, 0.09)
OWN = replace(MATRIX, name="matrix-own", image_lrs=OWN_LRS, text_lrs=OWN_LRS)
MATRIX_MUON = replace(MATRIX, name="matrix-muon")
MUON_OWN = replace(OWN, name="matrix-muon-own")
"""Muon's steps are all as long as AdamW's usually are: a fifth of lr for an entry."""
AUTO_MUON = Side(name="auto-muon")
AUTO_ADAMW = Side(name="auto-adamw")
"""Nothing is searched for: lr by the rule, and :data:`NO_SEARCH`."""
OWN_LENGTH = (OWN, MUON_OWN)
KNOWN = {side.name: side for side in (*SIDES, OWN, TABLES, MATRIX_MUON, MUON_OWN)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """The numbers of a training, and its score."""

    lr: float
    radius: float | Literal["fan_in"]
    other: float
    seed: int = 0
    score: float = -math.inf

    @property
    def name(self) -> str:
        """Unique in a setting and side."""
        return f"lr{self.lr:g}-r{self.radius}-o{self.other:g}-s{self.seed}"


NO_SEARCH = Point(lr=1.0, radius="fan_in", other=2.0)
Get = Callable[[Point], Point]

# -- training ------------------------------------------------------------------------------------


def weights_of(model: nn.Module) -> list[nn.Parameter]:
    """Of linear and convolution layers, less an embedding's that a head is tied to."""
    tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    layers = (m for m in model.modules() if isinstance(m, nn.Linear | nn.Conv2d))
    weights = [layer.weight for layer in layers if id(layer.weight) not in tables]
    return [weight for weight in weights if isinstance(weight, nn.Parameter)]


def hidden_of(model: nn.Module) -> list[nn.Parameter]:
    """What Muon is for: matrices between the first layer and the head."""
    heads = {id(p) for name, p in model.named_parameters() if name in HEADS}
    return [p for p in weights_of(model) if p.ndim == 2 and id(p) not in heads]


def optimizers(
    setting: Setting, side: Side, point: Point, model: nn.Module, sample: Tensor, data: Path
) -> list[torch.optim.Optimizer]:
    """Of a side, attached where it is FixNorm's."""
    adam: Any = functools.partial(
        torch.optim.AdamW, lr=point.lr, betas=(0.9, 0.95 if setting.is_text else 0.999)
    )
    # of an lr that fits AdamW's steps as well
    muon: Any = functools.partial(torch.optim.Muon, lr=point.lr, adjust_lr_fn="match_rms_adamw")
    if side.decays:
        groups = fixnorm.param_groups(model, method="weight-decay", weight_decay=point.other)
        if side.name == "adamw":
            return [adam(groups)]
        if side == TABLES:
            tables = [m.weight for m in model.modules() if isinstance(m, nn.Embedding)]
            apart = {id(p) for p in tables}
            for group in groups:
                group["params"] = [p for p in group["params"] if id(p) not in apart]
            faster = {"params": tables, "weight_decay": point.other, FACTOR: 10.0}
            return [adam([*groups, faster])]
        mine = {id(p) for p in hidden_of(model)}
        for group in groups:
            group["params"] = [p for p in group["params"] if id(p) not in mine]
        return [muon(hidden_of(model), weight_decay=point.other), adam(groups)]
    if side.finds_lr:
        return by_rule(setting, side, point, model, sample, matrix_settings.steps_of(setting, data))
    caps: dict[str, Any] = {"head": (), "exclude": ["head"]} if setting.tied else {}
    caps = {} if setting.tied and side.name != "global" else caps
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scope: Any = None if side.name == "global" else "matrix"
        fixnorm.convert(model, alpha=point.other, scope=scope, sample=sample, **caps)
    groups = fixnorm.param_groups(model, length="own" if side in OWN_LENGTH else None)
    if not side.has_muon:
        made = [adam(groups, weight_decay=0.0)]
    else:
        mine = {id(p) for p in hidden_of(model)}
        turning, rest = groups
        for_muon = [p for p in turning["params"] if id(p) in mine]
        others = [p for p in turning["params"] if id(p) not in mine]
        parts = [turning | {"params": others}] if others else []
        made = [
            muon([turning | {"params": for_muon}], weight_decay=0.0),
            adam([*parts, rest], weight_decay=0.0),
        ]
    fixnorm.attach(*made)
    return made


def by_rule(
    setting: Setting, side: Side, point: Point, model: nn.Module, sample: Tensor, steps: int
) -> list[torch.optim.Optimizer]:
    """As a user would write it; constants that are tried take the place of the rule's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fixnorm.convert(
            model, alpha=point.other, scope="matrix", radius=point.radius, sample=sample
        )
    betas = (0.9, 0.95 if setting.is_text else 0.999)
    made: list[torch.optim.Optimizer] = []
    groups = fixnorm.param_groups(model, length="own", hidden_apart=side.has_muon)
    if side.has_muon:
        hidden, *groups = groups
        made.append(torch.optim.Muon([hidden], lr=1.0, weight_decay=0.0))
    made.append(torch.optim.AdamW(groups, lr=1.0, betas=betas, weight_decay=0.0))
    if side.constants is None:
        fixnorm.attach(*made, lr="auto", steps=steps)
        return made
    fixnorm.attach(*made)
    by_angle, own, plain = side.constants
    for optimizer in made:
        for group in optimizer.param_groups:
            length = group.get("fixnorm_length")
            c = plain if length is None else own if length == "own" else by_angle
            group[FACTOR] = c / math.sqrt(steps)
    return made


def schedule(step: int, total: int) -> float:
    """Linear warm-up, then a cosine to zero."""
    warm = WARMUP * total
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / (total - warm)))


def trained(setting: Setting, side: Side, point: Point, data: Path) -> dict[str, Any]:
    """A training from its first step to its last, as a line of the file."""
    began = time.process_time()
    torch.manual_seed(point.seed)
    model = matrix_settings.network(setting)
    total = matrix_settings.steps_of(setting, data)
    if point.radius != "fan_in":  # which convert sets
        with torch.no_grad():
            for weight in weights_of(model):
                weight.mul_(point.radius)
    made: list[torch.optim.Optimizer] = []
    loss = math.nan
    for step, (x, y) in enumerate(matrix_settings.batches(setting, data, point.seed)):
        if not made:
            made = optimizers(setting, side, point, model, x[:4], data)
            model.train()
        for optimizer in made:
            for group in optimizer.param_groups:
                group["lr"] = point.lr * group.get(FACTOR, 1.0) * schedule(step, total)
            optimizer.zero_grad()
        objective = matrix_settings.loss_of(setting, model(x), y)
        objective.backward()
        for optimizer in made:
            optimizer.step()
        loss = float(objective.detach())
        if not math.isfinite(loss):
            break
    capped = [m for m in model.modules() if isinstance(m, fixnorm.FixNormLinear)]
    score = matrix_settings.score_of(setting, model, data) if math.isfinite(loss) else math.nan
    return {
        "setting": setting.name,
        "side": side.name,
        "lr": point.lr,
        "radius": point.radius,
        "other": point.other,
        "seed": point.seed,
        "steps": total,
        "score": round(score, 5) if math.isfinite(score) else None,
        "loss": round(loss, 5) if math.isfinite(loss) else None,
        "scale": round(abs(float(capped[0].g.detach())) * capped[0].alpha / capped[0].cap, 4)
        if capped
        else None,
        "seconds": round(time.process_time() - began, 1),
        "text": matrix_settings.text(setting.files).digest if setting.is_text else None,
        "versions": f"python {platform.python_version()}, torch {torch.__version__}",
    }


# -- the search ----------------------------------------------------------------------------------


def best(points: list[Point]) -> Point:
    """The first of the highest score."""
    return max(points, key=lambda point: point.score)


def search(lrs: tuple[float, ...], others: tuple[float, ...], get: Get) -> list[Point]:
    """Eight trainings, wherever they lead."""
    points = [get(Point(lr=lr, radius=3.0, other=others[0])) for lr in lrs]
    top = best(points)
    points.append(get(replace(top, radius=6.0)))
    points.append(get(replace(top, radius=12.0 if points[-1].score > top.score else 1.0)))
    for _ in range(2 if len(others) > 1 else 3):
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
    winner = best(search(lrs, side.others[:1] if capless else side.others, get))
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


def has_matrices_for(setting: Setting, side: Side) -> bool:
    """torch's Muon is for matrices, and the small ResNets have none but the head."""
    return not (side.has_muon and setting.net.startswith("resnet"))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("phase", choices=("judge", "choose", "auto", "transfer"))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--settings", nargs="+", default=[s.name for s in (*JUDGED, *LONG)])
    parser.add_argument("--sides", nargs="+", default=list(KNOWN))
    options = parser.parse_args()
    ledger = Ledger(options.out, options.data)
    if options.phase == "transfer":
        transfer(ledger, (ADAMW, MATRIX, Side(name="muon"), MATRIX_MUON))
        return
    if options.phase == "choose":
        choose(ledger)
        return
    if options.phase == "auto":
        automatic(ledger, [s for s in (*JUDGED, *LONG) if s.name in options.settings])
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
