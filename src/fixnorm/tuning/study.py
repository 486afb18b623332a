"""The study: the only state of a search, an Optuna study with one trial for each training.

A trial begins RUNNING and carries its slot; when its training has ended it gets its value, once. A
driver that was killed leaves RUNNING trials behind: the next one runs those same trials again, so
that no slot is lost or counted twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import sqlalchemy
from optuna.distributions import BaseDistribution
from optuna.study import StudyDirection
from optuna.trial import TrialState, create_trial

from fixnorm.internals_of_others import optuna_id
from fixnorm.system import brief, printable
from fixnorm.system.lock import InUse, this_process
from fixnorm.tuning.comparison import COMPARISON, Comparison
from fixnorm.tuning.place import check_there
from fixnorm.tuning.search import Ledger
from fixnorm.tuning.storage import Storage
from fixnorm.tuning.stored import (
    ENDED,
    SLOT,
    checked_progress,
    checked_settings,
    read_trial,
    strategy_of,
    told_result,
    told_slot,
)
from fixnorm.tuning.strategies import check_slots
from fixnorm.tuning.trial import POINTS, Result, StudyRecord, Trial

__all__ = ["Study", "read_studies"]

_SETTINGS, _OWNER, _STATE = "fixnorm", "owner", "state"  # of the study
_FOLDER = "folder"  # of the settings


class Study(Ledger):
    """A search's trials in Optuna, for the one driver that owns them."""

    def __init__(
        self,
        study: optuna.Study,
        distributions: Mapping[str, BaseDistribution],
        folder: Path | None,
        keep: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__({}, name=str(study.study_name))
        self.optuna, self.folder, self._keep = study, folder, keep
        self._distributions = dict(distributions)
        self._asked: dict[str, optuna.Trial] = {}
        self._state = study.user_attrs.get(_STATE)
        for found in study.get_trials(deepcopy=False):
            trial = read_trial(found, folder)
            if trial.key in self.trials:
                raise ValueError(f"{trial.key} has two trials: the study was changed")
            self._note(trial)

    @classmethod
    @contextmanager
    def owned(
        cls,
        storage: Storage,
        name: str,
        *,
        settings: Mapping[str, Any],
        distributions: Mapping[str, BaseDistribution],
        folder: Path | None,
        sampler: optuna.samplers.BaseSampler | None = None,
    ) -> Iterator[Study]:
        """Own the study, new or as it was left; refuses one of other settings or another's."""
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        storage.check()
        place = {}
        if storage.file is None and folder is not None:  # a server has studies of many folders
            place[_FOLDER] = str(folder.resolve())
        settings = json.loads(json.dumps({**settings, **place}))
        if storage.whole():  # one that is refused is left as it was
            with storage.opened() as database:
                _check_settings(database, storage, name, settings)
        try:
            # Before the database is made: of several drivers that begin at once one wins.
            with storage.owned(name) as keep, storage.opened() as database:
                with _understood(storage, name):
                    _check_settings(database, storage, name, settings)
                    study = optuna.create_study(
                        storage=database,
                        study_name=name,
                        direction="maximize",
                        load_if_exists=True,
                        sampler=sampler,
                    )
                    _check_direction(study)
                    owned = cls(study, distributions, folder, keep)
                if _SETTINGS not in study.user_attrs:
                    study.set_user_attr(_SETTINGS, settings)
                study.set_user_attr(_OWNER, this_process())
                yield owned
        except InUse as used:
            owner = used.owner if storage.file is not None else _owner(storage, name)
            raise ValueError(
                f"study {name!r} in {storage.shown} belongs to {owner}: wait for it or give"
                f" {storage.elsewhere}"
            ) from None

    @classmethod
    def around(
        cls,
        study: optuna.Study,
        *,
        settings: Mapping[str, Any],
        distributions: Mapping[str, BaseDistribution],
    ) -> Study:
        """A study that the caller has made, new or as a search left it."""
        _check_direction(study)
        settings = json.loads(json.dumps(dict(settings)))
        stored = study.user_attrs.get(_SETTINGS)
        if stored is None:
            if study.get_trials(deepcopy=False):
                raise ValueError(
                    f"study {study.study_name!r} has trials that are not of this search: "
                    "give it a study of its own"
                )
            study.set_user_attr(_SETTINGS, settings)
        elif different := list(_differences(stored, settings)):
            raise ValueError(
                f"study {study.study_name!r} holds a search of other settings: "
                f"{', '.join(different[:4])}; give it another name"
            )
        return cls(study, distributions, folder=None)

    # -- what happens --------------------------------------------------------------------------

    def announce(self, *, budget: int, over: bool) -> None:
        state = {"budget": budget, "over": over}
        if self._state != state:
            self.optuna.set_user_attr(_STATE, state)
            self._state = state

    def keep(self) -> None:
        self._keep()

    def begin(self, trial: Trial) -> None:
        if trial.key not in self.trials:  # else a driver before this one began it
            self._add(trial, state=TrialState.RUNNING)

    def sample(self) -> Trial:
        asked = self.optuna.ask(self._distributions)
        trial = Trial(round=POINTS, index=asked.number, number=asked.number, **asked.params)
        self._asked[trial.key] = asked
        return self._note(self._placed(trial))

    def end(self, trial: Trial, result: Result) -> Trial:
        """One value for its trial, whatever it was."""
        if result.state == "free":  # whole at once: it has never begun
            self._add(
                trial,
                result,
                state=TrialState.COMPLETE,
                value=result.accuracy,
                user_attrs={ENDED: told_result(result)},
            )
            return self.trials[trial.key]
        self.begin(trial)
        asked, value = self.trial(trial), self._value(trial, result)
        asked.set_user_attr(ENDED, told_result(result))
        self.optuna.tell(asked, value, state=TrialState.FAIL if value is None else None)
        return self._note(self._ended(self.trials[trial.key], result))

    def trial(self, trial: Trial) -> optuna.Trial:
        """Optuna's trial of a training that has begun."""
        asked = self._asked.get(trial.key)
        if asked is None:  # a plan's, or one that a driver before this one began
            number = self.trials[trial.key].number
            found = self.optuna.get_trials(deepcopy=False)[number]
            asked = self._asked[trial.key] = optuna.trial.Trial(self.optuna, optuna_id(found))
        return asked

    def record(self) -> StudyRecord:
        record = _record(self.optuna, self.folder, tuple(self.trials.values()))
        return replace(record, over=bool(record.over))

    # -- between the two -----------------------------------------------------------------------

    def _value(self, trial: Trial, result: Result) -> float | None:
        if result.state != "diverged" or trial.round != POINTS:
            return result.accuracy
        # A sampler learns nothing from a trial without a value; zero would be a cliff that no
        # smooth model of the rest survives: a training that diverged is as bad as the worst.
        known = [r.accuracy for r in self.results.values() if r.accuracy is not None]
        return min(known, default=0.0)

    def _add(self, trial: Trial, result: Result | None = None, **given: Any) -> None:
        given["user_attrs"] = {SLOT: told_slot(trial), **given.get("user_attrs", {})}
        params = {
            name: value
            for name in self._distributions
            if (value := getattr(trial, name)) is not None
        }
        distributions = {name: self._distributions[name] for name in params}
        self.optuna.add_trial(create_trial(params=params, distributions=distributions, **given))
        number = len(self.optuna.get_trials(deepcopy=False)) - 1
        placed = self._placed(replace(trial, number=number))
        self._note(placed if result is None else self._ended(placed, result))

    def _placed(self, trial: Trial) -> Trial:
        folder = None if self.folder is None else self.folder / trial.key
        return replace(trial, folder=folder)

    def _ended(self, trial: Trial, result: Result) -> Trial:
        done = self.optuna.get_trials(deepcopy=False)[trial.number].datetime_complete
        ended = replace(result, ended=None if done is None else done.timestamp())
        folder = None if result.state == "free" else trial.folder
        return replace(trial, folder=folder, result=ended)


def read_studies(storage: Storage, out: Path) -> list[StudyRecord]:
    """All searches under ``out``, whoever owns them; changes nothing."""
    if storage.file is not None:
        check_there(storage.file)
    if not storage.whole():
        raise ValueError(f"{storage.shown} has no tables yet: no search has been run there")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    found = []
    with storage.opened() as database:
        with _understood(storage, None):
            summaries = optuna.get_all_study_summaries(database, include_best_trial=False)
        for summary in summaries:
            if _SETTINGS not in summary.user_attrs:
                continue
            name = summary.study_name
            with _understood(storage, name):
                study = optuna.load_study(study_name=name, storage=database)
                if _is_below(study, out):
                    found.append(_read(study, out))
    return found


@contextmanager
def _understood(storage: Storage, name: str | None) -> Iterator[None]:
    """A study that another program or version wrote is refused with the reason."""
    try:
        yield
    except (OSError, sqlalchemy.exc.SQLAlchemyError, optuna.exceptions.StorageInternalError):
        raise  # the database's, not the study's
    except _Other:
        raise
    except Exception as error:  # Optuna trips over strange rows in many ways
        reason = printable(error) or type(error).__name__
        study = "a study" if name is None else f"study {name!r}"
        raise ValueError(
            f"{study} in {storage.shown} is none that this version can read ({reason}): give"
            f" {storage.elsewhere}"
        ) from None


class _Other(ValueError):
    """A study that is whole, and not the one that was asked for."""


def _check_direction(study: optuna.Study) -> None:
    if study.directions != [StudyDirection.MAXIMIZE]:
        raise _Other(
            f"study {study.study_name!r} minimises but more accuracy is better: "
            'optuna.create_study(direction="maximize")'
        )


def _is_below(study: optuna.Study, out: Path) -> bool:
    """Whether its runs are in the folder; a file moves with its folder and does not say."""
    folder = checked_settings(study.user_attrs.get(_SETTINGS)).get("folder")
    return folder is None or Path(folder).parent == out.resolve()


def _read(study: optuna.Study, out: Path) -> StudyRecord:
    _check_direction(study)
    settings = checked_settings(study.user_attrs.get(_SETTINGS))
    folder = out / f"{settings['method']}-{settings['strategy']}"
    trials = tuple(read_trial(found, folder) for found in study.get_trials(deepcopy=False))
    record = _record(study, folder, trials)
    if record.method == COMPARISON:
        Comparison.of(settings).check(record)
        return record
    if record.method != "fixnorm":
        keys = {trial.key for trial in trials}
        if len(keys) < len(trials) or any(trial.weight_decay is None for trial in trials):
            raise ValueError("its trials are not points of lr and weight decay: it was changed")
        return record
    advice = check_slots(trials, strategy_of(settings), over=record.over)
    return record if record.over is not None else replace(record, over=advice.over)


def _check_settings(
    database: optuna.storages.RDBStorage,
    storage: Storage,
    name: str,
    settings: Mapping[str, Any],
) -> None:
    with _understood(storage, name):
        there = {
            s.study_name: s.user_attrs
            for s in optuna.get_all_study_summaries(database, include_best_trial=False)
        }
    if name not in there:
        return
    stored = there[name].get(_SETTINGS)
    if stored is None:
        if not there[name]:
            return  # its driver was killed before it could say
        raise _Other(f"study {name!r} in {storage.shown} is not one of fixnorm's")
    different = list(_differences(stored, settings))
    if different:
        more = f" and {len(different) - 4} more" if len(different) > 4 else ""
        raise _Other(
            f"{storage.shown} holds a search of other settings: {', '.join(different[:4])}{more};"
            f" give {storage.elsewhere}"
        )


def _differences(there: Any, here: Any, name: str = "") -> Iterator[str]:
    if isinstance(there, dict) and isinstance(here, dict):
        for key in sorted(there.keys() | here.keys()):
            inner = f"{name}.{key}" if name else key
            yield from _differences(there.get(key), here.get(key), inner)
    elif there != here:
        yield f"{name} ({_short(there)} there, {_short(here)} here)"


def _short(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(v, int | float) for v in value):
        return " ".join(f"{v:g}" for v in value[:20])
    return brief(value, plain=True)


def _owner(storage: Storage, name: str) -> str | None:
    with storage.opened() as database:
        for summary in optuna.get_all_study_summaries(database, include_best_trial=False):
            if summary.study_name == name:
                return summary.user_attrs.get(_OWNER)
    return None


def _record(study: optuna.Study, folder: Path | None, trials: tuple[Trial, ...]) -> StudyRecord:
    settings = checked_settings(study.user_attrs.get(_SETTINGS, {}))
    budget, over = checked_progress(study.user_attrs.get(_STATE, {}))
    named = {name: settings[name] for name in ("method", "strategy", "metric")}
    return StudyRecord(
        name=study.study_name,
        **named,
        settings=settings if budget is None else {**settings, "budget": budget},
        folder=folder,
        trials=trials,
        over=over,
    )
