"""Options that mean nothing together are refused: one that is ignored says a falsehood."""

from __future__ import annotations

from collections.abc import Iterable

import typer

__all__ = ["check_where", "given", "refuse"]


def given(context: typer.Context, name: str) -> bool:
    """Whether the user typed the option, or set its variable; a default is nobody's wish."""
    source = context.get_parameter_source(name)
    return source is not None and source.name in ("COMMANDLINE", "ENVIRONMENT")


def refuse(context: typer.Context, names: Iterable[str], other: str, why: str) -> None:
    """Refuse options beside another one, by both their names."""
    for parameter in context.command.params:
        if parameter.name in names and given(context, parameter.name):
            raise ValueError(f"{parameter.opts[0]} means nothing with {other}: {why}")


def check_where(context: typer.Context) -> None:
    """Options of one engine beside the other."""
    engine = context.params["engine"]
    if engine == "local":
        of_ray = ("address", "gpus_per_trial", "cpus_per_trial")
        refuse(context, of_ray, "--engine local", "it is for --engine ray")
    elif engine == "ray":
        refuse(context, ("workers",), "--engine ray", "the cluster's nodes decide; leave it out")
