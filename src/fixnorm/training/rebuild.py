"""The model of a finished run, rebuilt from its folder."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from os.path import lexists
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import Field
from torch import Tensor, nn

from fixnorm.layers import can_be_scaled, is_scaled, scale_
from fixnorm.methods import METHODS
from fixnorm.models import find_head
from fixnorm.training.checked import read_checked
from fixnorm.training.folder import RunFolder
from fixnorm.training.recipe import Recipe
from fixnorm.training.tasks import recipe_from_dict, task_of
from fixnorm.training.weights import read_weights

__all__ = ["FinishedRun", "open_run", "rebuild"]


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
    recipe = _recipe(folder)
    if not lexists(folder.weights):
        raise ValueError(
            f"{run} is not finished, it has no {folder.weights.name}: give the same "
            "fixnorm train command again, it resumes"
        )
    weights = read_weights(folder.weights)
    return FinishedRun(
        folder=folder,
        recipe=recipe,
        classes=weights.classes,
        channels=weights.channels,
        class_names=_class_names(folder.classes, weights.classes),
        heads=weights.heads,
        state=weights.state,
    )


def _recipe(folder: RunFolder) -> Recipe:
    if not folder.path.exists():
        raise ValueError(f"{folder.path} does not exist: give the --out folder of fixnorm train")
    if not lexists(folder.recipe):
        raise ValueError(
            f"{folder.path} is not a run, it has no {folder.recipe.name}: give the --out folder "
            "of fixnorm train"
        )
    values = read_checked(
        folder.recipe, dict[str, Any], what="a recipe", advice="train again into another folder"
    )
    try:
        return recipe_from_dict(values)
    except ValueError as error:
        raise ValueError(f"{folder.recipe} is not a recipe of this version: {error}") from None


def _class_names(path: Path, classes: int) -> tuple[str, ...] | None:
    if not lexists(path):
        return None
    kind = Annotated[list[str], Field(min_length=classes, max_length=classes)]
    names: list[str] = read_checked(
        path,
        cast(Any, kind),
        what=f"a list of {classes} class names",
        advice="correct it or delete it",
    )
    return tuple(names)


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
