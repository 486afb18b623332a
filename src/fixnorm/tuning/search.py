"""A search over the trainings of a recipe: from its settings to its result."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fixnorm.system import check_files
from fixnorm.system.versions import commit, versions
from fixnorm.training.bounded import Count, Name, Real
from fixnorm.training.checked import Part, read_checked
from fixnorm.training.tasks import Metric, task_of
from fixnorm.tuning.record import StudyRecord
from fixnorm.tuning.run import TrialRuns
from fixnorm.tuning.sources import Best, Source
from fixnorm.tuning.storage import Storage
from fixnorm.tuning.strategies import Strategy
from fixnorm.tuning.study import Study

__all__ = ["RecipeSearch", "check_place", "result"]


@dataclass(frozen=True, kw_only=True)
class RecipeSearch:
    """A strategy on a recipe, with the place where it is kept."""

    strategy: Strategy
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
        """What is maximised."""
        return task_of(self.runs.recipe).metric

    def settings(self) -> dict[str, Any]:
        """All that the search depends on: a study of others is not continued."""
        recipe = self.runs.recipe.to_dict()
        for tuned in ("lr", "alpha", "weight_decay"):
            del recipe[tuned]
        return {
            "method": self.strategy.method,
            "strategy": self.strategy.name,
            "metric": self.metric.label,
            **self.strategy.settings(),
            "recipe": recipe,
        }

    @contextmanager
    def owned(self) -> Iterator[tuple[Study, Source]]:
        """The study, new or as it was left, and what decides on it."""
        with Study.owned(
            self.storage,
            self.name,
            settings=self.settings(),
            distributions=self.strategy.distributions(),
            folder=self.runs.folder,
            sampler=self.strategy.sampler(),
        ) as study:
            yield study, self.strategy.source(study)


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
    if (folder / "recipe.json").exists():
        raise ValueError(f"{folder} is the folder of a training: give another --out")
    check_files(folder, (), sign="result.json", ours=_is_result)


def _is_result(path: Path) -> bool:
    try:
        read_checked(path, _File, what="the result of a search", advice="")
    except ValueError:
        return False
    return True


def result(search: RecipeSearch, record: StudyRecord, best: Best, train: str) -> dict[str, Any]:
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
