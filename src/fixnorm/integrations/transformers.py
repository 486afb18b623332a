"""transformers: ``fixnorm.integrations.transformers.attach(trainer)``, and its three parts.

Trainer's own groups are by name (biases and norms are not decayed) and know nothing of heads and
fixed weights, so the optimizer is built here and handed over. ``from_pretrained`` knows nothing of
scales ``g`` and would drop them, so what the trainer saves for it is folded.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import fields
from typing import Any, Literal

from torch import nn
from torch.optim import Optimizer

from fixnorm.angle_rule import has_matrices
from fixnorm.folding import folded_state_dicts, refuse_untying
from fixnorm.groups import param_groups
from fixnorm.hook import Handle, check_auto
from fixnorm.hook import attach as attach_optimizer
from fixnorm.integrations import given_handle, scalars
from fixnorm.lr_rule import forget
from fixnorm.methods import Length, MethodName, Scope
from fixnorm.own_lr import check_sgd
from fixnorm.roles import Sample
from fixnorm.system.extras import missing

try:
    from transformers import (
        Trainer,
        TrainerCallback,
        TrainerControl,
        TrainerState,
        TrainingArguments,
    )
except ModuleNotFoundError as error:
    raise missing("this integration", error, "transformers") from None

__all__ = ["FixNormCallback", "attach", "create_optimizer", "save_folded"]


def attach(
    trainer: Trainer,
    *,
    lr: Literal["auto"] | None = None,
    steps: int | None = None,
    scope: Scope | None = None,
    length: Length | None = None,
    method: MethodName | None = None,
    sample: Sample | None = None,
    angle_every: int = 0,
    fold_on_save: bool = True,
    **options: Any,
) -> FixNormCallback:
    """From now on the trainer trains its converted model by FixNorm. Call it before ``train``.

    Gives the trainer an optimizer of :func:`create_optimizer`, which has the other arguments,
    unless it was given one, and a :class:`FixNormCallback`, in front of its others: those that
    report (TensorBoard, W&B, …) then have its figures too. Unless ``fold_on_save`` is false, what
    the trainer saves is folded: :func:`save_folded`. ``lr`` and ``steps`` are those of the
    callback; with ``lr="auto"`` the arguments have no ``learning_rate`` of their own.
    """
    callback = FixNormCallback(lr=lr, steps=steps, angle_every=angle_every)
    if fold_on_save:
        save_folded(trainer)
    if trainer.optimizer is None:
        trainer.optimizer = create_optimizer(
            trainer.model,
            trainer.args,
            lr=lr,
            scope=scope,
            length=length,
            method=method,
            sample=sample,
            **options,
        )
    elif options:
        raise ValueError(
            f"the trainer has an optimizer already, which takes no {', '.join(options)} any more: "
            "leave them out, or build the trainer without optimizers"
        )
    trainer.callback_handler.callbacks.insert(0, callback)
    if (
        trainer.accelerator.scaler is None
    ):  # else they are still scaled when they come to be clipped
        accelerator = trainer.accelerator
        accelerator.clip_grad_norm_ = functools.partial(
            _clip_after_a_look, callback, accelerator.clip_grad_norm_
        )
    return callback


def _clip_after_a_look(
    callback: FixNormCallback, clip: Callable[..., Any], *args: Any, **options: Any
) -> Any:
    """``lr="auto"`` follows the gradients as the loss made them."""
    if callback.handle is not None:
        callback.handle.before_clipping()
    return clip(*args, **options)


def save_folded(trainer: Trainer) -> None:
    """From now on the models that the trainer saves are folded; its checkpoints stay as they are.

    ``trainer.save_model()`` and ``trainer.push_to_hub()`` write the plain model, which
    ``from_pretrained`` reads; the folders ``checkpoint-N`` keep the scales, for the training to go
    on from. The model in memory is not touched.
    """
    refuse_untying(trainer.model)
    trainer.save_model = functools.partial(_save_model, trainer, trainer.save_model)


def _save_model(
    trainer: Trainer,
    save_model: Callable[[str | None, bool], None],
    output_dir: str | None = None,
    _internal_call: bool = False,
) -> None:
    # The trainer's own calls with a folder are those of checkpoints, without one those of a push.
    resumable = _internal_call and output_dir is not None
    with nullcontext() if resumable else folded_state_dicts(trainer.model):
        save_model(output_dir, _internal_call)


def create_optimizer(
    model: nn.Module,
    args: TrainingArguments,
    *,
    lr: Literal["auto"] | None = None,
    scope: Scope | None = None,
    length: Length | None = None,
    method: MethodName | None = None,
    sample: Sample | None = None,
    **options: Any,
) -> Optimizer:
    """The optimizer that the training arguments name, over groups by role.

    Pass it on: ``Trainer(..., optimizers=(create_optimizer(model, args), None))``. The scheduler
    stays the trainer's.

    Args:
        model: a converted model.
        args: ``optim``, ``learning_rate``, Adam's betas and epsilon are used as the trainer would;
            ``weight_decay`` is λ of the methods that decay, and must be 0 otherwise.
        lr: ``"auto"`` for an optimizer with lr 1.0, for ``FixNormCallback(lr="auto")``, in place of
            the arguments' ``learning_rate``.
        scope: as in :func:`fixnorm.param_groups`.
        length: as there.
        method: as there.
        sample: as there.
        options: more of the optimizer's own, such as ``momentum=0.9`` for ``optim="sgd"``.
    """
    make, given = Trainer.get_optimizer_cls_and_kwargs(args, model)
    if not (isinstance(make, type) and issubclass(make, Optimizer)):
        raise ValueError(
            f"optim={str(getattr(args.optim, 'value', args.optim))!r} is no optimizer over groups: "
            "use one such as 'sgd' or 'adamw_torch'"
        )
    groups = param_groups(
        model,
        scope=scope,
        length=length,
        method=method,
        weight_decay=args.weight_decay,
        sample=sample,
    )
    if lr is None:
        return make(groups, **(given | options))
    _refuse_learning_rate(args)
    optimizer = make(groups, **(given | {"lr": 1.0} | options))
    if not has_matrices([optimizer]):
        check_sgd(optimizer)
    return optimizer


def _refuse_learning_rate(args: TrainingArguments) -> None:
    (default,) = (field.default for field in fields(args) if field.name == "learning_rate")
    if args.learning_rate not in (default, 1.0):
        raise ValueError(
            f"lr='auto' and learning_rate={args.learning_rate:g}: leave learning_rate out of the "
            "training arguments, or lr='auto' out here"
        )


class FixNormCallback(TrainerCallback):  # type: ignore[misc]
    """Keeps the norms of all fixed groups while the trainer trains, and logs how they do.

    The figures of :func:`fixnorm.integrations.scalars` are in every entry of
    ``trainer.state.log_history`` that has the loss, and go to the callbacks after this one. A
    checkpoint of the trainer has the target norms, as they are in the optimizer's groups.

    Args:
        lr: ``"auto"`` as in :func:`fixnorm.attach`, with an optimizer that is built with
            ``lr=1.0``. The trainer logs that 1.0 times its schedule as ``learning_rate``; what the
            rule makes of it is ``fixnorm/lr``.
        steps: for ``lr="auto"``; those of the trainer, ``state.max_steps``, unless said otherwise.
        angle_every: as in :func:`fixnorm.attach`.
    """

    def __init__(
        self,
        *,
        lr: Literal["auto"] | None = None,
        steps: int | None = None,
        angle_every: int = 0,
    ) -> None:
        check_auto(lr, steps)
        self.handle: Handle | None = None
        """Of the trainer's optimizer, from the start of the training."""
        self._lr = lr
        self._steps = steps
        self._angle_every = angle_every
        self._ours = False

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        *,
        optimizer: Optimizer,
        **kwargs: Any,
    ) -> None:
        """Attach; a checkpoint has been loaded by now, with its target norms."""
        if self.handle is not None and self._ours:  # of a training that ended in an error
            self.handle.remove()
        self.handle = given_handle(optimizer, lr=self._lr)
        self._ours = self.handle is None
        if self.handle is None:
            if self._lr is not None and state.global_step == 0:
                forget(optimizer)  # of the trainer's training before
            steps = state.max_steps if self._lr and self._steps is None else self._steps
            self.handle = attach_optimizer(
                optimizer, lr=self._lr, steps=steps, angle_every=self._angle_every
            )

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        *,
        logs: dict[str, float],
        **kwargs: Any,
    ) -> None:
        """Add the figures to the trainer's own."""
        if self.handle is not None and "loss" in logs:  # not those of an evaluation
            figures = scalars(self.handle.figures())
            logs |= figures
            state.log_history[-1] |= figures

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Detach what was attached here; another training attaches again."""
        if self.handle is not None and self._ours:
            self.handle.remove()
