"""What ``fixnorm tune`` does: from its options to a search, its result and its report."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from rich.console import Console

from fixnorm.commands.train import configured
from fixnorm.commands.tune import Wanted
from fixnorm.system.interrupt import Interrupt
from fixnorm.system.run_paths import RunPaths
from fixnorm.training.folder import write_json
from fixnorm.training.recipe import Recipe
from fixnorm.training.tasks import task_of
from fixnorm.tuning.driver import drive
from fixnorm.tuning.engines import Engine
from fixnorm.tuning.estimate import (
    decay_slope,
    equivalent_lr,
    probe,
    range_around,
    seconds_of_training,
    train_probe,
)
from fixnorm.tuning.plan import SearchSpace
from fixnorm.tuning.run import RecipeSearch, TrialRuns, check_place, result, whole_lengths
from fixnorm.tuning.storage import Storage
from fixnorm.tuning.strategies import PlanStrategy, SamplerStrategy, Strategy
from fixnorm.tuning.study import read_studies
from fixnorm.tuning.view import SearchView, found, rounds_table

METHODS = ("fixnorm", "bo-weight-decay")


def run(wanted: Wanted) -> None:
    """Search, or say what a search would take."""
    if wanted.method not in METHODS:
        raise ValueError(f"method must be {' or '.join(METHODS)} but got {wanted.method!r}")
    trains = None if wanted.method == "fixnorm" else "weight-decay"
    recipe = configured(wanted.recipe, trains, wanted.settings or [])
    folder = wanted.out or Path("runs") / f"tune-{recipe.name}"
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: give another --out")
    strategy = strategy_of(wanted, recipe)
    runs = TrialRuns(
        recipe=recipe,
        settings=tuple(wanted.settings or ()),
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
        return PlanStrategy(space=space, plan=wanted.plan, margin=wanted.margin)
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
        sampler_name=wanted.sampler,
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
        asking = stack.enter_context(search.owned())
        title = (
            f"{search.runs.recipe.name} by {search.strategy.method} ({search.strategy.name}):"
            f" at most {search.strategy.trainings} trainings, {search.strategy.cost:g} T_max"
        )
        with SearchView(asking, title=title, workers=engine.room) as view:
            drive(asking, engine, view, interrupt)
        best, record = asking.answer(), asking.ledger.record()
        told = Console(stderr=True, highlight=False)
        if isinstance(search.strategy, PlanStrategy):
            told.print(rounds_table(asking))
    if best is None:
        write_report([record], folder)
        raise ValueError(
            f"every training diverged or failed: look at {search.runs.folder / 'logs'},"
            " then lower --lr-max in another --out"
        )
    train = search.runs.command_in_full(best)
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
    trial = probe(strategy.space)
    console = Console(stderr=True, highlight=False)
    short = f"a short training at lr {trial.lr:g}"
    with console.status(f"{short} measures what weight decay stands for"):
        train_probe(trial, engine)
    slope = decay_slope(RunPaths(runs.folder_of(trial)).metrics)
    equal = equivalent_lr(lr, weight_decay, slope)
    low, high = range_around(equal)
    console.print(
        f"lr {lr:g} with weight decay {weight_decay:g} turns the weights as FixNorm does at lr"
        f" {equal:.2g}: searching [{low:g}, {high:g}]"
    )
    return replace(strategy, space=replace(strategy.space, lr_min=low, lr_max=high))


def numbers(name: str, text: str) -> tuple[float, ...]:
    """A list of numbers with commas or spaces between."""
    try:
        return tuple(float(part) for part in text.replace(",", " ").split())
    except ValueError:
        raise ValueError(f"--{name} needs numbers with commas between but got {text!r}") from None
