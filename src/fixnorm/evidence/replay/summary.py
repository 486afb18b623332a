"""Regret and cost over many replays.

Regret is the best mean of the landscape's grid minus the mean of the landscape at the point chosen:
never negative, since between the points of the grid nothing is higher than on them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property

from fixnorm.evidence.landscapes import Landscape
from fixnorm.evidence.replay.options import strategies
from fixnorm.evidence.replay.strategies import Entry, Trace
from fixnorm.report.statistics import Mean, paired
from fixnorm.tuning.plans import PLANS

__all__ = ["NEAR", "Moment", "Spread", "Summary", "WorkloadResult", "quantile"]

NEAR = 0.3
"""A difference in accuracy (percent) that does not matter."""
COST_STEP = 0.2
"""In T_max: between two points of a curve."""


@dataclass(frozen=True)
class Spread:
    """Of one number over the replays."""

    mean: float
    median: float
    q90: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.fmean(values), statistics.median(values), quantile(values, 0.9))


@dataclass(frozen=True)
class Moment:
    """Where the replays stand when so much is spent."""

    cost: float
    accuracy: float
    """The truth at the points chosen, on average."""
    regret: Spread


@dataclass(frozen=True)
class Summary:
    """All replays of one strategy on one landscape."""

    entry: Entry
    traces: tuple[Trace, ...]

    @cached_property
    def end(self) -> Moment:
        """At the end of each replay; the cost is the mean."""
        return self._moment(
            statistics.fmean(trace.cost for trace in self.traces),
            [trace.end.accuracy for trace in self.traces],
        )

    @cached_property
    def curve(self) -> tuple[Moment, ...]:
        """From the first cost at which every replay has an answer to the end of the longest."""
        first = max(trace.steps[0].cost for trace in self.traces)
        last = max(trace.cost for trace in self.traces)
        steps = range(math.ceil(first / COST_STEP - 1e-9), math.ceil(last / COST_STEP - 1e-9) + 1)
        return tuple(
            moment for k in steps if (moment := self.at(round(k * COST_STEP, 9))) is not None
        )

    def at(self, cost: float) -> Moment | None:
        """When so much is spent; a replay that has ended keeps its answer."""
        accuracies = self.accuracies_at(cost)
        return None if accuracies is None else self._moment(cost, accuracies)

    def accuracies_at(self, cost: float) -> list[float] | None:
        """Of each replay then; none where one has no answer yet."""
        steps = [step for trace in self.traces if (step := trace.at(cost)) is not None]
        return [s.accuracy for s in steps] if len(steps) == len(self.traces) else None

    def _moment(self, cost: float, accuracies: Sequence[float]) -> Moment:
        regrets = self.regrets(accuracies)
        return Moment(cost, statistics.fmean(accuracies), Spread.of(regrets))

    def regrets(self, accuracies: Sequence[float]) -> list[float]:
        """Below the best of its landscape; interpolation of equal numbers may round up."""
        best = self.entry.landscape.best.accuracy
        return [max(best - accuracy, 0.0) for accuracy in accuracies]


@dataclass(frozen=True)
class WorkloadResult:
    """The landscapes of one workload, and all strategies on them."""

    name: str
    landscapes: tuple[Landscape, ...]
    summaries: tuple[Summary, ...]

    @property
    def best(self) -> float:
        """The best accuracy of both landscapes."""
        return max(landscape.best.accuracy for landscape in self.landscapes)

    @cached_property
    def plan_costs(self) -> dict[str, int]:
        """What the plans cost on average, in whole trainings: there the others are compared."""
        return {
            summary.entry.strategy: max(round(summary.end.cost), 1)
            for summary in self.summaries
            if summary.entry.strategy in PLANS
        }

    @property
    def paper(self) -> Summary | None:
        """Of the paper's plan, which the others are compared with."""
        return next((s for s in self.summaries if s.entry.strategy == "paper"), None)

    def near_paper(self, summary: Summary) -> float | None:
        """The share of replays not more than NEAR below the paper's plan, replay by replay."""
        if self.paper is None:
            return None
        return statistics.fmean(
            own.end.accuracy >= other.end.accuracy - NEAR
            for own, other in zip(summary.traces, self.paper.traces, strict=True)
        )

    def over_paper(self, summary: Summary, *, cost: float | None = None) -> Mean | None:
        """How much better it is than the paper's plan at its end, on average over the replays.

        ``cost`` is what the other may spend; none: all that it does.
        """
        ours = [t.end.accuracy for t in summary.traces]
        if cost is not None:
            ours = summary.accuracies_at(cost) or []
        if self.paper is None or not ours:
            return None
        return paired(ours, [trace.end.accuracy for trace in self.paper.traces])

    def to_dict(self) -> dict[str, object]:
        """As ``replay.json`` has it."""
        return {
            "name": self.name,
            "best": self.best,
            "landscapes": [_landscape(landscape) for landscape in self.landscapes],
            "strategies": [self._summary(summary) for summary in self.summaries],
        }

    def _summary(self, summary: Summary) -> dict[str, object]:
        entry, traces = summary.entry, summary.traces
        return {
            "strategy": entry.strategy,
            "title": strategies()[entry.strategy],
            "axis": entry.landscape.axis,
            "cost": {
                "mean": round(summary.end.cost, 4),
                "least": min(trace.cost for trace in traces),
                "most": max(trace.cost for trace in traces),
            },
            "trainings": round(statistics.fmean(trace.trainings for trace in traces), 4),
            **_moment(summary.end),
            "below_best_of_both": round(self.best - summary.end.accuracy, 4),
            "near_paper": self.near_paper(summary),
            "over_paper": _difference(self.over_paper(summary)),
            "over_paper_at_its_cost": _difference(
                self.over_paper(summary, cost=self.plan_costs.get("paper"))
            ),
            "at_cost_of": {
                name: {"cost": cost, **_moment(moment)} if moment is not None else None
                for name, cost in self.plan_costs.items()
                for moment in [summary.at(cost)]
            },
            "curve": _columns([_flat(moment) for moment in summary.curve]),
            "replays": _columns(
                [
                    {
                        "lr": float(f"{trace.end.lr:.6g}"),
                        entry.landscape.axis: float(f"{trace.end.level:.6g}"),
                        "cost": trace.cost,
                        "accuracy": round(trace.end.accuracy, 4),
                    }
                    for trace in traces
                ]
            ),
        }


def quantile(values: Sequence[float], share: float) -> float:
    """Linear between the sorted values."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def _moment(moment: Moment) -> dict[str, object]:
    regret = {name: round(value, 4) for name, value in asdict(moment.regret).items()}
    return {"accuracy": round(moment.accuracy, 4), "regret": regret}


def _difference(mean: Mean | None) -> dict[str, float | None] | None:
    return None if mean is None else {"mean": mean.mean, "half_width": mean.half_width}


def _flat(moment: Moment) -> dict[str, float]:
    regret = {f"regret_{name}": round(value, 4) for name, value in asdict(moment.regret).items()}
    return {"cost": moment.cost, "accuracy": round(moment.accuracy, 4), **regret}


def _columns(rows: Sequence[dict[str, float]]) -> dict[str, list[float]]:
    return {name: [row[name] for row in rows] for name in rows[0]}


def _landscape(landscape: Landscape) -> dict[str, object]:
    best = landscape.best
    return {
        "axis": landscape.axis,
        "lrs": landscape.lrs,
        "levels": landscape.levels,
        "seeds": len(landscape.seeds),
        "epochs": landscape.epochs,
        "noise": round(landscape.noise, 4),
        "best": {"lr": best.lr, landscape.axis: best.level, "accuracy": round(best.accuracy, 4)},
    }
