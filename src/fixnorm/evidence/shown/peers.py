"""FixNorm among its peers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fixnorm.evidence.shown.dots import Row, dots
from fixnorm.evidence.shown.shown import Claim, Shown, at_least
from fixnorm.evidence.shown.stored import Peers
from fixnorm.evidence.shown.table1 import numbers
from fixnorm.report.drawing import Drawing
from fixnorm.report.statistics import mean_of, paired
from fixnorm.report.style import SERIES
from fixnorm.report.tables import TextTable

__all__ = ["show"]

_OURS = "FixNorm"


def show(content: Mapping[str, Any]) -> Shown:
    """Accuracy with fresh seeds, and what a step costs."""
    outcome = Peers.of(content)
    rows = outcome.rows
    ours = next(row for row in rows if row.peer == _OURS)
    step = outcome.step.peers
    differences = {row.peer: paired(ours.scores, row.scores) for row in rows if row is not ours}
    colours = [*SERIES[1:5], SERIES[0]]
    panel = dots(
        f"{outcome.setting}: winners trained anew",
        [Row(row.peer, row.scores, c) for row, c in zip(rows, colours, strict=True)],
        x=outcome.metric,
    )
    table = TextTable(
        f"{outcome.setting}: each tuned with at most {outcome.budget} T_max",
        (
            "optimizer",
            "winner",
            "cost (T_max)",
            outcome.metric,
            "FixNorm − it",
            "step time",
            "bytes a weight",
        ),
        tuple(
            (
                row.peer,
                numbers(row),
                f"{row.cost:g}",
                mean_of(row.scores).spread(),
                differences[row.peer].interval() if row.peer in differences else "–",
                f"{step[row.peer].step_time:.2f} ×",
                f"{step[row.peer].bytes_per_weight:g}",
            )
            for row in rows
        ),
        (
            "Scores of seeds that no search has seen, paired by seed (95 %). Step time:"
            f" optimizer.step() of {outcome.step.model} by that of SGD + weight decay,"
            f" alternated, one thread. Bytes a weight: the optimizer's own state.",
        ),
    )
    claims = tuple(
        Claim(f"FixNorm is at least as good as {peer}", at_least(d), f"{d.interval()} %")
        for peer, d in differences.items()
    )
    drawing = Drawing(
        "peers",
        "Peers",
        "Dots are seeds, the bar is the 95 % interval of the mean.",
        (panel,),
    )
    return Shown((drawing,), (table,), claims)
