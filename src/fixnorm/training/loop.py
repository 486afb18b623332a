"""The training loop: small, resumable at any step, the same on one process and on many."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fixnorm.data import OpenSet
from fixnorm.system.interrupt import Interrupt, Interrupted
from fixnorm.system.machine import memory_for
from fixnorm.training.average import settle_average
from fixnorm.training.checkpoint import Checkpoints, Damaged
from fixnorm.training.distributed import World, world
from fixnorm.training.evaluate import Evaluation, evaluate
from fixnorm.training.figures import Running, TurnOfLastStep, columns, metrics_row
from fixnorm.training.folder import RunFolder, differences, write_csv, write_json
from fixnorm.training.recipe import Recipe
from fixnorm.training.result import result, write_weights
from fixnorm.training.resume import check_state
from fixnorm.training.scalars import Scalars
from fixnorm.training.schedule import multiplier
from fixnorm.training.setup import Trainee, build
from fixnorm.training.tasks import Part, task_of
from fixnorm.training.view import View
from fixnorm.training.weights import whole

__all__ = ["RunOptions", "train"]

# Steps between looks at the clock and at signals where processes have to agree on them.
_AGREE_EVERY = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOptions:
    """What may differ between two runs of one recipe without changing a single weight."""

    checkpoint_steps: int | None = None
    """Write a checkpoint every n steps."""
    checkpoint_minutes: float = 5.0
    """Write a checkpoint when this much time has passed since the last."""
    keep: int = 2
    """Checkpoints to keep."""
    skip_broken: bool = False
    """Leave out images that do not decode."""
    tensorboard: bool = True
    pictures: int = 4
    """Validation images to draw the predictions of a dense task on, in the end."""


def train(
    recipe: Recipe,
    *,
    data: Path | None,
    out: Path,
    options: RunOptions | None = None,
    view: View | None = None,
) -> dict[str, Any]:
    """Train by the recipe, or go on with the run in ``out``; returns the content of result.json.

    Args:
        recipe: what to train.
        data: folder of the images; none for embedded data.
        out: folder of the run. One that holds an unfinished run of the same recipe is continued.
        options: checkpoints and logging.
        view: where progress is shown.
    """
    options = options or RunOptions()
    view = view or View()
    folder = RunFolder(out)
    with ExitStack() as stack:
        place = stack.enter_context(world())
        view = view if place.is_first else View()
        stack.callback(view.stop)
        folder.check(recipe)
        done = folder.finished()
        if done is not None and whole(folder.weights):
            view.message(f"{out} is finished; give another --out to train again")
            return done.model_dump()
        if done is not None:
            view.message(f"{folder.weights} is missing or damaged: it is written anew")
        with memory_for(**recipe.sizes()):
            source = task_of(recipe).open(
                data, skip_broken=options.skip_broken, progress=view.loading
            )
        stack.callback(source.close)
        source.train.steps_per_epoch(recipe.batch_size)
        with memory_for(model=recipe.model, **recipe.sizes()):
            trainee = build(recipe, source, place)
        if place.is_first:  # nothing is written before all of the input is known to be good
            stack.enter_context(folder.owned())
            folder.prepare(recipe)
        place.barrier()
        interrupt = stack.enter_context(Interrupt())
        run = _Run(recipe, source, trainee, folder, options, view, place, interrupt)
        stack.callback(run.close)
        return run.train()


class _Run:
    """One training from its first or a later step to its end."""

    def __init__(
        self,
        recipe: Recipe,
        data: OpenSet[Any],
        trainee: Trainee,
        folder: RunFolder,
        options: RunOptions,
        view: View,
        place: World,
        interrupt: Interrupt,
    ) -> None:
        self.recipe, self.data, self.trainee = recipe, data, trainee
        self.task = task_of(recipe)
        self.folder, self.options = folder, options
        self.view, self.world, self.interrupt = view, place, interrupt
        self.steps_per_epoch = data.train.steps_per_epoch(recipe.batch_size)
        self.times = recipe.timetable(self.steps_per_epoch)
        view.message(data.describe())
        self.scaler = torch.amp.GradScaler(place.device.type, enabled=recipe.precision == "fp16")
        self.memory_format = (
            torch.channels_last if recipe.channels_last else torch.contiguous_format
        )
        self.running = Running(place.device)
        self.risk = self.task.risk(trainee.model, trainee.head, place.device)
        self.turn = TurnOfLastStep(self.trainee)
        self.checkpoints = Checkpoints(folder.checkpoints, keep=options.keep)
        self.step = 0
        self.rows: list[dict[str, Any]] = []
        self.detail: dict[str, float | None] = {}
        self.largest_scale = self.trainee.relative_scale()
        self.seconds_before = 0.0
        self._load()
        self.started = self.saved = time.monotonic()
        self.steps_here = 0
        self.scalars = Scalars(folder.tensorboard, self.step) if self._logs() else None

    # -- the loop ------------------------------------------------------------------------------

    def train(self) -> dict[str, Any]:
        """All steps that are left."""
        if self.step:
            self.view.message(f"going on from step {self.step} of {self.times.steps}")
        self.view.start(self.step, self.times.steps)
        with memory_for(**self.recipe.sizes()):
            return self._finish(self._train())

    def _train(self) -> bool:
        """Step after step; whether the training has diverged."""
        for batch in self._batches():
            self._step(batch)
            if not self._ends_row(self.step):
                self._pause()
                continue
            if self._end_row():
                return True
            self._pause(agree=True)  # now that the row is part of the state
        return False

    def _batches(self) -> Iterator[Any]:
        """Those of all steps that are left, epoch after epoch."""
        while (left := self.times.steps - self.step) > 0:
            epoch, start = divmod(self.step, self.steps_per_epoch)
            yield from islice(self._epoch_from(epoch, start), left)

    def _epoch_from(self, epoch: int, start: int) -> Iterable[Any]:
        """This process's share of an epoch's batches."""
        return self.data.train.batches(
            epoch=epoch,
            batch_size=self.recipe.batch_size,
            rank=self.world.rank,
            world_size=self.world.size,
            start=start,
        )

    def _ends_row(self, step: int) -> bool:
        """Whether a line of figures is due once so many steps are done."""
        return step % self.times.row == 0 or step == self.times.steps

    def _step(self, batch: Any) -> None:
        recipe, trainee, times = self.recipe, self.trainee, self.times
        last_of_row = self._ends_row(self.step + 1)
        lr = recipe.lr * multiplier(
            self.step, steps=times.steps, warmup=times.warmup, schedule=recipe.schedule
        )
        for group in trainee.optimizer.param_groups:
            group["lr"] = lr
        # Dropout and stochastic depth depend on the step alone, so that a resumed run draws the
        # same and no generator state has to be saved.
        torch.manual_seed((recipe.seed * 1_000_003 + self.step) * self.world.size + self.world.rank)
        part = self.task.part(batch, self.world.device, self.memory_format)
        trainee.optimizer.zero_grad(set_to_none=True)
        loss = self._backward(part, count=last_of_row)
        if recipe.clip is not None:
            self.scaler.unscale_(trainee.optimizer)
            nn.utils.clip_grad_norm_(trainee.model.parameters(), recipe.clip)
        if last_of_row:
            self.turn.before()
        self.scaler.step(trainee.optimizer)
        self.scaler.update()
        if last_of_row:
            self.turn.after()
        if trainee.ema is not None:
            trainee.ema.update(trainee.model, step=self.step)
        if self.largest_scale is not None:
            scale = trainee.relative_scale()
            assert scale is not None
            self.largest_scale = torch.maximum(self.largest_scale, scale)
        self.step += 1
        self.steps_here += 1
        self._show(loss, lr)

    def _backward(self, whole: Part, *, count: bool) -> Tensor:
        """Gradients of the mean loss of the batch; returns the loss of its last part."""
        parts = self.recipe.accumulate
        count = count or self.step % self.recipe.mcbr_every == 0
        loss = torch.zeros(())
        for i, part in enumerate(self.task.split(whole, parts)):
            forward = self.trainee.forward
            waits = self.world.size > 1 and i + 1 < parts
            with forward.no_sync() if waits else nullcontext():  # type: ignore[operator]
                with self._autocast():
                    outputs = forward(*part.inputs)
                    loss = self.task.loss(outputs, part)
                self.scaler.scale(loss * (part.images / whole.images)).backward()
            self.running.update(loss, part.images, self.task.correct(outputs, part))
            if count:
                self.risk.update(part.labels)
        return loss.detach()

    def _autocast(self) -> AbstractContextManager[object]:
        dtypes = {"bf16": torch.bfloat16, "fp16": torch.float16}
        dtype = dtypes.get(self.recipe.precision)
        return torch.autocast(self.world.device.type, dtype=dtype, enabled=dtype is not None)

    def _end_row(self) -> bool:
        """Evaluate, write a line of figures; whether the training has diverged."""
        due = self.step % self.times.evaluation == 0 or self.step == self.times.steps
        average = self._settle_average() if self.step == self.times.steps else {}
        evaluation = self._evaluate() if due else None
        if evaluation is not None:
            self.detail = {**evaluation.score.detail, **average}
        lr = self.trainee.optimizer.param_groups[0]["lr"]
        row = metrics_row(
            self.task.metric,
            self._epoch(),
            self.step,
            lr,
            self.trainee,
            self.running,
            self.risk,
            self.turn,
            evaluation,
            self.world,
        )
        self.rows.append(row)
        self.running.reset(self.risk)
        if self.world.is_first:
            write_csv(self.folder.metrics, self.rows)
        if self.scalars is not None:
            self.scalars.row(row)
        self.view.row(row, self._place(), self.task.metric)
        finite = math.isfinite(row["train_loss"])
        if not finite:
            unit, done, _ = self._place()
            self.view.message(
                f"diverged: the loss is not finite after {unit} {done}; try a lower lr"
            )
        return not finite

    def _epoch(self) -> float:
        """Epochs that are done; a whole number where an epoch has just ended."""
        whole, rest = divmod(self.step, self.steps_per_epoch)
        return round(whole + rest / self.steps_per_epoch, 3) if rest else whole

    def _place(self) -> tuple[str, int, int]:
        """Where the training is, in its own unit: ``("epoch", 3, 15)``."""
        steps = self.steps_per_epoch if self.recipe.unit == "epochs" else 1
        return self.recipe.unit.removesuffix("s"), self.step // steps, self.recipe.length

    def _settle_average(self) -> dict[str, float]:
        """What is evaluated is what the average is to be."""
        wanted = self.recipe.ema_on_sphere
        batches = self._epoch_from(self.step // self.steps_per_epoch, 0) if wanted else None
        return settle_average(self.trainee, batches, self._forward, self.world)

    def _forward(self, model: nn.Module, batch: Any) -> Any:
        part = self.task.part(batch, self.world.device, self.memory_format)
        with self._autocast():
            return model(*part.inputs)

    def _evaluate(self) -> Evaluation:
        model = self.trainee.evaluated
        self.world.share_buffers(model)
        share = max(self.recipe.eval_batch_size // self.world.size, 1)
        batches = self.data.val.eval_batches(
            batch_size=share * self.world.size,
            rank=self.world.rank,
            world_size=self.world.size,
        )
        head = self.trainee.head_of(model)
        with memory_for(eval_batch_size=self.recipe.eval_batch_size):
            return evaluate(
                self.task,
                model,
                head,
                batches,
                self.task.scorer(self.data, self.world.device),
                self.world,
                self._autocast(),
                self.memory_format,
            )

    def _finish(self, diverged: bool) -> dict[str, Any]:
        self.view.stop()
        scale = self.largest_scale
        outcome = result(
            self.recipe,
            self.task.metric,
            self.rows,
            detail=self.detail,
            seconds=self._seconds(),
            images=self.step * self.recipe.batch_size,
            largest_scale=None if scale is None else scale.item(),
            processes=self.world.size,
            diverged=diverged,
        )
        if self.world.is_first:
            write_json(self.folder.classes, list(self.data.classes))
            self._draw()
            write_weights(
                self.folder.weights,
                self.trainee,
                self.recipe,
                len(self.data.classes),
                self.data.channels,
            )
            write_json(self.folder.result, outcome)
        self.world.barrier()
        return outcome

    def _draw(self) -> None:
        model = self.trainee.evaluated.eval()
        pictures = self.task.draw(model, self.data, self.options.pictures, self.world.device)
        for k, picture in enumerate(pictures):
            self.folder.pictures.mkdir(exist_ok=True)
            picture.save(self.folder.pictures / f"{k}.png")

    # -- what is shown -------------------------------------------------------------------------

    def _logs(self) -> bool:
        return self.world.is_first and self.options.tensorboard

    def _show(self, loss: Tensor, lr: float) -> None:
        figures = None
        if self.view.wants_figures():
            elapsed = max(time.monotonic() - self.started, 1e-9)
            speed = self.steps_here * self.recipe.batch_size / elapsed
            figures = {"loss": loss.item(), "lr": lr, "images_per_second": speed}
            if self.scalars is not None:
                self.scalars.step(self.step, figures)
        self.view.step(self.step, figures)

    # -- checkpoints ---------------------------------------------------------------------------

    def _pause(self, *, agree: bool = False) -> None:
        """Write a checkpoint when it is time to, and leave when a signal says so."""
        every = self.options.checkpoint_steps
        due = every is not None and self.step % every == 0
        number = 0
        if self.world.size == 1 or self.step % _AGREE_EVERY == 0 or agree:
            late = time.monotonic() - self.saved > 60 * self.options.checkpoint_minutes
            # One number tells both: a signal's number, or 1 << 8 for the clock.
            agreed = self.world.largest(self.interrupt.signal or (int(late) << 8))
            number = agreed & 0xFF
            due = due or bool(agreed)
        if due:
            self._save()
        if number:
            self.view.stop()
            self.world.barrier()  # torchrun ends all processes when one leaves
            raise Interrupted(number, f"stopped after step {self.step} of {self.times.steps}")

    def _save(self) -> None:
        sums = self.world.gather(self.running.state(self.risk))
        self.world.share_buffers(self.trainee.model)
        if self.world.is_first:
            ema = self.trainee.ema
            state = {
                "recipe": self.recipe.to_dict(),
                "step": self.step,
                "model": self.trainee.model.state_dict(),
                "optimizer": self.trainee.optimizer.state_dict(),
                "ema": None if ema is None else ema.module.state_dict(),
                "scaler": self.scaler.state_dict(),
                "running": sums,
                "angle": self.turn.angle,
                "rows": self.rows,
                "detail": self.detail,
                "largest_scale": self.largest_scale,
                "seconds": self._seconds(),
            }
            self.checkpoints.save(self.step, state)
        self.saved = time.monotonic()

    def _check_state(self, path: Path, state: dict[str, Any]) -> None:
        different = differences(state["recipe"], self.recipe)
        if different:
            raise ValueError(
                f"{path} is a checkpoint of another recipe: {different}; remove it or give another"
                " --out"
            )
        try:
            check_state(
                state, self.trainee, steps=self.times.steps, columns=columns(self.task.metric)
            )
        except Damaged as error:
            raise Damaged(f"{path} is no state of this run: {error}") from None

    def _load(self) -> None:
        found = self.checkpoints.latest(self._check_state)
        for problem in self.checkpoints.damaged:
            self.view.message(f"passed over: {problem}")
        if found is None:
            if self.checkpoints.damaged:
                self.view.message("no whole checkpoint is left: starting from the beginning")
            return
        _, state = found
        self.trainee.model.load_state_dict(state["model"])
        self.trainee.optimizer.load_state_dict(state["optimizer"])
        if self.trainee.ema is not None:
            self.trainee.ema.module.load_state_dict(state["ema"])
        self.scaler.load_state_dict(state["scaler"])
        self.step, self.rows, self.detail = state["step"], state["rows"], state["detail"]
        self.turn.angle, self.seconds_before = state["angle"], state["seconds"]
        if state["largest_scale"] is not None:
            self.largest_scale = state["largest_scale"].to(self.world.device)
        sums = state["running"]
        if len(sums) == self.world.size:
            self.running.load(sums[self.world.rank], self.risk)
        elif self.world.is_first:  # another number of processes: the sums still add up
            self.running.load(torch.stack(sums).sum(0), self.risk)

    def _seconds(self) -> float:
        return self.seconds_before + time.monotonic() - self.started

    def close(self) -> None:
        """Let go of hooks and files."""
        self.view.stop()
        self.risk.remove()
        if self.scalars is not None:
            self.scalars.close()
