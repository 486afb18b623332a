"""The weights of a run: equal runs write equal bytes, and what is read is checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import safetensors.torch
from pydantic import Field, TypeAdapter, ValidationError
from safetensors import SafetensorError, safe_open
from torch import Tensor

from fixnorm.conversion import conversion_of
from fixnorm.data import OpenSet
from fixnorm.system import kind_of, regular, write_atomically
from fixnorm.training.checked import Part, checked, fault
from fixnorm.training.setup import Trainee

__all__ = ["Weights", "read_weights", "whole", "write_tensors", "write_weights"]

_LENGTH = 8
"""Bytes of the length of the header, and what it is padded to."""


class _Header(Part):
    """What the metadata of a run's weights says, all of it as text."""

    classes: Annotated[str, Field(pattern=r"^[1-9][0-9]{0,5}$")]
    channels: Annotated[str, Field(pattern=r"^[1-9][0-9]{0,3}$")]
    heads: str | None = None
    """A JSON list of names."""


@dataclass(frozen=True, slots=True)
class Weights:
    """What the file holds."""

    classes: int
    channels: int
    heads: tuple[str, ...] | None
    """The capped layers, where the file names them."""
    state: dict[str, Tensor]


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


def read_weights(path: Path) -> Weights:
    """Of a finished run; what is wrong with the file is one line."""
    again = "give the same fixnorm train command again, it writes them anew"
    if not regular(path):
        raise ValueError(f"cannot read {path} (it is {kind_of(path)}): remove it, then {again}")
    try:
        with safe_open(path, framework="pt") as file:
            names = list(file.keys())  # the file is no mapping
            metadata, state = (
                file.metadata() or {},
                {name: file.get_tensor(name) for name in names},
            )
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
    return Weights(int(header.classes), int(header.channels), heads, state)
