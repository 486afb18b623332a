"""The command-line application, and how it says what went wrong."""

from __future__ import annotations

import os
import sys
from typing import Annotated, NoReturn

import typer

import fixnorm
from fixnorm.commands import audit, export, fold, recipes, replay, report, reproduce, train, tune
from fixnorm.training import Interrupted

app = typer.Typer(
    name="fixnorm",
    help="Train without weight decay.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("audit")(audit.audit)
app.command("recipes")(recipes.recipes)
app.command("train")(train.train)
app.command("tune")(tune.tune)
app.command("report")(report.report)
app.command("replay")(replay.replay)
app.command("reproduce")(reproduce.reproduce)
app.command("export")(export.export)
app.command("fold")(fold.fold)


def _version(wanted: bool) -> None:
    if wanted:
        print(fixnorm.__version__)
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Train without weight decay."""


def run(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line. A mistake of the user's is one line on stderr and exit code 2."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        code = app(arguments, standalone_mode=False)
    except Interrupted as stopped:
        _say(str(stopped))
        sys.exit(128 + stopped.number)
    except KeyboardInterrupt:
        _say("interrupted")
        sys.exit(130)
    except Exception as error:
        if "--debug" in arguments:
            raise
        message = _mistake(error)
        if message is None:
            raise
        _say(message)
        sys.exit(2)
    sys.exit(code if isinstance(code, int) else 0)


def _say(message: str) -> None:
    """One line on stderr, from the first of many processes only."""
    if os.environ.get("RANK", "0") == "0":
        print(f"fixnorm: {message}", file=sys.stderr)


def _mistake(error: Exception) -> str | None:
    """What to tell the user, if the error is about what they asked for."""
    usage = getattr(error, "format_message", None)  # typer's own: unknown option, missing argument
    if usage is not None:
        return " ".join(str(usage()).split()) or "no command given; try fixnorm --help"
    if isinstance(error, ModuleNotFoundError):
        extra = _EXTRAS.get((error.name or "").partition(".")[0])
        return f"this needs {error.name}: pip install 'fixnorm[{extra}]'" if extra else None
    if isinstance(error, ValueError | OSError):
        return " ".join(str(error).split())
    return None


_EXTRAS = dict.fromkeys(("timm", "torchvision", "PIL", "sklearn", "tensorboard"), "train")
_EXTRAS |= dict.fromkeys(("optuna", "sqlalchemy", "scipy", "matplotlib"), "tune")
