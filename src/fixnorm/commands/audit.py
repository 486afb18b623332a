"""``fixnorm audit``: which weights of a model may be fixed."""

from __future__ import annotations

import json
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.markup import escape

from fixnorm.models import create
from fixnorm.roles import audit as measure


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
    network = create(model)
    with Console(stderr=True).status(escape(f"measuring {model}")):
        found = measure(network, None if size is None else torch.randn(4, *_parsed(size)))
    print(json.dumps({"model": model} | found.to_dict()) if as_json else found)


def _parsed(size: str) -> tuple[int, ...]:
    parts = size.lower().split("x")
    if not all(part.isdigit() and int(part) for part in parts):
        raise ValueError(f"--size must look like 3x224x224 but got {size!r}")
    return tuple(map(int, parts))
