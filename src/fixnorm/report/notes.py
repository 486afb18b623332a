"""What a reader must know before trusting the answer."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from fixnorm.report.summary import Announced, Range, Slot, announced, answer, judge, longest, ties
from fixnorm.report.words import choice, length, metric_name, valued
from fixnorm.tuning.ties import noise_of
from fixnorm.tuning.trial import AUTO, StudyRecord

__all__ = ["Note", "notes"]

_NEAR = 0.05
"""A sampled point within this share of a range from its end, on a log scale, is at the edge."""


@dataclass(frozen=True)
class Note:
    """One remark; ``kind`` is also its class in a page."""

    kind: Literal["warning", "info"]
    text: str


_warning, _info = partial(Note, "warning"), partial(Note, "info")


def notes(study: StudyRecord) -> tuple[Note, ...]:
    """All remarks on a study, the weightiest first."""
    best = answer(study)
    found = [] if best is None else [*_edges(study, best), *_spread(study), *_short(study, best)]
    found += _lost(study)
    return tuple(sorted(found, key=lambda note: note.kind != "warning"))


def _edges(study: StudyRecord, best: Slot) -> Iterator[Note]:
    plan, trial = announced(study), best.first
    near = 0.0 if study.method == "fixnorm" else _NEAR
    others = [slot.first for slot in ties(study)]  # of a tie nobody knows on which side it goes on
    if any(other.lr != trial.lr or other.weight_decay != trial.weight_decay for other in others):
        plan = replace(plan, lr=None, weight_decay=None)
    if any(other.alpha != trial.alpha for other in others):
        plan = replace(plan, alphas=())
    if plan.lr is not None and trial.lr != AUTO:
        yield from _edge_of_range("learning rate", "lr", trial.lr, plan.lr, near)
    if trial.weight_decay is not None and plan.weight_decay is not None:
        decay = trial.weight_decay
        yield from _edge_of_range("weight decay", "weight decay", decay, plan.weight_decay, near)
    yield from _edge_of_round(study, best)
    tried = {trial.alpha for trial in study.trials if trial.state != "running"}
    if trial.alpha is not None and len(plan.alphas) > 1 and len(tried) > 1:
        yield from _edge_of_alphas(best, trial.alpha, plan)


def _edge_of_range(what: str, short: str, value: float, ends: Range, near: float) -> Iterator[Note]:
    low, high = ends
    for end, side, direction in ((low, "lowest", "lower"), (high, "highest", "higher")):
        if abs(math.log(value / end)) <= near * math.log(high / low) + 1e-9:
            yield _warning(
                f"The best {what} {'is close to' if near else 'is'} the {side} of its range,"
                f" {short} {end:g}: the optimum may lie beyond. Search again with a {direction}"
                " end."
            )


def _edge_of_round(study: StudyRecord, best: Slot) -> Iterator[Note]:
    """The upper end of a later lr round is the winner of a shorter one, a bound only by prior."""
    full, plan = longest(study), announced(study)
    lrs = {trial.lr for trial in study.trials if trial.fraction == full and trial.lr != AUTO}
    shorter = any(trial.fraction < full for trial in study.trials)
    if study.method != "fixnorm" or not shorter or best.first.fraction < full:
        return
    if len(lrs) > 1 and best.first.lr == max(lrs) and (plan.lr and max(lrs) != plan.lr[1]):
        yield _info(
            f"lr {best.first.lr:g} is the highest that the full-length round tried: the shorter"
            " round before it bounded the range there."
        )


def _edge_of_alphas(best: Slot, alpha: float, plan: Announced) -> Iterator[Note]:
    scale = max(math.inf if t.largest_scale is None else t.largest_scale for t in best.trials)
    if scale < alpha:
        yield _info(
            f"The cap was never met, g reached {scale:.2g}·√C: every alpha from there on is"
            " this very training."
        )
        return
    for end, side, other in (
        (plan.alphas[0], "smallest", "smaller"),
        (plan.alphas[-1], "largest", "larger"),
    ):
        if alpha == end:
            yield _warning(
                f"The best alpha is the {side} of its list, {alpha:g}: a {other} one may be better."
            )


def _spread(study: StudyRecord) -> Iterator[Note]:
    judgement = judge(study)
    if judgement is None:
        return
    gap = valued(judgement.difference, study.metric)
    other = choice(judgement.runner_up.first)
    error = valued(judgement.error or 0.0, study.metric)
    if (tie := _tie(study)) is not None:
        yield tie
    elif judgement.within is None:
        # The usual case, and no fault of the search: no warning.
        advice = "; several seeds would tell" if study.method == "fixnorm" else ""
        yield _info(
            f"The winner is {gap} ahead of the next best of its length ({other}). With one seed"
            f" nobody can say whether that is more than chance{advice}."
        )
    elif judgement.within:
        yield _warning(
            f"The winner is within the spread of the seeds: it is {gap} ahead of the next best of"
            f" its length ({other}), less than the standard error of that difference ({error})."
            " Either may be the better one."
        )
    else:
        yield _info(
            f"The winner is {gap} ahead of the next best of its length ({other}); the standard"
            f" error of that difference over the seeds is {error}."
        )


def _tie(study: StudyRecord) -> Note | None:
    """What the validation images cannot tell apart."""
    best = answer(study)
    others = [slot for slot in ties(study) if slot.state != "free"]  # those have their sources
    if best is None or not others:
        return None
    results = [trial.result for trial in best.trials]
    noise, images = noise_of(results), {r.images for r in results if r is not None}
    named = "; ".join(choice(slot.first) for slot in others[:3])
    more = f" and {len(others) - 3} more" if len(others) > 3 else ""
    verb = "is" if len(others) == 1 else "are"
    return _info(
        f"A tie: {named}{more} {verb} as good as the winner as far as"
        f" {images.pop():,} validation images can tell, ±{valued(noise or 0.0, study.metric)}. In"
        " tables and figures ≈ marks them."
    )


def _short(study: StudyRecord, best: Slot) -> Iterator[Note]:
    if best.first.fraction < longest(study):
        yield _info(
            f"The best {metric_name(study.metric)} is that of a short training, of"
            f" {length(best.first.fraction)} T_max."
        )


def _lost(study: StudyRecord) -> Iterator[Note]:
    failed = [trial for trial in study.trials if trial.state == "failed"]
    for trial in failed[:5]:
        reason = (trial.reason or "no reason is known").rstrip(".")
        yield _warning(f"{trial.key} ({choice(trial)}) failed: {reason}.")
    if len(failed) > 5:
        yield _warning(f"{len(failed) - 5} more failed: see the table of trials.")
    diverged = [trial for trial in study.trials if trial.state == "diverged"]
    if diverged:
        named = ", ".join(f"{trial.key} ({choice(trial)})" for trial in diverged[:5])
        more = f" and {len(diverged) - 5} more" if len(diverged) > 5 else ""
        yield _info(f"Diverged and closed their slots: {named}{more}.")
