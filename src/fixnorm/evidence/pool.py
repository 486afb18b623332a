"""All trainings of all experiments, each in a folder of its own; what is there is not run again."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from fixnorm.evidence.training import Found, Training, read_found
from fixnorm.training.recipe import Recipe
from fixnorm.tuning.run import Runs
from fixnorm.tuning.trial import Trial

__all__ = ["Pool"]


@dataclass(frozen=True, kw_only=True)
class Pool(Runs):
    """Runs of many recipes."""

    data: Path | None
    """Holds a folder for each data set."""
    trainings: dict[str, Training] = field(default_factory=dict)
    """Those that were asked for, by key."""
    _found: dict[Training, Found] = field(default_factory=dict)

    def find(self, training: Training) -> Found | None:
        """What it found, if it is over."""
        known = self._found.get(training)
        if known is None:
            known = read_found(self.folder / training.key)
            if known is not None:
                self._found[training] = known
        return known

    def trial(self, training: Training) -> Trial:
        """To be run."""
        self.trainings[training.key] = training
        return training.trial()

    def recipe_of(self, trial: Trial) -> Recipe:
        """The training's own."""
        return self.trainings[trial.key].recipe

    def arguments(self, trial: Trial) -> list[str]:
        """A command that anyone can type."""
        training = self.trainings[trial.key]
        arguments = [training.base, "--method", training.method]
        for pair in training.settings():
            arguments += ["--set", pair]
        if training.data is not None:
            assert self.data is not None
            arguments += ["--data", str(self.data / training.data)]
        return arguments

    def check_data(self, names: Collection[str | None]) -> None:
        """Refuse folders that are not there, all in one line."""
        wanted = sorted(name for name in names if name is not None)
        if not wanted:
            return
        if self.data is None:
            raise ValueError(
                f"--data is needed: a folder that holds {', '.join(wanted)}"
                " (or set FIXNORM_DATA to it)"
            )
        absent = [name for name in wanted if not (self.data / name).is_dir()]
        if absent:
            raise ValueError(f"{self.data} holds no folder {', '.join(absent)}")
