"""The command-line application, and how it says what went wrong."""

from __future__ import annotations

import signal
import sys
from typing import Annotated, NoReturn

import typer

import fixnorm
from fixnorm import starting
from fixnorm.commands import audit, export, fold, recipes, replay, report, reproduce, train, tune
from fixnorm.system.interrupt import Interrupted
from fixnorm.system.launched import speaks, was_said
from fixnorm.system.words import hush, lost, mistake, say

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


_INTERRUPTED = 128 + signal.SIGINT


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
    starting.started()
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        code = app(arguments, standalone_mode=False)
    except Interrupted as stopped:
        _leave(128 + stopped.number, str(stopped))
    except KeyboardInterrupt:
        _leave(_INTERRUPTED, "interrupted")
    except Exception as error:
        if _was_interrupted(error):
            _leave(_INTERRUPTED, "interrupted")
        if "--debug" in arguments:
            raise
        if was_said(error):
            _leave(2)
        message = mistake(error)
        if message is None:
            raise
        _leave(2, message)
    if code == _INTERRUPTED:  # typer makes a quiet exit of it
        _leave(_INTERRUPTED, "interrupted")
    if (trouble := lost()) is not None and _only_prints(arguments):
        _leave(2, f"stdout cannot be written: {trouble.strerror}; what was printed is lost")
    _leave(code if isinstance(code, int) else 0)


def _leave(code: int, message: str | None = None) -> NoReturn:
    """Say it, from the first of many processes only, and go."""
    if message is not None and speaks():
        say(message)
    hush()
    sys.exit(code)


def _was_interrupted(error: BaseException | None) -> bool:
    """Whether it follows from Ctrl-C, in whose place libraries raise errors of their own."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt | typer.Abort):
            return True
        error = error.__cause__ or error.__context__
    return False


def _only_prints(arguments: list[str]) -> bool:
    """Whether stdout is all that the command leaves; the others write files."""
    return next((a for a in arguments if not a.startswith("-")), "") in ("audit", "recipes", "")
