"""What a study holds, as it was written: checked before a trial is taken for one of ours."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from optuna.trial import FrozenTrial, TrialState
from pydantic import ConfigDict, Field

from fixnorm.training.bounded import Count, Fraction, Name, Positive, Real, Slug
from fixnorm.training.checked import Part, checked
from fixnorm.tuning.record import State, TrialRecord

__all__ = ["ENDED", "POINTS", "SLOT", "Progress", "Settings", "parsed", "trial_record"]

SLOT, ENDED = "slot", "ended"
"""Attributes of a trial."""
POINTS = "points"
"""The round of all points of a baseline."""

M = TypeVar("M", bound=Part)


class Settings(Part):
    """What every search says of itself, and all else that it depends on."""

    model_config = ConfigDict(extra="allow")

    method: Literal["fixnorm", "bo-weight-decay"] = "fixnorm"
    strategy: Slug = "paper"
    metric: Name = "accuracy (%)"
    folder: str | None = None


class Progress(Part):
    """How far a search is."""

    budget: Count | None = None
    over: bool | None = None


class _Slot(Part):
    model_config = ConfigDict(extra="forbid")

    key: Slug
    round: Name
    index: Count
    fraction: Fraction
    seed: Count


class _Ended(Part):
    model_config = ConfigDict(extra="forbid")

    state: Literal["trained", "free", "diverged", "failed"]
    source: Slug | None = None
    largest_scale: Real | None = None
    reason: str | None = None
    seconds: Annotated[Real, Field(ge=0)] | None = None


class _Params(Part):
    model_config = ConfigDict(extra="forbid")

    lr: Positive
    alpha: Positive | None = None
    weight_decay: Positive | None = None


def parsed(value: Any, kind: type[M], name: str) -> M:
    """An attribute as its model; a :class:`ValueError` names it."""
    try:
        return checked(json.dumps(value), kind)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def trial_record(trial: FrozenTrial, folder: Path | None) -> TrialRecord:
    """A trial as plain values; a :class:`ValueError` says why it is none of ours."""
    try:
        return _record(trial, folder)
    except ValueError as error:
        raise ValueError(f"trial {trial.number}, {error}") from None


def _record(trial: FrozenTrial, folder: Path | None) -> TrialRecord:
    params = parsed(trial.params, _Params, "params")
    if (params.alpha is None) == (params.weight_decay is None):
        raise ValueError("params: should have alpha or weight_decay beside lr")
    slot = _slot(trial, params)
    ended = None
    if ENDED in trial.user_attrs:
        ended = parsed(trial.user_attrs[ENDED], _Ended, ENDED)
    state = _state(trial, ended)
    accuracy = _value(trial) if state in ("trained", "free") else None
    done = trial.datetime_complete
    return TrialRecord(
        key=slot.key,
        number=trial.number,
        round=slot.round,
        index=slot.index,
        lr=params.lr,
        alpha=params.alpha,
        weight_decay=params.weight_decay,
        fraction=slot.fraction,
        seed=slot.seed,
        state=state,
        accuracy=accuracy,
        source=None if ended is None else ended.source,
        largest_scale=None if ended is None else ended.largest_scale,
        reason=None if ended is None else ended.reason,
        seconds=None if ended is None else ended.seconds,
        folder=None if state == "free" or folder is None else folder / slot.key,
        ended=done.timestamp() if done is not None else None,
    )


def _slot(trial: FrozenTrial, params: _Params) -> _Slot:
    if SLOT in trial.user_attrs:
        return parsed(trial.user_attrs[SLOT], _Slot, SLOT)
    if params.weight_decay is None:
        raise ValueError(f"{SLOT}: is missing")
    # A point of a baseline has no slot: the sampler chose it, its number says the rest.
    return _Slot(
        key=f"point-{trial.number:03}", round=POINTS, index=trial.number, fraction=1.0, seed=0
    )


def _state(trial: FrozenTrial, ended: _Ended | None) -> State:
    if not trial.state.is_finished():
        return "running"
    if trial.state == TrialState.FAIL:
        said: State = "failed" if ended is None else ended.state
        if said in ("trained", "free"):
            raise ValueError(f"{ENDED}: says {said} but the trial has failed")
        return said
    if trial.state != TrialState.COMPLETE or ended is None or ended.state == "failed":
        raise ValueError(f"{ENDED}: does not say how it ended")
    return ended.state


def _value(trial: FrozenTrial) -> float:
    values = trial.values or []
    if len(values) != 1 or not math.isfinite(values[0]) or abs(values[0]) > 1e9:
        raise ValueError("value: should be one finite number")
    return float(values[0])
