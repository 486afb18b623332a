"""What a study holds on disk: written here, and checked before a trial is taken for one of ours."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from fixnorm.system import brief
from fixnorm.system.numbers import check_number
from fixnorm.tuning.comparison import COMPARISON
from fixnorm.tuning.plan import SearchSpace
from fixnorm.tuning.plans import PLANS
from fixnorm.tuning.strategies import PlanStrategy
from fixnorm.tuning.trial import AUTO, POINTS, Result, Round, Trial

__all__ = [
    "ENDED",
    "SLOT",
    "checked_progress",
    "checked_settings",
    "read_trial",
    "strategy_of",
    "told_result",
    "told_slot",
]

SLOT, ENDED = "slot", "ended"
"""Attributes of a trial."""
_SLUG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")
"""A name that becomes part of a path: no separators, nothing that leads elsewhere."""
_NAME = re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]{0,200}")
"""Words for people: one line, nothing that a terminal would obey."""

Check = tuple[str, Callable[[Any], bool]]
"""What a value should be, and whether it is."""


def _number(least: float, most: float) -> Check:
    return (
        f"a number from {least:g} to {most:g}",
        lambda v: isinstance(v, int | float) and not isinstance(v, bool) and least <= v <= most,
    )


def _text(pattern: re.Pattern[str], what: str) -> Check:
    return what, lambda v: isinstance(v, str) and pattern.fullmatch(v) is not None


def _one_of(*words: str) -> Check:
    return " or ".join(words), lambda v: isinstance(v, str) and v in words


_REAL, _POSITIVE, _FRACTION = _number(-1e9, 1e9), _number(1e-12, 1e9), _number(1e-4, 1)
_COUNT: Check = (
    "a whole number",
    lambda v: isinstance(v, int) and not isinstance(v, bool) and 0 <= v < 2**53,
)
_TRUTH: Check = "true or false", lambda v: isinstance(v, bool)
_WORDS: Check = "a text", lambda v: isinstance(v, str)
_PATH_PART, _LINE = _text(_SLUG, "a plain name"), _text(_NAME, "one line of text")

_OF_SETTINGS = {
    "method": _one_of("fixnorm", "bo-weight-decay", COMPARISON),
    "strategy": _PATH_PART,
    "metric": _LINE,
    "folder": _WORDS,
}
_OF_PROGRESS = {"budget": _COUNT, "over": _TRUTH}
_OF_SLOT = {
    "key": _PATH_PART,
    "round": _LINE,
    "index": _COUNT,
    "fraction": _FRACTION,
    "seed": _COUNT,
    "branch_of": _PATH_PART,
}
_ALWAYS = ("key", "round", "index", "fraction", "seed")
"""Of a slot: what every version has written."""
_OF_ENDED = {
    "state": _one_of("trained", "free", "diverged", "failed"),
    "source": _PATH_PART,
    "largest_scale": _REAL,
    "reason": _WORDS,
    "seconds": _number(0, 1e9),
    "share": _number(0, 1),
    "images": _COUNT,
}
_LR: Check = f"{_POSITIVE[0]} or {AUTO}", lambda v: v == AUTO or _POSITIVE[1](v)
_OF_PARAMS = {"lr": _LR, "alpha": _POSITIVE, "weight_decay": _POSITIVE}


def _checked(
    name: str,
    value: Any,
    checks: Mapping[str, Check],
    *,
    needed: tuple[str, ...] = (),
    nullable: tuple[str, ...] = (),
    open: bool = False,
) -> dict[str, Any]:
    """An attribute as a dict of what it may hold; a :class:`ValueError` names what is wrong."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{name}: should be an object but it is {brief(value)}")
    for key in needed:
        if key not in value:
            raise ValueError(f"{name}: {key} is missing")
    for key, there in value.items():
        if key not in checks:
            if open:
                continue
            raise ValueError(f"{name}: {brief(key, plain=True)} is unknown to this version")
        what, holds = checks[key]
        if not (there is None and key in nullable) and not holds(there):
            raise ValueError(f"{name}: {key}: should be {what} but it is {brief(there)}")
    return dict(value)


def checked_settings(value: Any) -> dict[str, Any]:
    """What a search says of itself, and all else that it depends on."""
    named = {"method": "fixnorm", "strategy": "paper", "metric": "accuracy (%)"}
    found = _checked("settings", value, _OF_SETTINGS, nullable=("folder",), open=True)
    return found | {name: found.get(name, default) for name, default in named.items()}


def checked_progress(value: Any) -> tuple[int | None, bool | None]:
    """How many trainings a search may take, and whether it is over, as far as it says."""
    found = _checked("state", value, _OF_PROGRESS, nullable=("budget", "over"), open=True)
    return found.get("budget"), found.get("over")


def strategy_of(settings: Mapping[str, Any]) -> PlanStrategy:
    """The plan that a study's settings name, with its space and margin."""
    name, space = settings["strategy"], settings.get("space")
    if name not in PLANS:
        raise ValueError(f"strategy: no plan is called {name!r}")
    if not isinstance(space, Mapping):
        raise ValueError("space is missing")
    given: dict[str, Any] = {}
    for key in PLANS[name].uses:
        if key not in space:
            raise ValueError(f"space.{key} is missing")
        given[key] = tuple(space[key]) if isinstance(space[key], list) else space[key]
    margin = settings.get("margin", PlanStrategy.margin)
    check_number("margin", margin)
    return PlanStrategy(space=SearchSpace(**given), plan=name, margin=margin)


# -- trials ----------------------------------------------------------------------------------------


def told_slot(trial: Trial) -> dict[str, Any]:
    """What a trial is of, beside the numbers that are tuned."""
    return {
        "key": trial.key,
        "round": str(trial.round),
        "index": trial.index,
        "fraction": trial.fraction,
        "seed": trial.seed,
        **({} if trial.branch_of is None else {"branch_of": trial.branch_of}),
    }


def told_result(result: Result) -> dict[str, Any]:
    """How it ended, beside its value."""
    told: dict[str, Any] = {"state": result.state, "largest_scale": result.largest_scale}
    if result.images is not None:
        told["images"] = result.images
    if result.state == "free":
        return {**told, "source": result.source}
    told |= {"reason": result.reason, "seconds": result.seconds}
    return told if result.share == 1 else {**told, "share": result.share}


def read_trial(found: FrozenTrial, folder: Path | None) -> Trial:
    """A trial of Optuna's as ours; a :class:`ValueError` says why it is none."""
    try:
        return _read(found, folder)
    except ValueError as error:
        raise ValueError(f"trial {found.number}, {error}") from None


def _read(found: FrozenTrial, folder: Path | None) -> Trial:
    params = _checked("params", found.params, _OF_PARAMS, needed=("lr",))
    if ("alpha" in params) == ("weight_decay" in params):
        raise ValueError("params: should have alpha or weight_decay beside lr")
    if "weight_decay" in params and params["lr"] == AUTO:
        raise ValueError("params: lr: should be a number beside weight_decay")
    if SLOT in found.user_attrs:
        slot = _checked(SLOT, found.user_attrs[SLOT], _OF_SLOT, needed=_ALWAYS)
        slot["round"] = Round.read(slot["round"])
    elif "alpha" in params:
        raise ValueError(f"{SLOT}: is missing")
    else:  # a point of a baseline: the sampler chose it, its number says the rest
        slot = {"round": POINTS, "index": found.number}
    trial = Trial(**params, **slot, number=found.number, result=_result(found))
    if folder is None or trial.state == "free":
        return trial
    return replace(trial, folder=folder / trial.key)


def _result(found: FrozenTrial) -> Result | None:
    told = found.user_attrs.get(ENDED)
    if ENDED in found.user_attrs:
        nullable = ("source", "largest_scale", "reason", "seconds")
        told = _checked(ENDED, told, _OF_ENDED, needed=("state",), nullable=nullable)
    if not found.state.is_finished():
        return None
    if found.state == TrialState.FAIL:
        told = told or {"state": "failed"}
        if told["state"] in ("trained", "free"):
            raise ValueError(f"{ENDED}: says {told['state']} but the trial has failed")
    elif found.state != TrialState.COMPLETE or told is None or told["state"] == "failed":
        raise ValueError(f"{ENDED}: does not say how it ended")
    done = found.datetime_complete
    return Result(
        **told,
        accuracy=_value(found) if told["state"] in ("trained", "free") else None,
        ended=done.timestamp() if done is not None else None,
    )


def _value(found: FrozenTrial) -> float:
    values = found.values or []
    if len(values) != 1 or not math.isfinite(values[0]) or abs(values[0]) > 1e9:
        raise ValueError("value: should be one finite number")
    return float(values[0])
