"""Tables: of words for a terminal, a file or a page, and those of a search, sorted by a click."""

from __future__ import annotations

import os
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from fixnorm.report.summary import Slot, answer, cost_to_reach, slots_of, stage
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
from fixnorm.tuning.trial import AUTO, Lr, StudyRecord, Trial, shown_lr

__all__ = [
    "Cell", "Column", "SortedTable", "TextTable", "counted", "flat", "slot_table", "studies_table",
    "trial_table", "wide_console",
]  # fmt: skip

_WIDE = 120
"""Characters of a line where nobody says how many there are."""


@dataclass(frozen=True)
class TextTable:
    """Words in rows, for a terminal, a file or a page; ``notes`` say what the columns do not."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    words: int = 2
    """Columns of words, on the left; the others are numbers."""

    def rich(self) -> RichTable:
        table = RichTable(box=None, pad_edge=False, title=escape(self.title), title_justify="left")
        for place, column in enumerate(self.columns):
            table.add_column(escape(column), justify="left" if place < self.words else "right")
        for row in self.rows:
            table.add_row(*map(escape, row))
        return table

    def print(self, console: Console) -> None:
        """The table, and its notes below it."""
        console.print(self.rich())
        for note in self.notes:
            console.print(note, style="dim", markup=False)

    def markdown(self, *, title: bool = True) -> str:
        ruler = ["---" if place < self.words else "---:" for place in range(len(self.columns))]
        lines = [
            *([f"## {self.title}", ""] if title else []),
            *(f"| {' | '.join(cells)} |" for cells in (self.columns, ruler, *self.rows)),
            *(["", *(f"- {note}" for note in self.notes)] if self.notes else []),
        ]
        return "\n".join(lines) + "\n"


def wide_console() -> Console:
    """For tables on stdout: a pipe has no width, so nothing is cut there."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_WIDE)


# -- tables of a search ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """What is shown, and what it is sorted by."""

    text: str = ""
    key: float | str | None = None
    """None: it stays at the foot."""
    mark: str | None = None
    """A class for the text, such as ``state free``."""
    why: str | None = None
    """A remark under the text."""
    links: tuple[tuple[str, str], ...] = ()
    """Addresses and what they say."""

    @property
    def sort(self) -> str:
        if self.key is None or isinstance(self.key, str):
            return self.key or ""
        return repr(float(self.key))


@dataclass(frozen=True)
class Column:
    """Its cells from the first row to the last."""

    name: str
    cells: Sequence[Cell]
    number: bool = False

    @property
    def known(self) -> tuple[Column, ...]:
        """Itself, or nothing if it has nothing to show."""
        return (self,) if any(cell.text or cell.links for cell in self.cells) else ()


@dataclass(frozen=True)
class SortedTable:
    """A table of the page."""

    kind: str
    columns: Sequence[Column]
    best: Sequence[bool]
    """Whether a row is the best one."""

    @property
    def rows(self) -> Iterator[tuple[bool, tuple[Cell, ...]]]:
        cells = zip(*(column.cells for column in self.columns), strict=True)
        return zip(self.best, cells, strict=True)


def trial_table(study: StudyRecord, out: Path) -> SortedTable:
    """All trials, in the order in which they began; links are relative to the page in ``out``."""
    trials = sorted(study.trials, key=lambda trial: trial.number)
    best = answer(study)
    winners = {trial.key for trial in best.trials} if best is not None else set()
    several = len({t.seed for t in trials}) > 1
    columns = (
        Column("trial", [Cell(t.key, t.number) for t in trials]),
        Column("round", [Cell(t.round, t.round) for t in trials]),
        Column("lr", [_lr(t.lr) for t in trials], number=True),
        *_numbers("alpha", (t.alpha for t in trials), "{:g}".format).known,
        *_numbers("weight decay", (t.weight_decay for t in trials), weight_decay).known,
        *_lengths(trials),
        *([_numbers("seed", (t.seed for t in trials), str)] if several else []),
        _numbers(study.metric, (t.accuracy for t in trials), partial(bare, metric=study.metric)),
        Column("state", [_state(t.state, t) for t in trials]),
        *_numbers("largest g/√C", (t.largest_scale for t in trials), "{:.3g}".format).known,
        *_numbers("time", (t.seconds for t in trials), duration).known,
        *Column("files", [_files(t, out) for t in trials]).known,
    )
    return SortedTable("trials", columns, [t.key in winners for t in trials])


def slot_table(study: StudyRecord) -> SortedTable | None:
    """Means and spread, where there are several seeds."""
    slots = slots_of(study)
    if all(len(slot.trials) < 2 for slot in slots):
        return None
    best, told = answer(study), partial(bare, metric=study.metric)
    ends = [
        Cell(f"{told(min(slot.values))} … {told(max(slot.values))}", min(slot.values))
        if slot.values
        else Cell()
        for slot in slots
    ]
    seeds = [Cell(f"{len(slot.values)} of {slot.seeds}", len(slot.values)) for slot in slots]
    columns = (
        Column("round", [Cell(slot.first.round, slot.first.round) for slot in slots]),
        Column("slot", [Cell(choice(slot.first), _lr(slot.first.lr).key) for slot in slots]),
        _numbers("length", (slot.first.fraction for slot in slots), length),
        Column("seeds", seeds, number=True),
        Column("mean", [_mean(slot, best, told) for slot in slots], number=True),
        _numbers("std", (slot.std for slot in slots), told),
        Column("min … max", ends, number=True),
        Column("state", [_state(slot.state) for slot in slots]),
    )
    winner = () if best is None else best.trials
    return SortedTable("slots", columns, [slot.trials == winner for slot in slots])


def studies_table(studies: Sequence[StudyRecord], anchors: Sequence[str]) -> SortedTable:
    """The comparison: one row for each study."""
    bests = [answer(study) for study in studies]
    means = [None if best is None else best.mean for best in bests]
    highest = max((mean for mean in means if mean is not None), default=None)
    metrics = {study.metric for study in studies}
    names, values = [], []
    for study, anchor, mean in zip(studies, anchors, means, strict=True):
        why = None if stage(study) == "over" else stage(study)
        names.append(Cell(key=study.name, links=((f"#{anchor}", study.name),), why=why))
        values.append(Cell() if mean is None else Cell(valued(mean, study.metric), mean))
    value = metric_name(metrics.pop()) if len(metrics) == 1 else "value"
    columns = (
        Column("study", names),
        Column("method, strategy", [Cell(title_of(s), title_of(s)) for s in studies]),
        Column(f"best {value}", values, number=True),
        Column("at", [Cell() if best is None else Cell(choice(best.first)) for best in bests]),
        _numbers("cost to reach it (T_max)", map(cost_to_reach, studies), length),
        _numbers("cost of all (T_max)", (study.cost for study in studies), length),
        Column("trainings", [Cell(counted(study), len(study.trials)) for study in studies]),
    )
    best = [mean is not None and mean == highest for mean in means]
    return SortedTable("studies", columns, best)


def flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """All settings, those inside others by a dotted name."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        elif isinstance(value, list | tuple):
            yield f"{prefix}{name}", " ".join(map(str, value))
        else:
            yield f"{prefix}{name}", str(value)


def counted(study: StudyRecord) -> str:
    """How many trials are in each state: ``"11 trained, 3 free, 1 failed"``."""
    states = [trial.state for trial in study.trials]
    names = ("trained", "free", "diverged", "failed", "running")
    return ", ".join(f"{states.count(n)} {n}" for n in names if n in states) or "none"


def _numbers(name: str, values: Iterable[float | None], shown: Callable[[float], str]) -> Column:
    cells = [Cell() if value is None else Cell(shown(value), value) for value in values]
    return Column(name, cells, number=True)


def _mean(slot: Slot, best: Slot | None, told: Callable[[float], str]) -> Cell:
    if slot.mean is None:
        return Cell()
    level = best is not None and slot.trials != best.trials and slot.ties_with(best)
    same = level and best is not None and slot.first.fraction == best.first.fraction
    return Cell(f"≈ {told(slot.mean)}" if same else told(slot.mean), slot.mean)


def _lr(lr: Lr) -> Cell:
    return Cell(shown_lr(lr, ".4g"), None if lr == AUTO else lr)


def _lengths(trials: Sequence[Trial]) -> tuple[Column, ...]:
    """How long each is; of trainings that branch from others what each has spent says more."""
    columns = []
    if any(trial.trunk is not None for trial in trials):
        spent = (None if trial.result is None else trial.cost for trial in trials)
        columns = [_numbers("cost (T_max)", spent, length)]
    if not columns or any(trial.fraction != 1 for trial in trials):
        columns.append(_numbers("length", (trial.fraction for trial in trials), length))
    return tuple(columns)


def _state(state: str, trial: Trial | None = None) -> Cell:
    why = None
    if trial is not None:
        why = trial.reason if trial.source is None else f"same as {trial.source}"
        if why is None and trial.result is not None and trial.result.share < 1:
            why = f"from {trial.trunk}"
    return Cell(state, state, mark=f"state {state}", why=why)


def _files(trial: Trial, out: Path) -> Cell:
    if trial.folder is None:
        return Cell()
    run = RunPaths(trial.folder)
    files = ((run.metrics, "metrics"), (run.result, "result"))
    links = tuple((_relative(path, out), name) for path, name in files if path.is_file())
    return Cell(key=trial.key if links else None, links=links)


def _relative(path: Path, out: Path) -> str:
    """The address of a file as seen from a page in ``out``."""
    return urllib.parse.quote(Path(os.path.relpath(path.absolute(), out.absolute())).as_posix())
