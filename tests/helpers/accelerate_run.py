"""A loop of one's own under Accelerate, to be killed and resumed.

``python accelerate_run.py FOLDER KILL_AT`` saves a state after every second step, goes on from the
one it finds, and writes what it ends with into ``FOLDER/end.pt``.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader

import fixnorm
from helpers.frameworks import die, fixed_of, images, loss, net, rescales, true_norm

Prepared = tuple[nn.Module, Any, Any]


def prepared(accelerator: Accelerator, *, seed: int = 0, lr: float = 0.3) -> Prepared:
    model = net(seed=seed)
    optimizer = torch.optim.SGD(fixnorm.param_groups(model), lr=lr, momentum=0.9)
    loader = DataLoader(images(), batch_size=8)
    made: Prepared = accelerator.prepare(model, optimizer, loader)
    return made


def train(accelerator: Accelerator, made: Prepared) -> None:
    """One epoch."""
    model, optimizer, loader = made
    for x, y in loader:
        with accelerator.accumulate(model):
            accelerator.backward(loss(model, x, y))
            optimizer.step()
            optimizer.zero_grad()


def main(folder: Path, kill_at: int) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    accelerator, state, marks = Accelerator(cpu=True), folder / "state", folder / "steps"
    done = int(marks.read_text()) if marks.exists() else 0
    made = prepared(accelerator, seed=1 if done else 0, lr=1.0)
    fixnorm.attach(made[1], lr="auto", steps=4)
    if done:
        accelerator.load_state(str(state))
    with rescales() as seen:
        for step in range(done, 4):
            if step == kill_at:
                die()
            x, y = images()[8 * step : 8 * step + 8]
            accelerator.backward(loss(made[0], x, y))
            made[1].step()
            made[1].zero_grad()
            if step == 1:
                accelerator.save_state(str(state))
                marks.write_text("2")
    target, weights = fixed_of(made[1])
    end = {"target": target, "norm": true_norm(weights), "targets": seen.targets}
    torch.save(end | {"weights": made[0].state_dict()}, folder / "end.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
