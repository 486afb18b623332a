"""The study: the only state of a search, an Optuna study with one trial for each training.

A trial begins RUNNING and carries its slot; when its training has ended it gets its value, once. A
driver that was killed leaves RUNNING trials behind: the next one runs those same trials again, so
that no slot is lost or counted twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
import sqlalchemy
from optuna.distributions import BaseDistribution
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from fixnorm.internals import optuna_id
from fixnorm.system import printable, short
from fixnorm.system.lock import InUse, this_process
from fixnorm.tuning.job import Ended, Job
from fixnorm.tuning.record import StudyRecord, TrialRecord
from fixnorm.tuning.slots import check_search
from fixnorm.tuning.storage import Storage
from fixnorm.tuning.stored import ENDED, POINTS, SLOT, Progress, Settings, parsed, trial_record

__all__ = ["Study", "read_studies"]

_SETTINGS, _OWNER, _STATE = "fixnorm", "owner", "state"  # of the study
_FOLDER = "folder"  # of the settings


class Study:
    """A search's trials, for the one driver that owns it."""

    def __init__(
        self,
        study: optuna.Study,
        distributions: Mapping[str, BaseDistribution],
        folder: Path | None,
        keep: Callable[[], None] = lambda: None,
    ) -> None:
        self.optuna, self.folder, self.keep = study, folder, keep
        self._distributions = dict(distributions)
        self._numbers: dict[str, int] = {}
        self._ids: dict[str, int] = {}
        self._records: dict[str, TrialRecord] = {}
        for trial in study.get_trials(deepcopy=False):
            before = len(self._records)
            record = self._remember(trial)
            if len(self._records) == before:
                raise ValueError(f"{record.key} has two trials: the study was changed")

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

    # -- what is there -------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """In its database."""
        return str(self.optuna.study_name)

    @property
    def ended(self) -> dict[str, TrialRecord]:
        """Trials that have their value, or that have failed, by key."""
        return {k: r for k, r in self._records.items() if r.state != "running"}

    @property
    def begun(self) -> int:
        """How many trials there are."""
        return len(self._records)

    @property
    def left_running(self) -> list[Job]:
        """Trials that began and have not ended."""
        return [_job(r) for r in self._records.values() if r.state == "running"]

    def record(self) -> StudyRecord:
        """All of it, as plain values."""
        return _record(self.optuna, self.folder, tuple(self._records.values()))

    # -- what happens --------------------------------------------------------------------------

    def announce(self, *, budget: int, over: bool) -> None:
        """How many trainings the search may take, and whether it has come to its end."""
        state = {"budget": budget, "over": over}
        if self.optuna.user_attrs.get(_STATE) != state:
            self.optuna.set_user_attr(_STATE, state)

    def begin(self, job: Job) -> None:
        """The training is about to start."""
        if job.key in self._records:  # a driver before this one began it
            return
        self.optuna.add_trial(
            optuna.trial.create_trial(
                state=TrialState.RUNNING,
                params=self._params(job),
                distributions=self._distributions,
                user_attrs={SLOT: _slot(job)},
            )
        )
        self._remember(self.optuna.get_trials(deepcopy=False)[-1])

    def ask(self) -> Job:
        """Let Optuna's sampler choose the next point."""
        number = self.optuna.ask(self._distributions).number
        self._remember(self.optuna.get_trials(deepcopy=False)[number])
        return next(_job(r) for r in self._records.values() if r.number == number)

    def end(self, job: Job, ended: Ended) -> TrialRecord:
        """The training is over. One value for its trial, whatever it was."""
        trial = self.trial(job)
        trial.set_user_attr(ENDED, _told(ended))
        if ended.state == "trained":
            assert ended.accuracy is not None
            self.optuna.tell(trial, ended.accuracy)
        elif ended.state == "diverged" and job.round == POINTS:
            # A sampler learns nothing from a trial without a value; zero would be a cliff that no
            # smooth model of the rest survives.
            known = [r.accuracy for r in self._records.values() if r.accuracy is not None]
            self.optuna.tell(trial, min(known, default=0.0))
        else:
            self.optuna.tell(trial, state=TrialState.FAIL)
        number = self._numbers[job.key]
        return self._remember(self.optuna.get_trials(deepcopy=False)[number])

    def trial(self, job: Job) -> optuna.Trial:
        """Optuna's trial of a training that has begun."""
        return optuna.trial.Trial(self.optuna, self._ids[job.key])

    def fill(self, job: Job, source: str) -> TrialRecord:
        """A trial that needs no training: its value is that of another, bit for bit."""
        known = self._records[source]
        assert known.accuracy is not None
        told = {"state": "free", "source": source, "largest_scale": known.largest_scale}
        self.optuna.add_trial(
            optuna.trial.create_trial(
                state=TrialState.COMPLETE,
                value=known.accuracy,
                params=self._params(job),
                distributions=self._distributions,
                user_attrs={SLOT: _slot(job), ENDED: told},
            )
        )
        return self._remember(self.optuna.get_trials(deepcopy=False)[-1])

    # -- between the two -----------------------------------------------------------------------

    def _params(self, job: Job) -> dict[str, float]:
        return {name: getattr(job, name) for name in self._distributions}

    def _remember(self, trial: FrozenTrial) -> TrialRecord:
        record = trial_record(trial, self.folder)
        self._records[record.key] = record
        self._numbers[record.key] = trial.number
        self._ids[record.key] = optuna_id(trial)
        return record


def read_studies(storage: Storage, out: Path) -> list[StudyRecord]:
    """All searches under ``out``, whoever owns them; changes nothing."""
    if not storage.exists():
        raise ValueError(f"{storage.shown} does not exist: no search has been run there")
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
    folder = _settings(study).folder
    return folder is None or Path(folder).parent == out.resolve()


def _settings(study: optuna.Study) -> Settings:
    return parsed(study.user_attrs.get(_SETTINGS), Settings, "settings")


def _read(study: optuna.Study, out: Path) -> StudyRecord:
    _check_direction(study)
    settings = _settings(study)
    folder = out / f"{settings.method}-{settings.strategy}"
    trials = tuple(trial_record(t, folder) for t in study.get_trials(deepcopy=False))
    record = _record(study, folder, trials)
    content = json.dumps(study.user_attrs[_SETTINGS])
    named = {"method": settings.method, "strategy": settings.strategy}
    check_search(named, content, trials, record.over)
    return record


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
    return short(value)


def _owner(storage: Storage, name: str) -> str | None:
    with storage.opened() as database:
        for summary in optuna.get_all_study_summaries(database, include_best_trial=False):
            if summary.study_name == name:
                return summary.user_attrs.get(_OWNER)
    return None


# -- trials as records ---------------------------------------------------------------------------


def _slot(job: Job) -> dict[str, Any]:
    return {
        "key": job.key,
        "round": job.round,
        "index": job.index,
        "fraction": job.fraction,
        "seed": job.seed,
    }


def _told(ended: Ended) -> dict[str, Any]:
    return {
        "state": ended.state,
        "largest_scale": ended.largest_scale,
        "reason": ended.reason,
        "seconds": ended.seconds,
    }


def _job(record: TrialRecord) -> Job:
    return Job(
        key=record.key,
        round=record.round,
        index=record.index,
        lr=record.lr,
        alpha=record.alpha,
        weight_decay=record.weight_decay,
        fraction=record.fraction,
        seed=record.seed,
    )


def _record(
    study: optuna.Study, folder: Path | None, trials: tuple[TrialRecord, ...]
) -> StudyRecord:
    settings = dict(study.user_attrs.get(_SETTINGS, {}))
    said = parsed(settings, Settings, "settings")
    state = parsed(study.user_attrs.get(_STATE, {}), Progress, "state")
    if state.budget is not None:
        settings["budget"] = state.budget
    return StudyRecord(
        name=study.study_name,
        method=said.method,
        strategy=said.strategy,
        metric=said.metric,
        settings=settings,
        folder=folder,
        trials=trials,
        over=state.over,
    )
