"""What ``fixnorm tune`` does: from its options to a search, its result and its report."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from rich.console import Console

from fixnorm.commands.train import configured
from fixnorm.commands.where import Where
from fixnorm.system.interrupt import Interrupt
from fixnorm.training.folder import write_json
from fixnorm.training.recipe import Recipe
from fixnorm.training.tasks import task_of
from fixnorm.tuning import probe
from fixnorm.tuning.driver import search as run_search
from fixnorm.tuning.engines.engine import Died, Engine
from fixnorm.tuning.estimate import seconds_of_training
from fixnorm.tuning.job import Job
from fixnorm.tuning.plan import SearchSpace
from fixnorm.tuning.run import TrialRuns, length_of
from fixnorm.tuning.search import RecipeSearch, check_place, result
from fixnorm.tuning.sources import Best, PlanSource
from fixnorm.tuning.storage import Storage
from fixnorm.tuning.strategies import PlanStrategy, SamplerStrategy, Strategy
from fixnorm.tuning.study import read_studies
from fixnorm.tuning.view import SearchView, found, rounds_table

METHODS = ("fixnorm", "bo-weight-decay")


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The options of the command, as given."""

    recipe: str
    data: Path | None
    out: Path | None
    method: str
    plan: str
    lr_min: float | None
    lr_max: float | None
    from_weight_decay: tuple[float, float] | None
    splits: int
    fractions: str
    alphas: str
    margin: float
    seeds: int
    budget: int
    sampler: str
    weight_decay_min: float
    weight_decay_max: float
    settings: tuple[str, ...]
    skip_broken: bool
    storage: str | None
    where: Where
    study: str | None
    dry_run: bool
    as_json: bool


def run(wanted: Wanted) -> None:
    """Search, or say what a search would take."""
    if wanted.method not in METHODS:
        raise ValueError(f"method must be {' or '.join(METHODS)} but got {wanted.method!r}")
    trains = None if wanted.method == "fixnorm" else "weight-decay"
    recipe = configured(wanted.recipe, trains, list(wanted.settings))
    folder = wanted.out or Path("runs") / f"tune-{recipe.name}"
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: give another --out")
    strategy = strategy_of(wanted, recipe)
    runs = TrialRuns(
        recipe=recipe,
        settings=wanted.settings,
        data=wanted.data,
        folder=folder / f"{strategy.method}-{strategy.name}",
        processes=wanted.where.nproc_per_trial,
        options=("--skip-broken",) if wanted.skip_broken else (),
    )
    if wanted.dry_run:
        announce(strategy, recipe, wanted, wanted.where.at_a_time)
        return
    check_folder(folder)
    task_of(recipe).training_images(wanted.data)  # data that is refused is refused at once

    def new_engine() -> Engine:
        return wanted.where.new_engine(runs)

    inside = wanted.storage is None
    storage = Storage.in_folder(folder) if inside else Storage.parse(cast(str, wanted.storage))
    if wanted.from_weight_decay is not None and isinstance(strategy, PlanStrategy):
        storage.check()
        strategy = centred(strategy, wanted.from_weight_decay, runs, new_engine())
    search = RecipeSearch(strategy=strategy, runs=runs, storage=storage, named=wanted.study)
    answer = searched(search, folder, new_engine)
    if wanted.as_json:
        print(json.dumps(answer, indent=2))


def check_folder(folder: Path) -> None:
    """Refuse to write over what is not of a search, before anything is trained."""
    from fixnorm.report.write import check_place as check_report

    check_place(folder)
    check_report(folder)


def strategy_of(wanted: Wanted, recipe: Recipe) -> Strategy:
    """How to search."""
    lr_min = recipe.lr_range[0] if wanted.lr_min is None else wanted.lr_min
    lr_max = recipe.lr_range[1] if wanted.lr_max is None else wanted.lr_max
    if wanted.method == "fixnorm":
        space = SearchSpace(
            lr_min=lr_min,
            lr_max=lr_max,
            splits=wanted.splits,
            fractions=whole_lengths(recipe, numbers("fractions", wanted.fractions)),
            alphas=numbers("alphas", wanted.alphas),
            seeds=wanted.seeds,
        )
        return PlanStrategy(space=space, plan=cast(Any, wanted.plan), margin=wanted.margin)
    if wanted.seeds != 1:
        raise ValueError(
            f"--method bo-weight-decay trains each point once but got seeds={wanted.seeds}"
        )
    if wanted.from_weight_decay is not None:
        raise ValueError("--from-weight-decay gives a range of FixNorm learning rates")
    return SamplerStrategy(
        lr_min=lr_min,
        lr_max=lr_max,
        weight_decay_min=wanted.weight_decay_min,
        weight_decay_max=wanted.weight_decay_max,
        budget=wanted.budget,
        sampler_name=cast(Any, wanted.sampler),
        seed=recipe.seed,
    )


def searched(
    search: RecipeSearch, folder: Path, new_engine: Callable[[], Engine]
) -> dict[str, Any]:
    """Run the search, write its result and report, and say what was found."""
    from fixnorm.report import write_report  # drawing is slow to load
    from fixnorm.report.notes import notes

    with ExitStack() as stack:
        engine = new_engine()  # first: one that is refused leaves no study behind
        stack.callback(engine.stop)
        interrupt = stack.enter_context(Interrupt())
        study, source = stack.enter_context(search.owned())
        title = (
            f"{search.runs.recipe.name} by {search.strategy.method} ({search.strategy.name}):"
            f" at most {source.trainings} trainings, {source.cost:g} T_max"
        )
        with SearchView(study, source, title=title, workers=engine.room) as view:
            run_search(study, source, engine, view, interrupt)
        best, record = source.best(), study.record()
        told = Console(stderr=True, highlight=False)
        if isinstance(source, PlanSource):
            told.print(rounds_table(source))
    if best is None:
        write_report([record], folder)
        raise ValueError(
            f"every training diverged or failed: look at {search.runs.folder / 'logs'},"
            " then lower --lr-max in another --out"
        )
    train = training_command(search.runs, best)
    answer = result(search, record, best, train)
    write_json(folder / "result.json", answer)
    report = write_report(read_studies(search.storage, folder), folder, command=train)
    spent = f"{answer['trials']} trainings, {answer['cost']:g} T_max"
    free = f", {answer['free']} slots for free" if answer["free"] else ""
    told.print(f"best {found(best)}   ({spent}{free})", style="bold")
    for note in notes(record):
        told.print(f"{note.kind}: {note.text}", markup=False, soft_wrap=True)
    told.print(f"report: {report}\ntrain with it: {train}", markup=False, soft_wrap=True)
    return answer


def announce(strategy: Strategy, recipe: Recipe, wanted: Wanted, workers: int) -> None:
    """What a search would take; nothing is trained."""
    trials, cost = strategy.trainings, strategy.cost
    if wanted.from_weight_decay is not None and isinstance(strategy, PlanStrategy):
        trials, cost = trials + 1, cost + strategy.space.fractions[0]
    hours = cost * seconds_of_training(recipe, wanted.data) / workers / 3600
    if wanted.as_json:
        print(json.dumps({"trials": trials, "cost": cost, "hours": round(hours, 4)}))
        return
    length = f"{recipe.length} {recipe.unit}"
    print(f"{recipe.name} by {strategy.method}, {strategy.name}; T_max is {length}")
    for line in strategy.outline():
        print(f"  {line}")
    print(
        f"at most {trials} trainings, {cost:g} T_max, about {hours:.2g} hours with {workers} at a"
        " time (by the speed of a few batches here)"
    )


def centred(
    strategy: PlanStrategy, given: tuple[float, float], runs: TrialRuns, engine: Engine
) -> PlanStrategy:
    """The strategy with an lr range around what the weight-decay recipe (lr, λ) amounts to."""
    lr, weight_decay = given
    if not all(math.isfinite(number) and number > 0 for number in given):
        raise ValueError(
            f"--from-weight-decay needs two numbers > 0 but got {lr:g} {weight_decay:g}"
        )
    space = strategy.space
    middle = float(f"{math.sqrt(space.lr_min * space.lr_max):.3g}")
    job = Job(
        key="probe",
        round="probe",
        index=0,
        lr=middle,
        alpha=space.alphas[0],
        fraction=space.fractions[0],
    )
    console = Console(stderr=True, highlight=False)
    with console.status(f"a short training at lr {middle:g} measures what weight decay stands for"):
        finished(job, engine)
    equal = probe.equivalent_lr(
        lr, weight_decay, probe.decay_slope(runs.folder_of(job) / "metrics.csv")
    )
    low, high = probe.range_around(equal)
    console.print(
        f"lr {lr:g} with weight decay {weight_decay:g} turns the weights as FixNorm does at lr"
        f" {equal:.2g}: searching [{low:g}, {high:g}]"
    )
    return replace(strategy, space=replace(space, lr_min=low, lr_max=high))


def finished(job: Job, engine: Engine) -> None:
    """Train one job to its end."""
    try:
        engine.start(job)
        while not (over := engine.wait(1.0)):
            pass
        _, end = over[0]
        if isinstance(end, Died):
            raise ValueError(f"the probe ended by {end.reason}; the same command tries again")
    finally:
        engine.stop()


def training_command(runs: TrialRuns, best: Best) -> str:
    """What to type to train with the answer."""
    parts = ["fixnorm", "train", runs.recipe.command_name, "--method", runs.recipe.method]
    tuned = {"lr": best.lr, "alpha": best.alpha, "weight_decay": best.weight_decay}
    for pair in runs.settings:
        parts += ["--set", pair]
    for key, value in tuned.items():
        if value is not None:
            parts += ["--set", f"{key}={value!r}"]
    if runs.data is not None:
        parts += ["--data", str(runs.data)]
    return shlex.join(parts)


def whole_lengths(recipe: Recipe, fractions: tuple[float, ...]) -> tuple[float, ...]:
    """Fractions of T_max as trainings can have them, so that the cost is what is spent."""
    if not all(0 < fraction <= 1 for fraction in fractions):
        return fractions  # for the search space to refuse
    return tuple(length_of(recipe, fraction) / recipe.length for fraction in fractions)


def numbers(name: str, text: str) -> tuple[float, ...]:
    """A list of numbers with commas or spaces between."""
    try:
        return tuple(float(part) for part in text.replace(",", " ").split())
    except ValueError:
        raise ValueError(f"--{name} needs numbers with commas between but got {text!r}") from None
