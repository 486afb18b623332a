"""A Lightning module, and a training of it to be killed, resumed, or run by two processes.

``python lightning_run.py FOLDER EPOCHS KILL_AT DEVICES [CHECKPOINT]`` writes what it ends with into
``FOLDER/end-RANK.pt``.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader

import fixnorm
from fixnorm.integrations.lightning import FixNormCallback
from helpers.frameworks import Rescales, die, fixed_of, images, loss, net, rescales, true_norm


class Classifier(pl.LightningModule):
    def __init__(
        self, *, seed: int = 0, scope: Any = "global", kill_at: int = -1, lr: float = 0.3
    ) -> None:
        super().__init__()
        self.model, self.scope, self.kill_at, self.lr = net(seed=seed), scope, kill_at, lr

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        if self.trainer.global_step == self.kill_at:
            die()
        found = loss(self.model, *batch)
        self.log("loss", found)
        return found

    def configure_optimizers(self) -> torch.optim.Optimizer:
        groups = fixnorm.param_groups(self, scope=self.scope)
        return torch.optim.SGD(groups, lr=self.lr, momentum=0.9)

    def train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(images(), batch_size=8)


def trainer(folder: Path, callback: FixNormCallback, **options: Any) -> pl.Trainer:
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    callbacks = [callback, *options.pop("callbacks", [])]
    return pl.Trainer(
        default_root_dir=folder,
        callbacks=callbacks,
        **({"accelerator": "cpu", "devices": 1, "enable_checkpointing": False} | quiet | options),
    )


def main(folder: Path, epochs: int, kill_at: int, devices: int, checkpoint: str | None) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    module = Classifier(seed=1 if checkpoint else 0, kill_at=kill_at, lr=1.0)
    saves = ModelCheckpoint(folder, filename="{step}", save_top_k=-1)
    fit = trainer(
        folder,
        FixNormCallback(lr="auto"),
        callbacks=[saves],
        enable_checkpointing=True,
        max_epochs=epochs,
        devices=devices,
        strategy="ddp" if devices > 1 else "auto",
    )
    with rescales() as seen:
        fit.fit(module, ckpt_path=checkpoint)
    write(folder / f"end-{fit.global_rank}.pt", module, fit.optimizers[0], seen)


def write(path: Path, module: Classifier, optimizer: torch.optim.Optimizer, seen: Rescales) -> None:
    target, weights = fixed_of(optimizer)
    end = {"target": target, "norm": true_norm(weights), "targets": seen.targets}
    torch.save(end | {"weights": module.model.state_dict()}, path)


if __name__ == "__main__":
    place, epochs, kill_at, devices = sys.argv[1:5]
    main(Path(place), int(epochs), int(kill_at), int(devices), (sys.argv[5:] or [None])[0])
