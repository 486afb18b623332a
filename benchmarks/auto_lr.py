"""The learning rate without a search: rules of the sphere, beside searches and peers.

    python benchmarks/auto_lr.py choose --data DIR --out results/auto_lr.jsonl
    python benchmarks/auto_lr.py judge --data DIR --out results/auto_lr.jsonl
    python benchmarks/auto_lr.py short --data DIR --out results/auto_lr.jsonl

The peers are on the package index: ``pip install prodigyopt dog-optimizer schedulefree``.

``DIR`` holds ``cifar10`` and ``tiny_imagenet_100`` as folders of images. Every training is a line
of the JSON-lines file; one that is there is not trained again, so the same command goes on after
an interruption, and several may run side by side with ``--part 0/2`` and ``--part 1/2``.

What is chosen on and what is judged on stands in ``auto_lr_settings.py``. All sides of a setting
share start, order of images and crops, seed by seed. The validation images take no part
in any choice but those of Algorithm 4, whose winner is trained anew with the seeds of the others.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import auto_lr_searches
import fixnorm
from auto_lr_images import Images, batches, images_of, steps_of, val_batches
from auto_lr_settings import CHOOSING, JUDGING, SHORT, Setting
from fixnorm import models
from fixnorm.tuning.trial import Trial

UNCAPPED = 1e4
"""An alpha that no g meets."""
_FIXED = ("rule", "constant", "tuned", "auto")
"""Kinds with FixNorm; ``auto`` is the rule as ``fixnorm.attach`` has it."""
Batches = Iterable[tuple[Tensor, Tensor]]

# -- sides ---------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """A way to train: ``kind`` with its numbers."""

    kind: str
    lr: float = 1.0
    """Of ``auto``: a factor, as a scheduler's."""
    alpha: float = UNCAPPED
    exponent: float = 0.5
    layers: bool = False
    """Of a rule: whether each layer is on a sphere of its own, or all on one."""
    memory: int = 0
    """Of a rule: 0 for the mean over all steps, else an average over about so many of the last."""
    fraction: float = 1.0
    decay: float = 5e-4
    """Weight decay of the kind ``decay``, which has an lr of its own, too."""

    @property
    def name(self) -> str:
        """Unique in a setting."""
        words = [self.kind]
        if self.kind.startswith("rule"):
            words += ["layers"] if self.layers else []
            words += [f"c{self.lr:g}", f"p{self.exponent:g}", f"m{self.memory}"]
        elif self.kind in ("constant", "schedule-free", "tuned"):
            words += [f"lr{self.lr:g}"]
        elif self.kind == "decay":
            words += [f"lr{self.lr:g}", f"wd{self.decay:g}"]
        elif self.kind == "auto" and self.lr != 1.0:
            words += [f"x{self.lr:g}"]
        if self.alpha != UNCAPPED:
            words += [f"alpha{self.alpha:g}"]
        if self.fraction != 1.0:
            words += [f"T{self.fraction:g}"]
        return "-".join(words)


PEERS = (
    Side(kind="constant", lr=1.0),
    Side(kind="weight-decay"),
    Side(kind="prodigy"),
    Side(kind="dog"),
    Side(kind="schedule-free", lr=5.0),
)
GRID = tuple(Side(kind="constant", lr=lr) for lr in (0.06, 0.12, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0))
FINALISTS = (
    *(Side(kind="rule", lr=c) for c in (0.3, 0.45, 0.6)),
    *(Side(kind="rule", lr=c, exponent=0.36) for c in (0.13, 0.19)),
    *(Side(kind="rule", lr=c, exponent=0.42) for c in (0.19, 0.27)),
)
"""What a first seed left over; the others are trained with that seed alone."""
CANDIDATES = (
    *FINALISTS,
    *(Side(kind="rule", lr=c) for c in (0.15, 0.2)),
    *(Side(kind="rule", lr=c, memory=1) for c in (0.2, 0.3, 0.45)),
    *(Side(kind="rule", lr=c, memory=100) for c in (0.2, 0.3, 0.45)),
    Side(kind="rule", lr=0.09, exponent=0.36),
    Side(kind="rule", lr=0.13, exponent=0.42),
)


def schedule(setting: Setting, step: int, total: int) -> float:
    """Linear warm-up, then a cosine to zero."""
    warm = setting.warmup * total
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / (total - warm)))


def usual_lr(setting: Setting) -> float:
    """Of SGD with weight decay: 0.1 for a batch of 128 and momentum 0.9, and as much elsewhere."""
    return 0.1 * setting.batch / 128 * (1 - setting.momentum) / 0.1


class Trained:
    """A model on its way, and how one step of it goes."""

    def __init__(
        self, setting: Setting, side: Side, *, steps: int, sample: Tensor, seed: int
    ) -> None:
        """``steps`` of a whole training, and a few images as a ``sample``."""
        self.setting, self.side = setting, side
        self.total = max(round(steps * side.fraction), 1)
        torch.manual_seed(seed)
        self.model: nn.Module = models.create(
            setting.net, num_classes=setting.classes, in_chans=sample.shape[1]
        ).to(memory_format=torch.channels_last)
        self.averager: Any = None
        self.mean = self.seen = 0.0
        self.lrs: list[float] = []
        self.largest = 0.0
        if side.kind in _FIXED:
            fixnorm.convert(self.model, alpha=side.alpha, sample=sample)
            groups = fixnorm.param_groups(self.model)
            nesterov = setting.momentum > 0
            lr = 1.0 if side.kind == "auto" else side.lr
            self.optimizer: Any = torch.optim.SGD(
                groups, lr=lr, momentum=setting.momentum, nesterov=nesterov
            )
            if side.kind == "auto":
                fixnorm.attach(self.optimizer, lr="auto", steps=self.total)
            else:
                fixnorm.attach(self.optimizer)
            (self.fixed,) = [g for g in self.optimizer.param_groups if "fixnorm_target" in g]
            self.head = next(
                m for m in self.model.modules() if isinstance(m, fixnorm.FixNormLinear)
            )
        else:
            self.optimizer = self._peer()

    def _peer(self) -> Any:
        parameters = list(self.model.parameters())
        setting, kind = self.setting, self.side.kind
        if kind in ("weight-decay", "decay"):
            return torch.optim.SGD(
                parameters,
                lr=usual_lr(setting),
                momentum=setting.momentum,
                nesterov=setting.momentum > 0,
                weight_decay=self.side.decay,
            )
        if kind == "prodigy":
            from prodigyopt import Prodigy

            return Prodigy(parameters, lr=1.0, safeguard_warmup=setting.warmup > 0)
        if kind == "dog":
            from dog import DoG, PolynomialDecayAverager

            self.averager = PolynomialDecayAverager(self.model)
            return DoG(parameters, reps_rel=1e-4)  # what its authors advise with batch norm
        from schedulefree import SGDScheduleFree

        warm = round((setting.warmup or 0.1) * self.total)  # which its authors always advise
        optimizer = SGDScheduleFree(
            parameters, lr=self.side.lr, momentum=setting.momentum or 0.9, warmup_steps=warm
        )
        optimizer.train()
        return optimizer

    def step(self, step: int, images: Tensor, labels: Tensor) -> float:
        """One step; the loss before it."""
        self.model.train()
        self.optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=self.setting.bf16):
            outputs = self.model(images)
        loss = nn.functional.cross_entropy(outputs.float(), labels, label_smoothing=0.1)
        loss.backward()
        self._set_lr(step)
        self.optimizer.step()
        if self.averager is not None:
            self.averager.step()
        if self.side.kind in _FIXED:
            classes = self.setting.classes
            self.largest = max(self.largest, float(self.head.g.detach().abs()) / classes**0.5)
        return float(loss.item())

    def _set_lr(self, step: int) -> None:
        side, setting = self.side, self.setting
        if side.kind in ("dog", "schedule-free"):
            return
        base = side.lr
        if side.kind == "weight-decay":
            base = usual_lr(setting)
        elif side.kind == "prodigy":
            base = 1.0
        elif side.kind == "rule":
            base = self._rule()
        for group in self.optimizer.param_groups:
            group["lr"] = base * schedule(setting, step, self.total)
        self.lrs.append(base)

    def _rule(self) -> float:
        """c · (1 − μ)/0.1 / (T^p · √(mean (‖∇L‖/‖W‖)²)): c is the constant at momentum 0.9.

        The mean is over the steps, and over the layers where each has a sphere of its own.
        """
        moving = [p for p in self.fixed["params"] if p.grad is not None]
        gradients = torch.stack([p.grad.double().square().sum() for p in moving])
        weights = torch.stack([p.detach().double().square().sum() for p in moving])
        relative = gradients / weights if self.side.layers else gradients.sum() / weights.sum()
        square = float(relative.mean())
        self.seen += 1
        memory = min(self.seen, self.side.memory) if self.side.memory else self.seen
        self.mean += (square - self.mean) / memory
        longest: float = self.total**self.side.exponent
        heavy = (1 - self.setting.momentum) / 0.1
        return heavy * self.side.lr / (longest * math.sqrt(self.mean))

    def accuracy(self, val: Batches, train: Batches) -> float:
        """On all validation images, in percent.

        Of ``train`` schedule-free takes the first 50, as it asks for running statistics at the
        averaged weights.
        """
        model = self.model if self.averager is None else self.averager.averaged_model
        if self.side.kind == "schedule-free":
            self.optimizer.eval()
            model.train()
            with torch.no_grad():
                for _, (x, _) in zip(range(50), train, strict=False):
                    model(x)
        model.eval()
        right = count = 0
        with torch.no_grad():
            for x, y in val:
                right += int((model(x).argmax(1) == y).sum())
                count += len(y)
        if self.side.kind == "schedule-free":
            self.optimizer.train()
        return 100 * right / count


def score(run: Trained, images: Images, seed: int) -> float:
    """What a run is worth on the validation images, in percent."""
    return run.accuracy(val_batches(images), batches(run.setting, images, seed + 1000))


def trained(setting: Setting, side: Side, data: Path, seed: int) -> dict[str, Any]:
    """A training from its first step to its last."""
    images, began = images_of(setting, data), time.perf_counter()
    steps, sample = steps_of(setting, images), images.train[:2]
    run, loss = Trained(setting, side, steps=steps, sample=sample, seed=seed), math.nan
    for step, (x, y) in zip(range(run.total), batches(setting, images, seed), strict=False):
        loss = run.step(step, x, y)
        if not math.isfinite(loss):
            break
    lrs = run.lrs
    return {
        "setting": setting.name,
        "side": side.name,
        "seed": seed,
        "steps": run.total,
        "accuracy": score(run, images, seed) if math.isfinite(loss) else None,
        "loss": round(loss, 5) if math.isfinite(loss) else None,
        "lr": [round(lrs[int(len(lrs) * share)], 6) for share in (0, 0.1, 0.5, 0.999)]
        if lrs
        else [],
        "radius": round(run.fixed["fixnorm_target"], 5) if hasattr(run, "fixed") else None,
        "largest_scale": round(run.largest, 5),
        "seconds": round(time.perf_counter() - began, 2),
    }


# -- the file ------------------------------------------------------------------------------------


class Ledger:
    """Lines of trainings, each once."""

    def __init__(self, path: Path, data: Path) -> None:
        self.path, self.data = path, data
        self.known: dict[tuple[str, str, int], dict[str, Any]] = {}
        self.read(path)

    def read(self, path: Path) -> None:
        """The rows of a file, and of those of other parts."""
        for file in [path, *path.parent.glob(f"{path.name}.*")]:
            if file.exists():
                for line in file.read_text().splitlines():
                    row = json.loads(line)
                    self.known[row["setting"], row["side"], row["seed"]] = row

    def get(self, setting: Setting, side: Side, seed: int) -> dict[str, Any]:
        """A training: known, or done now."""
        key = (setting.name, side.name, seed)
        if key not in self.known:
            row = self.trained(setting, side, seed)
            with self.path.open("a") as file:
                file.write(json.dumps(row) + "\n")
            self.known[key] = row
            words = (row["setting"], row["side"], f"seed {seed}", row["accuracy"])
            print(*words, sep="  ", flush=True)
        return self.known[key]

    def trained(self, setting: Setting, side: Side, seed: int) -> dict[str, Any]:
        """One training, as a line of the file."""
        return trained(setting, side, self.data, seed)


def algorithm4(ledger: Ledger, setting: Setting, rule: Side, seed: int) -> Side:
    """The winner of the paper's search."""

    def side(trial: Trial) -> Side:
        assert trial.alpha is not None
        return Side(kind="tuned", lr=trial.rate, alpha=trial.alpha, fraction=trial.fraction)

    lr = ledger.get(setting, rule, seed)["lr"][2]
    found, _ = auto_lr_searches.algorithm4(lr, lambda t: ledger.get(setting, side(t), seed))
    return replace(side(found), fraction=1.0)


def auto_plan(ledger: Ledger, setting: Setting, rule: Side, seed: int) -> Side:
    """The winner of plan auto; where no cap was met, the rule itself."""
    largest = ledger.get(setting, rule, seed)["largest_scale"]

    def side(trial: Trial) -> Side:
        assert trial.alpha is not None
        return rule if trial.alpha > largest else replace(rule, alpha=trial.alpha)

    found, _ = auto_lr_searches.auto(lambda t: ledger.get(setting, side(t), seed))
    return side(found)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("phase", choices=("choose", "judge", "short"))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--part", default="0/1", help="which settings: 0/2 and 1/2 are the halves")
    parser.add_argument("--seeds", type=int, default=0, help="of each side (default: 2 and 3)")
    parser.add_argument("--rule", nargs=3, type=float, default=(0.2, 0.4, 0), help="c, p, memory")
    given = parser.parse_args()
    torch.set_num_threads(1)
    here, parts = map(int, given.part.split("/"))
    ledger = Ledger(given.out, given.data)
    if given.phase == "choose":
        for seed in range(given.seeds or 2):
            for setting in CHOOSING[here::parts]:
                for side in (*(CANDIDATES if seed == 0 else FINALISTS), *GRID):
                    ledger.get(setting, side, seed)
        return
    c, exponent, memory = given.rule
    rule = Side(kind="rule", lr=c, exponent=exponent, memory=int(memory))
    if given.phase == "short":
        for setting in SHORT[here::parts]:
            for seed in range(given.seeds or 3):
                for side in (*(replace(rule, lr=c / part) for part in (8, 4, 2, 1)), *PEERS):
                    ledger.get(setting, side, seed)
        return
    for setting in JUDGING[here::parts]:
        winner = algorithm4(ledger, setting, rule, seed=0)
        sides = (rule, winner, auto_plan(ledger, setting, rule, seed=0), *PEERS)
        for seed in range(1, 1 + (given.seeds or 3)):
            for side in sides:
                ledger.get(setting, side, seed)


if __name__ == "__main__":
    main()
