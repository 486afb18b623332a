"""The settings of each experiment: of half a minute on one core, and the paper's own.

At small scale a few thousand images are trained for some epochs: overfitting is what weight decay
works against there, so its range goes up to 8e-3 where the paper's ends at 5e-4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from fixnorm import recipes
from fixnorm.evidence.setting import Ranges, Setting

__all__ = ["PAPER_SCALE", "SCALES", "SMALL", "Scale", "ScaleName"]

ScaleName = Literal["small", "paper"]

_PAPER_DECAY = Ranges(lr=(0.2, 3.2), weight_decay=(1e-5, 5e-4))
_SMALL_DECAY = Ranges(lr=(0.1, 3.2), weight_decay=(1e-4, 8e-3))


@dataclass(frozen=True, kw_only=True)
class Scale:
    """All settings, by experiment."""

    name: ScaleName
    fig1: Setting
    fig2: Setting
    fig4: tuple[Setting, ...]
    table1: tuple[Setting, ...]
    table2: tuple[Setting, ...]
    table3: tuple[Setting, ...]
    table4: tuple[Setting, ...]
    peers: Setting
    norm_decays: tuple[float, ...] = ()
    """Further λ for the norm of ``fig1``: it settles after about 1/(4·lr·λ) steps, which a short
    training with the recipe's own λ does not have."""
    budgets: tuple[int, ...]
    """Trainings of BO + weight decay, for each setting of ``table1``."""
    adamw: Ranges
    sgdp: Ranges
    seeds: int = 3
    """Of every comparison."""
    searches: int = 3
    """Independent repetitions of each search of ``table1``."""


def _small(name: str, recipe: str, data: str, **changes: Any) -> Setting:
    return Setting(name=name, recipe=recipe, changes=changes, data=data, decay=_SMALL_DECAY)


def _full(recipe: str, data: str = "imagenet") -> Setting:
    return Setting(name=recipe, recipe=recipe, data=data, decay=_PAPER_DECAY)


def _relative(name: str, **changes: Any) -> Setting:
    """A small relative of a model of Table 2."""
    return _small(name, "cifar10-quick", "cifar10", epochs=5, **changes)


_CIFAR = _small("CIFAR-10", "cifar10-quick", "cifar10")
_TINY = _small("Tiny-ImageNet", "tiny-imagenet-quick", "tiny_imagenet_100")
_TRICKS = {"drop_path": 0.1, "auto_augment": "cifar10", "workers": 1}

SMALL = Scale(
    name="small",
    fig1=_CIFAR,
    fig2=_small("Tiny-ImageNet, long", "tiny-imagenet-head", "tiny_imagenet_100"),
    fig4=(_CIFAR, _TINY),
    table1=(_TINY,),
    table2=(
        _relative("ResNet-8"),
        _relative("ResNet-8-D", model="resnet8d-s2"),
        _relative("MobileNetV2", model="micronet-mobilenetv2"),
        _relative("MobileNetV2*", model="micronet-se", **_TRICKS),
    ),
    table3=(_small("CamVid", "cityscapes-small", "cityscapes"),),
    table4=(_small("BCCD", "coco-small", "coco"),),
    peers=_TINY,
    norm_decays=(8e-3,),
    budgets=(25,),
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
    budgets=(25, 35),
    adamw=Ranges(lr=(3e-4, 1e-2), weight_decay=(1e-3, 0.5)),
    sgdp=Ranges(lr=(0.05, 3.2), weight_decay=(1e-6, 5e-4)),
    seeds=1,
    searches=1,
)

SCALES: dict[ScaleName, Scale] = {"small": SMALL, "paper": PAPER_SCALE}
