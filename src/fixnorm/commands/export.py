"""``fixnorm export``: a trained model as a plain file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fixnorm.commands.configured import configured
from fixnorm.commands.waiting import waiting
from fixnorm.starting import loading


def export(
    run: Annotated[Path, typer.Argument(help="The folder that fixnorm train wrote.")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File to write; RUN/model.safetensors if not given."),
    ] = None,
    onnx: Annotated[
        bool, typer.Option("--onnx", help="Write ONNX beside it, with a free batch size.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace files that exist.")] = False,
    recipe: Annotated[
        str | None,
        typer.Option(help="package.module:function, where the run's task is of another package."),
    ] = None,
) -> None:
    """Write the trained model of RUN with plain layers, as safetensors.

    timm loads it where the model is timm's; the file's metadata says how images are prepared.

    Example: fixnorm export runs/resnet50d --out resnet50d.safetensors --onnx
    """
    from fixnorm.training.folder import RunFolder

    if recipe is not None:
        configured(recipe, None, [])  # the task is known once its package is imported
    RunFolder(run).finished_recipe()  # a folder that is refused is refused at once
    with loading():
        from fixnorm.training.export import export as write
    with waiting(f"exporting {run}"):
        exported = write(run, out=out, onnx=onnx, force=force)
    print(f"{exported.weights}  {exported.weights.stat().st_size / 1e6:.1f} MB")
    if exported.onnx is not None:
        print(f"{exported.onnx}  {exported.onnx.stat().st_size / 1e6:.1f} MB")
    print(f"outputs differ from the run's model by at most {exported.difference:.1e}")
    if name := exported.metadata.get("timm"):
        size, classes = exported.metadata["input_size"], exported.metadata["num_classes"]
        channels = size.strip("[").partition(",")[0]
        print(
            f"timm.create_model({name!r}, num_classes={classes}, in_chans={channels}, "
            f"checkpoint_path={str(exported.weights)!r})"
        )
