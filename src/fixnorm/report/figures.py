"""The figures of a search, as functions of its record."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from functools import partial
from itertools import cycle

from matplotlib.axes import Axes
from matplotlib.markers import TICKUP
from matplotlib.ticker import MaxNLocator, NullLocator
from matplotlib.transforms import ScaledTranslation

from fixnorm.report.drawing import Drawing, Panel
from fixnorm.report.style import (
    ACCENT,
    INK,
    LEAST_SPAN,
    MUTED,
    PAPER,
    PRIMARY,
    RAMP,
    SERIES,
    EndLabel,
    breadth,
    colour_bar,
    dress,
    end_labels,
    log_ticks,
    room,
    write,
)
from fixnorm.report.summary import (
    Slot,
    announced,
    answer,
    best_of,
    cost_to_reach,
    progress,
    rounds_of,
    slots_of,
)
from fixnorm.report.words import bare, choice, metric_name, span, title_of
from fixnorm.tuning.trial import AUTO, StudyRecord, shown_lr

__all__ = ["alpha_figure", "lr_figure", "points_figure", "progress_figure"]

_MANY = 8
"""More slots than this in a round, and their values are not written beside them."""


def lr_figure(study: StudyRecord) -> Drawing | None:
    """Accuracy over lr, a panel for each lr round, like the paper's Figure 5 (middle)."""
    rounds = rounds_of(study, "lr")
    if not rounds:
        return None
    panels = []
    for title, slots in rounds.items():
        first = slots[0].first
        alpha = "" if first.alpha is None else f", alpha {first.alpha:g}"
        told = f"{title}: {span(first.fraction)}{alpha}"
        panels.append(Panel(told, partial(_draw_over_lr, slots=slots, study=study, title=told)))
    return Drawing(
        "learning-rate",
        f"{metric_name(study.metric).capitalize()} over lr",
        "One panel for each lr round; the winner of the round is ringed. The winner of a short"
        " round is the upper end of the next." + _seeds_caption(study),
        tuple(panels),
    )


def alpha_figure(study: StudyRecord) -> Drawing | None:
    """Accuracy over alpha at the best lr, like the paper's Figure 5 (right)."""
    slots = [slot for slots in rounds_of(study, "alpha").values() for slot in slots]
    if not slots:
        return None
    first = slots[0].first
    # The first alpha was trained in the last lr round.
    known = [
        slot
        for slot in slots_of(study)
        if slot.first.round != first.round
        and (slot.first.lr, slot.first.fraction) == (first.lr, first.fraction)
    ]
    every = {slot.first.alpha: slot for slot in (*known, *slots) if slot.first.alpha is not None}
    title = f"{first.round}: {span(first.fraction)}, lr {shown_lr(first.lr, '.3g')}"
    draw = partial(_draw_over_alpha, slots=tuple(every.values()), study=study, title=title)
    free = (
        " A hollow point needed no training: g never met its cap, so it is the training of the"
        " larger alpha, bit for bit."
    )
    return Drawing(
        "alpha",
        f"{metric_name(study.metric).capitalize()} over alpha",
        ("lr by the rule of the sphere." if first.lr == AUTO else "At the best lr.")
        + (free if any(slot.state == "free" for slot in slots) else "")
        + _seeds_caption(study),
        (Panel(title, draw),),
        columns=1,
    )


def points_figure(study: StudyRecord) -> Drawing | None:
    """lr × weight decay of a baseline, coloured by accuracy."""
    placed = [
        (slot.first.rate, decay, slot)
        for slot in slots_of(study)
        if (decay := slot.first.weight_decay)
    ]
    if not placed:
        return None
    best = best_of(slot for _, _, slot in placed)
    title = f"{len(placed)} points" if len(placed) > 1 else "1 point"
    if best is not None and best.mean is not None:
        title += f", the best {bare(best.mean, study.metric)} ({choice(best.first)})"
    draw = partial(_draw_points, placed=placed, best=best, study=study, title=title)
    return Drawing(
        "points",
        f"{metric_name(study.metric).capitalize()} over lr and weight decay",
        "Every point is a training of full length; the best is ringed, a cross gave no number.",
        (Panel(title, draw, right=58),),
        columns=1,
    )


def progress_figure(studies: Sequence[StudyRecord], *, name: str = "progress") -> Drawing | None:
    """The best so far against what was spent, a line for each study."""
    drawn = [study for study in studies if cost_to_reach(study) is not None]
    if not drawn:
        return None
    title = f"Best {metric_name(drawn[0].metric)} against cost"
    draw = partial(_draw_progress, studies=drawn, title=title)
    wide = {"width": 380, "height": 235, "right": max(map(breadth, _names(drawn)))}
    return Drawing(
        name,
        "Search progress",
        "The line is the best so far, a dot is a slot; the star marks when the best was reached."
        " Only trainings of full length count as candidates, but short ones count as cost.",
        (Panel(title, draw, **(wide if len(drawn) > 1 else {})),),
        columns=1,
    )


# -- one variable ----------------------------------------------------------------------------------


def _draw_over_lr(ax: Axes, *, slots: Sequence[Slot], study: StudyRecord, title: str) -> None:
    lrs = sorted({slot.first.rate for slot in slots})
    spread = (lrs[-1] - lrs[0]) or lrs[0]
    ax.set_xlim(lrs[0] - 0.09 * spread, lrs[-1] + 0.09 * spread)
    _draw_values(ax, [(slot.first.rate, slot) for slot in slots], study)
    dress(ax, title=title, x="lr", y=study.metric)
    if len(lrs) <= _MANY:
        ax.set_xticks(lrs, [f"{lr:.3g}" for lr in lrs])


def _draw_over_alpha(ax: Axes, *, slots: Sequence[Slot], study: StudyRecord, title: str) -> None:
    ax.set_xscale("log", base=2)
    placed = [(slot.first.alpha, slot) for slot in slots if slot.first.alpha is not None]
    alphas = sorted(alpha for alpha, _ in placed)
    pad = (alphas[-1] / alphas[0]) ** 0.09 if len(alphas) > 1 else 2.0
    ax.set_xlim(alphas[0] / pad, alphas[-1] * pad)
    _draw_values(ax, placed, study, below=0.3)
    dress(ax, title=title, x="alpha", y=study.metric)
    ax.xaxis.set_minor_locator(NullLocator())
    if len(alphas) <= _MANY:
        ax.set_xticks(alphas, [f"{alpha:g}" for alpha in alphas])
    _name_free(ax, placed)


def _draw_values(
    ax: Axes, placed: Sequence[tuple[float, Slot]], study: StudyRecord, *, below: float = 0.15
) -> None:
    """Means with their spread, joined; what gave no number stands at the foot."""
    placed = sorted(placed, key=lambda item: item[0])
    found = [(x, slot, slot.mean) for x, slot in placed if slot.mean is not None]
    winner = best_of(slot for _, slot, _ in found)
    seen = [value for _, slot, _ in found for value in slot.values]
    lost = [(x, slot) for x, slot in placed if slot.mean is None]
    room(ax, seen, below=max(below, 0.3 if lost else 0), above=0.24, least=0.2)
    ax.plot([x for x, _, _ in found], [y for _, _, y in found], color=PRIMARY, lw=1, alpha=0.45)
    for x, slot, y in found:
        if len(slot.values) > 1:
            ax.errorbar(x, y, yerr=slot.std, color=PRIMARY, lw=1, capsize=2.5, capthick=1)
            count = len(slot.values)
            ax.plot([x] * count, slot.values, ls="none", marker=".", ms=2.5, color=MUTED, zorder=3)
        face = PAPER if slot.state == "free" else PRIMARY
        ax.plot(x, y, marker="o", ms=5.5, mfc=face, mec=PRIMARY, mew=1.2, zorder=4)
        if slot is winner:
            ax.plot(x, y, marker="o", ms=11, mfc="none", mec=ACCENT, mew=1.5, zorder=5)
    if len(placed) <= _MANY:
        _write_values(ax, found, winner, study.metric)
    for x, slot in lost:
        _mark_lost(ax, x, slot)


def _write_values(
    ax: Axes,
    found: Sequence[tuple[float, Slot, float]],
    winner: Slot | None,
    metric: str,
) -> None:
    """The value beside its point, on the side where the line does not run."""
    low, high = ax.get_ylim()
    for place, (x, slot, y) in enumerate(found):
        best = slot is winner
        if slot.state == "free" and not best:  # its source has the value
            continue
        before = (found[place - 1][2] - y) / (high - low) if place else 0.0
        after = (found[place + 1][2] - y) / (high - low) if place + 1 < len(found) else 0.0
        aside = -9 if after > 0.12 and before < 0.12 else 9 if before > 0.12 > after else 0
        under = before > 0.05 and after > 0.05
        top = min(slot.values) if under else max(slot.values)
        up = 11 if best and len(slot.values) == 1 else 8
        offset = (aside, -up if under else up)
        colour = ACCENT if best else INK
        level = winner is not None and not best and slot.ties_with(winner)
        told = f"≈ {bare(y, metric)}" if level else bare(y, metric)
        write(ax, told, (x, top), offset=offset, colour=colour, bold=best)


def _mark_lost(ax: Axes, x: float, slot: Slot) -> None:
    """At the foot: a circle for what runs, a cross for what gave no number."""
    ax.plot(
        x, 0.06, marker="o" if slot.state == "running" else "x", ms=5, mew=1.4, mec=MUTED,
        mfc="none", transform=ax.get_xaxis_transform(), clip_on=False, zorder=4,
    )  # fmt: skip
    write(ax, slot.state, (x, 0.06), offset=(0, 9), colour=MUTED, on="foot")


def _name_free(ax: Axes, placed: Sequence[tuple[float, Slot]]) -> None:
    """One bracket under the points that are one and the same training."""
    groups: dict[frozenset[str], list[tuple[float, Slot]]] = {}
    for alpha, slot in placed:
        if slot.mean is not None:
            groups.setdefault(slot.trainings, []).append((alpha, slot))
    for same in groups.values():
        free = [(alpha, slot) for alpha, slot in same if slot.state == "free"]
        source = [alpha for alpha, slot in same if slot.state != "free"]
        if not free:
            continue
        alphas = sorted(alpha for alpha, _ in same)
        foot = min(min(slot.values) for _, slot in same)
        named = f"same training as alpha={source[0]:g}" if source else "no training of its own"
        middle = math.sqrt(alphas[0] * alphas[-1])
        if len(alphas) > 1:
            # One bracket with ticks up at its ends.
            below = ax.transData + ScaledTranslation(0, -9 / 72, ax.figure.dpi_scale_trans)
            ends = (alphas[0], alphas[-1])
            ax.plot(
                ends, (foot, foot), transform=below, color=MUTED, lw=0.7, marker=TICKUP, ms=3,
                mew=0.7,
            )  # fmt: skip
        write(ax, named, (middle, foot), offset=(0, -17), colour=MUTED)


# -- two variables ---------------------------------------------------------------------------------


def _draw_points(
    ax: Axes,
    *,
    placed: Sequence[tuple[float, float, Slot]],
    best: Slot | None,
    study: StudyRecord,
    title: str,
) -> None:
    ax.set_xscale("log")
    ax.set_yscale("log")
    plan = announced(study)
    for values, ends, limit in (
        ([lr for lr, _, _ in placed], plan.lr or (), ax.set_xlim),
        ([decay for _, decay, _ in placed], plan.weight_decay or (), ax.set_ylim),
    ):
        low, high = min(*values, *ends, math.inf), max(*values, *ends, 0.0)
        # Some decades at least, so that there are round numbers on the axis.
        pad = max((high / low) ** 0.06, math.sqrt(9 * low / high))
        limit(low / pad, high * pad)
    for lr, decay, slot in placed:
        if slot.mean is None:
            marker = "o" if slot.state == "running" else "x"
            ax.plot(lr, decay, ls="none", marker=marker, ms=4.5, mew=1.2, mec=MUTED, mfc="none")
    if best is not None:
        found = [(*at, mean) for *at, slot in placed if (mean := slot.mean) is not None]
        lrs, decays, means = zip(*found, strict=True)
        # Trainings that went wrong must not take the colours from those that went well.
        high = max(means)
        low = min(max(min(means), 2 * statistics.median(means) - high), high - LEAST_SPAN)
        dots = ax.scatter(
            lrs, decays, c=means, cmap=RAMP, vmin=low, vmax=high, s=30, linewidths=0.5,
            edgecolors=PAPER, zorder=3,
        )  # fmt: skip
        colour_bar(ax, dots, study.metric, extend="min" if min(means) < low else "neither")
        at = next((lr, decay) for lr, decay, slot in placed if slot is best)
        ax.plot(*at, marker="o", ms=10.5, mfc="none", mec=ACCENT, mew=1.5, zorder=4)
    dress(ax, title=title, x="lr", y="weight decay")
    log_ticks(ax, "x")
    log_ticks(ax, "y")


# -- progress --------------------------------------------------------------------------------------


def _draw_progress(ax: Axes, *, studies: Sequence[StudyRecord], title: str) -> None:
    shown: list[float] = []
    ends: list[tuple[float, EndLabel]] = []
    for study, name, colour in zip(studies, _names(studies), cycle(SERIES), strict=False):
        steps = [
            (step.cost, best, best if step.slot.mean is None else step.slot.mean)
            for step in progress(study)
            if (best := step.value) is not None
        ]
        costs, bests = [cost for cost, _, _ in steps], [best for _, best, _ in steps]
        behind = [(cost, mean) for cost, best, mean in steps if mean < best]
        ax.plot(
            [cost for cost, _ in behind], [mean for _, mean in behind], ls="none", marker="o",
            ms=3, mew=0, color=colour, alpha=0.35,
        )  # fmt: skip
        end, reached = max(study.cost, costs[-1]), costs[bests.index(bests[-1])]
        ax.plot([*costs, end], [*bests, bests[-1]], drawstyle="steps-post", color=colour, lw=1.6)
        ax.plot(reached, bests[-1], marker="*", ms=10, color=colour, mec=PAPER, mew=0.6, zorder=5)
        shown += bests
        ends.append((end, EndLabel(bests[-1], name, colour)))
        if len(studies) == 1:
            found, told = answer(study), bare(bests[-1], study.metric)
            if found is not None and found.mean == bests[-1]:
                told += f"  ({choice(found.first)})"
            late = reached > 0.5 * end
            write(
                ax, told, (reached, bests[-1]), offset=(4 if late else -2, 11), colour=ACCENT,
                align="right" if late else "left", bold=True,
            )  # fmt: skip
    # The first slots of a search may be far below: the end is what people compare.
    high = max(shown)
    low = max(min(shown), high - 4 * max(high - statistics.median(shown), 0.5))
    room(ax, [low, high], below=0.12, above=0.2, least=0.5)
    ax.set_xlim(0, ax.get_xlim()[1])
    metrics = {study.metric for study in studies}
    y = metrics.pop() if len(metrics) == 1 else "metric"
    dress(ax, title=title, x="cost spent, in trainings of full length (T_max)", y=y)
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    if len(studies) > 1:
        last = max(end for end, _ in ends)
        end_labels(ax, [label for end, label in ends if end > 0.6 * last], height=183)
        for end, label in ends:
            if end <= 0.6 * last:
                write(
                    ax, label.text, (end, label.y), offset=(5, 0), colour=label.colour,
                    align="left", shield=True,
                )  # fmt: skip


def _names(studies: Sequence[StudyRecord]) -> list[str]:
    """What tells the studies apart, as short as can be."""
    for names in ([title_of(study) for study in studies], [study.name for study in studies]):
        if len(set(names)) == len(names):
            return [name if len(name) <= 28 else f"{name[:27]}…" for name in names]
    return [f"{study.name[:20]} ({place})" for place, study in enumerate(studies, start=1)]


def _seeds_caption(study: StudyRecord) -> str:
    seeds = max((len(slot.trials) for slot in slots_of(study)), default=1)
    if seeds < 2:
        return ""
    return f" Means of {seeds} seeds; bars are one standard deviation, grey dots the seeds."
