"""What the trainings of ``auto_alpha.py`` say, as a table of docs/auto-lr.md.

    python benchmarks/auto_alpha_page.py

``results_page.py`` puts it into the page.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from statistics import fmean

from auto_lr_page import CHOSEN, Results, accuracy, read
from fixnorm.report.tables import TextTable

STORED = Path(__file__).parents[1] / "results" / "auto_alpha.jsonl"
_RULES = ("calibrated", "late", "ratchet")


def blocks() -> dict[str, str]:
    """What results_page.py fills in, by the name of the block."""
    return {"auto-alpha": table(Results(read(STORED)))}


def table(results: Results) -> str:
    """Every setting in a line: without a cap, the best fixed alpha, and the rules."""
    rows: list[tuple[object, ...]] = []
    behind: dict[str, list[float]] = {rule: [] for rule in _RULES}
    for name in results.settings():
        fixed = {row["side"] for row in results.rows if row["setting"] == name}
        fixed = {side for side in fixed if side.startswith(f"{CHOSEN}-alpha")}
        rules = {rule: CHOSEN.replace("rule", f"rule-{rule}", 1) for rule in _RULES}
        sides = (CHOSEN, *sorted(fixed), *rules.values())
        seeds = set.intersection(*(set(results.of(name, side)) for side in sides))
        every = {side: _mean(results, name, side, seeds) for side in sides}
        means = {side: mean for side, mean in every.items() if side not in rules.values()}
        best = max(means, key=means.__getitem__)
        alpha = best.removeprefix(CHOSEN).removeprefix("-alpha") or "none"
        found = {rule: every[side] for rule, side in rules.items()}
        for rule, mean in found.items():
            behind[rule].append(mean - means[best])
        cells = (f"{found[rule]:.2f} ({found[rule] - means[CHOSEN]:+.2f})" for rule in _RULES)
        rows.append(
            (name, len(seeds), f"{means[CHOSEN]:.2f}", f"{means[best]:.2f} ({alpha})", *cells)
        )
    rows.append(
        (
            "mean difference to the best alpha",
            "",
            "",
            "",
            *(f"{fmean(d):+.2f}" for d in behind.values()),
        )
    )
    columns = ("setting", "seeds", "no cap", "best alpha", *_RULES)
    texts = tuple(tuple(map(str, row)) for row in rows)
    return TextTable("", columns, texts, words=1).markdown(title=False)


def _mean(results: Results, setting: str, side: str, seeds: Iterable[int]) -> float:
    rows = results.of(setting, side)
    return fmean(accuracy(rows[seed]) for seed in seeds)


if __name__ == "__main__":
    for name, text in blocks().items():
        print(f"{name}\n\n{text}")
