"""Lightning: four lines are new. It reaches 95 % on held-out digits.

    python examples/with_lightning.py

The callback attaches the optimizer when the fit starts and logs the method's figures beside the
loss. A checkpoint of the trainer has the norm to keep: ``trainer.fit(module, ckpt_path=...)`` goes
on with it.
"""

from __future__ import annotations

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import fixnorm
from digits import digits
from fixnorm.integrations.lightning import FixNormCallback  # new
from fixnorm.models import create

EPOCHS, BATCH, LR = 6, 64, 0.8


class Classifier(pl.LightningModule):
    """A small ResNet, as anybody would write the module."""

    def __init__(self) -> None:
        super().__init__()
        self.model = create("digits-resnet", num_classes=10)
        fixnorm.convert(self.model, alpha=1.0)  # new

    def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
        """The loss of a batch."""
        images, labels = batch
        loss = nn.functional.cross_entropy(self.model(images), labels)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor], _: int) -> None:
        """Log the accuracy."""
        images, labels = batch
        right = self.model(images).argmax(1) == labels
        self.log("accuracy", right.float().mean())

    def configure_optimizers(self) -> dict[str, object]:
        """SGD over groups by role, without weight decay."""
        groups = fixnorm.param_groups(self)  # new: in place of self.parameters()
        optimizer = torch.optim.SGD(groups, lr=LR, momentum=0.9, nesterov=True)
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "interval": "step"},
        }


def main() -> None:
    """Fit, and print what the logger was told of the norm."""
    pl.seed_everything(0, verbose=False)
    images, labels, val_images, val_labels = digits()
    train = DataLoader(TensorDataset(images, labels), BATCH, shuffle=True, drop_last=True)
    val = DataLoader(TensorDataset(val_images, val_labels), len(val_images))

    trainer = pl.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        callbacks=[FixNormCallback()],  # new
        log_every_n_steps=10,
        logger=False,  # yours: the figures reach any
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.fit(Classifier(), train, val)
    told = trainer.callback_metrics
    print(f"‖W‖ {told['fixnorm/norm']:.4f} before its rescale to {told['fixnorm/target']:.4f}")
    print(f"accuracy {told['accuracy']:.2%}")


if __name__ == "__main__":
    main()
