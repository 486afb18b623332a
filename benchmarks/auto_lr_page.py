"""What the trainings of ``auto_lr.py`` say, as the tables of docs/auto-lr.md.

    python benchmarks/auto_lr_page.py      the fit on which the constant was chosen, and the tables

``results_page.py`` puts the tables into the page.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

import auto_lr_searches
from auto_lr_settings import CHOOSING, JUDGING, SHORT
from fixnorm.evidence.panels import COLOURS, Row, dots
from fixnorm.report.drawing import Drawing
from fixnorm.report.statistics import mean_of, paired
from fixnorm.report.tables import TextTable
from fixnorm.tuning.trial import Trial

STORED = Path(__file__).parents[1] / "results" / "auto_lr.jsonl"
CHOSEN = "rule-c0.2-p0.4-m0"
"""What ships, by its name in the file: c = 2 · (1 − μ) is 0.2 at momentum 0.9."""
_NEAR = 6.0
"""The curve of a setting goes through its trainings that are at most so far below the best."""
TUNED, PLAN = "tuned", "plan"
"""Sides whose name in the file depends on what their search found."""
_TITLES = {
    TUNED: "Algorithm 4, its winner trained anew",
    PLAN: "plan auto, its winner trained anew",
    "constant-lr1": "lr = 1",
    "weight-decay": "SGD, weight decay 5e-4",
    "prodigy": "Prodigy",
    "dog": "DoG, averaged",
    "schedule-free-lr5": "schedule-free SGD, lr 5",
}
_THEIRS = COLOURS["weight-decay"]
Trained = dict[str, Any]


def read(path: Path = STORED) -> list[Trained]:
    """All trainings."""
    return [json.loads(line) for line in path.read_text().splitlines()]


@dataclass(frozen=True)
class Results:
    """Trainings by setting, side and seed."""

    rows: Sequence[Trained]

    def settings(self) -> list[str]:
        return list(dict.fromkeys(row["setting"] for row in self.rows))

    def of(self, setting: str, side: str) -> dict[int, Trained]:
        """By seed; those that diverged have no accuracy."""
        return {r["seed"]: r for r in self.rows if (r["setting"], r["side"]) == (setting, side)}

    def steps(self, setting: str) -> int:
        return max(int(row["steps"]) for row in self.rows if row["setting"] == setting)


def accuracy(row: Trained) -> float:
    """A training that diverged says no more than a guess."""
    return 0.0 if row["accuracy"] is None else float(row["accuracy"])


# -- the choice ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Curve:
    """Accuracy over log lr of a setting, a parabola for all seeds and a level for each."""

    setting: str
    steps: int
    curvature: float
    peak: float
    """log lr."""
    noise: float
    """Of one training around the curve."""
    slope: float
    offset: float
    """log lr in mid-training = slope · log c + offset, of the rule with p = 1/2."""

    def regret(self, c: float, exponent: float) -> float:
        """What the rule is below the best lr, in percent."""
        as_half = math.log(c) + (0.5 - exponent) * math.log(self.steps)
        return -self.curvature * (self.slope * as_half + self.offset - self.peak) ** 2

    @property
    def best_c(self) -> float:
        """The c of the rule with p = 1/2 that has the best lr."""
        return math.exp((self.peak - self.offset) / self.slope)


def curve(results: Results, setting: str) -> Curve | None:
    """None where too few trainings, or no fall on both sides, leave the peak open."""
    rows = [
        row
        for row in results.rows
        if row["setting"] == setting
        and row["lr"]
        and row["side"].startswith(("constant", "rule-c"))
        and not row["side"].endswith(("-m1", "-m100"))
    ]
    best = max(map(accuracy, rows), default=0.0)
    near = [row for row in rows if accuracy(row) > best - _NEAR]
    x = np.array([math.log(row["lr"][2]) for row in near])
    seeds = np.array([row["seed"] for row in near])
    levels = [(seeds == seed).astype(float) for seed in sorted(set(seeds.tolist()))]
    terms = np.stack([x**2, x, *levels], axis=1)
    if len(near) < terms.shape[1] + 2:
        return None
    y = np.array(list(map(accuracy, near)))
    found = np.linalg.lstsq(terms, y, rcond=None)[0]
    if found[0] > -0.1:
        return None
    rule = [row for row in rows if row["side"].startswith("rule-") and "-p0.5-" in row["side"]]
    constants = [math.log(float(row["side"].split("-")[1][1:])) for row in rule]
    slope, offset = np.polyfit(constants, [math.log(row["lr"][2]) for row in rule], 1)
    return Curve(
        setting=setting,
        steps=results.steps(setting),
        curvature=float(found[0]),
        peak=float(-found[1] / (2 * found[0])),
        noise=float((y - terms @ found).std(ddof=terms.shape[1])),
        slope=float(slope),
        offset=float(offset),
    )


def best_constant(curves: Iterable[Curve], exponent: float) -> tuple[float, float]:
    """The c with the least mean regret at this exponent, and that regret."""
    every = list(curves)
    choices = np.geomspace(0.02, 1.5, 400).tolist()
    return min(
        ((c, fmean(one.regret(c, exponent) for one in every)) for c in choices), key=lambda r: r[1]
    )


def choice(results: Results, settings: Sequence[str]) -> str:
    """Where the best lr of each setting lies, as a constant of the rule."""
    rows = []
    for name in settings:
        found = curve(results, name)
        if found is None:
            rows.append((name, f"{results.steps(name):,}", "open", "open", "–", "–", "–"))
            continue
        width = math.exp(1 / math.sqrt(-found.curvature))
        shipped = float(CHOSEN.split("-")[1][1:]), float(CHOSEN.split("-")[2][1:])
        rows.append(
            (
                name,
                f"{found.steps:,}",
                f"{math.exp(found.peak):.2g}",
                f"{found.best_c:.2f}",
                f"{width:.1f}×",
                f"{found.noise:.2f}",
                f"{found.regret(*shipped):.2f}",
            )
        )
    columns = (
        *("setting", "T", "best lr", "as c at p = ½"),
        *("1 % lost at", "noise", "regret of what ships"),
    )
    return TextTable("", columns, tuple(rows), words=1).markdown(title=False)


def exponents(results: Results, settings: Sequence[str]) -> str:
    """The best constant for each exponent, and how far below the best lr it stays on average."""
    curves = [found for name in settings if (found := curve(results, name)) is not None]
    rows = []
    for exponent in (0.3, 0.36, 0.4, 0.42, 0.45, 0.5, 0.55):
        c, regret = best_constant(curves, exponent)
        worst = max(one.regret(c, exponent) for one in curves)
        rows.append((f"{exponent:g}", f"{c:.2f}", f"{regret:.2f}", f"{worst:.2f}"))
    columns = ("p", "best c", "mean regret (%)", "worst (%)")
    return TextTable("", columns, tuple(rows), words=0).markdown(title=False)


# -- the judgement ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Judged:
    """One setting: accuracies of all sides with the same seeds."""

    names: dict[str, str]
    """What the winner of each search is called in the file."""
    values: dict[str, list[float]]

    def mean(self, side: str) -> float:
        return fmean(self.values[side])


def judged(results: Results, settings: Sequence[str]) -> dict[str, Judged]:
    """The settings of which every side is trained, over the seeds that all of them have."""
    found = {}
    for name in settings:
        try:
            names = {TUNED: _tuned(results, name), PLAN: _planned(results, name)}
        except KeyError:  # a search that is not over
            continue
        by_side = {s: results.of(name, names.get(s, s)) for s in (CHOSEN, *_TITLES)}
        seeds = sorted(set.intersection(*(set(rows) - {0} for rows in by_side.values())))
        if seeds:
            values = {s: [accuracy(rows[seed]) for seed in seeds] for s, rows in by_side.items()}
            found[name] = Judged(names, values)
    return found


def _tuned(results: Results, setting: str) -> str:
    """The winner of Algorithm 4, as the file calls it."""
    lr = results.of(setting, CHOSEN)[0]["lr"][2]

    def side(trial: Trial) -> str:
        part = "" if trial.fraction == 1 else f"-T{trial.fraction:g}"
        return f"tuned-lr{trial.rate:g}-alpha{trial.alpha:g}{part}"

    found, _ = auto_lr_searches.algorithm4(lr, lambda t: results.of(setting, side(t))[0])
    return side(found)


def tuned_lr(results: Results, setting: str) -> float:
    """The learning rate of Algorithm 4's winner."""
    return _numbers(_tuned(results, setting))[0]


def _numbers(side: str) -> tuple[float, float]:
    """lr and alpha of a winner of Algorithm 4, from its name in the file."""
    lr, alpha = side.removeprefix("tuned-lr").split("-alpha")
    return float(lr), float(alpha.partition("-")[0])


def _planned(results: Results, setting: str) -> str:
    """The winner of plan auto; where no cap was met, the rule itself."""
    largest = results.of(setting, CHOSEN)[0]["largest_scale"]

    def side(trial: Trial) -> str:
        free = trial.alpha is None or trial.alpha > largest
        return CHOSEN if free else f"{CHOSEN}-alpha{trial.alpha:g}"

    found, _ = auto_lr_searches.auto(lambda t: results.of(setting, side(t))[0])
    return side(found)


def judgement(results: Results, settings: Sequence[str]) -> str:
    """Every judged setting in a line, and the mean."""
    found = judged(results, settings)
    rows = []
    for name, one in found.items():
        means = {side: one.mean(side) for side in one.values}
        best = max(means.values())
        cells = {s: f"**{m:.2f}**" if m == best else f"{m:.2f}" for s, m in means.items()}
        lr, alpha = one.names[TUNED].removeprefix("tuned-lr").split("-alpha")
        cells[TUNED] += f" ({lr}, {alpha})"
        alpha = one.names[PLAN].removeprefix(CHOSEN).removeprefix("-alpha")
        cells[PLAN] += f" ({alpha or 'none'})"
        rows.append((name, f"{results.steps(name):,}", *cells.values()))
    if rows:
        means = {s: fmean(one.mean(s) for one in found.values()) for s in (CHOSEN, *_TITLES)}
        rows.append(("**mean**", "", *(f"**{mean:.2f}**" for mean in means.values())))
    titles = _TITLES | {TUNED: "Algorithm 4 (lr, alpha)", PLAN: "plan auto (alpha)"}
    columns = ("setting", "T", "the rule", *titles.values())
    return TextTable("", columns, tuple(rows), words=1).markdown(title=False)


def differences(results: Results, settings: Sequence[str], ours: str = CHOSEN) -> str:
    """One side against every other, over the judged settings."""
    found = judged(results, settings).values()
    rows = []
    for side in (side for side in (CHOSEN, *_TITLES) if side != ours and found):
        mine, others = ([one.mean(s) for one in found] for s in (ours, side))
        wins = sum(a > b for a, b in zip(mine, others, strict=True))
        title = _TITLES.get(side, "the rule, uncapped")
        cost = {TUNED: "about 8", PLAN: "about 2.5"}.get(side, "1")
        rows.append((title, cost, paired(mine, others).interval(), f"{wins} of {len(found)}"))
    columns = ("against", "T_max", "difference (%)", "settings won")
    return TextTable("", columns, tuple(rows), words=1).markdown(title=False)


def drawing() -> Drawing:
    """The rule against every other side: a dot for each judged setting."""
    found = judged(Results(read()), [setting.name for setting in JUDGING]).values()
    colours = {TUNED: COLOURS["fixnorm"], PLAN: COLOURS["fixnorm"], "constant-lr1": "#777777"}
    rows = [
        Row(title, [one.mean(CHOSEN) - one.mean(side) for one in found], colours.get(side, _THEIRS))
        for side, title in _TITLES.items()
    ]
    title = "lr by the rule, 1 T_max, minus …"
    panel = dots(title, rows, x="difference in accuracy (%)", zero=True)
    return Drawing("auto-lr", "No search for lr", "", (panel,))


def noise(results: Results, settings: Sequence[str]) -> str:
    """The deviation of one training between seeds, on average over the settings."""
    values = [one.values[CHOSEN] for one in judged(results, settings).values()]
    spread = [d for one in values if (d := mean_of(one).deviation) is not None]
    seeds = sorted({len(one) for one in values}) or [0]
    count = " to ".join(str(n) for n in sorted({seeds[0], seeds[-1]}))
    deviation = f"; one training of the rule deviates by {fmean(spread):.2f} %" if spread else ""
    known = f"{len(values)} of {len(JUDGING)} settings"
    return f"{known}, {count} seeds each{deviation}.\n"


def short(results: Results, settings: Sequence[str]) -> str:
    """Trainings of a few steps: the rule, smaller constants, and the peers."""
    slower = {CHOSEN.replace("c0.2", f"c{0.2 / n:g}"): f"1/{n} of its lr" for n in (2, 4, 8)}
    titles = {CHOSEN: "the rule", **slower, **_TITLES}
    sides = {s: title for s, title in titles.items() if s not in (TUNED, PLAN)}
    rows = []
    for name in settings:
        found = {side: list(map(accuracy, results.of(name, side).values())) for side in sides}
        rows.append((name, *(f"{fmean(v):.1f}" if v else "–" for v in found.values())))
    columns = ("setting", *sides.values())
    return TextTable("", columns, tuple(rows), words=1).markdown(title=False)


def dense(results: Results, settings: Sequence[str]) -> str:
    """The two small dense tasks: the rule beside the lr of a search, seed by seed.

    The last row has them together with the judged classifiers, each setting once.
    """
    rows: list[tuple[str, ...]] = []
    classifiers = judged(results, settings).values()
    means = [[one.mean(side) for one in classifiers] for side in (CHOSEN, TUNED)]
    for task, metric in (("cityscapes-small", "miou"), ("coco-small", "ap")):
        files = (STORED.parent / "dense" / f"{task}{end}.json" for end in ("-auto", ""))
        ours, theirs = (
            {run["seed"]: run for run in json.loads(file.read_text())["runs"] if run["alpha"]}
            for file in files
        )
        seeds = sorted(ours.keys() & theirs.keys())
        pair = [[runs[seed][metric] for seed in seeds] for runs in (ours, theirs)]
        first = theirs[seeds[0]]
        for side, values in zip(means, pair, strict=True):
            side.append(fmean(values))
        rows.append(
            (
                f"`{task}`",
                f"{first['steps']}",
                f"{len(seeds)}",
                f"{fmean(pair[0]):.2f}",
                f"{fmean(pair[1]):.2f} ({first['lr']:g})",
                paired(*pair).interval(),
            )
        )
    whole = f"these and the {len(classifiers)} classifiers"
    rows.append(
        (whole, "", "3 each", *(f"{fmean(m):.2f}" for m in means), paired(*means).interval())
    )
    columns = ("task", "T", "seeds", "the rule", "lr of a search", "difference (%)")
    return TextTable("", columns, tuple(rows), words=1).markdown(title=False)


def blocks() -> dict[str, str]:
    """What results_page.py fills in, by the name of the block."""
    results = Results(read())
    there = set(results.settings())
    choosing = [setting.name for setting in CHOOSING if setting.name in there]
    judging = [setting.name for setting in JUDGING if setting.name in there]
    return {
        "auto-lr-choice": choice(results, choosing),
        "auto-lr-exponents": exponents(results, choosing),
        "auto-lr-judgement": judgement(results, judging),
        "auto-lr-differences": differences(results, judging),
        "auto-lr-plan": differences(results, judging, ours=PLAN),
        "auto-lr-short": short(results, [setting.name for setting in SHORT]),
        "auto-lr-dense": dense(results, judging),
        "auto-lr-noise": noise(results, judging),
    }


if __name__ == "__main__":
    for name, text in blocks().items():
        print(f"{name}\n\n{text}")
