"""A transformers trainer of a small image classifier, to be killed and resumed.

``python transformers_run.py FOLDER KILL_AT [CHECKPOINT]`` writes what it ends with into
``FOLDER/end.pt``.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from transformers import (
    ResNetConfig,
    ResNetForImageClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

import fixnorm
import fixnorm.integrations.transformers
from helpers.frameworks import CLASSES, die, fixed_of, images, rescales, true_norm


def classifier(*, seed: int = 0) -> ResNetForImageClassification:
    """Random weights, converted."""
    torch.manual_seed(seed)
    config = ResNetConfig(
        embedding_size=6,
        hidden_sizes=[6, 8],
        depths=[1, 1],
        layer_type="basic",
        num_labels=CLASSES,
        downsample_in_first_stage=False,
    )
    model = ResNetForImageClassification(config)
    fixnorm.convert(model, alpha=1.0, sample=torch.randn(4, 3, 16, 16))
    return model


def examples() -> list[dict[str, Any]]:
    return [{"pixel_values": x.repeat(1, 2, 2), "labels": y} for x, y in images()]


def arguments(folder: Path, **options: Any) -> TrainingArguments:
    chosen = {
        "optim": "sgd",
        "learning_rate": 0.3,
        "per_device_train_batch_size": 8,
        "num_train_epochs": 2,
        "logging_steps": 2,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
        "remove_unused_columns": False,
        "dataloader_pin_memory": False,
    }
    return TrainingArguments(output_dir=str(folder), **(chosen | options))


def trainer(
    folder: Path, model: ResNetForImageClassification | None = None, **options: Any
) -> Trainer:
    made = Trainer(
        model=model or classifier(),
        args=arguments(folder, **options),
        train_dataset=examples(),
        eval_dataset=examples()[:8],
    )
    auto = {"lr": "auto"} if made.args.learning_rate == 1.0 else {}
    fixnorm.integrations.transformers.attach(made, momentum=0.9, **auto)
    return made


class Kill(TrainerCallback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.step:
            die()


def main(folder: Path, kill_at: int, checkpoint: str | None) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    model = classifier(seed=1 if checkpoint else 0)
    made = trainer(folder, model, save_strategy="steps", save_steps=3, learning_rate=1.0)
    made.add_callback(Kill(kill_at))
    with rescales() as seen:
        made.train(resume_from_checkpoint=checkpoint)
    target, weights = fixed_of(made.optimizer)
    end = {"target": target, "norm": true_norm(weights), "targets": seen.targets}
    torch.save(end | {"weights": model.state_dict()}, folder / "end.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), (sys.argv[3:] or [None])[0])
