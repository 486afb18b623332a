"""A trial as a ``fixnorm train`` run in a folder of its own, and a search over such runs."""

from __future__ import annotations

import re
import shlex
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fixnorm.system import check_files
from fixnorm.system.machine import is_full
from fixnorm.system.process import leashed
from fixnorm.system.run_paths import RunPaths
from fixnorm.system.versions import commit, versions
from fixnorm.training.bounded import Count, Name, Real
from fixnorm.training.checked import Part, read_checked
from fixnorm.training.folder import RunFolder
from fixnorm.training.kinds import Metric, metric_of
from fixnorm.training.recipe import Recipe, changed, differences
from fixnorm.training.result import RunEnd
from fixnorm.tuning.comparison import Comparison
from fixnorm.tuning.engine import Died, Refused, Unfinished
from fixnorm.tuning.lengths import length_of
from fixnorm.tuning.search import Search
from fixnorm.tuning.storage import Storage
from fixnorm.tuning.strategies import Strategy
from fixnorm.tuning.study import Study
from fixnorm.tuning.trial import ANEW, Result, StudyRecord, Trial

__all__ = [
    "ComparedRuns",
    "RecipeSearch",
    "Runs",
    "TrialRuns",
    "check_place",
    "result",
]

_DIVERGED, _REFUSED = 1, 2
_STOPPED = {128 + number for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)}
"""Exit codes of a training that somebody else has stopped."""
_OURS = "fixnorm: "
_MODULES = (
    "fixnorm.commands",
    "fixnorm.recipes.catalogue",
    "fixnorm.training.loop",
    "fixnorm.training.view",
    "torch.utils.tensorboard",
    "timm",
)
"""Of every training."""


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
    def recipe_of(self, trial: Trial) -> Recipe:
        """What the trial trains."""

    @abstractmethod
    def arguments(self, trial: Trial) -> list[str]:
        """Of ``fixnorm train``, without the run's folder."""

    def folder_of(self, trial: Trial) -> Path:
        return self.folder / trial.key

    def log_of(self, trial: Trial) -> Path:
        """Where the run's words go: beside its folder, which is the run's alone."""
        return self.folder / "logs" / f"{trial.key}.log"

    def command(self, trial: Trial) -> list[str]:
        """The command line that trains it, or goes on with it."""
        train = ["-m", "fixnorm", "train", *self.arguments(trial)]
        train += ["--out", str(self.folder_of(trial)), *self.options]
        if self.processes == 1:
            return [sys.executable, *train]
        # torchrun does not take its processes with it when it is killed: each gets its own leash.
        launch = ["-m", "torch.distributed.run", "--standalone", "--no-python"]
        launch += [f"--nproc-per-node={self.processes}"]
        return [sys.executable, *launch, *leashed("-"), sys.executable, *train]

    def modules(self) -> tuple[str, ...]:
        """What its trainings import: a process that is kept warm imports it once for all."""
        return _MODULES

    def progress(self, trial: Trial) -> float:
        lines = RunFolder(self.folder_of(trial)).lines()
        return min(lines / self.recipe_of(trial).rows(), 1.0)

    def said(self, trial: Trial) -> int:
        """How much it has said by now: what comes after is said by the life that starts next."""
        try:
            return self.log_of(trial).stat().st_size
        except OSError:
            return 0

    def ended(self, trial: Trial, code: int, *, since: int = 0) -> Result | Died:
        """What an exit code, the run's folder and its words from some place on say.

        Only the run's own result is an outcome. All else, an exit code of 1 without a word above
        all, may be the machine's doing: the trial stays open.
        """
        result = self._result(trial)
        words = _lines(self.log_of(trial), since)
        if self.processes > 1 and code > 0:
            code = _cause(words, code)
        if result is not None and code in (0, _DIVERGED):
            spent = Result(seconds=result.seconds, share=result.share)
            if result.diverged or result.score is None:
                reason = f"the loss was not finite after epoch {result.epochs:g}"
                return replace(spent, state="diverged", reason=reason)
            return replace(
                spent,
                accuracy=result.score,
                largest_scale=result.largest_scale,
                images=result.images,
            )
        ending = f"signal {-code}" if code < 0 else f"exit code {code}"
        if code == _REFUSED:
            said = _last(words, _OURS)
            if not said:
                self._check_room(trial, ending)
            raise Refused(
                said.removeprefix(_OURS)
                or f"trial {trial.key} ended by {ending} without a word: look at"
                f" {self.log_of(trial)}"
            )
        said = _last(words)
        killed = code < 0 or code in _STOPPED
        return self.died(trial, f"{ending}: {said}" if said else ending, killed=killed)

    def died(self, trial: Trial, reason: str, *, killed: bool) -> Died:
        """It came to no outcome; on a full disk no other try would."""
        self._check_room(trial, reason)
        return Died(reason, killed=killed, log=self.log_of(trial))

    def _check_room(self, trial: Trial, reason: str) -> None:
        if is_full(self.folder):
            raise Unfinished(
                f"{trial.key} ended by {reason}, and the disk of {self.folder} is full; nothing was"
                " lost, make room and run again"
            )

    def _result(self, trial: Trial) -> RunEnd | None:
        """What the run wrote, if it is a run of this very recipe."""
        try:  # one that is damaged counts as none: the next try of the run will name it
            end = RunFolder(self.folder_of(trial)).ended(RunEnd, advice="train again")
        except ValueError:
            return None
        recipe = None if end is None else (end.model_extra or {}).get("recipe")
        if not isinstance(recipe, dict) or differences(recipe, self.recipe_of(trial)):
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
    branches: tuple[float, ...] = ()
    """Alphas that go on from the training of a larger one: a trunk keeps where they leave it."""

    def recipe_of(self, trial: Trial) -> Recipe:
        return changed(self.recipe, **self._changes(trial))

    def modules(self) -> tuple[str, ...]:
        return (*super().modules(), *self.recipe.libraries)

    def arguments(self, trial: Trial) -> list[str]:
        """The user's settings, but for what the trial changes, and where it goes on from."""
        return [*self._arguments(self._changes(trial)), *self._branching(trial)]

    def _branching(self, trial: Trial) -> list[str]:
        if trial.trunk is not None:
            origin = self.folder / trial.trunk
            return ["--from", str(origin)] if _ended(origin) else []
        smaller = [repr(alpha) for alpha in self.branches if alpha < (trial.alpha or 0.0)]
        if trial.round.kind != "trunk" or not smaller:
            return []
        return ["--branches", ",".join(reversed(smaller))]

    def command_in_full(self, best: Trial) -> str:
        """What to type to train in full with the numbers of a trial."""
        return shlex.join(["fixnorm", "train", *self._arguments(_tuned(best))])

    def _arguments(self, changes: dict[str, Any]) -> list[str]:
        arguments = [self.recipe.command_name, "--method", self.recipe.method]
        for pair in self.settings:
            if pair.partition("=")[0] not in changes:
                arguments += ["--set", pair]
        for key, value in changes.items():
            arguments += ["--set", f"{key}={value if isinstance(value, str) else repr(value)}"]
        if self.data is not None:
            arguments += ["--data", str(self.data)]
        return arguments

    def _changes(self, trial: Trial) -> dict[str, Any]:
        length = length_of(self.recipe, trial.fraction)
        changes = _tuned(trial) | {"seed": self.recipe.seed + trial.seed}
        if length != self.recipe.length:
            changes |= self.recipe.of_length(length)
        return changes


@dataclass(frozen=True, kw_only=True)
class ComparedRuns(Runs):
    """The runs of a search and of what its answer is compared with, for one engine."""

    search: TrialRuns
    anew: TrialRuns
    """The same recipe, in the folder of the comparison."""
    rival: TrialRuns

    def of(self, trial: Trial) -> TrialRuns:
        """Those that the trial is one of."""
        if trial.round != ANEW:
            return self.search
        return self.anew if trial.weight_decay is None else self.rival

    def recipe_of(self, trial: Trial) -> Recipe:
        return self.of(trial).recipe_of(trial)

    def arguments(self, trial: Trial) -> list[str]:
        return self.of(trial).arguments(trial)

    def folder_of(self, trial: Trial) -> Path:
        return self.of(trial).folder_of(trial)

    def log_of(self, trial: Trial) -> Path:
        return self.of(trial).log_of(trial)

    def modules(self) -> tuple[str, ...]:
        return self.search.modules()


def _ended(folder: Path) -> bool:
    """Whether a run has come to its end; one that somebody removed or changed has not."""
    try:
        return RunFolder(folder).ended(RunEnd, advice="train again") is not None
    except ValueError:
        return False


def _tuned(trial: Trial) -> dict[str, Any]:
    tuned = {"lr": trial.lr, "alpha": trial.alpha, "weight_decay": trial.weight_decay}
    return {key: value for key, value in tuned.items() if value is not None}


# -- a search of them -----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class RecipeSearch:
    """A strategy on a recipe, with the place where it is kept."""

    strategy: Strategy | Comparison
    runs: TrialRuns
    storage: Storage
    named: str | None = None
    """Another name for the study than its own."""

    @property
    def name(self) -> str:
        """Of the study in its database."""
        recipe = self.runs.recipe.name
        return self.named or f"{recipe}-{self.strategy.method}-{self.strategy.name}"

    @property
    def metric(self) -> Metric:
        return metric_of(self.runs.recipe)

    def settings(self) -> dict[str, Any]:
        """All that the search depends on: a study of others is not continued."""
        recipe = self.runs.recipe.to_dict()
        for tuned in ("lr", "alpha", "weight_decay"):
            del recipe[tuned]
        return {**self.strategy.settings(), "metric": self.metric.label, "recipe": recipe}

    @contextmanager
    def owned(self) -> Iterator[Search]:
        """The search on its study, new or as it was left."""
        with Study.owned(
            self.storage,
            self.name,
            settings=self.settings(),
            distributions=self.strategy.distributions(),
            folder=self.runs.folder,
            sampler=self.strategy.sampler(),
        ) as study:
            yield Search(self.strategy, study)


class _Announced(Part):
    trials: Count
    cost: Real


class _File(Part):
    """By what a search's ``result.json`` is known."""

    study: Name
    announced: _Announced
    command: str
    method: Name
    strategy: Name


def check_place(folder: Path) -> None:
    """Refuse a folder where a training, or somebody else, has a file of ours."""
    if RunPaths(folder).recipe.exists():
        raise ValueError(f"{folder} is the folder of a training: give another --out")
    check_files(folder, (), sign="result.json", ours=_is_result)


def _is_result(path: Path) -> bool:
    try:
        read_checked(path, _File, what="the result of a search", advice="")
    except ValueError:
        return False
    return True


def result(search: RecipeSearch, record: StudyRecord, best: Trial, train: str) -> dict[str, Any]:
    """The content of a search's ``result.json``."""
    states = [trial.state for trial in record.trials]
    return {
        "lr": best.lr,
        "alpha": best.alpha,
        "weight_decay": best.weight_decay,
        search.metric.name: best.accuracy,
        "cost": record.cost,
        "trials": len(states) - states.count("free"),
        "free": states.count("free"),
        "diverged": states.count("diverged"),
        "failed": states.count("failed"),
        "announced": {"trials": search.strategy.trainings, "cost": search.strategy.cost},
        "command": train,
        "study": search.name,
        "seconds": round(sum(trial.seconds or 0.0 for trial in record.trials), 3),
        "versions": versions(),
        "commit": commit(),
        **search.settings(),
    }


# -- what a run has said ---------------------------------------------------------------------------


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
