"""Lightning: ``Trainer(callbacks=[FixNormCallback()])``."""

from __future__ import annotations

from typing import Any

from fixnorm.groups import TARGET
from fixnorm.hook import Handle, attach, handle_of
from fixnorm.integrations.needs import missing
from fixnorm.integrations.scalars import scalars

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ModuleNotFoundError as error:
    raise missing(error, "lightning") from None

__all__ = ["FixNormCallback"]


class FixNormCallback(Callback):  # type: ignore[misc]
    """Keeps the norms of all fixed groups while the trainer fits, and logs how they do.

    Convert the model before the module builds its optimizers, and build them in
    ``configure_optimizers`` from :func:`fixnorm.param_groups`. The figures of
    :func:`fixnorm.integrations.scalars.scalars` go to the trainer's loggers and metrics on every
    ``log_every_n_steps``-th step. A checkpoint of the trainer has the target norms, as they are in
    the optimizer's groups.

    Args:
        angle_every: as in :func:`fixnorm.attach`.
    """

    def __init__(self, *, angle_every: int = 0) -> None:
        self.handles: list[Handle] = []
        """One for each optimizer that has fixed groups, in the trainer's order."""
        self._angle_every = angle_every
        self._ours: list[Handle] = []
        self._logged = 0

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Attach; a checkpoint is loaded later and brings its target norms."""
        fixed = [o for o in trainer.optimizers if any(TARGET in g for g in o.param_groups)]
        if not fixed:
            raise ValueError(
                "no optimizer of the module has a fixed group: build it in configure_optimizers "
                "from fixnorm.param_groups(model), after fixnorm.convert(model)"
            )
        self.handles = []
        for optimizer in fixed:
            handle = handle_of(optimizer)
            if handle is None:  # else the module has attached it, and keeps it
                handle = attach(optimizer, angle_every=self._angle_every)
                self._ours.append(handle)
            self.handles.append(handle)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Steps of an earlier fit are logged already."""
        self._logged = trainer.global_step

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Log when the trainer does. While gradients accumulate there is nothing new."""
        stepped = trainer.global_step != self._logged
        if stepped and trainer._logger_connector.should_update_logs:
            self._logged = trainer.global_step
            pl_module.log_dict(self._scalars(), on_step=True, on_epoch=False)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Detach what was attached here; another fit attaches again."""
        while self._ours:
            self._ours.pop().remove()

    def _scalars(self) -> dict[str, float]:
        if len(self.handles) == 1:
            return scalars(self.handles[0].figures())
        found: dict[str, float] = {}
        for i, handle in enumerate(self.handles):
            found |= scalars(handle.figures(), prefix=f"fixnorm/optimizer{i}/")
        return found
