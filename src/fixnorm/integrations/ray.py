"""Ray: the plans for lr and alpha, with one's own training function as the cluster's tasks."""

from __future__ import annotations

import os
from contextlib import nullcontext
from typing import Any

from fixnorm.system.extras import missing

try:
    import ray as _ray
except ModuleNotFoundError as error:
    raise missing("this integration", error, "ray") from None
try:
    import optuna

    from fixnorm.integrations.optuna import PlanSearch, fraction_of, seed_of
    from fixnorm.system import brief
    from fixnorm.system.numbers import check_number, check_whole
    from fixnorm.tuning.engine import Unfinished
    from fixnorm.tuning.function import Train, check_callable, steps_of
    from fixnorm.tuning.plan import PAPER, SearchSpace
    from fixnorm.tuning.plans import DEFAULT
    from fixnorm.tuning.ray_engine import loopback
    from fixnorm.tuning.trial import Trial
    from fixnorm.tuning.unimodal import MARGIN
except ModuleNotFoundError as error:
    raise missing("this integration", error, "tune") from None

__all__ = ["optimize"]

ray: Any = _ray  # its types say nothing about tasks


def optimize(
    study: optuna.Study,
    train: Train,
    *,
    steps: int,
    cpus: float = 1.0,
    gpus: float = 0.0,
    retries: int = 3,
    space: SearchSpace = PAPER,
    plan: str = DEFAULT,
    margin: float = MARGIN,
) -> Trial:
    """Find lr and alpha of ``train``; all trainings that can run side by side do.

    Ray is as the caller has started it, or is started here, for this machine alone.

    Args:
        study: as in :func:`fixnorm.integrations.optuna.optimize`; it lives with this process.
        train: ``train(lr, alpha, steps)`` as in :func:`fixnorm.tune`, with ``seed`` if the space
            has several.
        steps: T_max, the length of a full training.
        cpus: of one training.
        gpus: of one training.
        retries: of a training whose worker or node is lost, after which the search stops and the
            slot stays open; its own errors close its slot.
        space: as in :func:`fixnorm.integrations.optuna.optimize`.
        plan: as there.
        margin: as there.
    """
    check_whole("steps", steps, least=1, most=10**15)
    check_whole("retries", retries, least=0, most=10**6)
    for name, amount in (("cpus", cpus), ("gpus", gpus)):
        check_number(name, amount)
        if not 0 <= amount <= 1e6:
            raise ValueError(f"{name} must lie in [0, 1e6] but got {amount:g}")
    if not isinstance(space, SearchSpace):
        raise ValueError(f"space must be a SearchSpace but got {brief(space)}")
    check_callable(train, ("lr", "alpha", "steps", *(["seed"] if space.seeds > 1 else [])))
    search = PlanSearch(study, space=space, plan=plan, margin=margin)
    if not ray.is_initialized():
        with nullcontext() if os.environ.get("RAY_ADDRESS") else loopback():
            ray.init()
    task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=retries)(train)
    running: dict[Any, optuna.Trial] = {}
    while True:
        while (trial := search.ask()) is not None:
            seed = {"seed": seed_of(trial)} if space.seeds > 1 else {}
            length = steps_of(fraction_of(trial), steps)
            running[task.remote(**trial.params, steps=length, **seed)] = trial
        if not running:
            break
        ready, _ = ray.wait(list(running))
        trial = running.pop(ready[0])
        try:
            found = ray.get(ready[0])
        except ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None)
            if not isinstance(cause, Exception):
                raise Unfinished(
                    f"trial {trial.number} was lost with its worker or node {retries + 1} times"
                    f" ({type(error).__name__}); it stays open: the same call goes on"
                ) from error
            search.tell_failed(trial, cause)
        else:
            search.tell(trial, found)
    return search.answer()
