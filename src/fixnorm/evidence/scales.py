"""What each experiment trains: workloads of half a minute on one core, and the paper's own.

At small scale a few thousand images are trained for some epochs: overfitting is what weight decay
works against there, so its range goes up to 8e-3 where the paper's ends at 5e-4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import cast

from fixnorm import recipes
from fixnorm.evidence.scale_names import ScaleName, check_scale
from fixnorm.evidence.trainings import Training, Value
from fixnorm.methods import MethodName
from fixnorm.training.kinds import Metric, metric_of
from fixnorm.training.recipe import Recipe, changed
from fixnorm.tuning.lengths import length_of
from fixnorm.tuning.plan import PAPER, SearchSpace
from fixnorm.tuning.plans import DEFAULT

__all__ = ["PAPER_SCALE", "SCALES", "SMALL", "Ranges", "Scale", "Workload", "scale_of"]


@dataclass(frozen=True, kw_only=True)
class Ranges:
    """Of learning rate and weight decay; searched on a log scale."""

    lr: tuple[float, float]
    weight_decay: tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A recipe with its data, and where to look for its best numbers."""

    name: str
    recipe: str
    changes: Mapping[str, Value] = field(default_factory=dict)
    data: str | None
    space: SearchSpace = PAPER
    """Of lr and alpha."""
    decay: Ranges
    """Of lr and weight decay."""
    seeds: int | None = None
    """Of its comparisons, where they are not as many as those of its scale."""

    def training(
        self, method: MethodName, *, seed: int, fraction: float = 1.0, **numbers: Value
    ) -> Training:
        """One of its trainings; numbers that are none stay as the recipe has them."""
        base = self.recipe_for(method)
        given = {name: value for name, value in numbers.items() if value is not None}
        length = length_of(base, fraction)
        if length != base.length:
            given |= base.of_length(length)
        return Training(
            base=self.recipe,
            method=method,
            changes=tuple({**self.changes, **given, "seed": seed}.items()),
            data=self.data,
            cost=length / base.length,
        )

    def recipe_for(self, method: MethodName) -> Recipe:
        """The recipe of a method as it stands."""
        return changed(recipes.get(self.recipe, method), **self.changes)

    @property
    def model(self) -> str | None:
        """Where it is not the recipe's own."""
        model = self.changes.get("model")
        return None if model is None else str(model)

    @property
    def metric(self) -> Metric:
        """What it is judged by."""
        return metric_of(self.recipe_for("fixnorm"))


@dataclass(frozen=True, kw_only=True)
class Scale:
    """What each experiment trains."""

    name: ScaleName
    fig1: Workload
    fig2: Workload
    fig4: tuple[Workload, ...]
    table1: tuple[Workload, ...]
    table2: tuple[Workload, ...]
    table3: tuple[Workload, ...]
    table4: tuple[Workload, ...]
    peers: Workload
    forgiveness: tuple[Workload, ...]
    """Settings that one default has to serve: chosen on every other one, judged on the rest."""
    norm_decays: tuple[float, ...] = ()
    """Further λ for the norm of ``fig1``: it settles after about 1/(4·lr·λ) steps, which a short
    training with the recipe's own λ does not have."""
    budgets: tuple[int, ...]
    """Trainings of BO + weight decay, for each workload of ``table1``."""
    table3_budget: int = 0
    """Of a search for lr and weight decay beside the recipe's own: what FixNorm's search took."""
    table4_budget: int = 0
    """The same."""
    plans: tuple[str, ...] = (DEFAULT,)
    """Ways to search for lr and alpha in ``table1``; of them ``auto`` in ``table2``, too."""
    fig4_anew: tuple[Workload, ...] = ()
    """By its workloads, how places that decide whether lr and alpha are independent are trained."""
    adamw: Ranges
    sgdp: Ranges
    seeds: int = 3
    """Of every comparison."""
    searches: int = 3
    """Independent repetitions of each search of ``table1``."""


_PAPER_DECAY = Ranges(lr=(0.2, 3.2), weight_decay=(1e-5, 5e-4))
_SMALL_DECAY = Ranges(lr=(0.1, 3.2), weight_decay=(1e-4, 8e-3))


def _small(name: str, recipe: str, data: str, **changes: Value) -> Workload:
    return Workload(name=name, recipe=recipe, changes=changes, data=data, decay=_SMALL_DECAY)


def _dense(name: str, recipe: str, data: str, *, lr: tuple[float, float]) -> Workload:
    """The lr in which FixNorm's numbers were searched for."""
    decay = Ranges(lr=lr, weight_decay=_SMALL_DECAY.weight_decay)
    return Workload(name=name, recipe=recipe, data=data, decay=decay, seeds=6)


def _full(recipe: str, data: str = "imagenet") -> Workload:
    return Workload(name=recipe, recipe=recipe, data=data, decay=_PAPER_DECAY)


def _relative(name: str, **changes: Value) -> Workload:
    """A small relative of a model of Table 2."""
    changes = {"epochs": 5, **_scored_once(5), **changes}
    return replace(_small(name, "cifar10-quick", "cifar10", **changes), seeds=10)


def _short(name: str, model: str, *, images: int, epochs: int, batch: int) -> Workload:
    """Seconds on one core: images of CIFAR-10 at 16×16, judged by all 10,000 of validation."""
    return _small(
        name,
        "cifar10-quick",
        "cifar10",
        model=model,
        image_size=16,
        padding=2,
        train_per_class=images,
        val_per_class=None,
        batch_size=batch,
        **_once(epochs),
    )


def _short_tiny(name: str, model: str) -> Workload:
    """The same with 50 classes of Tiny-ImageNet, judged by all their 1,500 images of validation."""
    return _small(
        name,
        "tiny-imagenet-quick",
        "tiny_imagenet_100",
        model=model,
        image_size=16,
        padding=2,
        batch_size=64,
        **_once(12),
    )


def _scored_once(epochs: int) -> dict[str, Value]:
    """By all 10,000 validation images of CIFAR-10, at the end alone."""
    return {"val_per_class": None, "eval_every": epochs}


def _once(epochs: int) -> dict[str, Value]:
    """A tenth of the training is warm-up; it is evaluated at its end alone."""
    return {"epochs": epochs, "warmup_epochs": epochs / 10, "eval_every": epochs}


_CIFAR = _small("CIFAR-10", "cifar10-quick", "cifar10")
_TINY = _small("Tiny-ImageNet", "tiny-imagenet-quick", "tiny_imagenet_100")
_CIFAR_SCORED_ONCE = _small("CIFAR-10", "cifar10-quick", "cifar10", **_scored_once(10))
_MOBILE = "micronet-mobilenetv2"
_TABLE1 = tuple(
    replace(workload, seeds=6)
    for workload in (
        _short("CIFAR-10", "resnet8-w8", images=500, epochs=10, batch=64),
        _short("CIFAR-10, MobileNetV2", _MOBILE, images=500, epochs=10, batch=64),
        _short_tiny("Tiny-ImageNet", "resnet8-w8"),
        _short_tiny("Tiny-ImageNet, MobileNetV2", _MOBILE),
    )
)
_FORGIVENESS = (
    _short("long, 4 wide", "resnet8-w4", images=100, epochs=60, batch=64),
    _short("24 wide", "resnet8-w24", images=50, epochs=12, batch=64),
    _short("20 layers", "resnet20-w8", images=100, epochs=12, batch=64),
    _short("20 images a class", "resnet8-w8", images=20, epochs=80, batch=32),
    _short("batch of 256", "resnet8-w8", images=300, epochs=10, batch=256),
    _short("batch of 16", "resnet8-w8", images=100, epochs=10, batch=16),
    _short_tiny("Tiny-ImageNet", "resnet8-w8"),
    Workload(name="digits", recipe="few-digits", data=None, decay=_SMALL_DECAY),
)
"""They differ in width, depth, length, batch, images a class and data."""
_TRICKS: dict[str, Value] = {"drop_path": 0.1, "auto_augment": "cifar10", "workers": 1}

SMALL = Scale(
    name="small",
    fig1=_CIFAR,
    fig2=_small("Tiny-ImageNet, long", "tiny-imagenet-head", "tiny_imagenet_100"),
    fig4=(_CIFAR, _TINY),
    table1=_TABLE1,
    table2=(
        _relative("ResNet-8"),
        _relative("ResNet-8-D", model="resnet8d-s2"),
        _relative("MobileNetV2", model=_MOBILE),
        _relative("MobileNetV2*", model="micronet-se", **_TRICKS),
    ),
    table3=(_dense("CamVid", "cityscapes-small", "cityscapes", lr=(0.05, 0.8)),),
    table3_budget=7,
    table4=(_dense("BCCD", "coco-small", "coco", lr=(0.02, 0.32)),),
    table4_budget=3,
    peers=_TINY,
    forgiveness=_FORGIVENESS,
    norm_decays=(8e-3,),
    budgets=(25,) * len(_TABLE1),
    plans=("paper", "unimodal", "auto"),
    fig4_anew=tuple(replace(each, seeds=8) for each in (_CIFAR_SCORED_ONCE, _TINY)),
    adamw=Ranges(lr=(3e-4, 3e-2), weight_decay=(1e-3, 1.0)),
    sgdp=Ranges(lr=(0.05, 3.2), weight_decay=(1e-5, 8e-3)),
)

PAPER_SCALE = Scale(
    name="paper",
    fig1=_full("resnet50-100"),
    fig2=_full("resnet50-100"),
    fig4=(_full("resnet50-50"),),
    table1=(_full("resnet50d-120"), _full("mobilenetv2-150")),
    table2=tuple(_full(name) for name in recipes.groups()["Table 2"]),
    table3=(
        _full("cityscapes-baseoc-r101", "cityscapes"),
        _full("cityscapes-baseoc-r101-cos", "cityscapes"),
    ),
    table4=(_full("coco-retinanet-r50", "coco"), _full("coco-retinanet-r50-cos", "coco")),
    peers=_full("resnet50-50"),
    forgiveness=tuple(_full(name) for name in recipes.groups()["Table 2"]),
    budgets=(25, 35),
    adamw=Ranges(lr=(3e-4, 1e-2), weight_decay=(1e-3, 0.5)),
    sgdp=Ranges(lr=(0.05, 3.2), weight_decay=(1e-6, 5e-4)),
    seeds=1,
    searches=1,
)

SCALES: dict[ScaleName, Scale] = {"small": SMALL, "paper": PAPER_SCALE}


def scale_of(name: str) -> Scale:
    """The scale of that name."""
    check_scale(name)
    return SCALES[cast(ScaleName, name)]
