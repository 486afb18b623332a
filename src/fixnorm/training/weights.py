"""The weights of a run, and the model rebuilt from them.

Equal runs write equal bytes, and what is read is checked.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import safetensors.torch
from pydantic import Field, TypeAdapter, ValidationError
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from fixnorm.converted import conversion_of
from fixnorm.data import OpenSet
from fixnorm.layers import can_be_scaled, is_scaled, scale_
from fixnorm.methods import METHODS
from fixnorm.models import find_head
from fixnorm.system import kind_of, regular, write_atomically
from fixnorm.training.checked import Part, checked, fault
from fixnorm.training.folder import RunFolder
from fixnorm.training.recipe import Recipe
from fixnorm.training.setup import Trainee
from fixnorm.training.tasks import task_of

__all__ = [
    "FinishedRun",
    "open_run",
    "rebuild",
    "whole",
    "write_tensors",
    "write_weights",
]

_LENGTH = 8
"""Bytes of the length of the header, and what it is padded to."""


class _Header(Part):
    """What the metadata of a run's weights says, all of it as text."""

    classes: Annotated[str, Field(pattern=r"^[1-9][0-9]{0,5}$")]
    channels: Annotated[str, Field(pattern=r"^[1-9][0-9]{0,3}$")]
    heads: str | None = None
    """A JSON list of names."""


def write_tensors(path: Path, state: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write a safetensors file that appears whole or not at all, its metadata in order.

    The library keeps metadata in a hash map: the same content has other bytes in each process.
    """
    content = memoryview(safetensors.torch.save(dict(state), dict(metadata)))
    end = _LENGTH + int.from_bytes(content[:_LENGTH], "little")
    header = json.loads(bytes(content[_LENGTH:end]))
    header = {"__metadata__": dict(sorted(header.pop("__metadata__", {}).items())), **header}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % _LENGTH)
    with write_atomically(path) as file:
        file.write(len(text).to_bytes(_LENGTH, "little"))
        file.write(text)
        file.write(content[end:])


def write_weights(path: Path, trainee: Trainee, data: OpenSet[Any]) -> None:
    """The trained model's state dict, scales ``g`` included."""
    state = {name: t.contiguous().clone() for name, t in trainee.evaluated.state_dict().items()}
    conversion = conversion_of(trainee.model)
    heads = [head.name for head in conversion.heads] if conversion is not None else []
    header = {
        "format": "pt",
        "method": trainee.recipe.method,
        "alpha": str(trainee.recipe.alpha),
        "classes": str(len(data.classes)),
        "channels": str(data.channels),
        "heads": json.dumps(heads),
    }
    write_tensors(path, state, header)


def whole(path: Path) -> bool:
    """Whether there is a safetensors file that is not cut off or damaged in its header."""
    if not regular(path):
        return False
    try:
        with safe_open(path, framework="pt"):
            return True
    except (SafetensorError, OSError):
        return False


def _read(path: Path) -> tuple[_Header, tuple[str, ...] | None, dict[str, Tensor]]:
    """What the file says of the model, its heads, its state; what is wrong with it is one line."""
    again = "give the same fixnorm train command again, it writes them anew"
    if not regular(path):
        raise ValueError(f"cannot read {path} (it is {kind_of(path)}): remove it, then {again}")
    try:
        with safe_open(path, framework="pt") as file:
            names = list(file.keys())  # the file is no mapping
            metadata = file.metadata() or {}
            state = {name: file.get_tensor(name) for name in names}
    except (SafetensorError, OSError, ValueError) as error:
        raise ValueError(f"{path} is damaged ({error}): {again}") from None
    try:
        header = TypeAdapter(_Header).validate_python(metadata, strict=True)
        heads = None if header.heads is None else tuple(checked(header.heads, list[str]))
    except ValueError as error:
        reason = fault(error) if isinstance(error, ValidationError) else f"heads: {error}"
        raise ValueError(
            f"{path} was not written by fixnorm train, its metadata is wrong: {reason}; train"
            " into another folder"
        ) from None
    return header, heads, state


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """What a finished run's folder says about its model."""

    folder: RunFolder
    recipe: Recipe
    classes: int
    channels: int
    class_names: tuple[str, ...] | None
    heads: tuple[str, ...] | None
    """The capped layers, where the file names them; needed where there are several."""
    state: dict[str, Tensor]
    """Of the converted model: a scaled layer has its ``g``."""

    def model(self) -> nn.Module:
        """The trained model in evaluation mode, with its scaled layers."""
        model = task_of(self.recipe).network(self.classes, self.channels)
        scaled = _scaled_layers(model, self.state)
        capped = self._capped(model, scaled)
        for name, layer in scaled.items():
            if not is_scaled(layer):  # one module may have two names
                scale_(layer, alpha=self.recipe.alpha if name in capped else None)
        try:
            model.load_state_dict(self.state)
        except RuntimeError as error:
            raise self._not_of_the_model(_second_line(error)) from None
        return model.eval()

    def _capped(self, model: nn.Module, scaled: dict[str, nn.Module]) -> tuple[str, ...]:
        """The names of the layers whose scale has a cap."""
        if not METHODS[self.recipe.method].caps:
            return ()
        heads = (_head_name(model),) if self.heads is None else self.heads
        for name in heads:
            if name not in scaled:
                raise self._not_of_the_model(f"method fixnorm, but no scale {name}.g of the head")
        return heads

    def _not_of_the_model(self, what: str) -> ValueError:
        return ValueError(
            f"{self.folder.weights} does not fit {self.recipe.model} of {self.folder.recipe.name}: "
            f"{what}; train again into another folder"
        )


def rebuild(run: Path) -> nn.Module:
    """The trained model of a run, in evaluation mode and with its scaled layers.

    ``fixnorm.fold`` turns it into the plain architecture.
    """
    return open_run(run).model()


def open_run(run: Path) -> FinishedRun:
    """Read a finished run's folder; what is missing or wrong is named in one line."""
    folder = RunFolder(Path(run))
    recipe = folder.finished_recipe()
    header, heads, state = _read(folder.weights)
    classes = int(header.classes)
    return FinishedRun(
        folder=folder,
        recipe=recipe,
        classes=classes,
        channels=int(header.channels),
        class_names=folder.class_names(classes),
        heads=heads,
        state=state,
    )


def _scaled_layers(model: nn.Module, names: Iterable[str]) -> dict[str, nn.Module]:
    """The layers that have a scale ``g`` among the names and none of their own."""
    own = model.state_dict().keys()
    modules = dict(model.named_modules(remove_duplicate=False))
    owners = [name[: -len(".g")] for name in names if name.endswith(".g") and name not in own]
    # A g of a layer that is not there or cannot have one is left over, and refused as it is loaded.
    return {name: modules[name] for name in owners if name in modules and _fits(modules[name])}


def _head_name(model: nn.Module) -> str:
    head = find_head(model)
    names: dict[nn.Module, str] = {module: name for name, module in model.named_modules()}
    return names[head]


def _fits(layer: nn.Module) -> bool:
    return isinstance(layer, nn.Linear | nn.Conv2d) and can_be_scaled(layer)


def _second_line(error: RuntimeError) -> str:
    """What ``load_state_dict`` says first; its message has a heading, then a line a fault."""
    lines = [line.strip() for line in str(error).splitlines()]
    return lines[1].rstrip(". ") if len(lines) > 1 else lines[0]
