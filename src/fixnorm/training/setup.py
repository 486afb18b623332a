"""From a recipe to what a step needs: model, optimizer, and the names of the weights to watch."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import fixnorm
from fixnorm.attach import Handle
from fixnorm.audit import audit
from fixnorm.convert import convert
from fixnorm.data import Data
from fixnorm.layers import is_capped, is_scaled
from fixnorm.models import create
from fixnorm.training.distributed import World
from fixnorm.training.recipe import Recipe

__all__ = ["Trainee", "build"]

Head = nn.Linear | nn.Conv2d


@dataclass
class Trainee:
    """A model under training."""

    model: nn.Module
    """The module itself: what is saved and evaluated."""
    forward: nn.Module
    """The same under DDP and ``torch.compile``: what a step calls."""
    optimizer: torch.optim.Optimizer
    handle: Handle | None
    """The hook's, where norms are fixed."""
    conv: list[nn.Parameter]
    """The scale-invariant weights that are not the head's: W^Conv."""
    head_name: str | None
    """The classifier, if there is exactly one."""
    ema: Any = None
    """timm's moving average of the model, where the recipe has one."""

    @property
    def evaluated(self) -> nn.Module:
        """What accuracy is measured on."""
        averaged: nn.Module | None = self.ema.module if self.ema is not None else None
        return self.model if averaged is None else averaged

    def head_of(self, model: nn.Module) -> Head | None:
        """The classifier of this model or of a copy of it."""
        layer = None if self.head_name is None else model.get_submodule(self.head_name)
        return layer if isinstance(layer, nn.Linear | nn.Conv2d) else None

    @property
    def head(self) -> Head | None:
        """The classifier under training."""
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
        """g/√C of the head: the run does not depend on any alpha that this never exceeds."""
        if self.head is None or not is_scaled(self.head):
            return None
        return self.head.g.detach() / math.sqrt(self.head.weight.shape[0])


def build(recipe: Recipe, data: Data, world: World) -> Trainee:
    """Make the model from the recipe's seed, convert it for the method, and hook the optimizer."""
    _check(recipe, data, world)
    with _seeded(recipe.seed):
        model = create(
            recipe.model,
            num_classes=len(data.classes),
            in_chans=data.channels,
            drop_path=recipe.drop_path,
            drop=recipe.drop,
        )
    _check_takes_images(model, recipe, data)
    if recipe.method == "weight-decay":
        found = audit(model)
        conv_names: tuple[str, ...] = found.names("fixed")
        measured = [name.removesuffix(".weight") for name in found.names("head")]
        heads = measured if recipe.head is None else [recipe.head]
    else:
        report = convert(model, method=recipe.method, alpha=recipe.alpha, head=recipe.head)
        heads = [head.name for head in report.heads]
        conv_names = tuple(n for n in report.fixed if n.removesuffix(".weight") not in heads)

    model = model.to(world.device)
    if recipe.channels_last:
        model = model.to(memory_format=torch.channels_last)
    groups = fixnorm.param_groups(
        model, scope=recipe.scope, method=recipe.method, weight_decay=recipe.weight_decay
    )
    optimizer = _optimizer(recipe, groups)
    fixes = recipe.method != "weight-decay"
    return Trainee(
        model=model,
        forward=_wrapped(model, recipe, world),
        optimizer=optimizer,
        handle=fixnorm.attach(optimizer) if fixes else None,
        conv=[model.get_parameter(name) for name in conv_names],
        head_name=heads[0] if len(heads) == 1 else None,
        ema=_average(model, recipe),
    )


def _check(recipe: Recipe, data: Data, world: World) -> None:
    """What the recipe alone cannot tell."""
    if len(data.classes) < 2:
        raise ValueError(
            f"{data.name} has one class, {data.classes[0]!r}: a classifier needs two or more"
        )
    parts = world.size * recipe.accumulate
    if recipe.batch_size % parts:
        raise ValueError(
            f"batch_size must divide by {parts} ({world.size} processes, accumulate="
            f"{recipe.accumulate}) but got {recipe.batch_size}: take "
            f"{recipe.batch_size // parts * parts or parts}"
        )


@torch.no_grad()
def _check_takes_images(model: nn.Module, recipe: Recipe, data: Data) -> None:
    size = (data.channels, data.image_size, data.image_size)
    model.eval()  # so that running statistics stay as they are
    try:
        model(torch.zeros(1, *size))
    except (AssertionError, RuntimeError, ValueError) as error:
        raise ValueError(
            f"{recipe.model} does not take {'×'.join(map(str, size))} images: {error}; "
            "set image_size to what it takes"
        ) from None
    model.train()


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def _optimizer(recipe: Recipe, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(
            groups, lr=recipe.lr, momentum=recipe.momentum, nesterov=recipe.momentum > 0
        )
    from timm.optim._optim_factory import (
        create_optimizer_v2,
        get_optimizer_info,
        list_optimizers,
    )

    known = [str(name) for name in list_optimizers()]
    if recipe.optimizer not in known:
        near = difflib.get_close_matches(recipe.optimizer, known, n=3)
        raise ValueError(
            f"timm.optim has no optimizer {recipe.optimizer!r}; near: {', '.join(near) or 'none'}"
        )
    if get_optimizer_info(recipe.optimizer).second_order:
        raise ValueError(
            f"optimizer {recipe.optimizer!r} needs second derivatives, which the loop does not take"
        )
    try:
        made: torch.optim.Optimizer = create_optimizer_v2(
            groups, opt=recipe.optimizer, lr=recipe.lr, momentum=recipe.momentum, weight_decay=0.0
        )
    except (AssertionError, ImportError, ValueError) as error:  # timm asserts that CUDA is there
        raise ValueError(f"optimizer {recipe.optimizer!r} cannot be made here: {error}") from None
    return made


def _wrapped(model: nn.Module, recipe: Recipe, world: World) -> nn.Module:
    forward: nn.Module = torch.compile(model) if recipe.compile else model  # type: ignore[assignment]
    if world.size > 1:
        devices = [world.device.index] if world.device.type == "cuda" else None
        forward = nn.parallel.DistributedDataParallel(forward, device_ids=devices)
    return forward


def _average(model: nn.Module, recipe: Recipe) -> Any:
    if recipe.ema is None:
        return None
    from timm.utils.model_ema import ModelEmaV3

    return ModelEmaV3(model, decay=recipe.ema)
