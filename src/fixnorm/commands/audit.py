"""``fixnorm audit``: which weights of a model may be fixed."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from fixnorm.commands.waiting import waiting
from fixnorm.starting import loading
from fixnorm.system import brief
from fixnorm.system.machine import memory_for

_DIGITS = 6


def audit(
    model: Annotated[
        str,
        typer.Argument(help="A model's name: timm/NAME, torchvision/NAME or one of ours."),
    ],
    size: Annotated[
        str | None,
        typer.Option(help="Input size as CHANNELSxHEIGHTxWIDTH, where the model does not say it."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Measure which weights of MODEL are scale-invariant, and which layer is the head.

    Example: fixnorm audit timm/resnet50d
    """
    shape = None if size is None else _parsed(size)
    with loading():
        import torch

        from fixnorm.models import create
        from fixnorm.roles import audit as measure
    network = create(model)
    with waiting(f"measuring {model}"), memory_for(size=size):
        found = measure(network, None if shape is None else torch.randn(4, *shape))
    print(json.dumps({"model": model} | found.to_dict()) if as_json else found)


def _parsed(size: str) -> tuple[int, ...]:
    parts = size.lower().split("x")
    if not all(part.isascii() and part.isdigit() and part.strip("0") for part in parts):
        raise ValueError(f"--size must look like 3x224x224 but got {brief(size)}")
    if any(len(part) > _DIGITS for part in parts):
        raise ValueError(f"--size must be of numbers of at most {_DIGITS} digits but got {size}")
    return tuple(map(int, parts))
