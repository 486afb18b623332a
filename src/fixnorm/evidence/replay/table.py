"""The table of a setting."""

from __future__ import annotations

from fixnorm.evidence.landscapes import AXES, Landscape
from fixnorm.evidence.replay.strategies import STRATEGIES
from fixnorm.evidence.replay.summary import NEAR, Moment, SettingResult, Summary
from fixnorm.report.statistics import Mean
from fixnorm.report.tables import TextTable

__all__ = ["table_of"]


def table_of(result: SettingResult, *, replays: int) -> TextTable:
    """Costs in T_max, accuracies and regrets in percent."""
    plans = result.plan_costs
    costs = sorted(set(plans.values()))
    near = any(result.near_paper(summary) is not None for summary in result.summaries)
    columns = ["search", "over", "cost", "accuracy", "regret", "median", "90 %"]
    columns += [f"at {cost} T_max" for cost in costs]
    same = plans.get("paper")
    columns += (
        ["near paper's", f"− paper's, at {same} T_max", "− paper's, at the end"] if near else []
    )
    rows = []
    for summary in result.summaries:
        rows.append(
            (
                STRATEGIES[summary.entry.strategy],
                AXES[summary.entry.landscape.axis],
                f"{summary.end.cost:.1f}",
                f"{summary.end.accuracy:.2f}",
                f"{summary.end.regret.mean:.2f}",
                f"{summary.end.regret.median:.2f}",
                f"{summary.end.regret.q90:.2f}",
                *(_then(summary.at(cost)) for cost in costs),
                *(_against_paper(result, summary) if near else ()),
            )
        )
    notes = [_about(landscape) for landscape in result.landscapes]
    if len(result.landscapes) > 1:
        notes.append(f"best of both: {result.best:.2f} %")
    notes.append(
        f"{replays} replays; cost in T_max (mean), accuracy: mean of the landscape at the point"
        " chosen (%), regret: below the best of its own landscape (mean, median, 90 % quantile)"
    )
    if costs:
        notes.append(
            "at … T_max: accuracy (regret) of the answer so far, at the mean cost of "
            + " and ".join(f"the {STRATEGIES[name].removeprefix('the ')}" for name in plans)
        )
    if near:
        notes.append(
            f"near paper's: share of replays not more than {NEAR:g} % below the paper's plan;"
            " − paper's: mean difference to it, replay by replay, with its 95 % interval over the"
            " replays, for the landscapes as they are recorded"
        )
    return TextTable(result.name, tuple(columns), tuple(rows), tuple(notes))


def _about(landscape: Landscape) -> str:
    best = landscape.best
    said = "alpha" if landscape.axis == "alpha" else "weight decay"
    seeds = len(landscape.seeds)
    noise = f"standard deviation of one training {landscape.noise:.2f} %"
    return (
        f"best of {AXES[landscape.axis]}: {best.accuracy:.2f} % at lr {best.lr:g}, {said}"
        f" {best.level:g}; {len(landscape.lrs)} × {len(landscape.levels)} points,"
        + (f" {seeds} seeds, {noise}" if seeds > 1 else " 1 seed, so without noise")
    )


def _then(moment: Moment | None) -> str:
    return "–" if moment is None else f"{moment.accuracy:.2f} ({moment.regret.mean:.2f})"


def _against_paper(result: SettingResult, summary: Summary) -> tuple[str, str, str]:
    if summary is result.paper:
        return "–", "–", "–"
    share = result.near_paper(summary)
    assert share is not None
    then = result.over_paper(summary, cost=result.plan_costs["paper"])
    end = result.over_paper(summary)
    return f"{100 * share:.0f} %", _interval(then), _interval(end)


def _interval(mean: Mean | None) -> str:
    return "–" if mean is None else mean.interval()
