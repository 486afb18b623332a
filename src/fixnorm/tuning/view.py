"""What a person sees of a search: rounds and slots, what runs, the best so far, time left."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fixnorm.tuning.job import Job
from fixnorm.tuning.live import LiveView
from fixnorm.tuning.record import TrialRecord
from fixnorm.tuning.sources import Best, PlanSource, Source
from fixnorm.tuning.study import Study

__all__ = ["SearchView", "found", "rounds_table"]

_POINTS_SHOWN = 8


class SearchView(LiveView):
    """A live view on a terminal; elsewhere one line for each training."""

    def __init__(self, study: Study, source: Source, *, title: str, workers: int) -> None:
        super().__init__()
        self.study, self.source, self.workers = study, source, workers
        self._title = title
        self._progress: dict[Job, float] = {}
        self._started: dict[str, float] = {}
        self._waits: list[float] = []

    def __enter__(self) -> SearchView:
        if self.study.ended:
            self.message(f"going on: {len(self.study.ended)} trials are done")
        if not self.shown:
            self.message(self._title)
        self.start()
        return self

    # -- what the driver tells -----------------------------------------------------------------

    def started(self, job: Job) -> None:
        """A training has started."""
        self._progress[job] = 0.0
        self._started[job.key] = time.monotonic()

    def died(self, job: Job, reason: str) -> None:
        """It was killed and will be tried again."""
        self._progress.pop(job, None)
        self.message(f"{job.key} ended by {reason}; trying again")

    def ended(self, record: TrialRecord) -> None:
        """It is over."""
        started = self._started.pop(record.key, None)
        if started is not None and record.seconds is not None:
            self._waits.append(max(time.monotonic() - started - record.seconds, 0.0))
        if record.state == "failed":
            self.message(f"{record.key} failed: {record.reason}")
        if not self.shown:
            self.message(f"{record.round:<12}{_numbers(record):<32}{_outcome(record)}")

    def tick(self, progress: dict[Job, float]) -> None:
        """How far the running trainings are."""
        self._progress = progress

    # -- how it looks --------------------------------------------------------------------------

    def view(self) -> RenderableType:
        """The rounds or points, and where the search stands."""
        record = self.study.record()
        spent = record.cost
        running = sum(job.fraction * done for job, done in list(self._progress.items()))
        parts: list[RenderableType] = [Text(self._title, style="bold")]
        if isinstance(self.source, PlanSource):
            parts.append(rounds_table(self.source, self._progress))
        else:
            parts.append(_points_table(record.trials, self._progress))
        parts.append(self._line(spent, running))
        return Group(*parts)

    def _line(self, spent: float, running: float) -> RenderableType:
        best = self.source.best()
        line = Table.grid(padding=(0, 2))
        line.add_row(
            ProgressBar(total=self.source.cost, completed=spent + running, width=24),
            f"{spent + running:.1f} of at most {self.source.cost:g} T_max",
            f"best {found(best)}" if best is not None else "",
            self._left(spent, running),
        )
        return line

    def _left(self, spent: float, running: float) -> str:
        """By what trainings have taken so far, their start included; free slots make it less."""
        ended = self.study.ended.values()
        timed = [t for t in ended if t.seconds is not None and t.cost]
        length = sum(t.cost for t in timed)
        if not length or not self._waits:
            return "time left: not known yet"
        pace = sum(t.seconds or 0.0 for t in timed) / length
        filled = sum(t.fraction for t in ended if t.state == "free")
        training = pace * max(self.source.cost - spent - running - filled, 0.0)
        to_start = max(self.source.trainings - len(ended) - len(self._progress), 0)
        waiting = to_start * sum(self._waits) / len(self._waits)
        return f"at most {_duration((training + waiting) / self.workers)} left"


def rounds_table(source: PlanSource, progress: dict[Job, float] | None = None) -> Table:
    """The rounds of a plan with the accuracy of each slot, as in the paper's Figure 5."""
    running = {job.key: done for job, done in (progress or {}).items()}
    rounds: dict[str, dict[int, list[TrialRecord]]] = {}
    for record in source.study.record().trials:
        rounds.setdefault(record.round, {}).setdefault(record.index, []).append(record)
    advice = source.advice()
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for round_ in advice.rounds:
        done = rounds.get(round_.title, {})
        names: list[RenderableType] = []
        values: list[RenderableType] = []
        means = {k: _mean(slot, source.space.seeds) for k, slot in done.items()}
        known = [k for k, mean in means.items() if mean is not None]
        winner = max(known, key=lambda k: (means[k] or 0.0, -k), default=None)
        for slot in round_.slots:
            tuned = slot.lr if round_.kind == "lr" else slot.alpha
            names.append(Text(f"{tuned:g}", style="dim"))
            value = _cell(done.get(slot.index, []), running)
            if slot.index == winner:
                value.stylize("bold green")
                value.append(" ◂")
            values.append(value)
        fixed = f"alpha {source.space.alphas[0]:g}" if round_.kind == "lr" else f"lr {slot.lr:g}"
        length = f"{round_.slots[0].fraction:g} T_max, {fixed}"
        table.add_row(Text(round_.title, style="bold"), Text(round_.kind, style="dim"), *names)
        table.add_row(Text(length, style="dim", no_wrap=True), "", *values)
    return table


def found(best: Best) -> str:
    """The best so far, in words."""
    if best.alpha is not None:
        return f"{best.accuracy:.2f} at lr {best.lr:g}, alpha {best.alpha:g}"
    return f"{best.accuracy:.2f} at lr {best.lr:.3g}, weight decay {best.weight_decay:.2e}"


def _points_table(trials: Sequence[TrialRecord], progress: dict[Job, float]) -> Table:
    running = {job.key: done for job, done in progress.items()}
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in ("point", "lr", "weight decay", "accuracy"):
        table.add_column(column, justify="right")
    for trial in trials[-_POINTS_SHOWN:]:
        table.add_row(
            str(trial.number),
            f"{trial.lr:.3g}",
            f"{trial.weight_decay:.2e}",
            _cell([trial], running),
        )
    return table


def _mean(records: Sequence[TrialRecord], seeds: int) -> float | None:
    values = [record.accuracy for record in records if record.accuracy is not None]
    return sum(values) / seeds if len(values) == seeds else None


def _cell(records: Sequence[TrialRecord], running: dict[str, float]) -> Text:
    """What is known of a slot, in a few characters."""
    values = [record.accuracy for record in records if record.accuracy is not None]
    states = {record.state for record in records}
    under_way = [running[record.key] for record in records if record.key in running]
    if under_way:
        return Text(f"{100 * sum(under_way) / len(records):.0f} % …", style="cyan")
    if "diverged" in states or "failed" in states:
        return Text("diverged" if "diverged" in states else "failed", style="red")
    if not values:
        return Text("·", style="dim")
    text = Text(f"{sum(values) / len(values):.2f}")
    if states == {"free"}:
        text.append(" free", style="dim")
    return text


def _numbers(record: TrialRecord) -> str:
    if record.alpha is not None:
        return f"lr {record.lr:g}  alpha {record.alpha:g}  seed {record.seed}"
    return f"lr {record.lr:.3g}  weight decay {record.weight_decay:.2e}"


def _outcome(record: TrialRecord) -> str:
    if record.accuracy is None:
        return record.state
    took = f"  ({record.seconds:.0f} s)" if record.seconds is not None else ""
    return f"{record.accuracy:6.2f}{took}"


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
