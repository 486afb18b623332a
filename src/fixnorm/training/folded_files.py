"""Checkpoint files of others' training scripts: every set of weights in them, folded.

Which keys a trainer uses does not matter: whatever in the file has scales ``g`` beside weights is
a set of weights (timm's ``state_dict`` and ``state_dict_ema``, torchvision's ``model`` and
``model_ema``, Lightning's ``state_dict``, a bare state dict). Nothing but tensors and plain
containers is ever built from a file.
"""

from __future__ import annotations

import argparse
import pickle
import re
import shutil
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from fixnorm.folding import above_caps, caps_of, fold_with, saved_caps, scaled_layers
from fixnorm.system import write_atomically
from fixnorm.system.run_paths import RunPaths
from fixnorm.training.folded_places import FORMATS, SAFETENSORS, check_places

__all__ = ["FoldedFile", "FoldedPart", "fold_file"]

_MODEL_FILES = ("model.safetensors", "pytorch_model.bin")
"""Where transformers keeps the weights in a model's folder."""
_RESUME = re.compile("optimizer|scheduler|scaler|trainer_state|rng_state")
"""In names of what only going on with the training needs."""


@dataclass(frozen=True, slots=True)
class FoldedPart:
    """One set of weights."""

    path: tuple[str, ...]
    """The keys that lead to it in the file; none for a bare state dict."""
    caps: dict[str, float]
    """Of the layers that were folded."""
    cut: list[str]
    """Those whose scale was above its cap."""


@dataclass(slots=True)
class FoldedFile:
    """What was written."""

    path: Path
    parts: list[FoldedPart] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def fold_file(
    source: Path,
    out: Path,
    *,
    alpha: float | None = None,
    heads: tuple[str, ...] = (),
    force: bool = False,
) -> FoldedFile:
    """Fold all weights of a checkpoint file, or of a folder of transformers, into another.

    Args:
        source: a ``.safetensors`` file, a file of ``torch.save``, or a folder.
        out: the file or folder to write; its ending says the format.
        alpha: as in :func:`fixnorm.fold_state_dict`.
        heads: as there.
        force: replace what is there.
    """
    check_places(source, out, force=force)
    weights = _model_file(source) if source.is_dir() else source
    content, metadata = _read(weights)
    done = FoldedFile(out)
    content = _without_resume(content, done)
    content = _fold_all(weights, content, done, alpha=alpha, heads=heads)
    if source.is_dir() and out.suffix not in FORMATS:
        _copy_rest(source, weights, done)
        done.path = out / weights.name
    done.path.parent.mkdir(parents=True, exist_ok=True)
    if done.path.suffix == SAFETENSORS:
        blob = save(_only_part(content, done), metadata or {"format": "pt"})
        with write_atomically(done.path) as file:
            file.write(blob)
    else:
        with write_atomically(done.path) as file:
            torch.save(content, file)
    return done


def _model_file(folder: Path) -> Path:
    for name in _MODEL_FILES:
        if (folder / name).is_file():
            return folder / name
        if (folder / f"{name}.index.json").is_file():
            raise ValueError(
                f"the weights of {folder} are split over several files: write them as one, "
                "save_pretrained(folder, max_shard_size='1TB')"
            )
    run = "; for a run of fixnorm train: fixnorm export" if RunPaths(folder).recipe.exists() else ""
    raise ValueError(f"{folder} has no {' or '.join(_MODEL_FILES)}{run}")


def _read(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """What is in the file, and the metadata of a safetensors file."""
    if path.suffix == SAFETENSORS:
        try:
            with safe_open(path, framework="pt") as file:
                return {key: file.get_tensor(key) for key in file.keys()}, file.metadata() or {}  # noqa: SIM118
        except SafetensorError:
            raise ValueError(f"{path} is no safetensors file") from None
    try:
        # timm's and torchvision's scripts keep their arguments beside the weights.
        with torch.serialization.safe_globals([argparse.Namespace]), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise ValueError(
            f"{path} holds pickled objects{_unsafe(path)}, which could run any code when loaded, "
            "so it was not: save the weights alone, torch.save(model.state_dict(), FILE)"
        ) from None
    except OSError:
        raise
    except Exception as error:  # whatever other bytes lead the reader to
        raise ValueError(
            f"{path} is no checkpoint that torch can read ({type(error).__name__})"
        ) from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds a {type(content).__name__}, not a checkpoint's dict")
    return content, {}


def _unsafe(path: Path) -> str:
    try:
        names = torch.serialization.get_unsafe_globals_in_checkpoint(path)
    except (ValueError, RuntimeError):  # not in the format of today's torch.save
        return ""
    return f" ({', '.join(sorted(names)[:3])})" if names else ""


def _without_resume(content: dict[str, Any], done: FoldedFile) -> dict[str, Any]:
    """Optimizers and the like are of the weights before folding."""
    if scaled_layers(content):
        return content
    done.left_out += [key for key in content if _is_for_resume(key)]
    return {key: value for key, value in content.items() if not _is_for_resume(key)}


def _is_for_resume(name: Any) -> bool:
    return isinstance(name, str) and _RESUME.search(name) is not None


_Path = tuple[str, ...]
"""The keys that lead to a set of weights."""


def _parts(content: Mapping[Any, Any], path: _Path = ()) -> Iterator[tuple[_Path, Any]]:
    """Every set of weights that has something to fold, with where it is."""
    if scaled_layers(content):
        yield path, content
        return
    for key, value in content.items():
        if isinstance(value, Mapping):
            yield from _parts(value, (*path, key))


def _fold_all(
    file: Path,
    content: dict[str, Any],
    done: FoldedFile,
    *,
    alpha: float | None,
    heads: tuple[str, ...],
) -> dict[str, Any]:
    parts = dict(_parts(content))
    if not parts:
        raise ValueError(
            f"{file} has nothing to fold: no layer in it has a scale g beside its weight"
        )
    for path, state in parts.items():
        own = tuple(n for n in scaled_layers(state) if _bare(n) in map(_bare, heads)) or heads
        try:
            caps = caps_of(state, alpha=alpha, head=own, known=_known(state, parts.values()))
            folded = fold_with(state, caps)
        except ValueError as error:
            where = ", ".join([str(file), *map(str, path)])
            raise ValueError(f"{where}: {error} (here: --alpha NUMBER, --head NAME)") from None
        content = _replaced(content, path, folded)
        done.parts.append(FoldedPart(path, caps, above_caps(state, caps)))
    return content


def _replaced(content: dict[str, Any], path: _Path, part: dict[str, Any]) -> dict[str, Any]:
    if not path:
        return part
    return {**content, path[0]: _replaced(content[path[0]], path[1:], part)}


def _known(state: Mapping[str, Any], others: Any) -> dict[str, float]:
    """Caps that another set of weights of the very same names says: those of an average, say."""
    names = {_bare(key): key for key in state}
    for other in others:
        if {_bare(key) for key in other} == names.keys() and (caps := saved_caps(other)):
            bare = {_bare(name): cap for name, cap in caps.items()}
            return {name: bare[_bare(name)] for name in scaled_layers(state) if _bare(name) in bare}
    return {}


def _bare(name: str) -> str:
    """Without what DDP, averages and torch.compile put in front."""
    return re.sub(r"(^|\.)(?:(?:module|_orig_mod)\.)+", r"\1", name)


def _only_part(content: dict[str, Any], done: FoldedFile) -> dict[str, Tensor]:
    """A copy each: safetensors takes neither channels_last nor two names of one tensor."""
    if len(done.parts) > 1:
        places = " and ".join(".".join(part.path) for part in done.parts)
        raise ValueError(
            f"a {SAFETENSORS} file holds one set of weights but there are {places}: give OUT as .pt"
        )
    for key in done.parts[0].path:
        content = content[key]
    return {
        name: tensor.detach().clone(memory_format=torch.contiguous_format)
        for name, tensor in content.items()
        if isinstance(tensor, Tensor)
    }


def _copy_rest(folder: Path, weights: Path, done: FoldedFile) -> None:
    """Configuration, tokenizer and the like; no other weights, which would not be folded."""
    done.path.mkdir(parents=True, exist_ok=True)
    for file in sorted(folder.iterdir()):
        if file == weights or not file.is_file():
            continue
        if file.suffix in FORMATS or _is_for_resume(file.name):
            done.left_out.append(file.name)
        else:
            shutil.copyfile(file, done.path / file.name)
