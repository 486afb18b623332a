"""transformers: three lines are new. It reaches 90 % on held-out digits.

    python examples/with_transformers.py

The trainer's own parameter groups go by names. ``attach`` gives it an optimizer of the kind its
arguments name, with groups by role, and a callback that adds the method's figures to its log.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import Tensor
from transformers import ResNetConfig, ResNetForImageClassification, Trainer, TrainingArguments

import fixnorm
import fixnorm.integrations.transformers  # new
from digits import digits

EPOCHS, BATCH, LR = 6, 64, 0.4


def examples(images: Tensor, labels: Tensor) -> list[dict[str, Tensor]]:
    """As the trainer wants them; 8×8 pixels become 32×32."""
    large = torch.nn.functional.interpolate(images, scale_factor=4)
    return [{"pixel_values": x, "labels": y} for x, y in zip(large, labels, strict=True)]


def accuracy(predicted: tuple[np.ndarray, np.ndarray]) -> dict[str, float]:
    """What the trainer reports after an evaluation."""
    logits, labels = predicted
    return {"accuracy": float((logits.argmax(1) == labels).mean())}


def main(folder: Path) -> None:
    """Train a small ResNet with random weights."""
    torch.manual_seed(0)
    images, labels, val_images, val_labels = digits()
    config = ResNetConfig(
        num_channels=1, embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1],
        layer_type="basic", num_labels=10,
    )  # fmt: skip
    model = ResNetForImageClassification(config)
    args = TrainingArguments(
        output_dir=str(folder),
        optim="sgd",
        learning_rate=LR,  # no weight decay: its default is 0
        lr_scheduler_type="cosine",
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=BATCH,
        logging_steps=20,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )

    fixnorm.convert(model, alpha=1.0, sample=torch.randn(4, 1, 32, 32))  # new
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=examples(images, labels),
        eval_dataset=examples(val_images, val_labels),
        compute_metrics=accuracy,
    )
    fixnorm.integrations.transformers.attach(trainer, momentum=0.9, nesterov=True)  # new
    trainer.train()

    logged = [row for row in trainer.state.log_history if "fixnorm/norm" in row][-1]
    print(f"‖W‖ {logged['fixnorm/norm']:.4f} before its rescale to {logged['fixnorm/target']:.4f}")
    print(f"accuracy {trainer.evaluate()['eval_accuracy']:.2%}")


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        main(Path(folder))
