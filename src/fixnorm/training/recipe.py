"""A recipe: everything a training depends on, checked and frozen."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fixnorm.methods import METHODS, Length, MethodName, Scope
from fixnorm.system import brief
from fixnorm.system.nearest import did_you_mean
from fixnorm.training.bounded import Slug
from fixnorm.training.schedule import Schedule, Timetable

__all__ = ["ORIGIN", "EpochRecipe", "R", "Recipe", "changed", "differences", "parsed_settings"]

Precision = Literal["fp32", "bf16", "fp16"]
ORIGIN = r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*"
"""A function of another package: ``package.module:function``."""


class Recipe(BaseModel, ABC, frozen=True):
    """What trainings of all tasks have in common. Variants change a few fields: :func:`changed`."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, protected_namespaces=())

    lr_range: ClassVar[tuple[float, float]]
    """Where the paper searches for the learning rate."""
    unit: ClassVar[Literal["epochs", "iterations"]]
    """What :attr:`length` counts."""
    libraries: ClassVar[tuple[str, ...]] = ()
    """Modules that only its trainings import, once they have begun."""
    against_auto_lr: ClassVar[str | None] = None
    """Why ``lr=auto`` is not to be trusted here; none where it was judged and is a search's way."""

    name: Slug
    """Part of the run's path where no other is given."""
    task: str

    # What is trained
    model: str
    head: str | None = None
    """Name of the classifier's layer, where measurement cannot tell."""

    # On what
    data: str
    flip: bool = False

    # How
    method: MethodName = "fixnorm"
    lr: Annotated[float, Field(gt=0)] | Literal["auto"]
    """The peak learning rate; ``"auto"``: it follows from the sphere, without a search."""
    alpha: float | None = Field(default=None, gt=0)
    """Cap of the head's scale in units of √C; method ``fixnorm`` only."""
    weight_decay: float = Field(default=0.0, ge=0)
    """λ of methods ``weight-decay`` (all weights) and ``algorithm1`` (the head)."""
    scope: Scope = "global"
    """What has one norm that is kept; with ``matrix`` lr is the angle of a step, in radians."""
    step_length: Length = "angle"
    """Of scope ``matrix``: ``own`` keeps the length of the optimizer's steps, for Adam's kin."""
    radius: Annotated[float, Field(gt=0)] | Literal["fan_in"] | None = None
    """Of scope ``matrix``: where the matrices start, as in ``fixnorm.convert``."""
    schedule: Schedule = "cosine"
    batch_size: int = Field(default=1024, ge=1)
    """Over all processes and accumulation steps."""
    optimizer: str = "sgd"
    """``sgd`` is torch's; any other name is timm.optim's."""
    momentum: float = Field(default=0.9, ge=0, lt=1)
    nesterov: bool = True
    """Of ``sgd``."""
    ema: float | None = Field(default=None, gt=0, lt=1)
    """Decay of an exponential moving average of the weights, which is then what is evaluated."""
    ema_on_sphere: bool = False
    """In the end, bring the average back to the norm that was kept and take its batch statistics
    anew, in one pass over the training images."""
    accumulate: int = Field(default=1, ge=1)
    """Parts a process's share of the batch is split into, one backward pass each."""
    clip: float | None = Field(default=None, gt=0)
    """Largest norm of the whole gradient."""
    seed: int = Field(default=0, ge=0)

    # With what
    precision: Precision = "fp32"
    channels_last: bool = True
    """Pixels of one place beside each other in memory: the faster layout on CPUs and GPUs."""
    compile: bool = False
    """``torch.compile``: faster steps after a start of up to a minute (docs/costs.md)."""
    workers: int = Field(default=8, ge=0)
    """Loader processes a training process has, where images are streamed."""
    eval_batch_size: int = Field(default=1024, ge=1)
    eval_every: int = Field(default=1, ge=1)
    """Epochs (of dense tasks: iterations) between evaluations; the last is always evaluated."""
    mcbr_every: int = Field(default=50, ge=1)
    """Steps between batches that count for the MCBR of the training set; the last always does."""

    # What the paper reports for it
    paper_score: float | None = None
    paper_reference_score: float | None = None

    origin: str | None = Field(default=None, pattern=f"^{ORIGIN}$", max_length=500)
    """The function that made it, where that is of another package; no training depends on it."""

    @model_validator(mode="after")
    def _method_has_its_numbers(self) -> Self:
        method = METHODS[self.method]
        if method.caps and self.alpha is None:
            raise ValueError(f"alpha: method {self.method!r} needs it, the paper tries 0.5 to 16")
        if not method.caps and self.alpha is not None:
            raise ValueError(
                f"alpha: method {self.method!r} has no cap but got {self.alpha:g}; leave it out or "
                "set method=fixnorm"
            )
        if not method.decays and self.weight_decay:
            raise ValueError(
                f"weight_decay: method {self.method!r} has none but got {self.weight_decay}; "
                "set weight_decay=0 or method=weight-decay"
            )
        if self.step_length != "angle" and self.scope != "matrix":
            raise ValueError(
                f"step_length: {self.step_length} is for scope=matrix but got scope={self.scope}"
            )
        if self.radius is not None and self.scope != "matrix":
            raise ValueError(
                f"radius: {self.radius} is for scope=matrix but got scope={self.scope}"
            )
        if self.step_length == "own" and self.lr == "auto" and self.optimizer == "sgd":
            raise ValueError(
                "step_length: with lr=auto 'own' is for optimizers whose steps have a length but "
                "got optimizer=sgd; set step_length=angle, or optimizer=adamw"
            )
        if self.lr == "auto" and not method.fixes:
            raise ValueError(
                f"lr: auto needs norms that are kept but got method={self.method}; give a number"
            )
        if self.lr == "auto" and self.scope != "matrix" and self.optimizer != "sgd":
            raise ValueError(
                "lr: auto is for SGD, or for scope=matrix, but got "
                f"optimizer={self.optimizer}, scope={self.scope}; give a number"
            )
        if self.ema_on_sphere and (self.ema is None or not method.fixes):
            lacks = "an average" if self.ema is None else "a norm that is kept"
            needed = "ema=0.999" if self.ema is None else "method=fixnorm"
            raise ValueError(f"ema_on_sphere: the recipe lacks {lacks}; set {needed}")
        if self.batch_size % self.accumulate:
            raise ValueError(
                f"accumulate: batch_size={self.batch_size} does not divide by {self.accumulate}"
            )
        return self

    @model_validator(mode="after")
    def _numbers_within_bounds(self) -> Self:
        for name, value in self:
            for number in value if isinstance(value, tuple) else (value,):
                if isinstance(number, int | float) and not isinstance(number, bool):
                    _check_bounds(name, number)
        return self

    @property
    def peak_lr(self) -> float:
        """What the schedule multiplies: one, where the rule of the sphere does the rest."""
        return 1.0 if self.lr == "auto" else self.lr

    @property
    @abstractmethod
    def length(self) -> int:
        """T_max, counted in :attr:`unit`."""

    @abstractmethod
    def of_length(self, length: int) -> dict[str, Any]:
        """The changes that make the recipe as short as that."""

    @abstractmethod
    def rows(self) -> int:
        """Lines that ``metrics.csv`` has in the end."""

    @abstractmethod
    def timetable(self, steps_per_epoch: int) -> Timetable:
        """The lengths in steps."""

    def check_data(self, root: Path | None) -> None:
        """Refuse a folder of images that opening it would refuse at first sight."""

    def shared_with(self, settings: type) -> dict[str, Any]:
        """The fields that a dataclass has by the same name, for a package that knows no recipe."""
        names = {field.name for field in fields(settings)} & type(self).model_fields.keys()
        return {name: getattr(self, name) for name in names}

    def sizes(self) -> dict[str, Any]:
        """The settings that memory depends on."""
        return {name: getattr(self, name) for name in _SIZES if hasattr(self, name)}

    @property
    def command_name(self) -> str:
        """What ``fixnorm train`` knows it by."""
        return self.origin or self.name

    def to_dict(self) -> dict[str, Any]:
        """Plain containers, ready for JSON."""
        values = self.model_dump(mode="json")
        for name in _SELDOM:
            if values[name] == type(self).model_fields[name].default:
                del values[name]
        return values

    @classmethod
    def validated(cls, values: dict[str, Any]) -> Self:
        """The recipe of these fields; a wrong one is one line."""
        for key in values:
            _check_known(key, cls.model_fields)
        lists = {
            key: _numbers(key, value)
            for key, value in values.items()
            if isinstance(value, str | float | int) and _is_list(cls, key)
        }
        try:
            return cls.model_validate(values | lists)
        except ValidationError as error:
            first, *others = error.errors()
            # of a number or a word, pydantic says of which kind it speaks, and what each would be
            field = ".".join(str(part) for part in first["loc"] if part != "constrained-float")
            message = first["msg"].removeprefix("Value error, ")
            if field in _WORDS and others:
                message = f"{message.partition(',')[0]} or '{_WORDS[field]}'"
            got = f" but got {brief(first['input'])}" if field else ""
            raise ValueError(f"{field}: {message}{got}" if field else message) from None


class EpochRecipe(Recipe, frozen=True):
    """A training whose length is counted in epochs."""

    lr_range: ClassVar[tuple[float, float]] = (0.2, 3.2)
    unit: ClassVar[Literal["epochs", "iterations"]] = "epochs"

    epochs: int = Field(ge=1)
    warmup_epochs: float = Field(default=4.0, ge=0)
    """Linear warm-up, before the schedule."""

    @model_validator(mode="after")
    def _warm_up_ends(self) -> Self:
        if self.warmup_epochs > self.epochs:
            raise ValueError(
                f"warmup_epochs: {self.warmup_epochs:g} is more than epochs={self.epochs}"
            )
        return self

    @property
    def length(self) -> int:
        return self.epochs

    def of_length(self, length: int) -> dict[str, Any]:
        """Warm-up is not scaled with the length, but leaves most of a short training to the lr."""
        return {"epochs": length, "warmup_epochs": min(self.warmup_epochs, length / 4)}

    def rows(self) -> int:
        return self.epochs

    def timetable(self, steps_per_epoch: int) -> Timetable:
        return Timetable(
            steps=self.epochs * steps_per_epoch,
            warmup=round(self.warmup_epochs * steps_per_epoch),
            row=steps_per_epoch,
            evaluation=self.eval_every * steps_per_epoch,
        )


R = TypeVar("R", bound=Recipe)
"""A recipe of some task."""


def changed(recipe: R, /, **changes: Any) -> R:
    """The recipe with some fields replaced, checked again.

    A change of method drops the number that the new method has no use for, unless it is given.
    """
    values = recipe.to_dict() | changes
    method = METHODS.get(str(values["method"]))
    if method is not None and not method.caps and "alpha" not in changes:
        values["alpha"] = None
    if method is not None and not method.decays and "weight_decay" not in changes:
        values["weight_decay"] = 0.0
    return recipe.validated(values)


def differences(there: Mapping[str, Any], recipe: Recipe) -> str:
    """In which fields a recipe differs from a stored one; empty if in none."""
    here = recipe.to_dict()
    different = [key for key in here if there.get(key) != here[key] and key != "origin"]
    listed = ", ".join(
        f"{k} ({brief(there.get(k), plain=True)} there, {brief(here[k], plain=True)} here)"
        for k in different[:4]
    )
    return listed + (f" and {len(different) - 4} more" if len(different) > 4 else "")


def parsed_settings(kind: type[Recipe], pairs: list[str]) -> dict[str, str | None]:
    """``["lr=0.8", "alpha=2"]`` as a dict; unknown keys are refused with the nearest right name."""
    settings: dict[str, str | None] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"--set needs key=value but got {pair!r}")
        _check_known(key, [name for name in kind.model_fields if name != "origin"])
        if key in settings:
            raise ValueError(f"--set gives {key} twice, {settings[key]} and {value}: give one")
        optional = type(None) in get_args(kind.model_fields[key].annotation)
        settings[key] = None if optional and value.lower() == "none" else value
    return settings


def _check_known(key: str, known: Collection[str]) -> None:
    if key not in known:
        hint = did_you_mean(key, known, cutoff=0.3)
        raise ValueError(f"a recipe has no field {brief(key)}; {hint}")


_WORDS = {"lr": "auto", "radius": "fan_in"}
"""What may stand in the place of a number."""
_SELDOM = ("origin", "step_length", "radius")
"""Fields that are written only where they say something: older runs have none."""
_SIZES = ("batch_size", "image_size", "padding", "crop", "width", "short_side", "max_side")
_LEAST, _MOST = 1e-12, 10**9
_MOST_OF: dict[str, float] = {
    **dict.fromkeys(("lr", "alpha", "epochs", "classes"), 10**6),
    **dict.fromkeys(("batch_size", "eval_batch_size", "accumulate"), 2**20),
    **dict.fromkeys(("image_size", "padding", "crop", "width", "short_side", "max_side"), 2**16),
    "weight_decay": 1000,
    "workers": 1024,
    "seed": 2**32 - 1,
}
"""Beyond these a number is a slip of the pen, and overflows what it is multiplied with."""


def _check_bounds(name: str, number: float) -> None:
    most = _MOST_OF.get(name, _MOST)
    if abs(number) > most:
        raise ValueError(f"{name}: must be at most {most:,} but got {brief(number)}")
    if number and abs(number) < _LEAST:
        raise ValueError(f"{name}: must be at least {_LEAST:g} but got {number:g}")
    if name == "std" and number <= 0:
        raise ValueError(f"std: must be greater than 0 but got {number:g}")


def _is_list(kind: type[Recipe], key: str) -> bool:
    return getattr(kind.model_fields[key].annotation, "__origin__", None) is tuple


def _numbers(key: str, text: str | float) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in str(text).split(","))
    except ValueError:
        raise ValueError(f"{key}: numbers with commas between but got {text!r}") from None
