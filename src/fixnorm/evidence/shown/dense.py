"""Segmentation and detection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fixnorm.evidence.shown.colours import COLOURS, NAMES
from fixnorm.evidence.shown.dots import Row, dots
from fixnorm.evidence.shown.shown import Claim, Shown, at_least
from fixnorm.evidence.shown.stored import Dense
from fixnorm.report.drawing import Drawing
from fixnorm.report.statistics import mean_of, paired
from fixnorm.report.tables import TextTable

__all__ = ["show_table3", "show_table4"]


def show_table3(outcome: Mapping[str, Any]) -> Shown:
    """Segmentation."""
    return _show(outcome, "table3", "Segmentation")


def show_table4(outcome: Mapping[str, Any]) -> Shown:
    """Detection."""
    return _show(outcome, "table4", "Detection")


def _show(content: Mapping[str, Any], name: str, title: str) -> Shown:
    outcome = Dense.of(content)
    runs, metric = outcome.runs, outcome.metric
    rows, panels, claims, notes = [], [], [], []
    for recipe in dict.fromkeys(run.recipe for run in runs):
        ours = [run for run in runs if run.recipe == recipe]
        by_method = {
            method: [run for run in ours if run.method == method]
            for method in dict.fromkeys(run.method for run in ours)
        }
        for method, found in by_method.items():
            first = found[0]
            second = (
                f"alpha {first.alpha:g}" if method == "fixnorm" else f"λ {first.weight_decay:g}"
            )
            paper = "–" if first.paper is None else f"{first.paper:.1f}"
            rows.append(
                (
                    recipe,
                    NAMES[method],
                    f"lr {first.lr:g}, {second}",
                    mean_of([run.score for run in found]).spread(),
                    mean_of([run.mcbr_val for run in found]).spread(3).replace("-", "−"),
                    str(len(found)),
                    paper,
                )
            )
        panels.append(
            dots(
                recipe,
                [Row(NAMES[m], [r.score for r in f], COLOURS[m]) for m, f in by_method.items()],
                x=metric,
            )
        )
        difference = paired(
            [run.score for run in by_method["fixnorm"]],
            [run.score for run in by_method["weight-decay"]],
        )
        notes.append(f"FixNorm − weight decay, paired by seed: {difference.interval()} % (95 %)")
        claims.append(
            Claim(
                f"Tuned FixNorm is at least as good as the default ({recipe})",
                at_least(difference),
                f"{difference.interval()} %",
            )
        )
    table = TextTable(
        title,
        ("recipe", "method", "numbers", metric, "MCBR val", "seeds", "paper"),
        tuple(rows),
        tuple(notes),
        words=3,
    )
    caption = "Dots are seeds, the bar is the 95 % interval of the mean."
    return Shown((Drawing(name, title, caption, tuple(panels)),), (table,), tuple(claims))
