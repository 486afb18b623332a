"""The learning rate without a search: rules of the sphere, beside searches and peers.

    python benchmarks/auto_lr.py choose --data DIR --out results/auto_lr.jsonl
    python benchmarks/auto_lr.py judge --data DIR --out results/auto_lr.jsonl

The peers are on the package index: ``pip install prodigyopt dog-optimizer schedulefree``.

``DIR`` holds ``cifar10`` and ``tiny_imagenet_100`` as folders of images. Every training is a line
of the JSON-lines file; one that is there is not trained again, so the same command goes on after
an interruption, and several may run side by side with ``--part 0/2`` and ``--part 1/2``.

:data:`CHOOSING` and :data:`JUDGING` were split before the first training: the constant and the form
of the rule are chosen on the first alone, and every claim is about the second alone. All sides of
a setting share start, order of images and crops, seed by seed. The validation images take no part
in any choice but those of Algorithm 4, whose winner is trained anew with the seeds of the others.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

import fixnorm
from fixnorm import models

UNCAPPED = 1e4
"""An alpha that no g meets."""
Source = Literal["cifar10", "cifar10-16", "tiny-imagenet", "tiny-imagenet-32", "digits"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """What is trained: a net, images, and how long."""

    name: str
    net: str
    source: Source
    per_class: int
    epochs: int
    batch: int
    momentum: float = 0.9
    warmup: float = 0.1
    """Share of the steps."""
    classes: int = 10


CHOOSING = (
    Setting(name="resnet8", net="resnet8", source="cifar10", per_class=500, epochs=10, batch=128),
    Setting(
        name="short", net="resnet8-w8", source="cifar10-16", per_class=500, epochs=3, batch=128
    ),
    Setting(
        name="2500-steps", net="resnet8-w8", source="cifar10-16", per_class=2000, epochs=4, batch=32
    ),
    Setting(
        name="10000-steps",
        net="resnet8-w8",
        source="cifar10-16",
        per_class=2000,
        epochs=16,
        batch=32,
    ),
    Setting(
        name="batch-512", net="resnet8", source="cifar10-16", per_class=1000, epochs=10, batch=512
    ),
    Setting(
        name="mobile",
        net="micronet-mobilenetv2",
        source="cifar10",
        per_class=300,
        epochs=10,
        batch=128,
    ),
    Setting(name="digits", net="digits-resnet", source="digits", per_class=60, epochs=15, batch=64),
    Setting(
        name="no-momentum",
        net="resnet8-w8",
        source="cifar10-16",
        per_class=500,
        epochs=15,
        batch=64,
        momentum=0.0,
    ),
    Setting(
        name="momentum-0.5",
        net="resnet8-w8",
        source="cifar10-16",
        per_class=500,
        epochs=15,
        batch=64,
        momentum=0.5,
    ),
    Setting(
        name="momentum-0.9",
        net="resnet8-w8",
        source="cifar10-16",
        per_class=500,
        epochs=15,
        batch=64,
        momentum=0.9,
    ),
    Setting(
        name="momentum-0.97",
        net="resnet8-w8",
        source="cifar10-16",
        per_class=500,
        epochs=15,
        batch=64,
        momentum=0.97,
    ),
    Setting(
        name="no-warmup",
        net="resnet8-w8",
        source="cifar10-16",
        per_class=500,
        epochs=15,
        batch=64,
        warmup=0.0,
    ),
)
JUDGING = (
    Setting(
        name="4-wide", net="resnet8-w4", source="cifar10-16", per_class=500, epochs=20, batch=64
    ),
    Setting(name="16-wide", net="resnet8", source="cifar10-16", per_class=500, epochs=20, batch=64),
    Setting(
        name="32-wide", net="resnet8-w32", source="cifar10-16", per_class=300, epochs=12, batch=64
    ),
    Setting(
        name="resnet20", net="resnet20-w8", source="cifar10-16", per_class=500, epochs=15, batch=128
    ),
    Setting(
        name="resnet14d",
        net="resnet14d-w8",
        source="cifar10-16",
        per_class=500,
        epochs=15,
        batch=64,
    ),
    Setting(name="se", net="micronet-se", source="cifar10", per_class=300, epochs=10, batch=64),
    Setting(
        name="mobile-long",
        net="micronet-mobilenetv2",
        source="cifar10",
        per_class=200,
        epochs=30,
        batch=64,
    ),
    Setting(
        name="batch-32", net="resnet8-w8", source="cifar10-16", per_class=1000, epochs=8, batch=32
    ),
    Setting(
        name="batch-1024",
        net="resnet8-w8",
        source="cifar10-16",
        per_class=2000,
        epochs=15,
        batch=1024,
    ),
    Setting(
        name="100-steps", net="resnet8-w8", source="cifar10-16", per_class=640, epochs=1, batch=64
    ),
    Setting(
        name="100-epochs",
        net="resnet8-w8",
        source="cifar10-16",
        per_class=100,
        epochs=100,
        batch=32,
    ),
    Setting(
        name="20000-steps",
        net="resnet8-w4",
        source="cifar10-16",
        per_class=2000,
        epochs=16,
        batch=16,
    ),
    Setting(
        name="plain-sgd",
        net="resnet8-w8",
        source="cifar10-16",
        per_class=1000,
        epochs=10,
        batch=64,
        momentum=0.0,
    ),
    Setting(
        name="cold-start",
        net="resnet8",
        source="cifar10-16",
        per_class=300,
        epochs=12,
        batch=32,
        warmup=0.0,
    ),
    Setting(
        name="tiny-imagenet",
        net="resnet8-s2",
        source="tiny-imagenet",
        per_class=50,
        epochs=20,
        batch=64,
        classes=50,
    ),
    Setting(
        name="digits-long", net="digits-resnet", source="digits", per_class=30, epochs=60, batch=32
    ),
)


# -- images --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Images:
    """Training and validation images, as floats."""

    train: Tensor
    train_labels: Tensor
    val: Tensor
    val_labels: Tensor
    pad: int
    flip: bool


@cache
def _folder(path: Path, classes: int, size: int) -> tuple[Tensor, Tensor]:
    """The first classes of a folder of images, sorted by name; read once."""
    kept = path.parent / f".{path.name}-{classes}-{size}.npz"
    if not kept.exists():
        pixels, labels = [], []
        for label, folder in enumerate(sorted(p for p in path.iterdir() if p.is_dir())[:classes]):
            for file in sorted(folder.iterdir()):
                with Image.open(file) as image:
                    small = image.convert("RGB").resize((size, size), Image.Resampling.BOX)
                pixels.append(np.asarray(small))
                labels.append(label)
        np.savez(kept, pixels=np.stack(pixels), labels=np.asarray(labels))
    content = np.load(kept)
    images = torch.from_numpy(content["pixels"]).permute(0, 3, 1, 2).float().div_(255)
    return images, torch.from_numpy(content["labels"]).long()


@cache
def images_of(setting: Setting, data: Path) -> Images:
    """Those of a setting; the first images of each class train."""
    if setting.source == "digits":
        from sklearn.datasets import load_digits

        found = load_digits()
        everything = torch.from_numpy(found.images).float()[:, None] / 16
        labels = torch.from_numpy(found.target).long()
        chosen = _first(labels, setting.per_class)
        rest = torch.ones(len(labels), dtype=torch.bool)
        rest[chosen] = False
        train, val = everything[chosen], everything[rest]
        train_labels, val_labels = labels[chosen], labels[rest]
        pad, flip = 1, False
    else:
        folder = data / ("cifar10" if "cifar10" in setting.source else "tiny_imagenet_100")
        size = {"cifar10-16": 16, "tiny-imagenet": 64}.get(setting.source, 32)
        train, train_labels = _folder(folder / "train", setting.classes, size)
        val, val_labels = _folder(folder / "val", setting.classes, size)
        chosen = _first(train_labels, setting.per_class)
        train, train_labels = train[chosen], train_labels[chosen]
        pad, flip = size // 8, True
    mean, std = train.mean((0, 2, 3), keepdim=True), train.std((0, 2, 3), keepdim=True)
    return Images((train - mean) / std, train_labels, (val - mean) / std, val_labels, pad, flip)


def _first(labels: Tensor, per_class: int) -> Tensor:
    return torch.cat([(labels == c).nonzero()[:per_class, 0] for c in labels.unique()])


def batches(setting: Setting, images: Images, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The same for every side: order, crops and flips follow from the seed."""
    generator = torch.Generator().manual_seed(seed)
    count, size, pad = len(images.train), images.train.shape[-1], images.pad
    padded = nn.functional.pad(images.train, (pad,) * 4)
    for _ in range(setting.epochs):
        order = torch.randperm(count, generator=generator)
        for chosen in order.split(setting.batch)[: count // setting.batch]:
            down, right = torch.randint(2 * pad + 1, (2, len(chosen)), generator=generator)
            rows = (down[:, None] + torch.arange(size))[:, None, :, None]
            columns = (right[:, None] + torch.arange(size))[:, None, None, :]
            channels = torch.arange(padded.shape[1])[None, :, None, None]
            batch = padded[chosen[:, None, None, None], channels, rows, columns]
            if images.flip:
                flipped = torch.rand(len(chosen), generator=generator) < 0.5
                batch = torch.where(flipped[:, None, None, None], batch.flip(-1), batch)
            yield batch.contiguous(memory_format=torch.channels_last), images.train_labels[chosen]


def steps_of(setting: Setting, images: Images) -> int:
    """T."""
    return setting.epochs * (len(images.train) // setting.batch)


# -- sides ---------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """A way to train: ``kind`` with its numbers."""

    kind: str
    lr: float = 1.0
    alpha: float = UNCAPPED
    exponent: float = 0.5
    memory: int = 0
    """Of a rule: 0 for the mean over all steps, else an average over about so many of the last."""
    fraction: float = 1.0

    @property
    def name(self) -> str:
        """Unique in a setting."""
        words = [self.kind]
        if self.kind.startswith("rule"):
            words += [f"c{self.lr:g}", f"p{self.exponent:g}", f"m{self.memory}"]
        elif self.kind in ("constant", "schedule-free", "tuned"):
            words += [f"lr{self.lr:g}"]
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

    def __init__(self, setting: Setting, side: Side, images: Images, seed: int) -> None:
        self.setting, self.side = setting, side
        self.total = max(round(steps_of(setting, images) * side.fraction), 1)
        torch.manual_seed(seed)
        grey = images.train.shape[1]
        self.model: nn.Module = models.create(
            setting.net, num_classes=setting.classes, in_chans=grey
        ).to(memory_format=torch.channels_last)
        self.averager: Any = None
        self.mean = self.seen = 0.0
        self.lrs: list[float] = []
        self.largest = 0.0
        sample = images.train[:2]
        if side.kind in ("rule", "constant", "tuned"):
            fixnorm.convert(self.model, alpha=side.alpha, sample=sample)
            groups = fixnorm.param_groups(self.model)
            nesterov = setting.momentum > 0
            self.optimizer: Any = torch.optim.SGD(
                groups, lr=side.lr, momentum=setting.momentum, nesterov=nesterov
            )
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
        if kind == "weight-decay":
            return torch.optim.SGD(
                parameters,
                lr=usual_lr(setting),
                momentum=setting.momentum,
                nesterov=setting.momentum > 0,
                weight_decay=5e-4,
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
        loss = nn.functional.cross_entropy(self.model(images), labels, label_smoothing=0.1)
        loss.backward()
        self._set_lr(step)
        self.optimizer.step()
        if self.averager is not None:
            self.averager.step()
        if self.side.kind in ("rule", "constant", "tuned"):
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
        """c · (1 − μ)/0.1 · R² / (T^p · √(mean ‖R·∇L‖²)): c is the constant at momentum 0.9."""
        radius: float = self.fixed["fixnorm_target"]
        grads = [p.grad for p in self.fixed["params"] if p.grad is not None]
        square = radius**2 * float(sum(g.double().square().sum() for g in grads))
        self.seen += 1
        memory = min(self.seen, self.side.memory) if self.side.memory else self.seen
        self.mean += (square - self.mean) / memory
        longest: float = self.total**self.side.exponent
        heavy = (1 - self.setting.momentum) / 0.1
        return heavy * self.side.lr * radius**2 / (longest * math.sqrt(self.mean))

    def accuracy(self, images: Images, seed: int) -> float:
        """On all validation images, in percent."""
        model = self.model if self.averager is None else self.averager.averaged_model
        if self.side.kind == "schedule-free":
            self.optimizer.eval()
            _measure_norms(model, self.setting, images, seed)
        model.eval()
        with torch.no_grad():
            right = sum(
                int((model(x.contiguous(memory_format=torch.channels_last)).argmax(1) == y).sum())
                for x, y in zip(images.val.split(1000), images.val_labels.split(1000), strict=True)
            )
        return 100 * right / len(images.val)


def _measure_norms(model: nn.Module, setting: Setting, images: Images, seed: int) -> None:
    """Running statistics at the averaged weights, as schedule-free asks for."""
    model.train()
    with torch.no_grad():
        for n, (x, _) in enumerate(batches(setting, images, seed + 1000)):
            if n == 50:
                break
            model(x)


def trained(setting: Setting, side: Side, data: Path, seed: int) -> dict[str, Any]:
    """A training from its first step to its last."""
    images, began = images_of(setting, data), time.perf_counter()
    run, loss = Trained(setting, side, images, seed), math.nan
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
        "accuracy": run.accuracy(images, seed) if math.isfinite(loss) else None,
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
    """The winner of the paper's search, with free alphas.

    The paper's range of learning rates, [0.2, 3.2], leaves out the best of many small settings. The
    rival gets one of the same width around what the rule found: it cannot fail for want of range.
    """
    from fixnorm.tuning.estimate import range_around
    from fixnorm.tuning.plan import SearchSpace
    from fixnorm.tuning.search import Ledger as Trials
    from fixnorm.tuning.search import Search, run_here
    from fixnorm.tuning.strategies import PlanStrategy
    from fixnorm.tuning.trial import Result, Trial

    def train(trial: Trial) -> Result:
        assert trial.alpha is not None
        side = Side(kind="tuned", lr=trial.rate, alpha=trial.alpha, fraction=trial.fraction)
        row = ledger.get(setting, side, seed)
        if row["accuracy"] is None:
            return Result(state="diverged")
        return Result(accuracy=row["accuracy"], largest_scale=row["largest_scale"])

    low, high = range_around(ledger.get(setting, rule, seed)["lr"][2])
    strategy = PlanStrategy(plan="paper", space=SearchSpace(lr_min=low, lr_max=high))
    answer = run_here(Search(strategy, Trials(strategy.settings())), train)
    assert answer is not None
    assert answer.alpha is not None
    return Side(kind="tuned", lr=answer.rate, alpha=answer.alpha)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("phase", choices=("choose", "judge"))
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
    for setting in JUDGING[here::parts]:
        winner = algorithm4(ledger, setting, rule, seed=0)
        for seed in range(1, 1 + (given.seeds or 3)):
            for side in (rule, winner, *PEERS):
                ledger.get(setting, side, seed)


if __name__ == "__main__":
    main()
