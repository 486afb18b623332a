"""Tables of docs/results.md: the noise of one training of every setting, and the four methods.

    python benchmarks/noise_page.py

``results_page.py`` puts them into the page.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from fixnorm.evidence.experiment import DrawnExperiment, grouped
from fixnorm.evidence.experiments import DRAWN
from fixnorm.evidence.noise import Group, noise_of
from fixnorm.evidence.record import read_record
from fixnorm.report.statistics import mean_of, paired, pairs_for
from fixnorm.report.tables import TextTable

RESULTS = Path(__file__).parents[1] / "results"
DIFFERENCE = 0.3
"""Percent: what is to be seen."""


def settings() -> dict[tuple[str, str], Sequence[Group]]:
    """By experiment and setting, the scores of equal trainings."""
    found: dict[tuple[str, str], Sequence[Group]] = {}
    for name in DRAWN:
        path = RESULTS / "reproduce" / f"{name}.json"
        if path.exists():
            outcome: DrawnExperiment = DRAWN[name].of(read_record(path).outcome)
            found |= {(name, setting): groups for setting, groups in outcome.repeats().items()}
    recipe, methods = four_methods()
    groups = [[run["accuracy"] for run in runs] for runs in methods.values()]
    return found | {("four methods", recipe): groups}


def four_methods() -> tuple[str, dict[str, list[dict[str, Any]]]]:
    """The recipe, and the trainings of each method by seed."""
    stored = json.loads((RESULTS / "cifar10-small.json").read_text())
    runs = sorted(stored["runs"], key=lambda run: run["seed"])
    return stored["recipe"], grouped(runs, lambda run: str(run["method"]))


def methods_table() -> str:
    """The four methods, each beside FixNorm with the same seeds."""
    _, methods = four_methods()
    ours = [run["accuracy"] for run in methods["fixnorm"]]
    rows = []
    for method, runs in methods.items():
        scores, first = [run["accuracy"] for run in runs], runs[0]
        second = {"alpha": first["alpha"], "λ": first["weight_decay"]}
        numbers = [f"{name} {value:g}" for name, value in second.items() if value]
        rows.append(
            (
                f"`{method}`",
                ", ".join([f"lr {first['lr']:g}", *numbers]),
                mean_of(scores).spread(),
                "–" if method == "fixnorm" else paired(ours, scores).interval(),
                f"{fmean(run['mcbr_val'] for run in runs):.2f}".replace("-", "−"),
                f"{fmean(run['seconds'] for run in runs):.0f}",
            )
        )
    columns = ("method", "setting", "accuracy (%)", "FixNorm − it", "MCBR val", "seconds")
    return TextTable("", columns, tuple(rows), words=2).markdown(title=False)


def noise_table() -> str:
    """Of all settings."""
    rows = []
    for (experiment, setting), groups in settings().items():
        noise = noise_of(groups)
        if noise is None:
            raise ValueError(f"{setting} of {experiment} has no two groups of the same seeds")
        rows.append(
            (
                f"[{experiment}](#{experiment.replace(' ', '-')})",
                setting,
                f"{noise.one:.2f}",
                str(noise.freedom),
                f"{2**0.5 * noise.one:.2f}",
                f"{noise.pair:.2f}",
                str(noise.pair_freedom),
                f"{pairs_for(DIFFERENCE, noise.pair):,}",
            )
        )
    columns = (
        *("experiment", "setting", "one training (%)", "df"),
        *("difference of two (%)", "of a pair (%)", "df", f"pairs for {DIFFERENCE:g} %"),
    )
    return TextTable("", columns, tuple(rows), words=2).markdown(title=False)


def blocks() -> dict[str, str]:
    """What results_page.py fills in, by the name of the block."""
    return {"noise": noise_table(), "methods": methods_table()}


if __name__ == "__main__":
    for name, text in blocks().items():
        print(f"{name}\n\n{text}")
