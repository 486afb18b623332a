"""``fixnorm tune``: the best lr and alpha of a recipe."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from fixnorm.commands.options import PANEL, Where, check_where, given, refuse, takes
from fixnorm.tuning.plan import PAPER
from fixnorm.tuning.plans import PLANS
from fixnorm.tuning.unimodal import MARGIN

_BASELINE = "bo-weight-decay"
_OF_BASELINE = ("budget", "sampler", "weight_decay_min", "weight_decay_max")
_OF_PLANS = ("plan", "splits", "fractions", "alphas", "margin", "from_weight_decay")
_SEARCHED = {"lr": "--lr-min and --lr-max", "alpha": "--alphas", "weight_decay": "its range"}


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What the command is asked for."""

    recipe: Annotated[
        str,
        typer.Argument(help="A name of fixnorm recipes, or package.module:function of your own."),
    ] = "digits"
    data: Annotated[Path | None, typer.Option(help="Folder of the images; digits needs none.")] = (
        None
    )
    out: Annotated[
        Path | None, typer.Option(help="Folder of the study (default: runs/tune-RECIPE).")
    ] = None
    method: Annotated[str, typer.Option(help="fixnorm, or the rival: bo-weight-decay.")] = "fixnorm"
    plan: Annotated[
        str, typer.Option(help=f"{' or '.join(f'{p.name} ({p.hint})' for p in PLANS.values())}.")
    ] = "paper"
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
    splits: Annotated[int, typer.Option(help="K: learning rates a round.")] = PAPER.splits
    fractions: Annotated[
        str, typer.Option(help="Length of each lr round in T_max, with commas between.")
    ] = "0.2,1"
    alphas: Annotated[str, typer.Option(help="Candidates for alpha, with commas between.")] = (
        "0.5,1,2,4,8,16"
    )
    margin: Annotated[
        float, typer.Option(help="unimodal: difference in accuracy that noise does not explain.")
    ] = MARGIN
    seeds: Annotated[int, typer.Option(help="Train every slot so often; the mean decides.")] = 1
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
        with_margin = [name for name, of in PLANS.items() if "margin" in of.parameters]
        if plan in PLANS and plan not in with_margin:
            why = f"it is for --plan {' or '.join(with_margin)}"
            refuse(context, ("margin",), f"--plan {plan}", why)
    elif method == _BASELINE:
        refuse(context, _OF_PLANS, f"--method {_BASELINE}", "it is for --method fixnorm")
    if given(context, "from_weight_decay"):
        why = "the probe finds the range"
        refuse(context, ("lr_min", "lr_max"), "--from-weight-decay", why)
    for pair in context.params["settings"] or ():
        key = pair.partition("=")[0].strip()
        if key in _SEARCHED:
            raise ValueError(
                f"--set {pair} means nothing in a search over {key}: give {_SEARCHED[key]}"
            )
        if key == "method":
            raise ValueError(f"--set {pair} means nothing in a search: give --method")


@takes(Wanted, check_where, _check_method)
def tune(wanted: Wanted) -> None:
    """Find the best lr and alpha of RECIPE, one after the other.

    The same command again goes on with a search that was stopped or killed.

    Example: fixnorm tune cifar10-small --data cifar10 --plan unimodal
    """
    from fixnorm.commands.searching import run  # a training must not wait for Optuna

    run(wanted)
