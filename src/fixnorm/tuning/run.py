"""A trial as a ``fixnorm train`` run in a folder of its own."""

from __future__ import annotations

import re
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fixnorm.system.machine import is_full
from fixnorm.training.folder import RunFolder
from fixnorm.training.recipe import Recipe, changed, differences
from fixnorm.training.result import RunEnd
from fixnorm.tuning.engines.engine import Died, Refused, Unfinished
from fixnorm.tuning.engines.process import leashed
from fixnorm.tuning.job import Ended, Job

__all__ = ["Runs", "TrialRuns", "length_of"]

_DIVERGED, _REFUSED = 1, 2
_STOPPED = {128 + number for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)}
"""Exit codes of a training that somebody else has stopped."""
_OURS = "fixnorm: "


@dataclass(frozen=True, kw_only=True)
class Runs(ABC):
    """Trainings as ``fixnorm train`` runs: their commands, folders and results."""

    folder: Path
    """Holds one folder for each run, and their logs."""
    processes: int = 1
    """Of each trial, under torchrun where there are several."""
    options: tuple[str, ...] = ()
    """Further options of ``fixnorm train``."""

    @abstractmethod
    def recipe_of(self, job: Job) -> Recipe:
        """What the job trains."""

    @abstractmethod
    def arguments(self, job: Job) -> list[str]:
        """Of ``fixnorm train``, without the run's folder."""

    def folder_of(self, job: Job) -> Path:
        """The run's folder."""
        return self.folder / job.key

    def log_of(self, job: Job) -> Path:
        """Where the run's words go: beside its folder, which is the run's alone."""
        return self.folder / "logs" / f"{job.key}.log"

    def command(self, job: Job) -> list[str]:
        """The command line that trains it, or goes on with it."""
        train = ["-m", "fixnorm", "train", *self.arguments(job)]
        train += ["--out", str(self.folder_of(job)), *self.options]
        if self.processes == 1:
            return [sys.executable, *train]
        # torchrun does not take its processes with it when it is killed: each gets its own leash.
        launch = ["-m", "torch.distributed.run", "--standalone", "--no-python"]
        launch += [f"--nproc-per-node={self.processes}"]
        return [sys.executable, *launch, *leashed("-"), sys.executable, *train]

    def progress(self, job: Job) -> float:
        """The share that is done."""
        lines = RunFolder(self.folder_of(job)).lines()
        return min(lines / self.recipe_of(job).rows(), 1.0)

    def said(self, job: Job) -> int:
        """How much it has said by now: what comes after is said by the life that starts next."""
        try:
            return self.log_of(job).stat().st_size
        except OSError:
            return 0

    def ended(self, job: Job, code: int, *, since: int = 0) -> Ended | Died:
        """What an exit code, the run's folder and its words from some place on say.

        Only the run's own result is an outcome. All else, an exit code of 1 without a word above
        all, may be the machine's doing: the trial stays open.
        """
        result = self._result(job)
        words = _lines(self.log_of(job), since)
        if self.processes > 1 and code > 0:
            code = _cause(words, code)
        if result is not None and code in (0, _DIVERGED):
            if result.diverged or result.score is None:
                reason = f"the loss was not finite after epoch {result.epochs:g}"
                return Ended(state="diverged", reason=reason, seconds=result.seconds)
            return Ended(
                state="trained",
                accuracy=result.score,
                largest_scale=result.largest_scale,
                seconds=result.seconds,
            )
        ending = f"signal {-code}" if code < 0 else f"exit code {code}"
        if code == _REFUSED:
            said = _last(words, _OURS)
            if not said:
                self._check_room(job, ending)
            raise Refused(
                said.removeprefix(_OURS)
                or f"trial {job.key} ended by {ending} without a word: look at {self.log_of(job)}"
            )
        said = _last(words)
        killed = code < 0 or code in _STOPPED
        return self.died(job, f"{ending}: {said}" if said else ending, killed=killed)

    def died(self, job: Job, reason: str, *, killed: bool) -> Died:
        """It came to no outcome; on a full disk no other try would."""
        self._check_room(job, reason)
        return Died(reason, killed=killed, log=self.log_of(job))

    def _check_room(self, job: Job, reason: str) -> None:
        if is_full(self.folder):
            raise Unfinished(
                f"{job.key} ended by {reason}, and the disk of {self.folder} is full; nothing was"
                " lost, make room and run again"
            )

    def _result(self, job: Job) -> RunEnd | None:
        """What the run wrote, if it is a run of this very recipe."""
        try:  # one that is damaged counts as none: the next try of the run will name it
            end = RunFolder(self.folder_of(job)).ended(RunEnd, advice="train again")
        except ValueError:
            return None
        recipe = None if end is None else (end.model_extra or {}).get("recipe")
        if not isinstance(recipe, dict) or differences(recipe, self.recipe_of(job)):
            return None
        return end


@dataclass(frozen=True, kw_only=True)
class TrialRuns(Runs):
    """The runs of a study: one recipe with other numbers."""

    recipe: Recipe
    """As it is trained in full, for the method that is tuned."""
    settings: Sequence[str]
    """The user's own ``--set`` pairs."""
    data: Path | None

    def recipe_of(self, job: Job) -> Recipe:
        """The study's with the job's numbers."""
        return changed(self.recipe, **self._changes(job))

    def arguments(self, job: Job) -> list[str]:
        """The user's settings, but for what the job changes."""
        arguments = [self.recipe.command_name, "--method", self.recipe.method]
        changes = self._changes(job)
        for pair in self.settings:
            if pair.partition("=")[0] not in changes:
                arguments += ["--set", pair]
        for key, value in changes.items():
            arguments += ["--set", f"{key}={value!r}"]
        if self.data is not None:
            arguments += ["--data", str(self.data)]
        return arguments

    def _changes(self, job: Job) -> dict[str, Any]:
        length = length_of(self.recipe, job.fraction)
        changes: dict[str, Any] = {"lr": job.lr, "seed": self.recipe.seed + job.seed}
        if job.alpha is not None:
            changes["alpha"] = job.alpha
        if job.weight_decay is not None:
            changes["weight_decay"] = job.weight_decay
        if length != self.recipe.length:
            changes |= self.recipe.of_length(length)
        return changes


def length_of(recipe: Recipe, fraction: float) -> int:
    """Epochs or iterations of a training of some fraction of T_max, at least one."""
    return max(round(fraction * recipe.length), 1)


def _lines(log: Path, since: int) -> list[str]:
    try:
        with log.open("rb") as file:
            file.seek(since)
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return []
    return [line.strip() for line in lines if line.strip()]


def _last(lines: list[str], beginning: str = "") -> str:
    return next((line for line in reversed(lines) if line.startswith(beginning)), "")


def _cause(lines: list[str], code: int) -> int:
    """The exit code of the process that failed, which torchrun only writes down."""
    found = re.match(r"exitcode\s*:\s*(-?\d+)", _last(lines, "exitcode"))
    return int(found[1]) if found else code
