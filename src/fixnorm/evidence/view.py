"""What a person sees of experiments under way."""

from __future__ import annotations

import time

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fixnorm.evidence.bench import Bench
from fixnorm.tuning.trial import Trial
from fixnorm.tuning.view import LiveView

__all__ = ["BenchView"]


class BenchView(LiveView):
    """A live view on a terminal; elsewhere one line for each training."""

    def __init__(self, bench: Bench, *, most: int) -> None:
        super().__init__()
        self._bench, self._most = bench, most
        self._progress: dict[Trial, float] = {}
        self._began = time.monotonic()
        self._before = 0

    def __enter__(self) -> BenchView:
        self._bench.ready()
        self._before = self._bench.known
        there = f", {self._before} are there" if self._before else ""
        self.message(f"at most {self._most} trainings{there}")
        self.start()
        return self

    def started(self, trial: Trial) -> None:
        """A training has started."""
        self._progress[trial] = 0.0

    def died(self, trial: Trial, reason: str) -> None:
        """It was killed and will be tried again."""
        self.message(f"{trial.key} ended by {reason}; trying again")

    def ended(self, trial: Trial) -> None:
        """It is over."""
        if not self.shown:
            self._bench.ready()
            found = "diverged" if trial.accuracy is None else f"{trial.accuracy:.2f}"
            done = self._bench.known
            self.message(f"{done:>4} of ≤ {self._most}  {trial.key}: {found}")

    def tick(self, progress: dict[Trial, float]) -> None:
        """How far the running trainings are."""
        self._progress = progress

    def view(self) -> RenderableType:
        """How far the whole is, and each training that runs."""
        done = self._bench.known
        running = dict(self._progress)
        table = Table.grid(padding=(0, 2))
        for trial, share in running.items():
            table.add_row(
                ProgressBar(total=1.0, completed=share, width=24),
                Text(f"{100 * share:3.0f} %"),
                Text(f"{trial.round}, {trial.numbers()}, seed {trial.seed}"),
            )
        line = Table.grid(padding=(0, 2))
        line.add_row(
            ProgressBar(total=self._most, completed=done + sum(running.values()), width=24),
            f"{done} of at most {self._most} trainings",
            self._left(done + sum(running.values())),
        )
        return Group(line, table)

    def _left(self, done: float) -> str:
        new = done - self._before
        if new < 1:
            return "time left: not known yet"
        seconds = (time.monotonic() - self._began) / new * (self._most - done)
        minutes = max(round(seconds / 60), 1)
        return f"at most {minutes // 60} h {minutes % 60:02} min left"
