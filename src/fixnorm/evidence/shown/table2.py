"""Table 2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fixnorm.evidence.shown.colours import COLOURS
from fixnorm.evidence.shown.dots import Row, dots
from fixnorm.evidence.shown.shown import Claim, Shown, at_least, greater
from fixnorm.evidence.shown.stored import Table2
from fixnorm.evidence.shown.table1 import numbers
from fixnorm.report.drawing import Drawing
from fixnorm.report.statistics import mean_of, paired
from fixnorm.report.tables import TextTable

__all__ = ["show"]

_KINDS = {
    "default": ("default weight decay", COLOURS["wn-fc"]),
    "tuned_weight_decay": ("tuned weight decay", COLOURS["weight-decay"]),
    "tuned_fixnorm": ("tuned FixNorm", COLOURS["fixnorm"]),
}


def show(content: Mapping[str, Any]) -> Shown:
    """A row for each model, the differences paired by seed."""
    outcome = Table2.of(content)
    models = outcome.models
    panels = tuple(
        dots(
            model.setting,
            [
                Row(name, getattr(model, kind).scores, colour)
                for kind, (name, colour) in _KINDS.items()
            ],
            x="accuracy (%)",
            width=380,
        )
        for model in models
    )
    rows, claims = [], []
    for model in models:
        ours, tuned, default = (getattr(model, kind) for kind in reversed(_KINDS))
        over_default = paired(ours.scores, default.scores)
        over_tuned = paired(ours.scores, tuned.scores)
        paper = "–" if model.paper is None else f"{model.paper:.2f} ({model.paper_reference:.2f})"
        rows.append(
            (
                model.setting,
                *(mean_of(getattr(model, kind).scores).spread() for kind in _KINDS),
                over_default.interval(),
                over_tuned.interval(),
                numbers(ours),
                f"{ours.cost:g} / {tuned.cost:g}",
                paper,
            )
        )
        name = model.setting
        claims += [
            Claim(
                f"Tuned FixNorm is better than default weight decay ({name})",
                greater(over_default),
                f"{over_default.interval()} %",
            ),
            Claim(
                f"… and as good as weight decay tuned as long ({name})",
                at_least(over_tuned),
                f"{over_tuned.interval()} %",
            ),
        ]
    table = TextTable(
        "Accuracy (%) with seeds that no search has seen",
        (
            "model",
            *(name for name, _ in _KINDS.values()),
            "FixNorm − default",
            "FixNorm − tuned",
            "FixNorm's winner",
            "cost (T_max)",
            "paper (its reference)",
        ),
        tuple(rows),
        (
            "Mean ± standard deviation; differences paired by seed with their 95 % interval. The"
            " paper compares with default weight decay only.",
        ),
        words=1,
    )
    drawing = Drawing(
        "table2",
        "Table 2",
        "Dots are seeds, the bar is the 95 % interval of the mean.",
        panels,
    )
    return Shown((drawing,), (table,), tuple(claims))
