"""What a person sees of a training: a progress bar, or in a log a line an epoch; and curves."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from fixnorm.training.kinds import Metric

__all__ = ["ProgressView", "Scalars", "View"]


class View:
    """Where the loop tells what happens; this one is silent, for processes that do not talk."""

    def message(self, text: str) -> None:
        """Something the user should know."""

    def loading(self, done: int, total: int) -> None:
        """Images decoded so far."""

    def start(self, step: int, steps: int) -> None:
        """Training begins, at a step."""

    def wants_numbers(self) -> bool:
        """Whether it is time to show the loss again, which waits for the device."""
        return False

    def step(self, step: int, numbers: Mapping[str, float] | None) -> None:
        """A step is done."""

    def row(self, row: Mapping[str, Any], place: tuple[str, int, int], metric: Metric) -> None:
        """A line of numbers, at some place of the training: ``("epoch", 3, 15)``."""

    def stop(self) -> None:
        """The training is over, or was never begun."""


class ProgressView(View):
    """A rich bar on a terminal; elsewhere plain lines."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True, highlight=False)
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[numbers]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
            transient=True,
        )
        self._task: Any = None
        self._loading: Any = None
        self._last = 0.0
        self._score = ""

    def message(self, text: str) -> None:
        self.console.print(text, markup=False, soft_wrap=True)

    def loading(self, done: int, total: int) -> None:
        if self._loading is None:
            self._progress.start()
            self._loading = self._progress.add_task("loading images", total=total, numbers="")
        self._progress.update(self._loading, completed=done, total=total)

    def start(self, step: int, steps: int) -> None:
        if self._loading is not None:
            self._progress.remove_task(self._loading)
        self._progress.start()
        self._task = self._progress.add_task("training", total=steps, completed=step, numbers="")

    def wants_numbers(self) -> bool:
        """Twice a second, and only where a bar is drawn."""
        return self.console.is_terminal and time.monotonic() - self._last > 0.5

    def step(self, step: int, numbers: Mapping[str, float] | None) -> None:
        if not self.console.is_terminal:
            return
        if numbers is not None:
            self._last = time.monotonic()
            text = (
                f"loss {numbers['loss']:.3f}  lr {numbers['lr']:.3g}"
                f"  {numbers['images_per_second']:.3g} images/s{self._score}"
            )
            self._progress.update(self._task, numbers=text)
        self._progress.update(self._task, completed=step)

    def row(self, row: Mapping[str, Any], place: tuple[str, int, int], metric: Metric) -> None:
        score, train, scale = row[f"val_{metric.name}"], row["train_accuracy"], row["head_scale"]
        named = "" if metric.name == "accuracy" else f"{metric.title} "
        self._score = "" if score is None else f"  val {named}{score:.2f} %"
        unit, done, of = place
        line = f"{unit} {done:>{max(3, len(str(of)))}}/{of}  loss {row['train_loss']:.4f}"
        line += "" if train is None else f"  train {train:6.2f} %"
        line += "" if score is None else f"  val {named}{score:6.2f} %"
        line += "" if scale is None else f"  head {scale:.3g}"
        self.message(line)

    def stop(self) -> None:
        self._progress.stop()


class Scalars:
    """Curves for TensorBoard; what an interrupted run wrote past its checkpoint is purged."""

    def __init__(self, folder: Path, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder), purge_step=step or None)

    def row(self, row: Mapping[str, Any]) -> None:
        for name, value in row.items():
            if name not in ("epoch", "step") and value is not None:
                self._writer.add_scalar(f"epoch/{name}", value, row["step"])
        self._writer.flush()

    def step(self, step: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(f"step/{name}", value, step)

    def close(self) -> None:
        self._writer.close()
