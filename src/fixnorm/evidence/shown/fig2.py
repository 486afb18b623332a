"""Figure 2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from matplotlib.axes import Axes

from fixnorm.evidence.shown.colours import COLOURS, NAMES
from fixnorm.evidence.shown.lines import Line, lines
from fixnorm.evidence.shown.shown import Claim, Shown, at_least, greater
from fixnorm.evidence.shown.stored import Fig2, Fig2Run
from fixnorm.report.drawing import Drawing
from fixnorm.report.statistics import Mean, mean_of, paired
from fixnorm.report.style import MUTED, write
from fixnorm.report.tables import TextTable

__all__ = ["show"]


def show(content: Mapping[str, Any]) -> Shown:
    """Accuracy, the head's scale and the risk, over training."""
    outcome = Fig2.of(content)
    runs: dict[str, list[Fig2Run]] = {
        method: [run for run in outcome.runs if run.method == method]
        for method in dict.fromkeys(run.method for run in outcome.runs)
    }
    cap = last(runs["fixnorm"][0].curve.cap)
    accuracy = lines(
        "Accuracy", [_line(runs, m, "score") for m in runs], x="epoch", y="validation accuracy (%)"
    )
    scale = lines(
        "Scale of the head: ‖W^FC‖, or min(g, cap)",
        [_line(runs, m, "head_scale", cap=cap if m == "fixnorm" else None) for m in runs],
        x="epoch",
        y="scale",
        extra=partial(_draw_cap, cap=cap),
    )
    risk = lines(
        "Cross-boundary risk: validation, dashed: training",
        [
            *(_line(runs, m, "mcbr_val") for m in runs),
            *(_line(runs, m, "mcbr_train", style=(0, (3, 2)), named=False) for m in runs),
        ],
        x="epoch",
        y="MCBR",
    )
    alpha = runs["fixnorm"][0].alpha
    drawing = Drawing(
        "fig2",
        "Figure 2",
        f"{outcome.setting}, {len(runs['fixnorm'])} seeds (thin) and their mean. The same lr"
        f" {runs['fixnorm'][0].lr:g} for all; FixNorm's alpha is {alpha:g}.",
        (accuracy, scale, risk),
        columns=3,
    )
    rows = tuple(_row(method, found, cap) for method, found in runs.items())
    gain = _paired(runs, "fixnorm", "wn-fc", "score")
    closed = _paired(runs, "fixnorm", "algorithm1", "score")
    gap = _paired(runs, "algorithm1", "wn-fc", "score")
    risks = {
        which: _paired(runs, "wn-fc", "fixnorm", f"mcbr_{which}") for which in ("train", "val")
    }
    table = TextTable(
        f"{outcome.setting}: at the end of training",
        ("method", "accuracy (%)", "scale of the head", "MCBR train", "MCBR val"),
        rows,
        (
            f"FixNorm − WN-FC, paired by seed: {gain.interval()} % (95 %)",
            f"FixNorm − Algorithm 1: {closed.interval()} %",
        ),
        words=1,
    )
    ends = mean_of([last(run.curve.head_scale) for run in runs["wn-fc"]])
    claims = (
        Claim(
            "Without a cap g grows past it",
            "holds" if ends.mean > cap else "does not hold",
            f"g {ends.spread()} without a cap; the cap is {cap:.2f}",
        ),
        Claim(
            "… and the risk is higher",
            greater(risks["val"]),
            f"MCBR, WN-FC − FixNorm: validation {risks['val'].interval(3)}, training"
            f" {risks['train'].interval(3)}",
        ),
        Claim("… and accuracy is lower than Algorithm 1's", greater(gap), f"{gap.interval()} %"),
        Claim("The cap raises accuracy over WN-FC", greater(gain), f"{gain.interval()} %"),
        Claim("… up to Algorithm 1's", at_least(closed), f"{closed.interval()} %"),
    )
    return Shown((drawing,), (table,), claims)


def last(values: Sequence[float | None]) -> float:
    """The end of a curve that has one."""
    value = values[-1]
    assert value is not None
    return value


def _row(method: str, runs: Sequence[Fig2Run], cap: float) -> tuple[str, ...]:
    scales = [last(run.curve.head_scale) for run in runs]
    if method == "fixnorm":
        scales = [min(scale, cap) for scale in scales]
    return (
        NAMES[method],
        mean_of([run.score for run in runs]).spread(),
        mean_of(scales).spread(),
        mean_of([run.mcbr_train for run in runs]).spread(3).replace("-", "−"),
        mean_of([run.mcbr_val for run in runs]).spread(3).replace("-", "−"),
    )


def _line(
    runs: Mapping[str, Sequence[Fig2Run]],
    method: str,
    column: str,
    *,
    cap: float | None = None,
    style: Any = "-",
    named: bool = True,
) -> Line:
    curves = [getattr(run.curve, column) for run in runs[method]]
    if cap is not None:
        curves = [[None if v is None else min(v, cap) for v in curve] for curve in curves]
    epochs = runs[method][0].curve.epoch
    return Line(NAMES[method], COLOURS[method], epochs, curves, style=style, named=named)


def _draw_cap(ax: Axes, *, cap: float) -> None:
    ax.axhline(cap, color=MUTED, lw=0.8, ls=(0, (1, 2)), zorder=1)
    ax.set_ylim(0, None)
    write(ax, "α√C", (ax.get_xlim()[1], cap), offset=(-12, 7), colour=MUTED)


def _paired(runs: Mapping[str, Sequence[Fig2Run]], one: str, other: str, column: str) -> Mean:
    return paired(
        [getattr(r, column) for r in runs[one]], [getattr(r, column) for r in runs[other]]
    )
