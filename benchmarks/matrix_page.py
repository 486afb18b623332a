"""What the trainings of ``matrix_scope.py`` say, as the tables of docs/beyond-cnns.md.

    python benchmarks/matrix_page.py      print them

``results_page.py`` puts them into the page. A side that is not there yet is left out of the tables.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from fixnorm.evidence.panels import COLOURS, SEEDS_AS_DOTS, Row, dots
from fixnorm.report.drawing import Drawing
from fixnorm.report.statistics import mean_of, paired
from fixnorm.report.tables import TextTable
from matrix_settings import CHOOSING, JUDGED, LONG, WIDTHS, Setting
from matrix_sides import CONSTANTS, GAINS

STORED = Path(__file__).parents[1] / "results" / "matrix_scope.jsonl"
SIDES = {
    "adamw": "AdamW + weight decay",
    "adamw-tables": "AdamW + weight decay, ten times the lr for embeddings",
    "muon": "Muon + weight decay",
    "adamw-fan": "AdamW + weight decay, start by fan-in",
    "muon-fan": "Muon + weight decay, start by fan-in",
    "global": "FixNorm, one joint norm (AdamW)",
    "matrix": "FixNorm, scope `matrix` (AdamW)",
    "matrix-own": 'scope `matrix`, `length="own"` (AdamW)',
    "matrix-muon": "FixNorm, scope `matrix` (Muon)",
    "matrix-muon-own": 'scope `matrix`, `length="own"` (Muon)',
    "auto-adamw": 'scope `matrix`, `lr="auto"` (AdamW)',
    "auto-muon": 'scope `matrix`, `lr="auto"` (Muon)',
}
_MATRIX = [side for side in SIDES if side.startswith(("matrix", "auto"))]
_DECAYING = ("adamw", "adamw-tables", "muon", "adamw-fan", "muon-fan")
SEARCHED = [
    s for s in SIDES if not s.startswith("auto") and s[-4:] != "-fan" and s != "adamw-tables"
]
_SEEDS = 3
Trained = dict[str, Any]


def read(path: Path = STORED) -> list[Trained]:
    """All trainings."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def of(rows: Sequence[Trained], setting: str, side: str) -> list[Trained]:
    """Those of a side."""
    return [row for row in rows if (row["setting"], row["side"]) == (setting, side)]


def finals(rows: Sequence[Trained], setting: str, side: str) -> list[Trained]:
    """The winner's trainings, or the rule's, with fresh seeds, once all of them are there."""
    found = sorted((r for r in of(rows, setting, side) if r["seed"]), key=lambda r: r["seed"])
    return found if len(found) == _SEEDS else []


def scores(found: Sequence[Trained]) -> list[float]:
    """Higher is better; a training that diverged has none, and counts as guessing."""
    return [row["score"] if row["score"] is not None else -math.log(97) for row in found]


def numbers(row: Trained) -> str:
    """The setting of a training."""
    if row["side"].startswith("auto"):
        return "nothing: start by fan-in, α 2"
    other = "wd" if row["side"] in _DECAYING else "α"
    tied = row["setting"] == "gpt-tied" and row["side"] not in _DECAYING
    cap = "" if tied else f", {other} {row['other']:g}"
    start = "by fan-in" if row["radius"] == "fan_in" else f"×{row['radius']:g}"
    return f"lr {row['lr']:g}, start {start}{cap}"


def judgement(rows: Sequence[Trained]) -> str:
    """Every side of every setting: what its search chose, and its winner with fresh seeds."""
    lines = []
    for setting in JUDGED:
        reference = scores(finals(rows, setting.name, "adamw"))
        for side, title in SIDES.items():
            found = finals(rows, setting.name, side)
            if not found or not reference:
                continue
            digits, sign = (3, -1) if setting.is_text else (2, 1)
            mean = mean_of([sign * score for score in scores(found)])
            difference = (
                "" if side == "adamw" else paired(scores(found), reference).interval(digits)
            )
            unit = " nats" if setting.is_text else " %"
            cells = (f"`{setting.name}`", title, numbers(found[0]), mean.spread(digits) + unit)
            lines.append((*cells, difference))
    columns = (
        "task",
        "training",
        "what 8 trainings chose",
        "3 fresh seeds",
        "better than AdamW by",
    )
    return TextTable("", columns, tuple(lines), words=3).markdown(title=False)


def beside(rows: Sequence[Trained], rival: str, column: str) -> str:
    """Every form of scope matrix beside another side, with fresh seeds."""
    lines = []
    for setting in JUDGED:
        theirs = scores(finals(rows, setting.name, rival))
        digits, unit = (3, " nats") if setting.is_text else (2, " %")
        for side in _MATRIX:
            ours = scores(finals(rows, setting.name, side))
            if ours and theirs:
                difference = paired(ours, theirs).interval(digits) + unit
                lines.append((f"`{setting.name}`", SIDES[side], difference))
    return TextTable("", ("task", "training", column), tuple(lines), words=2).markdown(title=False)


def constants(rows: Sequence[Trained]) -> str:
    """How far below the best of its setting each pair of constants is, on average over them."""
    lines = []
    for kind, title in (("auto-muon", "Muon"), ("auto-adamw", "AdamW")):
        found = {s.name: _tried(rows, s, kind) for s in CHOOSING}
        whole = [by for by in found.values() if len(by) == len(CONSTANTS) ** 2]
        for c in CONSTANTS if whole else ():
            lost = [fmean(_lost(by, (c, plain)) for by in whole) for plain in CONSTANTS]
            lines.append((title, f"{c:g}", *(f"{percent:.1f}" for percent in lost)))
    columns = ("matrices by", "their c", *(f"all else {plain:g}" for plain in CONSTANTS))
    return TextTable("", columns, tuple(lines), words=1).markdown(title=False)


def _tried(
    rows: Sequence[Trained], setting: Setting, kind: str
) -> dict[tuple[float, float], float]:
    found = {}
    for row in rows:
        name, *pair = row["side"].split()
        if (row["setting"], name) == (setting.name, kind) and pair:
            found[float(pair[0]), float(pair[1])] = scores([row])[0]
    return found


def _lost(by: dict[tuple[float, float], float], pair: tuple[float, float]) -> float:
    best = max(by.values())
    return 100 * (best - by[pair]) / abs(best)


def gains(rows: Sequence[Trained]) -> str:
    """What learnt gains of rows change, paired by seed, in percent of the loss or the accuracy."""
    changes = []
    for setting in CHOOSING:
        with_gains, without = (scores(finals(rows, setting.name, side.name)) for side in GAINS)
        if with_gains and without:
            changes += [100 * (a - b) / abs(b) for a, b in zip(with_gains, without, strict=True)]
    if not changes:
        return "not measured yet\n"
    count = len(changes) // _SEEDS
    return f"{mean_of(changes).interval(1)} %, over {count} settings and {_SEEDS} seeds.\n"


def radii(rows: Sequence[Trained]) -> str:
    """The best of the search with each radius of the start: one seed."""
    lines = []
    for setting in JUDGED:
        for side in SEARCHED:
            searched = [r for r in of(rows, setting.name, side) if not r["seed"]]
            if not finals(rows, setting.name, side):
                continue
            cells = []
            for radius in (1, 3, 6, 12):
                known = [r for r in searched if r["radius"] == radius and r["score"] is not None]
                best = max((r["score"] for r in known), default=None)
                digits = 3 if setting.is_text else 2
                cells.append("" if best is None else f"{abs(best):.{digits}f} ({len(known)})")
            lines.append((f"`{setting.name}`", SIDES[side], *cells))
    columns = ("task", "training", "×1", "×3", "×6", "×12")
    return TextTable("", columns, tuple(lines), words=2).markdown(title=False)


def transfer(rows: Sequence[Trained]) -> str:
    """The loss of the first width's lr at the others, beside the best of three there."""
    lines = []
    for setting in WIDTHS[1:]:
        for side in SIDES:
            line = (_by_rule if side.startswith("auto") else _transferred)(rows, setting, side)
            if line is not None:
                lines.append(line)
    columns = ("width", "training", "lr of width 32", "its loss", "best of 3 here", "lost (%)")
    return TextTable("", columns, tuple(lines), words=2).markdown(title=False)


def _transferred(rows: Sequence[Trained], setting: Setting, side: str) -> tuple[str, ...] | None:
    first = finals(rows, WIDTHS[0].name, side)
    found = of(rows, setting.name, side)
    by_lr: dict[float, list[float]] = {}
    whole = [s for s in {r["seed"] for r in found} if sum(r["seed"] == s for r in found) == 3]
    for row in (row for row in found if row["seed"] in whole):
        by_lr.setdefault(row["lr"], []).append(-(row["score"] or -math.log(97)))
    if not first or len(by_lr) < 3 or first[0]["lr"] not in by_lr:
        return None
    means = {lr: fmean(losses) for lr, losses in by_lr.items()}
    moved, best = means[first[0]["lr"]], min(means.values())
    at = min(means, key=lambda lr: means[lr])
    seeds = len(by_lr[at])
    return (
        f"{setting.width} ({seeds} seed{'s' * (seeds > 1)})",
        SIDES[side],
        f"{first[0]['lr']:g}",
        f"{moved:.3f}",
        f"{best:.3f} (lr {at:g})",
        f"{100 * (moved / best - 1):.1f}",
    )


def _by_rule(rows: Sequence[Trained], setting: Setting, side: str) -> tuple[str, ...] | None:
    found = finals(rows, setting.name, side)
    if not found:
        return None
    mean = f"{-fmean(scores(found)):.3f}"
    return (f"{setting.width} ({_SEEDS} seeds)", SIDES[side], "by the rule", mean, "", "")


def longer(rows: Sequence[Trained]) -> str:
    """The numbers of the usual length at four times of it, half their lr, and the rule's."""
    lines = []
    for long, short in LONG:
        digits, sign = (3, -1) if long.is_text else (2, 1)
        reference = _at(rows, long, "adamw", finals(rows, short.name, "adamw"))
        for side in SIDES:
            won = finals(rows, short.name, side)
            if side.startswith("auto"):
                kept, halved = scores(finals(rows, long.name, side)), []
            else:
                kept, halved = _at(rows, long, side, won), _at(rows, long, side, won, 0.5)
            if not kept or not reference:
                continue
            cells = [
                mean_of([sign * x for x in found]).spread(digits) if found else ""
                for found in (kept, halved)
            ]
            difference = "" if side == "adamw" else paired(kept, reference).interval(digits)
            lines.append((f"`{long.name}`", SIDES[side], *cells, difference))
    columns = (
        "task",
        "training",
        "as chosen, or by the rule",
        "half the lr",
        "better than AdamW by",
    )
    return TextTable("", columns, tuple(lines), words=2).markdown(title=False)


def _at(
    rows: Sequence[Trained],
    setting: Setting,
    side: str,
    won: Sequence[Trained],
    factor: float = 1.0,
) -> list[float]:
    """What a winner's lr, or a part of it, comes to elsewhere; empty until all is there."""
    lr = float(f"{won[0]['lr'] * factor:.3g}") if won else None
    found = [r for r in of(rows, setting.name, side) if r["lr"] == lr and r["seed"]]
    found.sort(key=lambda row: int(row["seed"]))
    return scores(found) if len(found) == _SEEDS else []


_DRAWN = {
    "adamw": ("AdamW + weight decay, 8 trainings", "weight-decay"),
    "muon": ("Muon + weight decay, 8 trainings", "algorithm1"),
    "matrix-muon-own": ("scope matrix with Muon, 8 trainings", "wn-fc"),
    "auto-muon": ("the same, no search", "fixnorm"),
}


def drawing() -> Drawing:
    """The tasks that Muon is for: what is tuned, and what needs no search."""
    rows, panels = read(), []
    for setting in JUDGED:
        found = [
            Row(title, [abs(score) for score in scores(mine)], COLOURS[colour])
            for side, (title, colour) in _DRAWN.items()
            if (mine := finals(rows, setting.name, side))
        ]
        if len(found) == len(_DRAWN):
            unit = "loss (nats a character, less is better)" if setting.is_text else "accuracy (%)"
            panels.append(dots(f"{setting.name}", found, x=unit))
    return Drawing("beyond-cnns", "Beyond CNNs", SEEDS_AS_DOTS, tuple(panels))


def cost(rows: Sequence[Trained]) -> str:
    """How much was trained, and on what."""
    versions = ", ".join(sorted({row["versions"] for row in rows}))
    minutes = sum(row["seconds"] for row in rows) / 60
    each = median(row["seconds"] for row in rows)
    return (
        f"{len(rows)} trainings of {each:.0f} seconds of one core (median), {minutes:.0f} minutes "
        f"in all; {versions}.\n"
    )


def blocks() -> dict[str, str]:
    """What results_page.py fills in, by the name of the block."""
    rows = read()
    return {
        "matrix-judgement": judgement(rows),
        "matrix-control": beside(
            rows, "adamw-tables", "better than AdamW with faster embeddings by"
        ),
        "matrix-muon": beside(rows, "muon", "better than Muon + weight decay by"),
        "matrix-constants": constants(rows),
        "matrix-gains": gains(rows),
        "matrix-radii": radii(rows),
        "matrix-transfer": transfer(rows),
        "matrix-longer": longer(rows),
        "matrix-cost": cost(rows),
    }


if __name__ == "__main__":
    for name, text in blocks().items():
        print(f"{name}\n\n{text}")
