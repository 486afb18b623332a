"""What timm's training script does with its optimizer, to be killed and resumed.

``python timm_run.py FOLDER KILL_AT [CHECKPOINT]`` writes what it ends with into ``FOLDER/end.pt``.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import timm
import torch
from timm.models import resume_checkpoint
from timm.optim import optimizer_kwargs
from timm.scheduler import create_scheduler_v2
from timm.utils import CheckpointSaver, NativeScaler
from torch import nn

import fixnorm
from fixnorm.integrations.timm import create_optimizer_v2
from helpers.frameworks import CLASSES, die, fixed_of, images, loss, rescales, true_norm


def arguments(**changes: Any) -> Namespace:
    """As the script's command line gives them: ``--opt sgd --lr 0.3 --weight-decay 0``."""
    chosen = {"opt": "sgd", "lr": 0.3, "weight_decay": 0.0, "momentum": 0.9, "layer_decay": None}
    return Namespace(**(chosen | changes))


def model(*, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    made: nn.Module = timm.create_model("test_resnet", num_classes=CLASSES)
    fixnorm.convert(made, alpha=1.0, sample=torch.randn(4, 3, 32, 32))
    return made


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = images()[8 * step : 8 * step + 8]
    return x.repeat(1, 1, 4, 4), y


def main(folder: Path, kill_at: int, checkpoint: str | None) -> None:
    torch.set_num_threads(1)
    made, args = model(seed=1 if checkpoint else 0), arguments(opt="lookahead_sgd", lr="auto")
    optimizer = create_optimizer_v2(made, **optimizer_kwargs(cfg=args), steps=4)
    done = resume_checkpoint(made, checkpoint, optimizer=optimizer) if checkpoint else 0
    scheduler, _ = create_scheduler_v2(optimizer, num_epochs=4, warmup_epochs=0)
    saver = CheckpointSaver(made, optimizer, checkpoint_dir=str(folder))
    scaler = NativeScaler(device="cpu")
    with rescales() as seen:
        for epoch in range(done or 0, 4):
            if epoch == kill_at:
                die()
            scheduler.step(epoch)
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                found = loss(made, *batch(epoch))
            scaler(found, optimizer, parameters=made.parameters())
            saver.save_checkpoint(epoch, metric=epoch)
    target, weights = fixed_of(optimizer)
    end = {"target": target, "norm": true_norm(weights), "targets": seen.targets}
    torch.save(end | {"weights": made.state_dict()}, folder / "end.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), (sys.argv[3:] or [None])[0])
