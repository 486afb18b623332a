"""Whether the trials of a study are those that its plan asks for."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from fixnorm.training.bounded import Count, Real
from fixnorm.training.checked import Part, checked
from fixnorm.tuning.job import job_of, outcome_of, trial_of
from fixnorm.tuning.plan import Advice, Outcomes, SearchSpace, Trial, paper
from fixnorm.tuning.record import TrialRecord
from fixnorm.tuning.unimodal import MARGIN, unimodal

__all__ = ["check_search", "check_slots"]

_ROUND = re.compile(r"lr round [1-9][0-9]{0,3}|alpha round")


def check_slots(
    records: Collection[TrialRecord],
    space: SearchSpace,
    plan: Callable[[SearchSpace, Outcomes], Advice],
    *,
    over: bool | None = None,
) -> None:
    """Refuse trials that the plan would not have asked for: a study that somebody changed."""
    for record in records:
        if record.alpha is None or not _ROUND.fullmatch(record.round):
            raise ValueError(f"trial {record.number} ({record.key}) is of no round of the plan")
    ended = [record for record in records if record.state != "running"]
    outcomes = {trial_of(r, lr_rounds=len(space.fractions)): outcome_of(r) for r in ended}
    advice = plan(space, outcomes)
    known = {
        job.key: job
        for round_ in advice.rounds
        for slot in round_.slots
        for seed in range(space.seeds)
        for job in [job_of(Trial(slot, seed), round_)]
    }
    keys = [record.key for record in records]
    for record in records:
        job = known.get(record.key)
        if job is None:
            raise ValueError(
                f"trial {record.number} ({record.key}) is one that the plan does not ask for, as"
                " its values are: some are missing or changed"
            )
        for name in ("round", "index", "lr", "alpha", "fraction", "seed"):
            there, here = getattr(record, name), getattr(job, name)
            if there != here:
                raise ValueError(
                    f"trial {record.number} ({record.key}) has {name} {there} where the plan has"
                    f" {here}: the study was changed"
                )
        if keys.count(record.key) > 1:
            raise ValueError(f"{record.key} has two trials: the study was changed")
        if record.source is not None and record.source not in keys:
            raise ValueError(f"trial {record.number} is free by {record.source}, which is missing")
    if over and not advice.over:
        raise ValueError("it says that the search is over but slots have no value")


class _Space(Part):
    lr_min: Real
    lr_max: Real
    splits: Count
    fractions: tuple[Real, ...]
    alphas: tuple[Real, ...]
    seeds: Count


class _Plan(Part):
    space: _Space
    margin: Real = MARGIN


def check_search(
    settings: Mapping[str, Any], content: str, records: Collection[TrialRecord], over: bool | None
) -> None:
    """The same for a study that is only read: its plan is what its settings say.

    Args:
        settings: its method and strategy.
        content: all of its settings, as JSON.
        records: its trials.
        over: whether it says that it has come to its end.
    """
    if settings["method"] != "fixnorm":
        keys = [record.key for record in records]
        if len(set(keys)) < len(keys) or any(record.weight_decay is None for record in records):
            raise ValueError("its trials are not points of lr and weight decay: it was changed")
        return
    said = checked(content, _Plan)
    if said.space.splits > 10_000 or said.space.seeds > 10_000:
        raise ValueError("space: more slots than a search can have")
    space = SearchSpace(**said.space.model_dump())
    plans: dict[str, Callable[[SearchSpace, Outcomes], Advice]] = {
        "paper": paper,
        "unimodal": functools.partial(unimodal, margin=said.margin),
    }
    if settings["strategy"] not in plans:
        raise ValueError(f"strategy: no plan is called {settings['strategy']!r}")
    check_slots(records, space, plans[settings["strategy"]], over=over)
