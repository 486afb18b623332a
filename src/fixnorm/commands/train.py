"""``fixnorm train``: run a recipe, or go on with a run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fixnorm.commands.configured import configured
from fixnorm.commands.options import numbers, same_fields, takes
from fixnorm.starting import loading
from fixnorm.system.launched import speaks
from fixnorm.system.run_paths import RunPaths

if TYPE_CHECKING:
    from fixnorm.training.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What the command is asked for."""

    recipe: Annotated[
        str,
        typer.Argument(help="A name of fixnorm recipes, or package.module:function of your own."),
    ]
    data: Annotated[
        Path | None,
        typer.Option(help="Folder of the images, with train/ and val/; digits needs none."),
    ] = None
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run (default: runs/RECIPE-METHOD-SEED).")
    ] = None
    method: Annotated[
        str | None, typer.Option(help="weight-decay, algorithm1, wn-fc or fixnorm.")
    ] = None
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Change a field of the recipe: key=value.")
    ] = None
    skip_broken: Annotated[
        bool, typer.Option(help="Leave out images that do not decode, and count them.")
    ] = False
    checkpoint_steps: Annotated[
        int | None,
        typer.Option(min=1, max=10**9, help="Write a checkpoint every so many steps."),
    ] = None
    checkpoint_minutes: Annotated[
        float, typer.Option(min=0, max=1e6, help="Write a checkpoint after so many minutes.")
    ] = 5.0
    keep: Annotated[int, typer.Option(min=1, max=10**6, help="Checkpoints to keep.")] = 2
    branches: Annotated[
        str | None,
        typer.Option(
            metavar="ALPHAS",
            help="Smaller alphas, with commas between: keep the state just before each is met.",
        ),
    ] = None
    origin: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="RUN",
            help="Begin with the state that this run of a larger alpha kept for yours.",
        ),
    ] = None
    tensorboard: Annotated[bool, typer.Option(help="Write curves for TensorBoard.")] = True


@takes(Wanted)
def train(wanted: Wanted) -> None:
    """Train by RECIPE. The same command again goes on with a run that was stopped or killed.

    Example: fixnorm train digits --method fixnorm --set alpha=2

    Another alpha: fixnorm train digits --set alpha=0.5 --from RUN --out NEW begins where RUN, which
    had a larger alpha and --branches 0.5, met that cap; up to there the two trainings are one.

    Many processes: torchrun --nproc-per-node 8 -m fixnorm train resnet50d-120 --data IMAGENET
    """
    if math.isnan(wanted.checkpoint_minutes):
        raise ValueError("--checkpoint-minutes must be a number from 0 to 1e6 but got nan")
    recipe = configured(wanted.recipe, wanted.method, wanted.settings or [])
    folder = wanted.out or Path("runs") / f"{recipe.name}-{recipe.method}-{recipe.seed}"
    branches = () if wanted.branches is None else numbers("branches", wanted.branches)
    check_places(recipe, folder, wanted.data)
    with loading():
        from fixnorm.training import RunOptions
        from fixnorm.training import train as run_training
        from fixnorm.training.view import ProgressView
    options = same_fields(RunOptions, wanted, branches=branches)
    result = run_training(
        recipe, data=wanted.data, out=folder, options=options, view=ProgressView()
    )
    if speaks():
        print(summary(result, folder))
    if result["diverged"]:
        raise typer.Exit(1)


def check_places(recipe: Recipe, folder: Path, data: Path | None) -> None:
    """Refuse folders that the training would refuse, before torch is loaded for it."""
    from fixnorm.training.folder import RunFolder

    run = RunFolder(folder)
    run.check(recipe)
    if run.finished() is None:
        recipe.check_data(data)


def summary(result: dict[str, Any], folder: Path) -> str:
    """What the run found, in a few lines."""
    from fixnorm.training.kinds import METRICS

    metric = result["metric"]
    score, best = result[metric], result[f"best_{metric}"]
    numbers = f"lr {result['lr']}" if result["lr"] == "auto" else f"lr {result['lr']:g}"
    if result["alpha"] is not None:
        numbers += f", alpha {result['alpha']:g}"
    if result["weight_decay"]:
        numbers += f", weight decay {result['weight_decay']:g}"
    title = METRICS[metric].title
    found = f"no {title}" if score is None else f"{title} {score:.2f} % (best {best:.2f} %)"
    speed = result["images_per_second"]
    return (
        f"{result['recipe']['name']} by {result['method']}, {numbers}: {found}"
        f" after {result['seconds']:.0f} s ({speed:.3g} images/s)\n"
        f"run: {folder}   curves: {RunPaths(folder).metrics}   next: fixnorm export {folder}"
    )
