"""A recipe: everything a training depends on, checked and frozen."""

from __future__ import annotations

import difflib
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fixnorm.data import DataSettings
from fixnorm.groups import Method, Scope

__all__ = ["Recipe", "changed", "parsed_settings"]

DataName = Literal["digits", "imagefolder", "cifar10", "fashion-mnist"]
Precision = Literal["fp32", "bf16", "fp16"]


class Recipe(BaseModel):
    """A complete training configuration. Variants change a few fields: :func:`changed`."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=()
    )

    name: str

    # What is trained
    model: str
    """A name of :func:`fixnorm.models.create`."""
    drop_path: float = Field(default=0.0, ge=0, lt=1)
    """Stochastic depth: the rate of the last block."""
    drop: float = Field(default=0.0, ge=0, lt=1)
    """Dropout before the head."""
    head: str | None = None
    """Name of the classifier's layer, where measurement cannot tell."""

    # On what
    data: DataName
    image_size: int = Field(ge=1)
    train_crop: Literal["none", "pad", "random-resized"] = "none"
    padding: int = Field(default=4, ge=0)
    min_scale: float = Field(default=0.08, gt=0, le=1)
    train_interpolation: Literal["bilinear", "bicubic"] = "bilinear"
    flip: bool = False
    auto_augment: str | None = None
    eval_crop: Literal["none", "resnet", "efficientnet"] = "none"
    mean: tuple[float, ...] = (0.5,)
    std: tuple[float, ...] = (0.5,)
    classes: int | None = Field(default=None, ge=1)
    """Train on the first n classes only; none: on all."""
    train_per_class: int | None = Field(default=None, ge=1)
    val_per_class: int | None = Field(default=None, ge=1)

    # How
    method: Method = "fixnorm"
    lr: float = Field(gt=0)
    """The peak learning rate."""
    alpha: float | None = Field(default=None, gt=0)
    """Cap of the head's scale in units of √C; method ``fixnorm`` only."""
    weight_decay: float = Field(default=0.0, ge=0)
    """λ of methods ``weight-decay`` (all weights) and ``algorithm1`` (the head)."""
    scope: Scope = "global"
    epochs: int = Field(ge=1)
    warmup_epochs: float = Field(default=4.0, ge=0)
    """Linear warm-up, before the cosine."""
    batch_size: int = Field(default=1024, ge=1)
    """Over all processes and accumulation steps."""
    optimizer: str = "sgd"
    """``sgd`` is Nesterov SGD; any other name is timm.optim's."""
    momentum: float = Field(default=0.9, ge=0, lt=1)
    label_smoothing: float = Field(default=0.1, ge=0, lt=1)
    ema: float | None = Field(default=None, gt=0, lt=1)
    """Decay of an exponential moving average of the weights, which is then what is evaluated."""
    accumulate: int = Field(default=1, ge=1)
    """Parts a process's share of the batch is split into, one backward pass each."""
    clip: float | None = Field(default=None, gt=0)
    """Largest norm of the whole gradient."""
    seed: int = Field(default=0, ge=0)

    # With what
    precision: Precision = "fp32"
    channels_last: bool = True
    compile: bool = False
    workers: int = Field(default=8, ge=0)
    """Loader processes a training process has, where images are streamed."""
    eval_batch_size: int = Field(default=1024, ge=1)
    eval_every: int = Field(default=1, ge=1)
    """Epochs between evaluations; the last epoch is always evaluated."""
    mcbr_every: int = Field(default=50, ge=1)
    """Steps between batches that count for the MCBR of the training set; the last always does."""

    # What the paper reports for it
    paper_top1: float | None = None
    paper_reference_top1: float | None = None

    @model_validator(mode="after")
    def _method_has_its_numbers(self) -> Recipe:
        if self.method == "fixnorm" and self.alpha is None:
            raise ValueError("alpha: method 'fixnorm' needs it, the paper tries 0.5 to 16")
        if self.method != "fixnorm" and self.alpha is not None:
            raise ValueError(
                f"alpha: method {self.method!r} has no cap but got {self.alpha:g}; leave it out or "
                "set method=fixnorm"
            )
        if self.method in ("fixnorm", "wn-fc") and self.weight_decay:
            raise ValueError(
                f"weight_decay: method {self.method!r} has none but got {self.weight_decay}; "
                "set weight_decay=0 or method=weight-decay"
            )
        if self.warmup_epochs > self.epochs:
            raise ValueError(
                f"warmup_epochs: {self.warmup_epochs:g} is more than epochs={self.epochs}"
            )
        if self.batch_size % self.accumulate:
            raise ValueError(
                f"accumulate: batch_size={self.batch_size} does not divide by {self.accumulate}"
            )
        return self

    def data_settings(self, *, skip_broken: bool = False) -> DataSettings:
        """What the data package needs to know."""
        names = DataSettings.__dataclass_fields__.keys() & Recipe.model_fields.keys()
        return DataSettings(
            **{name: getattr(self, name) for name in names}, skip_broken=skip_broken
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain containers, ready for JSON."""
        return self.model_dump(mode="json")

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Recipe:
        """The recipe of :meth:`to_dict`; a wrong field is one line."""
        return _validated(values)


def changed(recipe: Recipe, /, **changes: Any) -> Recipe:
    """The recipe with some fields replaced, checked again.

    A change of method drops the number that the new method has no use for, unless it is given.
    """
    values = recipe.to_dict() | changes
    method = values["method"]
    if method != "fixnorm" and "alpha" not in changes:
        values["alpha"] = None
    if method in ("fixnorm", "wn-fc") and "weight_decay" not in changes:
        values["weight_decay"] = 0.0
    return _validated(values)


def parsed_settings(pairs: list[str]) -> dict[str, str | None]:
    """``["lr=0.8", "alpha=2"]`` as a dict; unknown keys are refused with the nearest right name."""
    settings: dict[str, str | None] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"--set needs key=value but got {pair!r}")
        _check_known(key)
        optional = type(None) in get_args(Recipe.model_fields[key].annotation)
        settings[key] = None if optional and value.lower() == "none" else value
    return settings


def _check_known(key: str) -> None:
    if key not in Recipe.model_fields:
        near = difflib.get_close_matches(key, Recipe.model_fields, n=1, cutoff=0.3)
        hint = (
            f"; did you mean {near[0]}?" if near else f"; one of {', '.join(Recipe.model_fields)}"
        )
        raise ValueError(f"a recipe has no field {key!r}{hint}")


def _validated(values: dict[str, Any]) -> Recipe:
    for key in values:
        _check_known(key)
    if isinstance(values.get("mean"), str | float | int):
        values = values | {"mean": _numbers(values["mean"])}
    if isinstance(values.get("std"), str | float | int):
        values = values | {"std": _numbers(values["std"])}
    try:
        return Recipe.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        got = f" but got {first['input']!r}" if field else ""
        raise ValueError(f"{field}: {message}{got}" if field else message) from None


def _numbers(text: str | float) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in str(text).split(","))
    except ValueError:
        raise ValueError(f"mean and std are numbers with commas between but got {text!r}") from None
