"""``fixnorm fold``: a checkpoint of anybody's training script as one of the plain model."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from fixnorm.commands.waiting import waiting
from fixnorm.methods import checked_alpha
from fixnorm.starting import loading

_NAMED = 4
"""So many layers are named, more are counted."""


def fold(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="IN", help="A .safetensors, .pt, .pth, .bin or .ckpt file; a folder."
        ),
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The file or folder to write.")],
    alpha: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER",
            help="alpha of the training, none if nothing was capped; where IN does not say it.",
        ),
    ] = None,
    head: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="A head's name, where IN does not say it; may be repeated."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace what exists.")] = False,
) -> None:
    """Write the checkpoint IN of a converted model as OUT, a checkpoint of the plain one.

    All weights in IN are folded, averaged ones too: plain layers, the same outputs, no scale g. A
    folder of transformers gives a folder. What a training would resume from is left out.

    Example: fixnorm fold model_best.pth.tar plain.pth
    """
    from fixnorm.training.folded_places import check_places

    largest = _parsed(alpha)
    check_places(source, out, force=force)
    with loading():
        from fixnorm.training.folded_files import fold_file
    with waiting(f"folding {source}"):
        done = fold_file(source, out, alpha=largest, heads=tuple(head or ()), force=force)
    for part in done.parts:
        names = [
            f"{n or 'the layer'} (cut at {cap:g})" if n in part.cut else n or "the layer"
            for n, cap in part.caps.items()
        ]
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        print(f"{'.'.join(part.path) or 'weights'}: folded {', '.join(names[:_NAMED])}{more}")
    if done.left_out:
        print(f"left out, as it is of the weights before: {', '.join(done.left_out)}")
    print(f"{done.path}  {done.path.stat().st_size / 1e6:.1f} MB")


def _parsed(alpha: str | None) -> float | None:
    if alpha is None:
        return None
    try:
        return math.inf if alpha.lower() == "none" else checked_alpha(float(alpha))
    except ValueError:
        raise ValueError(f"--alpha must be a positive number or none but got {alpha!r}") from None
