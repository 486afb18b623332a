"""Options of commands, listed once: the fields of a dataclass are what typer asks for.

A field is annotated as a parameter of a typer function would be. A field that is such a dataclass
itself stands for its own fields, in its place.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer

from fixnorm.starting import loading
from fixnorm.system.machine import may_have_gpus

if TYPE_CHECKING:
    from fixnorm.tuning.engine import Engine
    from fixnorm.tuning.run import Runs

__all__ = ["PANEL", "Where", "check_where", "given", "numbers", "refuse", "same_fields", "takes"]

T = TypeVar("T")


def takes(
    options: type[T], *checks: Callable[[typer.Context], None]
) -> Callable[[Callable[[T], None]], Callable[..., None]]:
    """Make a typer command of a function of such options; the checks come before it."""

    def command(function: Callable[[T], None]) -> Callable[..., None]:
        @functools.wraps(function)
        def run(context: typer.Context, **values: Any) -> None:
            for check in checks:
                check(context)
            function(_built(options, values))

        asked = [_parameter("context", typer.Context), *_parameters(options)]
        run.__signature__ = inspect.Signature(asked)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in asked}
        return run

    return command


def _parameter(name: str, kind: Any, default: Any = MISSING) -> inspect.Parameter:
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        annotation=kind,
        default=inspect.Parameter.empty if default is MISSING else default,
    )


def _parameters(options: Any) -> Iterator[inspect.Parameter]:
    kinds = get_type_hints(options, include_extras=True)
    for field in fields(options):
        if is_dataclass(kinds[field.name]):
            yield from _parameters(kinds[field.name])
        else:
            yield _parameter(field.name, kinds[field.name], field.default)


def _built(options: Any, values: dict[str, Any]) -> Any:
    kinds = get_type_hints(options)
    return options(
        **{
            name: _built(kind, values) if is_dataclass(kind) else values[name]
            for name, kind in ((field.name, kinds[field.name]) for field in fields(options))
        }
    )


def same_fields(kind: type[T], options: object, **others: Any) -> T:
    """One of another dataclass, from the options that have the names of its fields."""
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    return kind(**({n: v for n, v in vars(options).items() if n in names} | others))


def given(context: typer.Context, name: str) -> bool:
    """Whether the user typed the option, or set its variable; a default is nobody's wish."""
    source = context.get_parameter_source(name)
    return source is not None and source.name in ("COMMANDLINE", "ENVIRONMENT")


def refuse(context: typer.Context, names: Iterable[str], other: str, why: str) -> None:
    """Refuse options beside another one with which they mean nothing, by both their names."""
    for parameter in context.command.params:
        if parameter.name in names and given(context, parameter.name):
            raise ValueError(f"{parameter.opts[0]} means nothing with {other}: {why}")


def numbers(name: str, text: str) -> tuple[float, ...]:
    """A list of numbers with commas or spaces between."""
    try:
        return tuple(float(part) for part in text.replace(",", " ").split())
    except ValueError:
        raise ValueError(f"--{name} needs numbers with commas between but got {text!r}") from None


PANEL = "Where it runs"
_ENGINES = ("local", "ray")
_MOST = 1024


@dataclass(frozen=True, kw_only=True)
class Where:
    """Where the trainings of a command run."""

    engine: Annotated[str, typer.Option(help="local or ray.", rich_help_panel=PANEL)] = "local"
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=_MOST,
            help="local: trials at a time (default: one a GPU or core)",
            rich_help_panel=PANEL,
        ),
    ] = None
    nproc_per_trial: Annotated[
        int,
        typer.Option(
            min=1, max=_MOST, help="Processes of each trial, under torchrun.", rich_help_panel=PANEL
        ),
    ] = 1
    gpus_per_trial: Annotated[
        float, typer.Option(min=0, max=_MOST, help="ray: GPUs of a trial.", rich_help_panel=PANEL)
    ] = 0
    cpus_per_trial: Annotated[
        float, typer.Option(min=0, max=_MOST, help="ray: cores of a trial.", rich_help_panel=PANEL)
    ] = 1
    address: Annotated[
        str | None,
        typer.Option(
            help="ray: address of the cluster (default: RAY_ADDRESS, or a new local one).",
            rich_help_panel=PANEL,
        ),
    ] = None

    def __post_init__(self) -> None:
        if self.engine not in _ENGINES:
            raise ValueError(f"engine must be {' or '.join(_ENGINES)} but got {self.engine!r}")

    @property
    def at_a_time(self) -> int:
        """Trainings side by side on this machine."""
        from fixnorm.tuning.local_engine import default_workers

        return self.workers or default_workers(gpus=_gpus(), processes=self.nproc_per_trial)

    def new_engine(self, runs: Runs) -> Engine:
        # Here, as a training must not wait for what only a search needs.
        if self.engine == "ray":
            from fixnorm.tuning.ray_engine import RayEngine

            return RayEngine(
                runs, cpus=self.cpus_per_trial, gpus=self.gpus_per_trial, address=self.address
            )
        from fixnorm.tuning.local_engine import LocalEngine

        return LocalEngine(runs, workers=self.at_a_time, gpus=_gpus())


def _gpus() -> int:
    if not may_have_gpus():
        return 0
    with loading():
        import torch
    return torch.cuda.device_count()


def check_where(context: typer.Context) -> None:
    """Options of one engine beside the other."""
    engine = context.params["engine"]
    if engine == "local":
        of_ray = ("address", "gpus_per_trial", "cpus_per_trial")
        refuse(context, of_ray, "--engine local", "it is for --engine ray")
    elif engine == "ray":
        refuse(context, ("workers",), "--engine ray", "the cluster's nodes decide; leave it out")
