"""The training loop: small, resumable at any step, the same on one process and on many."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fixnorm.data import OpenSet
from fixnorm.system.interrupt import Interrupt, Interrupted
from fixnorm.system.machine import memory_for
from fixnorm.training.branches import Branches, check_branches, read_start, start_of
from fixnorm.training.checkpoint import Checkpoints, Damaged
from fixnorm.training.compiling import check_compiles
from fixnorm.training.distributed import world
from fixnorm.training.folder import RunFolder, write_json
from fixnorm.training.measurements import Evaluation, evaluate
from fixnorm.training.recipe import Recipe
from fixnorm.training.result import result
from fixnorm.training.resume import RunState
from fixnorm.training.schedule import multiplier
from fixnorm.training.setup import Trainee, build
from fixnorm.training.tasks import Part, task_of
from fixnorm.training.view import Scalars, View
from fixnorm.training.weights import whole, write_weights

__all__ = ["RunOptions", "train"]

# Steps between looks at the clock and at signals where processes have to agree on them.
_AGREE_EVERY = 10
_ROWS_SECONDS = 0.25


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
    branches: tuple[float, ...] = ()
    """Smaller alphas for which to keep the state just before the scale meets them."""
    origin: Path | None = None
    """A run of a larger alpha with such a state, to begin from."""


def train(
    recipe: Recipe,
    *,
    data: Path | None,
    out: Path,
    options: RunOptions | None = None,
    view: View | None = None,
) -> dict[str, Any]:
    """Train by the recipe, or go on with the run in ``out``; returns what the run's result says.

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
        check_branches(options.branches, recipe)
        done = folder.finished()
        if done is not None and whole(folder.weights):
            view.message(f"{out} is finished; give another --out to train again")
            return done.model_dump()
        if done is not None:
            view.message(f"{folder.weights} is missing or damaged: it is written anew")
        if recipe.compile:
            check_compiles(place.device)
        start = None
        if options.origin is not None and not Checkpoints(folder.checkpoints).there:
            start = start_of(options.origin, recipe)
            if start is None:
                view.message(
                    f"{options.origin} has no state from before alpha={recipe.alpha:g} was met:"
                    " starting from the beginning"
                )
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
        run = Run(
            trainee, source, folder, options=options, view=view, interrupt=interrupt, start=start
        )
        stack.callback(run.close)
        return run.train()


class Run:
    """One training from its first or a later step to its end."""

    def __init__(
        self,
        trainee: Trainee,
        data: OpenSet[Any],
        folder: RunFolder,
        *,
        options: RunOptions,
        view: View,
        interrupt: Interrupt,
        start: Path | None = None,
    ) -> None:
        self.trainee, self.data, self.folder = trainee, data, folder
        self.options, self.view, self.interrupt = options, view, interrupt
        self.recipe, self.passes = trainee.recipe, trainee.passes
        self.task, self.world = trainee.passes.task, trainee.passes.world
        self.steps_per_epoch = data.train.steps_per_epoch(self.recipe.batch_size)
        self.times = self.recipe.timetable(self.steps_per_epoch)
        view.message(data.describe())
        if self.recipe.lr == "auto" and self.recipe.against_auto_lr is not None:
            view.message(f"warning: lr auto: {self.recipe.against_auto_lr} (docs/auto-lr.md)")
        self.state = RunState(trainee, steps=self.times.steps)
        self.line = self.state.line
        self.checkpoints = Checkpoints(folder.checkpoints, keep=options.keep)
        self.branches = Branches(folder.branches, options.branches)
        self.rows_written = -math.inf
        self._load(start)
        if self.world.is_first:
            self.branches.forget_after(self.state.step)
        self.state.started = self.saved = time.monotonic()
        self.steps_here = 0
        logs = self.world.is_first and options.tensorboard
        self.scalars = Scalars(folder.tensorboard, self.state.step) if logs else None
        if self.scalars is not None and self.state.step == self.state.began:
            for row in self.state.rows:  # of the run that it left
                self.scalars.row(row)

    # -- the loop ------------------------------------------------------------------------------

    def train(self) -> dict[str, Any]:
        """All steps that are left."""
        if self.state.step:
            self.view.message(f"going on from step {self.state.step} of {self.times.steps}")
        self.view.start(self.state.step, self.times.steps)
        with memory_for(**self.recipe.sizes()):
            return self._finish(self._train())

    def _train(self) -> bool:
        """Step after step; whether the training has diverged."""
        for batch in self._batches():
            self.step(batch)
            if not self._ends_row(self.state.step):
                self.pause()
                continue
            if self._end_row():
                return True
            self.branches.end_row(self.state)
            self.pause(agree=True)  # now that the row is part of the state
        return False

    def _batches(self) -> Iterator[Any]:
        while (left := self.times.steps - self.state.step) > 0:
            epoch, start = divmod(self.state.step, self.steps_per_epoch)
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
        """Whether a line of numbers is due once so many steps are done."""
        return step % self.times.row == 0 or step == self.times.steps

    def step(self, batch: Any) -> None:
        recipe, trainee, step, times = self.recipe, self.trainee, self.state.step, self.times
        last_of_row = self._ends_row(step + 1)
        lr = recipe.peak_lr * multiplier(
            step, steps=times.steps, warmup=times.warmup, schedule=recipe.schedule
        )
        for group in trainee.optimizer.param_groups:
            group["lr"] = lr
        # Dropout and stochastic depth depend on the step alone, so that a resumed run draws the
        # same and no generator state has to be saved.
        self._seed((recipe.seed * 1_000_003 + step) * self.world.size + self.world.rank)
        part = self.passes.part(batch)
        trainee.optimizer.zero_grad(set_to_none=True)
        loss = self._backward(part, risk=last_of_row or step % recipe.mcbr_every == 0)
        if recipe.clip is not None:
            trainee.scaler.unscale_(trainee.optimizer)
            if trainee.handle is not None:
                trainee.handle.before_clipping()
            nn.utils.clip_grad_norm_(trainee.model.parameters(), recipe.clip)
        if last_of_row:
            self.line.before_last_step()
        trainee.scaler.step(trainee.optimizer)
        trainee.scaler.update()
        if last_of_row:
            self.line.after_last_step()
        if trainee.ema is not None:
            trainee.ema.update(trainee.model, step=step)
        self.state.note_scale()
        self.state.step += 1
        self.steps_here += 1
        self._show(loss)

    def _backward(self, whole: Part, *, risk: bool) -> Tensor:
        """Gradients of the mean loss of the batch; returns the loss of its last part."""
        parts, forward = self.recipe.accumulate, self.trainee.forward
        loss = torch.zeros(())
        for i, part in enumerate(self.task.split(whole, parts)):
            waits = self.world.size > 1 and i + 1 < parts
            with forward.no_sync() if waits else nullcontext():  # type: ignore[operator]
                with self.passes.autocast():
                    outputs = forward(*part.inputs)
                    loss = self.task.loss(outputs, part)
                self.trainee.scaler.scale(loss * (part.images / whole.images)).backward()
            self.line.add(part, outputs, loss, risk=risk)
        return loss.detach()

    def _end_row(self) -> bool:
        """Evaluate, write a line of numbers; whether the training has diverged."""
        state, step = self.state, self.state.step
        ends = step == self.times.steps
        average = self._settle_average() if ends else {}
        due = ends or step % self.times.evaluation == 0
        evaluation = self._evaluate() if due else None
        if evaluation is not None:
            state.detail = {**evaluation.score.detail, **average}
        row = self.line.row(epoch=self._epoch(), step=step, evaluation=evaluation)
        state.rows.append(row)
        self.line.reset()
        finite = math.isfinite(row["train_loss"])
        self._write_rows(now=ends or not finite)
        if self.scalars is not None:
            self.scalars.row(row)
        self.view.row(row, self._place(), self.task.metric)
        if not finite:
            unit, done, _ = self._place()
            self.view.message(
                f"diverged: the loss is not finite after {unit} {done}; try a lower lr"
            )
        return not finite

    def _write_rows(self, *, now: bool) -> None:
        """After every epoch, but where epochs take milliseconds: a file waits for its disk."""
        late = time.monotonic() - self.rows_written > _ROWS_SECONDS
        if self.world.is_first and self.state.rows and (now or late):
            self.folder.write_rows(self.state.rows)
            self.rows_written = time.monotonic()

    def _seed(self, seed: int) -> None:
        """As ``torch.manual_seed``, which on a machine without GPUs spends longer on theirs."""
        if self.world.device.type == "cpu":
            torch.default_generator.manual_seed(seed)
        else:
            torch.manual_seed(seed)

    def _epoch(self) -> float:
        """Epochs that are done; a whole number where an epoch has just ended."""
        whole, rest = divmod(self.state.step, self.steps_per_epoch)
        return round(whole + rest / self.steps_per_epoch, 3) if rest else whole

    def _place(self) -> tuple[str, int, int]:
        """Where the training is, in its own unit: ``("epoch", 3, 15)``."""
        steps = self.steps_per_epoch if self.recipe.unit == "epochs" else 1
        return self.recipe.unit.removesuffix("s"), self.state.step // steps, self.recipe.length

    def _settle_average(self) -> dict[str, float]:
        """What is evaluated is what the average is to be."""
        wanted = self.recipe.ema_on_sphere
        epoch = self.state.step // self.steps_per_epoch
        return self.trainee.settle_average(self._epoch_from(epoch, 0) if wanted else None)

    def _evaluate(self) -> Evaluation:
        model = self.trainee.evaluated
        self.world.share_buffers(model)
        share = max(self.recipe.eval_batch_size // self.world.size, 1)
        batches = self.data.val.eval_batches(
            batch_size=share * self.world.size,
            rank=self.world.rank,
            world_size=self.world.size,
        )
        scorer = self.task.scorer(self.data, self.world.device)
        with memory_for(eval_batch_size=self.recipe.eval_batch_size):
            return evaluate(self.passes, model, batches, scorer, head=self.trainee.head_of(model))

    def _finish(self, diverged: bool) -> dict[str, Any]:
        self.view.stop()
        outcome = result(self.state, diverged=diverged, val_images=len(self.data.val))
        if self.world.is_first:
            write_json(self.folder.classes, list(self.data.classes))
            self._draw()
            write_weights(self.folder.weights, self.trainee, self.data)
            self.branches.end(self.state)
            write_json(self.folder.result, outcome)
        self.world.barrier()
        return outcome

    def _draw(self) -> None:
        model = self.trainee.evaluated.eval()
        pictures = self.task.draw(model, self.data, self.options.pictures, self.world.device)
        for k, picture in enumerate(pictures):
            self.folder.pictures.mkdir(exist_ok=True)
            picture.save(self.folder.pictures / f"{k}.png")

    def _show(self, loss: Tensor) -> None:
        numbers = None
        if self.view.wants_numbers():
            elapsed = max(time.monotonic() - self.state.started, 1e-9)
            speed = self.steps_here * self.recipe.batch_size / elapsed
            numbers = {"loss": loss.item(), "lr": self.trainee.lr, "images_per_second": speed}
            if self.scalars is not None:
                self.scalars.step(self.state.step, numbers)
        self.view.step(self.state.step, numbers)

    # -- checkpoints ---------------------------------------------------------------------------

    def pause(self, *, agree: bool = False) -> None:
        """Write a checkpoint when it is time to, and leave when a signal says so."""
        step, every = self.state.step, self.options.checkpoint_steps
        due = every is not None and step % every == 0
        number = 0
        if self.world.size == 1 or step % _AGREE_EVERY == 0 or agree:
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
            raise Interrupted(number, f"stopped after step {step} of {self.times.steps}")

    def _save(self) -> None:
        self._write_rows(now=True)
        taken = self.state.taken()
        if taken is not None:
            self.checkpoints.save(self.state.step, taken)
        self.saved = time.monotonic()

    def _load(self, start: Path | None) -> None:
        found = self.checkpoints.latest(self.state.check)
        for problem in self.checkpoints.damaged:
            self.view.message(f"passed over: {problem}")
        if found is not None:
            self.state.load(found[1])
        elif self.checkpoints.damaged:
            self.view.message("no whole checkpoint is left: starting from the beginning")
        elif start is not None:
            self._branch_off(start)

    def _branch_off(self, start: Path) -> None:
        """Take over the steps that another run has done; it is not needed again."""
        try:
            self.state.load(read_start(start, self.state))
        except (Damaged, OSError) as error:
            self.view.message(f"passed over: {error}: starting from the beginning")
            return
        self._save()
        self.branches.end_row(self.state)
        self.view.message(f"the first {self.state.step} steps are those of {self.options.origin}")

    def close(self) -> None:
        self.view.stop()
        self.line.close()
        if self.scalars is not None:
            self.scalars.close()
