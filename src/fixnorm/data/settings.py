"""How images become tensors.

What a recipe says of its images is declared here once: `ClassificationFields` and the like are
fields of the settings below and of the recipes in `fixnorm.training.tasks`.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

TrainCrop = Literal["none", "pad", "random-resized"]
EvalCrop = Literal["none", "resnet", "efficientnet"]
Interpolation = Literal["bilinear", "bicubic"]


@dataclass(frozen=True, kw_only=True)
class Loading:
    """What the loading of every set has in common."""

    flip: bool = False
    """Mirror half of the training images."""
    workers: int = 0
    """Loader processes; 0 loads in the training process. Classification in memory needs none."""
    in_memory: bool | None = None
    """Whether decoded pixels live in memory; None: when they take at most 2 GB and can."""
    skip_broken: bool = False
    """Leave out, and count, images that do not decode or do not fit their labels, and those
    whose file or label file is missing, instead of stopping."""

    def __post_init__(self) -> None:
        _check_least(self, workers=0)


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class ClassificationFields:
    """Size, crops, augmentation and share of a classification set."""

    image_size: int
    """Side of the square images the model sees."""
    train_crop: TrainCrop = "none"
    """`none`: short side to image_size, centre crop (nothing happens to images of that size).
    `pad`: the same, then `padding` black pixels on each side and a random crop of image_size.
    `random-resized`: a random box of the original image, resized to image_size."""
    padding: int = 4
    """Pixels that `pad` adds on each side."""
    min_scale: float = 0.08
    """The smallest share of the image's area that `random-resized` takes."""
    train_interpolation: Interpolation = "bilinear"
    """The filter of `random-resized`: ResNet's reference is bilinear, EfficientNet's bicubic."""
    auto_augment: str | None = None
    """A torchvision policy (`imagenet`, `cifar10`, `svhn`) or a timm one (`v0`, `original`,
    `rand-m9-mstd0.5`, `augmix-m3`). It works on single images, so the set streams."""
    eval_crop: EvalCrop = "none"
    """`none`: short side to image_size, centre crop. `resnet`: short side to image_size/0.875,
    centre crop, bilinear. `efficientnet`: centre crop of short side × size/(size + 32), bicubic."""
    mean: tuple[float, ...] = (0.5,)
    """Subtracted from pixels in 0..1; one value, or one a channel."""
    std: tuple[float, ...] = (0.5,)
    """Divides them afterwards; one value, or one a channel."""
    classes: int | None = None
    """Keep the first n classes; none: all."""
    train_per_class: int | None = None
    """Keep at most the first n training images of each class, by sorted file name."""
    val_per_class: int | None = None
    """Keep at most the first n validation images of each class."""


@dataclass(frozen=True, kw_only=True)
class DataSettings(ClassificationFields, Loading):
    """All that `open_data` asks for."""

    channels_last: bool = False
    """The memory layout of batches that are streamed; their numbers are the same."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, kind in (
            ("train_crop", TrainCrop),
            ("eval_crop", EvalCrop),
            ("train_interpolation", Interpolation),
        ):
            if getattr(self, name) not in get_args(kind):
                choices = ", ".join(get_args(kind))
                raise ValueError(f"{name} must be one of {choices} but got {getattr(self, name)!r}")
        _check_least(self, image_size=1, padding=0, classes=1, train_per_class=1, val_per_class=1)
        if not 0 < self.min_scale <= 1:
            raise ValueError(f"min_scale must be in (0, 1] but got {self.min_scale}")
        _check_normalisation(self.mean, self.std)
        if self.in_memory and self.auto_augment is not None:
            raise ValueError(
                f"auto_augment={self.auto_augment!r} works on single images and in_memory=True on"
                " whole batches: leave in_memory unset or drop auto_augment"
            )


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class DenseFields:
    """The share of a segmentation or detection set."""

    train_images: int | None = None
    """Keep the first n training images; none: all."""
    val_images: int | None = None
    """Keep the first n validation images."""


@dataclass(frozen=True, kw_only=True)
class DenseSettings(DenseFields, Loading):
    """What segmentation and detection have in common."""

    flip: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_least(self, train_images=1, val_images=1)


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class SegmentationFields:
    """Scaling and normalisation of a set with a class a pixel."""

    scale: tuple[float, float] = (0.5, 2.0)
    """Training images are resized by a factor drawn uniformly between these before the crop."""
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    """Subtracted from pixels in 0..1; one value, or one a channel."""
    std: tuple[float, ...] = (0.229, 0.224, 0.225)
    """Divides them afterwards; one value, or one a channel."""


@dataclass(frozen=True, kw_only=True)
class SegmentationSettings(SegmentationFields, DenseSettings):
    """All that `open_segmentation` asks for."""

    crop: int | tuple[int, int] = 769
    """Training crops: a side, or height and width. Smaller images are padded at the bottom and the
    right: with the mean, and with labels that are ignored."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.crop_size) != 2 or min(self.crop_size) < 1:
            raise ValueError(
                f"crop must be a side or (height, width) of at least 1 but got {self.crop}"
            )
        if len(self.scale) != 2 or not 0 < self.scale[0] <= self.scale[1] < math.inf:
            raise ValueError(f"scale must be (lowest, highest) above 0 but got {self.scale}")
        _check_normalisation(self.mean, self.std)
        check_channels(self, channels=3, name="segmentation")

    @property
    def crop_size(self) -> tuple[int, int]:
        """Height and width of a training crop."""
        return (self.crop, self.crop) if isinstance(self.crop, int) else self.crop


@dataclass(frozen=True, kw_only=True)
class DetectionSettings(DenseSettings):
    """All that `open_detection` asks for."""

    short_side: int | None = None
    """Resize images so that their short side has this many pixels; None keeps their size."""
    max_side: int | None = None
    """But to no more than this many pixels on the long side."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_least(self, short_side=1, max_side=1)
        if self.short_side is not None and (self.max_side or self.short_side) < self.short_side:
            raise ValueError(
                f"max_side must be at least short_side {self.short_side} but got {self.max_side}"
            )


def _check_least(settings: Any, **least: int) -> None:
    """Each named field is None or at least its number."""
    for name, lowest in least.items():
        value = getattr(settings, name)
        if value is not None and value < lowest:
            raise ValueError(f"{name} must be at least {lowest} but got {value}")


def _check_normalisation(mean: tuple[float, ...], std: tuple[float, ...]) -> None:
    if not all(math.isfinite(m) for m in mean):
        raise ValueError(f"mean must be finite but got {mean}")
    if not all(math.isfinite(s) and s > 0 for s in std):
        raise ValueError(f"std must be positive and finite but got {std}")


def check_channels(settings: Any, *, channels: int, name: str) -> None:
    """One mean and one deviation, or one a channel."""
    for option in ("mean", "std"):
        values = getattr(settings, option)
        if len(values) not in (1, channels):
            raise ValueError(
                f"{option} must hold 1 or {channels} values for {name} but got {values}"
            )
