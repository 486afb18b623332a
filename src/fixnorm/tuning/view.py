"""What a person sees of a search: rounds and slots, what runs, the best so far, time left."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fixnorm.tuning.comparison import Comparison
from fixnorm.tuning.driver import Watcher
from fixnorm.tuning.search import Search
from fixnorm.tuning.strategies import PlanStrategy
from fixnorm.tuning.ties import level
from fixnorm.tuning.trial import ANEW, Result, StudyRecord, Trial, mean_of, shown_lr

__all__ = ["LiveView", "SearchView", "found", "rounds_table"]

_POINTS_SHOWN = 8


class LiveView(Watcher, ABC):
    """A live view on a terminal; elsewhere messages alone. It speaks on stderr."""

    def __init__(self) -> None:
        self.console = Console(stderr=True, highlight=False)
        self._live: Live | None = None

    @abstractmethod
    def view(self) -> RenderableType:
        """How it looks now."""

    @property
    def shown(self) -> bool:
        """Whether anyone can see the view."""
        return self.console.is_terminal

    def start(self) -> None:
        """Show it, where it can be seen."""
        if self.shown:
            self._live = Live(
                get_renderable=self.view, console=self.console, refresh_per_second=4, transient=True
            )
            self._live.start()

    def __exit__(self, *exception: object) -> None:
        if self._live is not None:
            self._live.stop()

    def message(self, text: str) -> None:
        """Print above the view."""
        self.console.print(text, markup=False, soft_wrap=True)


class SearchView(LiveView):
    """A live view on a terminal; elsewhere one line for each training."""

    def __init__(self, search: Search, *, title: str, workers: int) -> None:
        super().__init__()
        self.search, self.workers = search, workers
        self.comparison: Search | None = None
        """What follows the search, once it has begun."""
        self._title = title
        self._progress: dict[Trial, float] = {}
        self._started: dict[str, float] = {}
        self._begun: dict[str, float] = {}
        self._waits: list[float] = []

    def __enter__(self) -> SearchView:
        if self.search.done:
            self.message(f"going on: {self.search.done} trials are done")
        if not self.shown:
            self.message(self._title)
        self.start()
        return self

    # -- what the driver tells -----------------------------------------------------------------

    def started(self, trial: Trial) -> None:
        self._progress[trial] = 0.0
        self._started[trial.key] = time.monotonic()

    def died(self, trial: Trial, reason: str) -> None:
        self._progress.pop(trial, None)
        self.message(f"{trial.key} ended by {reason}; trying again")

    def ended(self, trial: Trial) -> None:
        started = self._started.pop(trial.key, None)
        if started is not None and trial.seconds is not None:
            self._waits.append(max(time.monotonic() - started - trial.seconds, 0.0))
        if trial.state == "failed":
            self.message(f"{trial.key} failed: {trial.reason}")
        if not self.shown:
            self.message(f"{trial.round:<12}{_numbers(trial):<32}{_outcome(trial)}")

    def tick(self, progress: dict[Trial, float]) -> None:
        self._progress = progress
        for trial, done in progress.items():
            if trial.trunk is not None and done:  # it begins where it leaves its trunk
                self._begun.setdefault(trial.key, done)

    # -- how it looks --------------------------------------------------------------------------

    def view(self) -> RenderableType:
        """The rounds or points, and where the search stands."""
        record = self.search.ledger.record()
        parts: list[RenderableType] = [Text(self._title, style="bold")]
        if isinstance(self.search.strategy, PlanStrategy):
            parts.append(rounds_table(self.search, self._progress))
        else:
            parts.append(_points_table(record.trials, self._progress))
        if self.comparison is not None:
            parts.append(sides_table(self.comparison, self._progress))
        parts += [
            Text(f"meanwhile, to compare with: {_numbers(trial)}  {100 * done:.0f} % …", "dim")
            for trial, done in self._progress.items()
            if trial.round == ANEW and self.comparison is None
        ]
        return Group(*parts, self._line(record))

    def _line(self, record: StudyRecord) -> RenderableType:
        best = record.answer()
        running = sum(
            trial.fraction * (done - self._begun.get(trial.key, 0.0))
            for trial, done in list(self._progress.items())
            if self.comparison is not None or trial.round != ANEW
        )
        spent, most, left = record.cost, self.search.strategy.cost, self._left(record, running)
        if self.comparison is not None:  # the search is over
            spent, most, left = (
                self.comparison.ledger.record().cost, self.comparison.strategy.cost, ""
            )  # fmt: skip
        line = Table.grid(padding=(0, 2))
        line.add_row(
            ProgressBar(total=most, completed=spent + running, width=24),
            f"{spent + running:.1f} of at most {most:g} T_max",
            f"best {found(best)}" if best is not None else "",
            left,
        )
        return line

    def _left(self, record: StudyRecord, running: float) -> str:
        """By what trainings have taken so far, their start included; free slots make it less."""
        ended = [trial for trial in record.trials if trial.result is not None]
        timed = [t for t in ended if t.seconds is not None and t.cost]
        length = sum(t.cost for t in timed)
        if not length or not self._waits:
            return "time left: not known yet"
        pace = sum(t.seconds or 0.0 for t in timed) / length
        filled = sum(t.fraction for t in ended if t.state == "free")
        training = pace * max(self.search.strategy.cost - record.cost - running - filled, 0.0)
        to_start = max(self.search.trainings - len(ended) - len(self._progress), 0)
        waiting = to_start * sum(self._waits) / len(self._waits)
        return f"at most {_duration((training + waiting) / self.workers)} left"


def rounds_table(search: Search, progress: dict[Trial, float] | None = None) -> Table:
    """The rounds of a plan with the accuracy of each slot, as in the paper's Figure 5.

    ``◂`` is the best of a round, ``≈`` what is level with it.
    """
    strategy, ledger = search.strategy, search.ledger
    assert isinstance(strategy, PlanStrategy)
    running = {trial.key: done for trial, done in (progress or {}).items()}
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for round_, slots in strategy.advice(dict(ledger.results)).rounds.items():
        tunes = "lr" if round_.kind == "lr" else "alpha"
        names: list[RenderableType] = []
        values: list[Text] = []
        results: list[list[Result | None]] = []
        winner, best = None, -math.inf
        for place, slot in enumerate(slots):
            tuned = slot.rate if tunes == "lr" else slot.alpha
            names.append(Text(f"{tuned:g}", style="dim"))
            keys = [slot.seeded(seed).key for seed in range(strategy.space.seeds)]
            trials = [ledger.trials[key] for key in keys if key in ledger.trials]
            values.append(_cell(trials, running))
            results.append([ledger.trials[k].result if k in ledger.trials else None for k in keys])
            mean = mean_of(results[-1])
            if mean is not None and mean > best:
                winner, best = place, mean
        if winner is not None:
            values[winner].stylize("bold green")
            values[winner].append(" ◂")
            for place, other in enumerate(results):
                free = all(result is not None and result.state == "free" for result in other)
                if place != winner and not free and level(results[winner], other):
                    values[place].append(" ≈")
        first = slots[0]
        fixed = f"alpha {first.alpha:g}" if tunes == "lr" else f"lr {shown_lr(first.lr)}"
        length = f"{slots[0].fraction:g} T_max, {fixed}"
        table.add_row(Text(round_, style="bold"), Text(tunes, style="dim"), *names)
        table.add_row(Text(length, style="dim", no_wrap=True), "", *values)
    return table


def sides_table(comparison: Search, progress: dict[Trial, float]) -> Table:
    """A comparison: a row for each side, a value for each seed."""
    running = {trial.key: done for trial, done in progress.items()}
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    strategy, known = comparison.strategy, comparison.ledger.trials
    assert isinstance(strategy, Comparison)
    table.add_row(Text("trained anew", style="bold"), Text("fresh seeds", style="dim"))
    for name, side in zip(("FixNorm", "weight decay"), strategy.sides, strict=True):
        keys = [trial.key for trial in strategy.trials if trial.index == side.index]
        cells = [_cell([known[key]] if key in known else [], running) for key in keys]
        table.add_row(name, Text(side.numbers(), style="dim"), *cells)
    return table


def found(best: Trial) -> str:
    """The answer, in words."""
    return f"{best.accuracy:.2f} at {best.numbers()}"


def _points_table(trials: Sequence[Trial], progress: dict[Trial, float]) -> Table:
    running = {trial.key: done for trial, done in progress.items()}
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in ("point", "lr", "weight decay", "accuracy"):
        table.add_column(column, justify="right")
    for trial in trials[-_POINTS_SHOWN:]:
        cells = (str(trial.number), f"{trial.rate:.3g}", f"{trial.weight_decay:.2e}")
        table.add_row(*cells, _cell([trial], running))
    return table


def _cell(trials: Sequence[Trial], running: dict[str, float]) -> Text:
    """What is known of a slot, in a few characters."""
    values = [trial.accuracy for trial in trials if trial.accuracy is not None]
    states = {trial.state for trial in trials}
    under_way = [running[trial.key] for trial in trials if trial.key in running]
    if under_way:
        return Text(f"{100 * sum(under_way) / len(trials):.0f} % …", style="cyan")
    if "diverged" in states or "failed" in states:
        return Text("diverged" if "diverged" in states else "failed", style="red")
    if not values:
        return Text("·", style="dim")
    text = Text(f"{sum(values) / len(values):.2f}")
    if states == {"free"}:
        text.append(" free", style="dim")
    return text


def _numbers(trial: Trial) -> str:
    if trial.alpha is not None:
        return f"lr {shown_lr(trial.lr)}  alpha {trial.alpha:g}  seed {trial.seed}"
    return f"lr {trial.rate:.3g}  weight decay {trial.weight_decay:.2e}"


def _outcome(trial: Trial) -> str:
    if trial.accuracy is None:
        return trial.state
    took = f"  ({trial.seconds:.0f} s)" if trial.seconds is not None else ""
    if trial.result is not None and trial.result.share < 1:
        took += f"  {trial.cost:.2g} T_max, from {trial.trunk}"
    return f"{trial.accuracy:6.2f}{took}"


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
