"""``fixnorm.tune``: the search around a training function of the caller's own.

It runs in this process or in several others. Nothing here needs the recipes, or what they need.
"""

from __future__ import annotations

import inspect
import math
import pickle
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fixnorm.system import brief
from fixnorm.system.machine import of_machine
from fixnorm.system.numbers import check_whole, numbers
from fixnorm.system.pool import LeashedPool
from fixnorm.tuning.driver import Watcher, drive
from fixnorm.tuning.engine import Died, Unfinished
from fixnorm.tuning.plan import PAPER, SearchSpace
from fixnorm.tuning.plans import DEFAULT
from fixnorm.tuning.progress import Mark, Progress, wants_progress
from fixnorm.tuning.search import Search
from fixnorm.tuning.storage import Storage
from fixnorm.tuning.strategies import PlanStrategy
from fixnorm.tuning.study import Study
from fixnorm.tuning.trial import Lr, Result, StudyRecord, Trial
from fixnorm.tuning.unimodal import MARGIN
from fixnorm.tuning.view import SearchView

__all__ = [
    "FunctionEngine",
    "Real",
    "Train",
    "Tuned",
    "check_callable",
    "failed",
    "result_of",
    "steps_of",
    "tune",
]


class Real(Protocol):
    """A real number: Python's, numpy's, or a tensor of one element."""

    def __float__(self) -> float: ...


Train = Callable[..., Real | Mapping[str, Real]]


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """The answer of a search."""

    lr: Lr
    alpha: float
    accuracy: float
    cost: float
    """What was spent, in trainings of full length."""
    trials: int
    """Trainings; slots that needed none are not among them."""
    record: StudyRecord
    """Every trial: ``fixnorm.report.write_report([record], folder)`` draws them."""


def tune(
    train: Train,
    *,
    steps: int,
    lr_range: tuple[float, float] = (PAPER.lr_min, PAPER.lr_max),
    splits: int = PAPER.splits,
    fractions: Sequence[float] = PAPER.fractions,
    alphas: Sequence[float] = PAPER.alphas,
    plan: str = DEFAULT,
    margin: float = MARGIN,
    seeds: int = 1,
    workers: int = 1,
    out: str | Path | None = None,
    storage: str | None = None,
    name: str = "tune",
    progress: bool = True,
) -> Tuned:
    """Find the best lr and alpha of ``train``.

    Args:
        train: ``train(lr, alpha, steps)`` returns the accuracy (more is better), or a dict with
            ``accuracy`` and ``largest_scale``, the largest |g|/√C of the training: then slots whose
            cap was never met need no training. It is called by keywords; with several seeds it
            also gets ``seed``. NaN means diverged; an exception closes the slot as failed. By plan
            ``"auto"`` it gets ``lr="auto"``, which ``attach(optimizer, lr=lr, steps=steps)`` takes.
            If it has a parameter ``progress`` (without a default, or with None), it gets a function
            to call as often as it likes: ``progress(step)`` shows how far it is.
        steps: T_max, the length of a full training.
        lr_range: lowest and highest learning rate.
        splits: K, learning rates a round.
        fractions: length of each lr round, in T_max.
        alphas: candidates, increasing.
        plan: ``"paper"`` is Algorithm 4; ``"unimodal"`` leaves out what cannot win; ``"auto"`` has
            no search for lr, so it takes no ``lr_range``, ``splits`` and ``fractions``, and goes
            down the alphas, each of them a training in full here.
        margin: of ``unimodal`` and ``auto``, a difference in accuracy that noise does not explain.
        seeds: trainings of every slot; the mean decides.
        workers: processes; with more than one, ``train`` must be importable by name.
        out: folder of the study: the same call again goes on after anything. None forgets it.
        storage: database URL instead of a file in ``out``.
        name: of the study in its database.
        progress: show what happens on stderr.
    """
    check_whole("steps", steps, least=1, most=10**15)
    check_whole("workers", workers, least=1, most=1024)
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"name must be a text but got {brief(name)}")
    for place, value, kinds in (("out", out, (str, Path)), ("storage", storage, (str,))):
        if value is not None and not isinstance(value, kinds):
            raise ValueError(f"{place} must be a text or None but got {brief(value)}")
    lr_min, lr_max = numbers("lr_range", lr_range, 2)
    space = SearchSpace(
        lr_min=lr_min,
        lr_max=lr_max,
        splits=splits,
        fractions=numbers("fractions", fractions),
        alphas=numbers("alphas", alphas),
        seeds=seeds,
    )
    strategy = PlanStrategy(space=space, plan=plan, margin=margin)
    engine = FunctionEngine(train, steps=steps, seeds=seeds, workers=workers)
    with ExitStack() as stack:
        stack.callback(engine.stop)
        folder = Path(out or stack.enter_context(tempfile.TemporaryDirectory()))
        study = stack.enter_context(
            Study.owned(
                Storage.in_folder(folder) if storage is None else Storage.parse(storage),
                name,
                settings={**strategy.settings(), "steps": steps},
                distributions=strategy.distributions(),
                folder=None,
            )
        )
        search = Search(strategy, study)
        title = f"{name} ({plan}): at most {strategy.trainings} trainings, {strategy.cost:g} T_max"
        watcher: Watcher = Watcher()
        if progress:
            watcher = stack.enter_context(SearchView(search, title=title, workers=workers))
        engine.tick = watcher.tick
        drive(search, engine, watcher)
        best, record = search.answer(), study.record()
    if best is None:
        reasons = sorted({trial.reason or trial.state for trial in record.trials})
        raise ValueError(f"every training diverged or failed: {reasons[0]}") from engine.error
    assert best.alpha is not None
    assert best.accuracy is not None
    return Tuned(
        lr=best.lr,
        alpha=best.alpha,
        accuracy=best.accuracy,
        cost=record.cost,
        trials=sum(trial.state != "free" for trial in record.trials),
        record=record,
    )


# -- the trainings ---------------------------------------------------------------------------------


def steps_of(fraction: float, steps: int) -> int:
    """Steps of a training of some fraction of T_max, at least one."""
    return max(round(fraction * steps), 1)


class FunctionEngine:
    """Calls ``train(lr, alpha, steps)``; with several seeds ``train(lr, alpha, steps, seed=…)``.

    Where it asks for it, it gets ``progress`` as well. Each worker is a pool of one process, so
    that one that is killed takes no other training with it.
    """

    def __init__(self, train: Train, *, steps: int, seeds: int, workers: int) -> None:
        self._train, self._steps, self._seeded = train, steps, seeds > 1
        self._workers = workers
        self._waiting: list[Trial] = []
        self._running: dict[Future[Result], tuple[Trial, LeashedPool]] = {}
        self._tells = wants_progress(train)
        self._marks: dict[str, Mark] = {}
        self.tick: Callable[[dict[Trial, float]], None] = lambda progress: None
        """Is told how far a training of this process is: nobody else can ask meanwhile."""
        self.error: Exception | None = None
        """The last exception of a training of this process."""
        names = ["lr", "alpha", "steps"]
        names += ["seed"] if self._seeded else []
        check_callable(train, names + (["progress"] if self._tells else []))
        if workers > 1:
            try:
                pickle.dumps(train)
            except (pickle.PicklingError, AttributeError, TypeError):
                raise ValueError(
                    "with workers > 1 `train` runs in other processes, which import it by name:"
                    " define it at the top level of a module, or use workers=1"
                ) from None
        self._free: list[LeashedPool] = []
        self._folder = tempfile.TemporaryDirectory() if workers > 1 and self._tells else None

    @property
    def room(self) -> int:
        return self._workers

    def start(self, trial: Trial) -> None:
        """Queue it: in this process it runs when it is waited for."""
        if self._workers == 1:
            self._waiting.append(trial)
            return
        if self._folder is not None:
            self._marks[trial.key] = Mark(Path(self._folder.name) / trial.key)
        pool = self._free.pop() if self._free else LeashedPool(1)
        self._running[self._submitted(pool, trial)] = trial, pool

    def wait(self, seconds: float) -> list[tuple[Trial, Result | Died]]:
        """Train the next one here, or see which of the other processes are ready."""
        if self._workers == 1:
            return [(trial, self._here(trial)) for trial in self._taken()]
        done, _ = wait(self._running, timeout=seconds, return_when=FIRST_COMPLETED)
        ends: list[tuple[Trial, Result | Died]] = []
        for future in sorted(done, key=lambda future: future.exception() is not None):
            if ends and not isinstance(future.exception(), BrokenProcessPool | None):
                continue  # a value is written down before an error may stop the search
            trial, pool = self._running.pop(future)
            self._marks.pop(trial.key, None)
            if isinstance(future.exception(), BrokenProcessPool):
                pool.shutdown(wait=False, cancel_futures=True)
            else:
                self._free.append(pool)
            ends.append((trial, self._end(trial, future)))
        return ends

    def progress(self, trial: Trial) -> float:
        """What it said last; of one that has ended, nothing: the next try begins at zero."""
        mark = self._marks.get(trial.key)
        return 0.0 if mark is None else mark.read()

    def stop(self) -> None:
        """End the other processes; a function has no checkpoint to wait for."""
        for pool in (*self._free, *(pool for _, pool in self._running.values())):
            pool.end()
        if self._folder is not None:
            self._folder.cleanup()

    def _submitted(self, pool: LeashedPool, trial: Trial) -> Future[Result]:
        try:
            mark = self._marks.get(trial.key)
            tell = None if mark is None else mark.write
            return pool.submit(_called, *self._call(trial), tell)
        except BrokenProcessPool as broken:  # it was killed since its last training
            dead: Future[Result] = Future()
            dead.set_exception(broken)
            return dead

    def _call(self, trial: Trial) -> tuple[Train, dict[str, Any]]:
        steps = steps_of(trial.fraction, self._steps)
        arguments = {"lr": trial.lr, "alpha": trial.alpha, "steps": steps}
        return self._train, arguments | ({"seed": trial.seed} if self._seeded else {})

    def _taken(self) -> list[Trial]:
        return [self._waiting.pop(0)] if self._waiting else []

    def _here(self, trial: Trial) -> Result:
        try:
            tell = (lambda done: self.tick({trial: done})) if self._tells else None
            return _called(*self._call(trial), tell)
        except Exception as error:
            return self._raised(trial, error)

    def _raised(self, trial: Trial, error: Exception) -> Result:
        self.error = error
        return failed(error, trial.key)

    def _end(self, trial: Trial, future: Future[Result]) -> Result | Died:
        error = future.exception()
        if isinstance(error, BrokenProcessPool):
            return Died("its process was killed", killed=True)
        if isinstance(error, Exception):
            return self._raised(trial, error)
        return future.result()


def _called(
    train: Train, arguments: dict[str, Any], tell: Callable[[float], None] | None
) -> Result:
    if tell is not None:
        arguments["progress"] = Progress(arguments["steps"], tell)
    started = time.monotonic()
    found = train(**arguments)
    return result_of(found, seconds=round(time.monotonic() - started, 6))


def check_callable(train: object, names: Sequence[str]) -> None:
    """Refuse, before anything is trained, what cannot be called by these keywords."""
    if not callable(train):
        raise ValueError(f"train must be a function but got {train!r}")
    try:
        inspect.signature(train).bind(**dict.fromkeys(names))
    except TypeError as error:
        raise ValueError(f"train must take the keywords {', '.join(names)}: {error}") from None
    except ValueError:  # it does not say what it takes
        return


class NoNumber(ValueError):
    """A training returned something else: a mistake of its function, not an outcome."""


def result_of(found: Real | Mapping[str, Real], *, seconds: float | None = None) -> Result:
    """What a training returned, as the study wants it."""
    scale = None
    if isinstance(found, Mapping):
        if "accuracy" not in found:
            raise NoNumber(f"train returned a dict without 'accuracy': {brief(found)}")
        largest = found.get("largest_scale")
        scale = None if largest is None else _number(largest, "a largest_scale")
        found = found["accuracy"]
    accuracy = _number(found, "an accuracy")
    if not math.isfinite(accuracy):
        return Result(state="diverged", reason=f"train returned {accuracy}", seconds=seconds)
    if scale is not None and not math.isfinite(scale):
        scale = None  # not known: every slot is then trained
    return Result(state="trained", accuracy=accuracy, largest_scale=scale, seconds=seconds)


def _number(found: object, what: str) -> float:
    """Any real number, whoever makes it; text and truth values are none."""
    plain = found
    if hasattr(found, "item") and hasattr(found, "dtype"):  # of numpy or torch
        try:
            plain = found.item()
        except (RuntimeError, TypeError, ValueError):
            plain = None  # of several elements
    if isinstance(plain, bool | str | bytes | complex) or not hasattr(plain, "__float__"):
        raise NoNumber(f"train must return {what} that is one real number but got {brief(found)}")
    try:
        return float(plain)
    except (TypeError, ValueError, OverflowError):
        raise NoNumber(
            f"train must return {what} that is one real number but got {brief(found)}"
        ) from None


def failed(error: Exception, what: str) -> Result:
    """What a training raised; where that is no outcome of it, the search cannot go on."""
    if isinstance(error, NoNumber):
        raise error
    if of_machine(error):
        raise Unfinished(
            f"{what} ended for a reason of the machine, {type(error).__name__}: {error}; it stays"
            " open: mend that, then the same call goes on"
        ) from error
    return Result(state="failed", reason=f"{type(error).__name__}: {error}")
