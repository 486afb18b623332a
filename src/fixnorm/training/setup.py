"""From a recipe to what a step needs: model, optimizer, and the names of the weights to watch."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import fixnorm
from fixnorm.averages import measure_average, project_average_
from fixnorm.batch_statistics import update_statistics_
from fixnorm.conversion import convert
from fixnorm.data import OpenSet
from fixnorm.hook import Handle
from fixnorm.layers import is_capped, is_scaled
from fixnorm.methods import METHODS
from fixnorm.roles import audit
from fixnorm.system.nearest import nearest
from fixnorm.training.compiling import compiled
from fixnorm.training.distributed import World
from fixnorm.training.kinds.dense import DenseRecipe
from fixnorm.training.recipe import Recipe
from fixnorm.training.tasks import Part, Task, task_of
from fixnorm.training.tasks.task import Head

__all__ = ["Passes", "Trainee", "build", "make_optimizer"]

_HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Passes:
    """How batches go through a model: on which device, in which layout and precision."""

    task: Task[Any, Any]
    world: World

    def part(self, batch: Any) -> Part:
        """A batch, where the model is."""
        last = self.task.recipe.channels_last
        layout = torch.channels_last if last else torch.contiguous_format
        return self.task.part(batch, self.world.device, layout)

    def autocast(self) -> AbstractContextManager[object]:
        half = _HALVES.get(self.task.recipe.precision)
        return torch.autocast(self.world.device.type, dtype=half, enabled=half is not None)

    def outputs(self, model: nn.Module, batch: Any) -> Any:
        part = self.part(batch)
        with self.autocast():
            return model(*part.inputs)


@dataclass
class Trainee:
    """A model under training."""

    passes: Passes
    """How batches go through it."""
    model: nn.Module
    """The module itself: what is saved and evaluated."""
    forward: nn.Module
    """The same under DDP and ``torch.compile``: what a step calls."""
    optimizer: torch.optim.Optimizer
    handle: Handle | None
    """The hook's, where norms are fixed."""
    scaler: torch.amp.GradScaler
    conv: list[nn.Parameter]
    """The scale-invariant weights that are not the head's: W^Conv."""
    heads: tuple[str, ...]
    """The classifiers, the main one first; those of a segmenter are two."""
    ema: Any = None
    """timm's moving average of the model, where the recipe has one."""

    @property
    def lr(self) -> float:
        """The learning rate of the last step; waits for the device where it follows from it."""
        if self.recipe.lr == "auto" and self.handle is not None:
            groups = self.handle.figures().groups
            return groups[0].lr if groups else 0.0
        lr: float = self.optimizer.param_groups[0]["lr"]
        return lr

    @property
    def recipe(self) -> Recipe:
        recipe: Recipe = self.passes.task.recipe
        return recipe

    @property
    def evaluated(self) -> nn.Module:
        """What accuracy is measured on."""
        averaged: nn.Module | None = self.ema.module if self.ema is not None else None
        return self.model if averaged is None else averaged

    def head_of(self, model: nn.Module) -> Head | None:
        """The main classifier of this model or of a copy of it."""
        layer = model.get_submodule(self.heads[0]) if self.heads else None
        return layer if isinstance(layer, nn.Linear | nn.Conv2d) else None

    @property
    def head(self) -> Head | None:
        return self.head_of(self.model)

    def head_scale(self) -> Tensor | None:
        """‖W‖ of a plain head, g of a scaled one; on the device."""
        if self.head is None:
            return None
        return (self.head.g if is_scaled(self.head) else self.head.weight.norm()).detach()

    def cap(self) -> float | None:
        """α√C, where the head has a cap."""
        return self.head.cap if self.head is not None and is_capped(self.head) else None

    def relative_scale(self) -> Tensor | None:
        """The largest |g|/√C of the heads: the run depends on no alpha that this never exceeds."""
        layers = [self.model.get_submodule(name) for name in self.heads]
        scales = [x.g.detach().abs() / math.sqrt(x.outputs) for x in layers if is_scaled(x)]
        if not scales or len(scales) < len(layers):
            return None
        return scales[0] if len(scales) == 1 else torch.stack(scales).amax(0)

    def settle_average(self, batches: Iterable[Any] | None) -> dict[str, float]:
        """The moving average's norm in units of the target, the least of all groups, as found.

        Nothing where there is no average or no fixed group, or where the training has diverged.

        Args:
            batches: this process's, to take batch statistics of once the average is back on the
                sphere; none to leave it where it is.
        """
        if self.ema is None or self.handle is None:
            return {}
        average = self.ema.module
        ratio = min(found.ratio for found in measure_average(average, self.optimizer))
        if not math.isfinite(ratio):
            return {}
        if batches is not None:
            project_average_(average, self.optimizer)
            update_statistics_(average, batches, run=self.passes.outputs)
            self.passes.world.average_buffers(average)
        return {"ema_ratio": ratio}


def build(recipe: Recipe, data: OpenSet[Any], world: World) -> Trainee:
    """Make the model from the recipe's seed, convert it for the method, and hook the optimizer."""
    _check_parts(recipe, world)
    task = task_of(recipe)
    task.check(data)
    with _seeded(recipe.seed):
        model = task.network(len(data.classes), data.channels)
    task.prepare(model, data)
    with _seeded(recipe.seed):
        heads, conv_names = _converted(model, recipe, task)
    model = _with_shared_norms(model, recipe, world).to(world.device)
    if recipe.channels_last:
        model = model.to(memory_format=torch.channels_last)
    fixes = METHODS[recipe.method].fixes
    by_matrix = fixes and recipe.scope == "matrix"
    groups = fixnorm.param_groups(
        model,
        scope=recipe.scope if fixes else None,
        length=recipe.step_length if by_matrix else None,
        hidden_apart=by_matrix and recipe.optimizer.endswith("muon"),
        method=recipe.method,
        weight_decay=recipe.weight_decay,
    )
    optimizer = make_optimizer(recipe, groups)
    return Trainee(
        passes=Passes(task, world),
        model=model,
        forward=_wrapped(model, recipe, world),
        optimizer=optimizer,
        handle=_attached(recipe, optimizer, data) if fixes else None,
        scaler=torch.amp.GradScaler(world.device.type, enabled=recipe.precision == "fp16"),
        conv=[model.get_parameter(name) for name in conv_names],
        heads=tuple(task.heads(heads)),
        ema=_average(model, recipe),
    )


def _attached(recipe: Recipe, optimizer: torch.optim.Optimizer, data: OpenSet[Any]) -> Handle:
    if recipe.lr != "auto":
        return fixnorm.attach(optimizer)
    times = recipe.timetable(data.train.steps_per_epoch(recipe.batch_size))
    return fixnorm.attach(optimizer, lr="auto", steps=times.steps)


def _converted(
    model: nn.Module, recipe: Recipe, task: Task[Any, Any]
) -> tuple[list[str], tuple[str, ...]]:
    """The heads, and the scale-invariant weights that are not theirs."""
    fixes, sample = METHODS[recipe.method].fixes, task.sample()
    if not fixes and not task.normalises_always:
        found = audit(model, sample)
        return [name.removesuffix(".weight") for name in found.names("head")], found.names("fixed")
    with warnings.catch_warnings():  # a fresh head has no outputs to lose
        warnings.filterwarnings("ignore", message=".* is cut to its cap")
        report = convert(
            model,
            method=recipe.method if fixes else "wn-fc",
            alpha=recipe.alpha,
            scope=recipe.scope if fixes else None,
            radius=recipe.radius,
            sample=sample,
            head=recipe.head,
        )
    heads = [head.name for head in report.heads]
    return heads, tuple(n for n in report.fixed if n.removesuffix(".weight") not in heads)


def _check_parts(recipe: Recipe, world: World) -> None:
    parts = world.size * recipe.accumulate
    if recipe.batch_size % parts:
        raise ValueError(
            f"batch_size must divide by {parts} ({world.size} processes, accumulate="
            f"{recipe.accumulate}) but got {recipe.batch_size}: take "
            f"{recipe.batch_size // parts * parts or parts}"
        )


def _with_shared_norms(model: nn.Module, recipe: Recipe, world: World) -> nn.Module:
    """Batch statistics over all GPUs, where the recipe wants them and there are several."""
    wanted = isinstance(recipe, DenseRecipe) and recipe.sync_norms
    if not (wanted and world.size > 1 and world.device.type == "cuda"):
        return model
    converted: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    return converted


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def make_optimizer(recipe: Recipe, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    """The recipe's: torch's SGD, or one of timm's by name."""
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(
            groups,
            lr=recipe.peak_lr,
            momentum=recipe.momentum,
            nesterov=recipe.nesterov and recipe.momentum > 0,
        )
    from timm.optim import create_optimizer_v2, get_optimizer_info, list_optimizers

    known = [str(name) for name in list_optimizers()]
    if recipe.optimizer not in known:
        near = ", ".join(nearest(recipe.optimizer, known)) or "none"
        raise ValueError(f"timm.optim has no optimizer {recipe.optimizer!r}; near: {near}")
    if get_optimizer_info(recipe.optimizer).second_order:
        raise ValueError(
            f"optimizer {recipe.optimizer!r} needs second derivatives, which the loop does not take"
        )
    try:
        made: torch.optim.Optimizer = create_optimizer_v2(
            groups,
            opt=recipe.optimizer,
            lr=recipe.peak_lr,
            momentum=recipe.momentum,
            weight_decay=0.0,
        )
    except (AssertionError, ImportError, ValueError) as error:  # timm asserts that CUDA is there
        raise ValueError(f"optimizer {recipe.optimizer!r} cannot be made here: {error}") from None
    return made


def _wrapped(model: nn.Module, recipe: Recipe, world: World) -> nn.Module:
    forward = compiled(model) if recipe.compile else model
    if world.size > 1:
        devices = [world.device.index] if world.device.type == "cuda" else None
        forward = nn.parallel.DistributedDataParallel(forward, device_ids=devices)
    return forward


def _average(model: nn.Module, recipe: Recipe) -> Any:
    if recipe.ema is None:
        return None
    from timm.utils.model_ema import ModelEmaV3

    return ModelEmaV3(model, decay=recipe.ema)
