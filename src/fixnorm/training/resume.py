"""Where a run stands: what a checkpoint holds, taken, checked, and put back.

Nothing is loaded before all of it fits: a state that is found wrong half-way would leave its first
half in the model.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fixnorm.system import brief
from fixnorm.training.checkpoint import Damaged
from fixnorm.training.measurements import SUMS, Line, columns
from fixnorm.training.recipe import differences
from fixnorm.training.setup import Trainee

__all__ = ["RunState"]

_LIKE_WEIGHTS = ("momentum_buffer", "exp_avg", "exp_avg_sq")
"""What optimizers keep in the shape of the weight itself."""


class RunState:
    """All that changes from step to step, in the trainee and beside it."""

    def __init__(self, trainee: Trainee, *, steps: int) -> None:
        self.trainee, self.line, self.steps = trainee, Line(trainee), steps
        self._world = trainee.passes.world
        self.step = 0
        self.began = 0
        """The step from which it is this run's own work; those before are of the run it left."""
        self.rows: list[dict[str, Any]] = []
        """Of ``metrics.csv``."""
        self.detail: dict[str, float | None] = {}
        """What the last score is made of."""
        self.largest_scale = trainee.relative_scale()
        self._seconds_before = 0.0
        self.started = time.monotonic()

    @property
    def seconds(self) -> float:
        """Spent on the run, by all processes that went on with it one after another."""
        return self._seconds_before + time.monotonic() - self.started

    @property
    def share(self) -> float:
        """How much of the whole training this run has done itself."""
        return (self.step - self.began) / self.steps

    @property
    def scale(self) -> float | None:
        """The largest |g|/√C so far; waits for the device."""
        return None if self.largest_scale is None else self.largest_scale.item()

    def note_scale(self) -> None:
        """Keep the largest scale of the heads."""
        if self.largest_scale is not None:
            scale = self.trainee.relative_scale()
            assert scale is not None
            self.largest_scale = torch.maximum(self.largest_scale, scale)

    def taken(self) -> dict[str, Any] | None:
        """What a checkpoint holds, on the first process; all have to call it."""
        sums = self._world.gather(self.line.state())
        trainee = self.trainee
        self._world.share_buffers(trainee.model)
        if not self._world.is_first:
            return None
        return {
            "recipe": trainee.recipe.to_dict(),
            "step": self.step,
            "began": self.began,
            "model": trainee.model.state_dict(),
            "optimizer": trainee.optimizer.state_dict(),
            "ema": None if trainee.ema is None else trainee.ema.module.state_dict(),
            "scaler": trainee.scaler.state_dict(),
            "running": sums,
            "angle": self.line.angle,
            "rows": self.rows,
            "detail": self.detail,
            "largest_scale": self.largest_scale,
            "seconds": self.seconds,
        }

    def check(self, path: Path, state: Mapping[str, Any]) -> None:
        """Refuse, as :class:`Damaged`, what the run could not go on from."""
        different = differences(state["recipe"], self.trainee.recipe)
        if different:
            raise ValueError(
                f"{path} is a checkpoint of another recipe: {different}; remove it or give another"
                " --out"
            )
        try:
            _check_kinds(state, self.steps)
            _check_weights(state, self.trainee)
            _check_rows(state["rows"], columns(self.trainee.passes.task.metric))
        except Damaged as error:
            raise Damaged(f"{path} is no state of this run: {error}") from None

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`taken` took."""
        trainee, line = self.trainee, self.line
        trainee.model.load_state_dict(state["model"])
        trainee.optimizer.load_state_dict(state["optimizer"])
        if trainee.ema is not None:
            trainee.ema.module.load_state_dict(state["ema"])
        trainee.scaler.load_state_dict(state["scaler"])
        self.step, self.rows, self.detail = state["step"], state["rows"], state["detail"]
        self.began = state.get("began", 0)  # version 0.1 had no branches
        line.angle, self._seconds_before = state["angle"], state["seconds"]
        if state["largest_scale"] is not None:
            self.largest_scale = state["largest_scale"].to(self._world.device)
        sums = state["running"]
        if len(sums) == self._world.size:
            line.load(sums[self._world.rank])
        elif self._world.is_first:  # another number of processes: the sums still add up
            line.load(torch.stack(sums).sum(0))


def _check_weights(state: Mapping[str, Any], trainee: Trainee) -> None:
    _check_tensors("model", state["model"], trainee.model.state_dict())
    if trainee.ema is not None:
        _check_tensors("ema", state["ema"], trainee.ema.module.state_dict())
    _check_optimizer(state["optimizer"], trainee.optimizer)


def _check_rows(rows: list[Any], columns: tuple[str, ...]) -> None:
    for place, row in enumerate(rows):
        if not isinstance(row, dict) or tuple(row) != columns:
            raise Damaged(f"rows[{place}] is no line of figures")
        if not all(_is_number(value) or value is None for value in row.values()):
            raise Damaged(f"rows[{place}] holds what is no number")


def _check_kinds(state: Mapping[str, Any], steps: int) -> None:
    wanted: dict[str, tuple[type, ...]] = {
        "step": (int,),
        "model": (dict,),
        "optimizer": (dict,),
        "ema": (dict, type(None)),
        "scaler": (dict,),
        "running": (list,),
        "angle": (float, type(None)),
        "rows": (list,),
        "detail": (dict,),
        "largest_scale": (Tensor, type(None)),
        "seconds": (float, int),
    }
    for key, kinds in wanted.items():
        if key not in state:
            raise Damaged(f"{key} is missing")
        if not isinstance(state[key], kinds) or isinstance(state[key], bool):
            raise Damaged(f"{key} is of type {type(state[key]).__name__}")
    if not 0 <= state["step"] <= steps:
        raise Damaged(f"its step {state['step']} is not one of the run's {steps}")
    began = state.get("began", 0)
    if not isinstance(began, int) or not 0 <= began <= state["step"]:
        raise Damaged(f"began is {brief(began)}, not one of its {state['step']} steps")
    if not (math.isfinite(state["seconds"]) and state["seconds"] >= 0):
        raise Damaged(f"seconds is {state['seconds']}")
    sums = state["running"]
    if not sums or not all(isinstance(s, Tensor) and s.shape == (SUMS,) for s in sums):
        raise Damaged("running is no list of sums")
    scale = state["largest_scale"]
    if scale is not None and scale.numel() != 1:
        raise Damaged("largest_scale is not one number")
    detail = state["detail"].items()
    if not all(isinstance(k, str) and (v is None or _is_number(v)) for k, v in detail):
        raise Damaged("detail holds what is no number")


def _check_tensors(name: str, there: Any, here: Mapping[str, Any]) -> None:
    if not isinstance(there, dict) or there.keys() != here.keys():
        raise Damaged(f"{name} has other weights than the recipe's model")
    for key, tensor in here.items():
        found = there[key]
        if not isinstance(tensor, Tensor):
            continue
        if not isinstance(found, Tensor) or found.shape != tensor.shape:
            raise Damaged(f"{name}.{key} has another shape than the model's {list(tensor.shape)}")


def _check_optimizer(there: Mapping[str, Any], optimizer: torch.optim.Optimizer) -> None:
    """The groups of the optimizer, and for each weight a state of its shape."""
    here = optimizer.state_dict()["param_groups"]
    groups, states = there.get("param_groups"), there.get("state")
    if not isinstance(groups, list) or not isinstance(states, dict) or len(groups) != len(here):
        raise Damaged("optimizer has other groups than the recipe's")
    for place, (found, group) in enumerate(zip(groups, here, strict=True)):
        if not isinstance(found, dict) or found.keys() != group.keys():
            raise Damaged(f"optimizer.param_groups[{place}] has other options than the recipe's")
        for key, value in group.items():
            if (key == "params" and found[key] != value) or not _alike(found[key], value):
                raise Damaged(f"optimizer.param_groups[{place}].{key} is another than the recipe's")
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    for number, kept in states.items():
        if not isinstance(number, int) or not 0 <= number < len(weights):
            raise Damaged("optimizer.state is of a weight that is not there")
        if not isinstance(kept, dict):
            raise Damaged(f"optimizer.state[{number}] is no state")
        for key in _LIKE_WEIGHTS:
            value = kept.get(key)
            if value is None:
                continue
            if not isinstance(value, Tensor) or value.shape != weights[number].shape:
                raise Damaged(f"optimizer.state[{number}].{key} has another shape than its weight")


def _alike(found: Any, value: Any) -> bool:
    """Of one kind: numbers change while a run goes on, kinds do not."""
    if _is_number(value) and _is_number(found):
        return True
    if isinstance(value, Tensor) and isinstance(found, Tensor):
        return value.shape == found.shape
    return type(found) is type(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
