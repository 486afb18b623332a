"""alpha inside the one training: is there a rule that finds the cap without a search?

    python benchmarks/auto_alpha.py --data DIR --out results/auto_alpha.jsonl

Every rule has a tenth of the training images to itself and sets the cap after each epoch; the
learning rate is that of the sphere. Beside them: all training images, with each alpha fixed, and
without a cap. Every training is a line of the JSON-lines file; one that is there is not trained
again.

- ``calibrated``: the cap is the scale that makes the loss of the held-out images least, never under
  the scale at the start;
- ``late``: the same, but only once the learning rate has fallen to half;
- ``ratchet``: the cap is the scale at which the held-out images had their least mean cross-boundary
  risk, from the epoch on at which it has risen by two standard errors.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from auto_lr import UNCAPPED, Ledger, Side, Trained, schedule, score
from auto_lr_images import batches, images_of, steps_of
from auto_lr_settings import CHOOSING, Setting
from fixnorm.mcbr import mean_cross_boundary_risk

SETTINGS = (
    Setting(
        name="tiny-imagenet-long",
        net="resnet8",
        source="tiny-imagenet-32",
        per_class=50,
        epochs=50,
        batch=64,
        classes=50,
    ),
    Setting(
        name="100-epochs-of-100",
        net="resnet8",
        source="cifar10-16",
        per_class=100,
        epochs=100,
        batch=32,
    ),
    *(setting for setting in CHOOSING if setting.name in ("resnet8", "mobile")),
)
ALPHAS = (UNCAPPED, 4.0, 2.0, 1.0, 0.5, 0.3)
RULES = ("calibrated", "late", "ratchet")
_HELD_OUT = 10
"""One image in so many."""


@dataclass(frozen=True)
class HeldOut:
    """What the head sees and says of the images that do not train."""

    logits: Tensor
    features: Tensor
    labels: Tensor

    @classmethod
    def of(cls, run: Trained, images: Tensor, labels: Tensor) -> HeldOut:
        seen: list[Tensor] = []
        hook = run.head.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
        run.model.eval()
        with torch.no_grad():
            logits = run.model(images.contiguous(memory_format=torch.channels_last))
        hook.remove()
        return cls(logits, seen[0], labels)

    def best_scale(self, scale: float) -> float:
        """The scale of the head at which the loss of these images is least."""
        factors = torch.logspace(-1.5, 1.0, 101)
        losses = [nn.functional.cross_entropy(self.logits * f, self.labels) for f in factors]
        return scale * float(factors[int(torch.stack(losses).argmin())])

    def risk(self, weight: Tensor) -> tuple[float, float]:
        """Mean cross-boundary risk, and its standard error."""
        each = torch.stack(
            [
                mean_cross_boundary_risk(self.features[i : i + 1], self.labels[i : i + 1], weight)
                for i in range(len(self.labels))
            ]
        )
        return float(each.mean()), float(each.std() / math.sqrt(len(each)))


class Controller:
    """Sets the cap after each epoch, as one of the rules says."""

    def __init__(self, rule: str, run: Trained, images: Tensor, labels: Tensor) -> None:
        self.rule, self.run, self.images, self.labels = rule, run, images, labels
        self.root = math.sqrt(run.setting.classes)
        self.start = abs(float(run.head.g.detach()))
        self.least: tuple[float, float] = (math.inf, self.start)
        self.caps: list[float] = []

    def epoch_ended(self, share: float) -> None:
        """``share`` is what is left of the peak learning rate."""
        head = self.run.head
        scale = min(abs(float(head.g.detach())), head.cap)
        held = HeldOut.of(self.run, self.images, self.labels)
        if self.rule == "ratchet":
            risk, error = held.risk(head.weight.detach())
            if risk < self.least[0]:
                self.least = risk, scale
            elif risk > self.least[0] + 2 * error:
                head.alpha = max(self.least[1], self.start) / self.root
        elif self.rule == "calibrated" or share <= 0.5:
            head.alpha = max(held.best_scale(scale), self.start) / self.root
        self.caps.append(round(head.alpha, 4))


class Trainings(Ledger):
    """With the rules' own way to train."""

    def trained(self, setting: Setting, side: Side, seed: int) -> dict[str, Any]:
        images = images_of(setting, self.data)
        rule = side.kind.removeprefix("rule-")
        if rule in RULES:
            held = torch.arange(len(images.train)) % _HELD_OUT == 0
            held_images, held_labels = images.train[held], images.train_labels[held]
            images = replace(
                images, train=images.train[~held], train_labels=images.train_labels[~held]
            )
        rules, steps = replace(side, kind="rule"), steps_of(setting, images)
        run = Trained(setting, rules, steps=steps, sample=images.train[:2], seed=seed)
        control = Controller(rule, run, held_images, held_labels) if rule in RULES else None
        per_epoch = len(images.train) // setting.batch
        for step, (x, y) in enumerate(batches(setting, images, seed)):
            run.step(step, x, y)
            if control is not None and (step + 1) % per_epoch == 0:
                falling = step > setting.warmup * run.total
                share = schedule(setting, step, run.total) if falling else 1.0
                control.epoch_ended(share)
        assert run.total == steps_of(setting, images)
        return {
            "setting": setting.name,
            "side": side.name,
            "seed": seed,
            "steps": run.total,
            "accuracy": score(run, images, seed),
            "largest_scale": round(run.largest, 5),
            "alphas": [] if control is None else control.caps[:: max(setting.epochs // 10, 1)],
        }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(1)
    ledger = Trainings(given.out, given.data)
    shipped = Side(kind="rule", lr=0.2, exponent=0.4)
    sides = [replace(shipped, alpha=alpha) for alpha in ALPHAS]
    sides += [replace(shipped, kind=f"rule-{rule}") for rule in RULES]
    for seed in range(given.seeds):
        for setting in SETTINGS:
            for side in sides:
                ledger.get(setting, side, seed)


if __name__ == "__main__":
    main()
