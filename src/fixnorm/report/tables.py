"""The tables of the page: trials, slots, studies, settings."""

from __future__ import annotations

import os
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fixnorm.report.markup import Markup, join, tag, with_t_max
from fixnorm.report.progress import answer, cost_to_reach, stage
from fixnorm.report.slots import slots_of
from fixnorm.report.words import (
    bare,
    choice,
    duration,
    length,
    metric_name,
    title_of,
    valued,
    weight_decay,
)
from fixnorm.system.run_paths import RunPaths
from fixnorm.tuning.record import StudyRecord, TrialRecord

__all__ = ["settings_table", "slot_table", "studies_table", "trial_table"]

_RUN = RunPaths(Path())
FILES = {_RUN.metrics.name: "metrics", _RUN.result.name: "result"}
"""Files of a run's folder, and what links to them say."""

Cell = tuple[str | None, float | str | None]
"""What is shown, and what it is sorted by; none: nothing."""


def trial_table(study: StudyRecord, out: Path) -> Markup:
    """All trials, in the order in which they began; links are relative to the page in ``out``."""
    best = answer(study)
    winners = {trial.key for trial in best.trials} if best is not None else set()
    columns = _trial_columns(study, out)
    rows = [
        tag(
            "tr",
            *(_cell(value(trial), number=number) for _, number, value in columns),
            class_="best" if trial.key in winners else None,
        )
        for trial in sorted(study.trials, key=lambda trial: trial.number)
    ]
    heads = [(name, number) for name, number, _ in columns]
    return _table(heads, rows, class_="trials")


def _trial_columns(
    study: StudyRecord, out: Path
) -> list[tuple[str, bool, Callable[[TrialRecord], Cell]]]:
    """Heading, whether it is a number, and the cell of a trial; useless columns are left out."""
    trials = study.trials
    columns: list[tuple[str, bool, Callable[[TrialRecord], Cell]]] = [
        ("trial", False, lambda t: (t.key, t.number)),
        ("round", False, lambda t: (t.round, t.round)),
        ("lr", True, lambda t: (f"{t.lr:.4g}", t.lr)),
    ]
    if any(t.alpha is not None for t in trials):
        columns.append(("alpha", True, lambda t: _number(t.alpha, "g")))
    if any(t.weight_decay is not None for t in trials):
        columns.append(
            (
                "weight decay",
                True,
                lambda t: (
                    (None, None)
                    if t.weight_decay is None
                    else (weight_decay(t.weight_decay), t.weight_decay)
                ),
            )
        )
    columns.append(("length", True, lambda t: (length(t.fraction), t.fraction)))
    if len({t.seed for t in trials}) > 1:
        columns.append(("seed", True, lambda t: (str(t.seed), t.seed)))
    columns += [
        (
            study.metric,
            True,
            lambda t: (
                (None, None) if t.accuracy is None else (bare(t.accuracy, study.metric), t.accuracy)
            ),
        ),
        ("state", False, lambda t: (_state(t), t.state)),
    ]
    if any(t.largest_scale is not None for t in trials):
        columns.append(("largest g/√C", True, lambda t: _number(t.largest_scale, ".3g")))
    if any(t.seconds is not None for t in trials):
        columns.append(
            (
                "time",
                True,
                lambda t: (None, None) if t.seconds is None else (duration(t.seconds), t.seconds),
            )
        )
    links = {t.key: _links(t, out) for t in trials}
    if any(links.values()):
        columns.append(("files", False, lambda t: (links[t.key], t.key if links[t.key] else "")))
    return columns


def slot_table(study: StudyRecord) -> Markup | None:
    """Means and spread, where there are several seeds."""
    slots = slots_of(study)
    if all(len(slot.trials) < 2 for slot in slots):
        return None
    best = answer(study)
    rows = []
    for slot in slots:
        found = slot.values
        mean = None if slot.mean is None else bare(slot.mean, study.metric)
        std = None if slot.std is None else bare(slot.std, study.metric)
        ends = f"{bare(min(found), study.metric)} … {bare(max(found), study.metric)}"
        cells: list[tuple[Cell, bool]] = [
            ((slot.first.round, slot.first.round), False),
            ((choice(slot), slot.first.lr), False),
            ((length(slot.first.fraction), slot.first.fraction), True),
            ((f"{len(found)} of {slot.seeds}", len(found)), True),
            ((mean, slot.mean), True),
            ((std, slot.std), True),
            ((ends if found else None, min(found, default=None)), True),
            ((_dot(slot.state), slot.state), False),
        ]
        rows.append(
            tag(
                "tr",
                *(_cell(cell, number=number) for cell, number in cells),
                class_="best" if best is not None and slot.trials == best.trials else None,
            )
        )
    heads = [
        ("round", False),
        ("slot", False),
        ("length", True),
        ("seeds", True),
        ("mean", True),
        ("std", True),
        ("min … max", True),
        ("state", False),
    ]
    return _table(heads, rows, class_="slots")


def studies_table(studies: Sequence[StudyRecord], anchors: Sequence[str]) -> Markup:
    """The comparison: one row for each study."""
    bests = [answer(study) for study in studies]
    means = [best.mean for best in bests if best is not None and best.mean is not None]
    rows = []
    for study, anchor, best in zip(studies, anchors, bests, strict=True):
        mean = best.mean if best is not None else None
        reached = cost_to_reach(study)
        counts = counted(study)
        name = tag("a", study.name, href=f"#{anchor}")
        running = None if stage(study) == "over" else tag("span", stage(study), class_="why")
        cells: list[tuple[Cell, bool]] = [
            ((join(name, running), study.name), False),
            ((title_of(study), title_of(study)), False),
            ((None if mean is None else valued(mean, study.metric), mean), True),
            ((None if best is None else choice(best), None), False),
            ((None if reached is None else length(reached), reached), True),
            ((length(study.cost), study.cost), True),
            ((counts, len(study.trials)), False),
        ]
        winner = mean is not None and mean == max(means)
        rows.append(
            tag(
                "tr",
                *(_cell(cell, number=number) for cell, number in cells),
                class_="best" if winner else None,
            )
        )
    metrics = {study.metric for study in studies}
    heads = [
        ("study", False),
        ("method, strategy", False),
        (f"best {metric_name(metrics.pop()) if len(metrics) == 1 else 'value'}", True),
        ("at", False),
        ("cost to reach it (T_max)", True),
        ("cost of all (T_max)", True),
        ("trainings", False),
    ]
    return _table(heads, rows, class_="studies")


def settings_table(settings: Mapping[str, Any]) -> Markup:
    """All settings, one a row, those inside others by a dotted name."""
    rows = [
        tag("tr", tag("td", name), tag("td", tag("code", value))) for name, value in _flat(settings)
    ]
    return tag("div", tag("table", tag("tbody", *rows), class_="settings"), class_="scroll")


def counted(study: StudyRecord) -> str:
    """``"11 trained, 3 free, 1 failed"``."""
    states = [trial.state for trial in study.trials]
    names = ("trained", "free", "diverged", "failed", "running")
    return ", ".join(f"{states.count(n)} {n}" for n in names if n in states) or "none"


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif isinstance(value, list | tuple):
            yield f"{prefix}{name}", " ".join(map(str, value))
        else:
            yield f"{prefix}{name}", str(value)


def _table(heads: Sequence[tuple[str, bool]], rows: Sequence[Markup], *, class_: str) -> Markup:
    cells = [
        tag(
            "th",
            tag("button", with_t_max(name), type="button"),
            scope="col",
            class_="number" if number else None,
        )
        for name, number in heads
    ]
    table = tag("table", tag("thead", tag("tr", *cells)), tag("tbody", *rows), class_=class_)
    return tag("div", table, class_="scroll")


def _cell(cell: Cell, *, number: bool) -> Markup:
    shown, key = cell
    sort = repr(float(key)) if isinstance(key, int | float) else key
    return tag(
        "td",
        shown or "",
        data_sort="" if sort is None else sort,
        class_="number" if number else None,
    )


def _number(value: float | None, form: str) -> Cell:
    return (None, None) if value is None else (format(value, form), value)


def _dot(state: str) -> Markup:
    return tag("span", state, class_=f"state {state}")


def _state(trial: TrialRecord) -> Markup:
    why = f"same as {trial.source}" if trial.source is not None else trial.reason
    return join(_dot(trial.state), tag("span", why, class_="why") if why else None)


def _links(trial: TrialRecord, out: Path) -> Markup | None:
    if trial.folder is None:
        return None
    there = [name for name in FILES if (trial.folder / name).is_file()]
    links = [tag("a", FILES[name], href=relative(trial.folder / name, out)) for name in there]
    return join(*(part for link in links for part in (link, " "))) if links else None


def relative(path: Path, out: Path) -> str:
    """The address of a file as seen from a page in ``out``."""
    return urllib.parse.quote(Path(os.path.relpath(path.absolute(), out.absolute())).as_posix())
