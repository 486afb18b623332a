"""``fixnorm tune``: the best lr and alpha of a recipe, and the report of the search."""

from __future__ import annotations

import json
import math
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from fixnorm.commands.configured import configured
from fixnorm.commands.options import (
    PANEL,
    Where,
    check_where,
    given,
    numbers,
    refuse,
    same_fields,
    takes,
)
from fixnorm.starting import loading
from fixnorm.system.interrupt import Interrupt
from fixnorm.system.run_paths import RunPaths
from fixnorm.tuning.comparison import SEEDS as PAIRS
from fixnorm.tuning.comparison import ThenCompared
from fixnorm.tuning.driver import drive
from fixnorm.tuning.engine import Engine
from fixnorm.tuning.plan import PAPER, SearchSpace
from fixnorm.tuning.plans import PLANS, Plan, plan_of
from fixnorm.tuning.search import Search
from fixnorm.tuning.strategies import PlanStrategy, SamplerStrategy, Strategy
from fixnorm.tuning.trial import AUTO, Trial
from fixnorm.tuning.unimodal import MARGIN

if TYPE_CHECKING:
    from fixnorm.commands.rival import Rival
    from fixnorm.training.recipe import Recipe
    from fixnorm.tuning.run import RecipeSearch, TrialRuns

T = TypeVar("T")

_BASELINE = "bo-weight-decay"
_METHODS = ("fixnorm", _BASELINE)
_OF_BASELINE = ("budget", "sampler", "weight_decay_min", "weight_decay_max")
_OF_PLANS = ("plan", "splits", "fractions", "alphas", "margin", "from_weight_decay", "compare")
_OF_LR = ("lr_min", "lr_max", "splits", "fractions", "from_weight_decay")
_ANGLES = (0.005, 0.08)
"""Where the lr of scope ``matrix`` is searched for: radians, around 0.02 (docs/beyond-cnns.md)."""
_SEARCHED = {"lr": "--lr-min and --lr-max", "alpha": "--alphas", "weight_decay": "its range"}


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What the command is asked for."""

    recipe: Annotated[
        str,
        typer.Argument(help="A name of fixnorm recipes, or package.module:function of your own."),
    ] = "few-digits"
    data: Annotated[
        Path | None, typer.Option(help="Folder of the images; the digits need none.")
    ] = None
    out: Annotated[
        Path | None, typer.Option(help="Folder of the study (default: runs/tune-RECIPE).")
    ] = None
    method: Annotated[str, typer.Option(help="fixnorm, or the rival: bo-weight-decay.")] = "fixnorm"
    plan: Annotated[
        str | None,
        typer.Option(
            help=f"{' or '.join(f'{p.name} ({p.hint})' for p in PLANS.values())}. Default: auto;"
            " paper with an option of its search for lr, for dense tasks and optimizers but SGD."
        ),
    ] = None
    lr_min: Annotated[
        float | None,
        typer.Option(help="Lower end of the lr range (default: 0.2; dense tasks 0.005)."),
    ] = None
    lr_max: Annotated[
        float | None,
        typer.Option(help="Upper end of the lr range (default: 3.2; dense tasks 0.1)."),
    ] = None
    from_weight_decay: Annotated[
        tuple[float, float] | None,
        typer.Option(
            metavar="LR WD", help="Centre the lr range on a weight-decay recipe, by a short probe."
        ),
    ] = None
    splits: Annotated[
        int | None, typer.Option(help=f"K: learning rates a round (default: {PAPER.splits}).")
    ] = None
    fractions: Annotated[
        str | None,
        typer.Option(
            help="Length of each lr round in T_max, with commas between (default: 0.2,1)."
        ),
    ] = None
    alphas: Annotated[str, typer.Option(help="Candidates for alpha, with commas between.")] = (
        "0.5,1,2,4,8,16"
    )
    margin: Annotated[
        float | None,
        typer.Option(
            help="unimodal, auto: difference in accuracy that noise does not explain"
            f" (default: {MARGIN:g})."
        ),
    ] = None
    seeds: Annotated[int, typer.Option(help="Train every slot so often; the mean decides.")] = 1
    compare: Annotated[
        bool | None,
        typer.Option(
            "--compare/--no-compare",
            help=f"Then train the answer and the recipe's own weight decay anew, {PAIRS} seeds"
            " each (default: for few-digits alone).",
        ),
    ] = None
    budget: Annotated[int, typer.Option(help="Number of trainings.", rich_help_panel=_BASELINE)] = (
        25
    )
    sampler: Annotated[
        str, typer.Option(help="gp (Gaussian process), tpe or random.", rich_help_panel=_BASELINE)
    ] = "gp"
    weight_decay_min: Annotated[
        float, typer.Option(help="Lower end of the weight-decay range.", rich_help_panel=_BASELINE)
    ] = 1e-5
    weight_decay_max: Annotated[
        float, typer.Option(help="Upper end of the weight-decay range.", rich_help_panel=_BASELINE)
    ] = 5e-4
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Change a field of the recipe: key=value.")
    ] = None
    skip_broken: Annotated[
        bool, typer.Option("--skip-broken", help="Leave out images that do not decode.")
    ] = False
    storage: Annotated[
        str | None,
        typer.Option(
            help="Database of the study, postgresql://… (default: OUT/study.db).",
            rich_help_panel=PANEL,
        ),
    ] = None
    study: Annotated[
        str | None,
        typer.Option(
            help="Name of the study in its database (default: RECIPE-METHOD-PLAN).",
            rich_help_panel=PANEL,
        ),
    ] = None
    where: Where
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print trials, cost and an estimate; train nothing.")
    ] = False
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False


def _check_method(context: typer.Context) -> None:
    """Options of one method beside the other, and settings of what is searched."""
    method, plan = context.params["method"], context.params["plan"]
    if method == "fixnorm":
        refuse(context, _OF_BASELINE, "--method fixnorm", f"it is for --method {_BASELINE}")
        if plan in PLANS and not PLANS[plan].searches_lr:
            refuse(context, _OF_LR, f"--plan {plan}", "it has no search for lr")
    elif method == _BASELINE:
        refuse(context, _OF_PLANS, f"--method {_BASELINE}", "it is for --method fixnorm")
    if given(context, "from_weight_decay"):
        why = "the probe finds the range"
        refuse(context, ("lr_min", "lr_max"), "--from-weight-decay", why)
    for pair in context.params["settings"] or ():
        key, value = (part.strip() for part in pair.partition("=")[::2])
        if key == "lr" and method == "fixnorm" and plan in (None, AUTO):
            raise ValueError(f"--set {pair} means nothing with --plan auto, which sets it")
        if key == "lr" and value == AUTO and method == "fixnorm":
            raise ValueError(f"--set {pair} means nothing in a search over lr: give --plan auto")
        if key in _SEARCHED:
            raise ValueError(
                f"--set {pair} means nothing in a search over {key}: give {_SEARCHED[key]}"
            )
        if key == "method":
            raise ValueError(f"--set {pair} means nothing in a search: give --method")


@takes(Wanted, check_where, _check_method)
def tune(wanted: Wanted) -> None:
    """Find the best lr and alpha of RECIPE.

    The same command again goes on with a search that was stopped or killed.

    Example: fixnorm tune cifar10-small --data cifar10
    """
    if wanted.method not in _METHODS:
        raise ValueError(f"method must be {' or '.join(_METHODS)} but got {wanted.method!r}")
    trains = None if wanted.method == "fixnorm" else "weight-decay"
    recipe = configured(wanted.recipe, trains, wanted.settings or [])
    folder = wanted.out or Path("runs") / f"tune-{recipe.name}"
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: give another --out")
    strategy = strategy_of(wanted, recipe)
    if not wanted.dry_run:
        recipe.check_data(wanted.data)
    with loading():  # Optuna
        from fixnorm.commands.rival import Rival, is_compared
        from fixnorm.tuning.run import RecipeSearch, TrialRuns
        from fixnorm.tuning.storage import Storage
    runs = TrialRuns(
        recipe=recipe,
        settings=tuple(wanted.settings or ()),
        data=wanted.data,
        branches=strategy.branches if isinstance(strategy, PlanStrategy) else (),
        folder=folder / f"{strategy.method}-{strategy.name}",
        processes=wanted.where.nproc_per_trial,
        options=("--skip-broken",) if wanted.skip_broken else (),
    )
    rival = Rival.beside(runs, wanted.recipe) if is_compared(wanted.compare, runs) else None
    if wanted.dry_run:
        announce(strategy, recipe, wanted, rival is not None)
        return
    check_folder(folder)
    given_place = wanted.storage
    storage = Storage.in_folder(folder) if given_place is None else Storage.parse(given_place)
    with ExitStack() as stack:
        engine = wanted.where.new_engine(runs if rival is None else rival.runs)
        stack.callback(engine.stop)
        with loading():  # torch, while the engine's own process does so, too
            from fixnorm.training.tasks import task_of
        task_of(recipe).training_images(wanted.data)  # data that is refused is refused at once
        if wanted.from_weight_decay is not None and isinstance(strategy, PlanStrategy):
            storage.check()
            strategy = centred(strategy, wanted.from_weight_decay, runs, engine)
        search = RecipeSearch(strategy=strategy, runs=runs, storage=storage, named=wanted.study)
        answer = searched(search, folder, engine, rival)
    if wanted.as_json:
        print(json.dumps(answer, indent=2))


def check_folder(folder: Path) -> None:
    """Refuse to write over what is not of a search, before anything is trained."""
    from fixnorm.report.write import check_place as check_report
    from fixnorm.tuning.run import check_place

    check_place(folder)
    check_report(folder)


def strategy_of(wanted: Wanted, recipe: Recipe) -> Strategy:
    """The search that the options describe, on the recipe's own range unless they give one."""
    from fixnorm.training.recipe import changed
    from fixnorm.tuning.lengths import whole_lengths

    low, high = _ANGLES if recipe.scope == "matrix" else recipe.lr_range
    lr_min, lr_max = _or(wanted.lr_min, low), _or(wanted.lr_max, high)
    if wanted.method == "fixnorm":
        plan = plan_for(wanted, recipe)
        space = SearchSpace(alphas=numbers("alphas", wanted.alphas), seeds=wanted.seeds)
        if not plan.searches_lr:
            changed(recipe, lr=AUTO)  # one that this is not for is refused at once
        else:
            lengths = PAPER.fractions
            if wanted.fractions is not None:
                lengths = numbers("fractions", wanted.fractions)
            space = replace(
                space,
                lr_min=lr_min,
                lr_max=lr_max,
                splits=_or(wanted.splits, PAPER.splits),
                fractions=whole_lengths(recipe, lengths),
            )
        return PlanStrategy(space=space, plan=plan.name, margin=_or(wanted.margin, MARGIN))
    if wanted.seeds != 1:
        raise ValueError(
            f"--method bo-weight-decay trains each point once but got seeds={wanted.seeds}"
        )
    named = {"sampler_name": wanted.sampler, "seed": recipe.seed}
    return same_fields(SamplerStrategy, wanted, lr_min=lr_min, lr_max=lr_max, **named)


def _or(given: T | None, default: T) -> T:
    return default if given is None else given


def plan_for(wanted: Wanted, recipe: Recipe) -> Plan:
    """The plan that is named; else the one without a search for lr, where nothing speaks for one.

    Only the method that searches, FixNorm, is asked for one.
    """
    name = wanted.plan
    if name is None:
        searches = any(getattr(wanted, option) is not None for option in _OF_LR)
        of_muon = recipe.scope == "matrix" and recipe.optimizer.endswith("muon")
        of_sgd = recipe.scope != "matrix" and recipe.optimizer == "sgd"
        judged = (of_muon or of_sgd) and recipe.against_auto_lr is None
        name = AUTO if judged and not searches else "paper"
    plan = plan_of(name)
    if wanted.margin is not None and "margin" not in plan.parameters:
        others = " or ".join(one.name for one in PLANS.values() if "margin" in one.parameters)
        raise ValueError(f"--margin means nothing with --plan {name}: it is for --plan {others}")
    return plan


def searched(
    search: RecipeSearch,
    folder: Path,
    engine: Engine,
    rival: Rival | None = None,
) -> dict[str, Any]:
    """Run the search, and its comparison; write result and report, and say what was found."""
    from rich.console import Console

    from fixnorm.report import write_report
    from fixnorm.report.comparison import Compared
    from fixnorm.report.notes import notes
    from fixnorm.training.folder import write_json
    from fixnorm.tuning.run import result
    from fixnorm.tuning.study import read_studies
    from fixnorm.tuning.view import SearchView, found, rounds_table

    with ExitStack() as stack:
        interrupt = stack.enter_context(Interrupt())
        asking = stack.enter_context(search.owned())
        title = (
            f"{search.runs.recipe.name} by {search.strategy.method} ({search.strategy.name}):"
            f" at most {search.strategy.trainings} trainings, {search.strategy.cost:g} T_max"
        )
        with SearchView(asking, title=title, workers=engine.room) as view:

            def compare(best: Trial) -> Search:
                assert rival is not None
                view.comparison = stack.enter_context(rival.search(search, best).owned())
                return view.comparison

            whole = asking if rival is None else ThenCompared(asking, compare, rival.trials(search))
            drive(whole, engine, view, interrupt)
        best, record = asking.answer(), asking.ledger.record()
        compared = None if view.comparison is None else Compared(view.comparison.ledger.record())
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
    if compared is not None:
        answer["comparison"] = compared.to_dict()
    write_json(folder / "result.json", answer)
    report = write_report(read_studies(search.storage, folder), folder, command=train)
    spent = f"{answer['trials']} trainings, {answer['cost']:.4g} T_max"
    free = f", {answer['free']} slots for free" if answer["free"] else ""
    told.print(f"best {found(best)}   ({spent}{free})", style="bold")
    if compared is not None:
        told.print(compared.told(), markup=False, soft_wrap=True)
    for note in notes(record):
        told.print(f"{note.kind}: {note.text}", markup=False, soft_wrap=True)
    told.print(f"report: {report}\ntrain with it: {train}", markup=False, soft_wrap=True)
    return answer


def announce(strategy: Strategy, recipe: Recipe, wanted: Wanted, compared: bool) -> None:
    """What a search would take; nothing is trained."""
    with loading():
        from fixnorm.tuning.estimate import seconds_of_training
    trials, cost, workers = strategy.trainings, strategy.cost, wanted.where.at_a_time
    if compared:
        trials, cost = trials + 2 * PAIRS, cost + 2 * PAIRS
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
    if compared:
        print(f"  then the answer and the recipe's weight decay, {PAIRS} seeds each, 1 T_max each")
    print(
        f"at most {trials} trainings, {cost:g} T_max, about {hours:.2g} hours with {workers} at a"
        " time (by the speed of a few batches here)"
    )


def centred(
    strategy: PlanStrategy, setting: tuple[float, float], runs: TrialRuns, engine: Engine
) -> PlanStrategy:
    """The strategy with an lr range around what the weight-decay recipe (lr, λ) amounts to."""
    from rich.console import Console

    from fixnorm.tuning.estimate import (
        decay_slope,
        equivalent_lr,
        probe,
        range_around,
        train_probe,
    )

    lr, weight_decay = setting
    if not all(math.isfinite(number) and number > 0 for number in setting):
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
