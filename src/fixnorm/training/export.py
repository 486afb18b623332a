"""Give a trained model away: plain layers, one file, nothing of this package needed to load it.

Folding a scaled layer is W ← W / ‖W‖ · min(g, α√C), so the file has the names and shapes of the
architecture itself, and its outputs are those of the run's model.
"""

from __future__ import annotations

import copy
import importlib
import importlib.util
import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import fixnorm
from fixnorm.folding import fold
from fixnorm.system import write_atomically
from fixnorm.system.extras import needs
from fixnorm.training.tasks import Logits, estimates_of, exports_of
from fixnorm.training.tasks.task import Exports
from fixnorm.training.weights import FinishedRun, open_run, write_tensors

__all__ = ["TOLERANCE", "Exported", "export"]

TOLERANCE = 1e-5
"""Largest difference of an export's outputs; relative to the largest logit, if that is above 1."""

ONNX_PACKAGES = ("onnx", "onnxscript", "onnxruntime")
ONNX_LIMIT = 2**31
"""Bytes that one protobuf file can hold."""

_TIMM = {
    "resnet50": "resnet50",
    "resnet50d": "resnet50d",
    "mobilenetv2": "mobilenetv2_100",
    "efficientnet-b0": "efficientnet_b0",
    "efficientnet-b1": "efficientnet_b1",
}


@dataclass(frozen=True, slots=True)
class Exported:
    """The files that were written, and how far their outputs are from the run's."""

    weights: Path
    onnx: Path | None
    metadata: dict[str, str]
    """As in both files: the model's name and how its images are prepared."""
    difference: float
    """Largest difference of the outputs to the run's model, as :data:`TOLERANCE` counts."""


def export(
    run: Path, *, out: Path | None = None, onnx: bool = False, force: bool = False
) -> Exported:
    """Write the folded model of a finished run as safetensors, and as ONNX if asked.

    The outputs are compared with those of the run's model before anything is written.

    Args:
        run: the folder that ``fixnorm train`` wrote.
        out: the file to write, ``RUN/model.safetensors`` by default; ONNX goes beside it, as
            ``.onnx``.
        onnx: write ONNX, too, with a free batch size.
        force: replace files that are there.
    """
    opened = open_run(run)
    exports = exports_of(opened.recipe)
    weights_path = opened.folder.exported if out is None else Path(out)
    onnx_path = weights_path.with_suffix(".onnx") if onnx else None
    _check_places(opened, weights_path, onnx_path, force=force)
    if onnx:
        _check_onnx(exports)

    _refuse_non_finite(opened)
    images = _images(opened)
    model = opened.model()
    outputs = Logits(model, exports)
    with torch.no_grad():
        expected = outputs(images)
        fold(model)
        difference = _checked("the folded model", outputs(images), expected)
    metadata = _metadata(opened)
    program = None
    if onnx:
        program = _onnx(outputs, images[:2], metadata, opened.recipe.model)
        rounding = _difference(expected, _exact(outputs, images))
        difference = _checked("the ONNX file", _run(program, images), expected, rounding=rounding)

    weights_path.parent.mkdir(parents=True, exist_ok=True)
    write_tensors(weights_path, _plain(model), {"format": "pt"} | metadata)
    if onnx_path is not None:
        with write_atomically(onnx_path) as file:
            file.write(program)
    return Exported(weights_path, onnx_path, metadata, difference)


def _check_places(run: FinishedRun, weights: Path, onnx: Path | None, *, force: bool) -> None:
    if weights.suffix != ".safetensors":
        raise ValueError(
            f"--out must end in .safetensors but got {weights}; --onnx writes the .onnx beside it"
        )
    if weights.resolve() == run.folder.weights.resolve():
        raise ValueError(f"--out {weights} is the run's own weights: give another file")
    for path in (weights, onnx):
        if path is not None and path.is_dir():
            raise ValueError(f"{path} is a folder: give a file as --out")
        if path is not None and path.exists() and not force:
            raise ValueError(f"{path} exists already: replace it with --force or give --out")


def _check_onnx(exports: Exports[Any]) -> None:
    if exports.no_onnx is not None:
        raise ValueError(f"--onnx: {exports.no_onnx}; leave it out")
    missing = [name for name in ONNX_PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ValueError(needs("--onnx", ", ".join(missing), "onnx"))


def _refuse_non_finite(run: FinishedRun) -> None:
    for name, tensor in run.state.items():
        if not tensor.isfinite().all():
            raise ValueError(
                f"{run.folder.weights} has values in {name} that are not finite, the training "
                "diverged: train with a smaller lr into another folder"
            )


def _images(run: FinishedRun) -> Tensor:
    """Noise to compare outputs on; three images, so that a batch of two stuck in a graph shows."""
    size = estimates_of(run.recipe).expected().size
    generator = torch.Generator().manual_seed(0)
    return torch.randn(3, run.channels, *size[1:], generator=generator)


@torch.no_grad()
def _exact(model: nn.Module, images: Tensor) -> Tensor:
    outputs: Tensor = copy.deepcopy(model).double()(images.double())
    return outputs


def _difference(outputs: Tensor, expected: Tensor) -> float:
    largest = max(1.0, expected.abs().max().item())
    return (outputs - expected).abs().max().item() / largest


def _checked(what: str, outputs: Tensor, expected: Tensor, *, rounding: float = 0.0) -> float:
    """The difference, if it is within the tolerance or what rounding explains.

    Another runtime sums in another order. In a network that magnifies rounding, the run's model is
    itself off the exact outputs by more than the tolerance, and the other one as much to any side.
    """
    difference = _difference(outputs, expected)
    limit = max(TOLERANCE, 4 * rounding)
    if not difference <= limit:
        raise ValueError(
            f"{what} differs from the run's model by {difference:.1e}, more than {limit:.1e}: "
            "nothing was written"
        )
    return difference


def _metadata(run: FinishedRun) -> dict[str, str]:
    """Lists and numbers are JSON; the words are those of timm's model configurations."""
    recipe = run.recipe
    values: dict[str, Any] = {"num_classes": run.classes}
    if run.class_names is not None:
        values["label_names"] = run.class_names
    values |= exports_of(recipe).preparation(run.channels)
    metadata = {
        key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()
    }
    metadata |= {
        "task": recipe.task,
        "model": recipe.model,
        "recipe": recipe.name,
        "method": recipe.method,
        "fixnorm_version": fixnorm.__version__,
    }
    registry, _, name = recipe.model.rpartition("/")
    timm_name = name if registry == "timm" else _TIMM.get(recipe.model)
    return metadata | ({"timm": timm_name} if timm_name else {})


def _plain(model: nn.Module) -> dict[str, Tensor]:
    # A copy each: safetensors takes neither channels_last nor two names of one tensor.
    return {
        name: tensor.detach().clone(memory_format=torch.contiguous_format)
        for name, tensor in model.state_dict().items()
    }


def _onnx(model: nn.Module, images: Tensor, metadata: dict[str, str], name: str) -> bytes:
    size = sum(tensor.nbytes for tensor in model.state_dict().values())
    if size >= ONNX_LIMIT:
        raise ValueError(
            f"{name} has {size / 1e9:.1f} GB of weights and an ONNX file holds at most "
            f"{ONNX_LIMIT / 1e9:.1f} GB: export without --onnx"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the exporter's, about its own insides
            program = torch.onnx.export(
                model,
                (images,),
                dynamo=True,
                external_data=False,
                verbose=False,
                input_names=["images"],
                output_names=["logits"],
                dynamic_shapes=({0: torch.export.Dim("batch")},),
            )
    except torch.onnx.errors.OnnxExporterError as error:
        reason = str(error.__cause__ or error).strip().partition("\n")[0]
        raise ValueError(
            f"torch cannot export {name} to ONNX ({reason}): export without --onnx"
        ) from None
    assert program is not None
    program.model.metadata_props.update(metadata)
    serialized: bytes = program.model_proto.SerializeToString()
    return serialized


def _run(program: bytes, images: Tensor) -> Tensor:
    onnxruntime = importlib.import_module("onnxruntime")
    session = onnxruntime.InferenceSession(program, providers=["CPUExecutionProvider"])
    (logits,) = session.run(["logits"], {"images": images.numpy()})
    return torch.from_numpy(logits)
