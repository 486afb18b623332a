"""Lightning: ``Trainer(callbacks=[FixNormCallback()])``."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Literal

from torch.optim import Optimizer

from fixnorm.folding import folded_state_dicts, refuse_untying
from fixnorm.groups import is_fixed
from fixnorm.hook import Handle, attach, check_auto, handle_of
from fixnorm.integrations import given_handle, scalars
from fixnorm.internals_of_others import lightning_logs_now
from fixnorm.system.extras import missing

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.utilities import rank_zero_warn
except ModuleNotFoundError as error:
    raise missing("this integration", error, "lightning") from None

__all__ = ["FixNormCallback"]


class FixNormCallback(Callback):  # type: ignore[misc]
    """Keeps the norms of all fixed groups while the trainer fits, and logs how they do.

    Convert the model before the module builds its optimizers, and build them in
    ``configure_optimizers`` from :func:`fixnorm.param_groups`. A parameter of the module that is in
    no optimizer is told when the fit starts. The figures of
    :func:`fixnorm.integrations.scalars` go to the trainer's loggers and metrics on every
    ``log_every_n_steps``-th step. A checkpoint of the trainer has the target norms, as they are in
    the optimizer's groups.

    Args:
        lr: ``"auto"`` as in :func:`fixnorm.attach`, with optimizers that are built with
            ``lr=1.0``. Lightning's ``LearningRateMonitor`` shows that 1.0 times the schedule; what
            the rule makes of it is logged as ``fixnorm/lr``.
        steps: for ``lr="auto"``; what the trainer expects unless said otherwise.
        angle_every: as in :func:`fixnorm.attach`.
        fold_on_save: fold checkpoints that have the weights only, which no training resumes from:
            ``trainer.save_checkpoint(file, weights_only=True)`` and those of a
            ``ModelCheckpoint(save_weights_only=True)``. They load into the plain model, and into
            the converted one. All others keep the scales.
    """

    def __init__(
        self,
        *,
        lr: Literal["auto"] | None = None,
        steps: int | None = None,
        angle_every: int = 0,
        fold_on_save: bool = True,
    ) -> None:
        check_auto(lr, steps)
        self.handles: list[Handle] = []
        """One for each optimizer that has fixed groups, in the trainer's order."""
        self._lr = lr
        self._steps = steps
        self._angle_every = angle_every
        self._fold_on_save = fold_on_save
        self._ours: list[Handle] = []
        self._logged = 0

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """From now on what the trainer saves without its optimizers is folded."""
        folds = getattr(trainer.save_checkpoint, "func", None) is _save_checkpoint
        if self._fold_on_save and not folds:
            refuse_untying(pl_module)
            trainer.save_checkpoint = functools.partial(
                _save_checkpoint, trainer, trainer.save_checkpoint
            )

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Attach; a checkpoint is loaded later and brings its target norms."""
        fixed = [o for o in trainer.optimizers if any(is_fixed(g) for g in o.param_groups)]
        if not fixed:
            raise ValueError(
                "no optimizer of the module has a fixed group: build it in configure_optimizers "
                "from fixnorm.param_groups(model), after fixnorm.convert(model)"
            )
        self.handles = []
        for optimizer in fixed:
            handle = given_handle(optimizer, lr=self._lr)
            if handle is None:  # else the module has attached it, and keeps it
                steps = self._expected_steps(trainer, pl_module)
                handle = attach(optimizer, lr=self._lr, steps=steps, angle_every=self._angle_every)
                self._ours.append(handle)
            self.handles.append(handle)
        _tell_untrained(trainer, pl_module)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Steps of an earlier fit are logged already."""
        self._logged = trainer.global_step

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer
    ) -> None:
        """The trainer clips after this."""
        handle = handle_of(optimizer)
        if handle is not None:
            handle.before_clipping()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Log when the trainer does. While gradients accumulate there is nothing new."""
        stepped = trainer.global_step != self._logged
        if stepped and lightning_logs_now(trainer):
            self._logged = trainer.global_step
            pl_module.log_dict(self._scalars(), on_step=True, on_epoch=False)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Detach what was attached here; another fit attaches again."""
        while self._ours:
            self._ours.pop().remove()

    def _expected_steps(self, trainer: Trainer, module: LightningModule) -> int | None:
        """Of the whole fit, that a checkpoint may be in the middle of."""
        if self._lr is None or self._steps is not None:
            return self._steps
        if not module.automatic_optimization:
            raise ValueError(
                "lr='auto' needs steps: how often a module that optimizes by hand makes a step is "
                "known to it alone: FixNormCallback(lr='auto', steps=…), of each optimizer"
            )
        steps = trainer.estimated_stepping_batches
        if math.isinf(steps) or steps < 1:
            raise ValueError(
                "lr='auto' needs steps, and the trainer has no end: Trainer(max_epochs=… or "
                "max_steps=…), or FixNormCallback(lr='auto', steps=…)"
            )
        return int(steps)

    def _scalars(self) -> dict[str, float]:
        if len(self.handles) == 1:
            return scalars(self.handles[0].figures())
        found: dict[str, float] = {}
        for i, handle in enumerate(self.handles):
            found |= scalars(handle.figures(), prefix=f"fixnorm/optimizer{i}/")
        return found


def _save_checkpoint(
    trainer: Trainer,
    save_checkpoint: Callable[..., None],
    filepath: Any,
    weights_only: bool | None = None,
    **options: Any,
) -> None:
    with folded_state_dicts(trainer.lightning_module) if weights_only else nullcontext():
        save_checkpoint(filepath, weights_only, **options)


def _tell_untrained(trainer: Trainer, module: LightningModule) -> None:
    held = {id(p) for o in trainer.optimizers for g in o.param_groups for p in g["params"]}
    left = [n for n, p in module.named_parameters() if p.requires_grad and id(p) not in held]
    if left:
        more = f" and {len(left) - 3} more" if len(left) > 3 else ""
        rank_zero_warn(
            f"in no optimizer, so not trained: {', '.join(left[:3])}{more}. "
            "fixnorm.param_groups(self) in configure_optimizers has all parameters of the module; "
            "freeze what is not to be trained, requires_grad_(False)"
        )
