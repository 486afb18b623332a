"""``fixnorm.tune``: the search around a training function of the caller's own."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fixnorm.system import brief
from fixnorm.system.numbers import check_whole, numbers
from fixnorm.tuning.driver import SILENT, search
from fixnorm.tuning.engines.function import FunctionEngine, Train
from fixnorm.tuning.plan import PAPER, SearchSpace
from fixnorm.tuning.record import StudyRecord
from fixnorm.tuning.storage import Storage
from fixnorm.tuning.strategies import PlanStrategy
from fixnorm.tuning.study import Study
from fixnorm.tuning.unimodal import MARGIN
from fixnorm.tuning.view import SearchView

__all__ = ["Tuned", "tune"]


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """The answer of a search."""

    lr: float
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
    plan: Literal["paper", "unimodal"] = "paper",
    margin: float = MARGIN,
    seeds: int = 1,
    workers: int = 1,
    out: str | Path | None = None,
    storage: str | None = None,
    name: str = "tune",
    progress: bool = True,
) -> Tuned:
    """Find the best lr and alpha of ``train`` by Algorithm 4.

    Args:
        train: ``train(lr, alpha, steps)`` returns the accuracy (more is better), or a dict with
            ``accuracy`` and ``largest_scale``, the largest |g|/√C of the training: then slots whose
            cap was never met need no training. It is called by keywords; with several seeds it
            also gets ``seed``. NaN means diverged; an exception closes the slot as failed.
        steps: T_max, the length of a full training.
        lr_range: lowest and highest learning rate.
        splits: K, learning rates a round.
        fractions: length of each lr round, in T_max.
        alphas: candidates, increasing.
        plan: ``"paper"`` is Algorithm 4; ``"unimodal"`` leaves out what cannot win.
        margin: of ``unimodal``, the difference in accuracy that noise does not explain.
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
    settings = {
        "method": strategy.method,
        "strategy": strategy.name,
        "metric": "accuracy (%)",
        **strategy.settings(),
        "steps": steps,
    }
    with ExitStack() as stack:
        stack.callback(engine.stop)
        folder = Path(out or stack.enter_context(tempfile.TemporaryDirectory()))
        study = stack.enter_context(
            Study.owned(
                Storage.in_folder(folder) if storage is None else Storage.parse(storage),
                name,
                settings=settings,
                distributions=strategy.distributions(),
                folder=None,
            )
        )
        source = strategy.source(study)
        title = f"{name} ({plan}): at most {source.trainings} trainings, {source.cost:g} T_max"
        watcher = SILENT
        if progress:
            watcher = stack.enter_context(SearchView(study, source, title=title, workers=workers))
        search(study, source, engine, watcher)
        best, record = source.best(), study.record()
    if best is None:
        reasons = sorted({trial.reason or trial.state for trial in record.trials})
        raise ValueError(f"every training diverged or failed: {reasons[0]}") from engine.error
    assert best.alpha is not None
    return Tuned(
        lr=best.lr,
        alpha=best.alpha,
        accuracy=best.accuracy,
        cost=record.cost,
        trials=sum(trial.state != "free" for trial in record.trials),
        record=record,
    )
