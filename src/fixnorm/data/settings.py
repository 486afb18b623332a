"""How images become tensors."""

from dataclasses import dataclass
from typing import Literal, get_args

from fixnorm.data.checks import check_least, check_normalisation

TrainCrop = Literal["none", "pad", "random-resized"]
EvalCrop = Literal["none", "resnet", "efficientnet"]
Interpolation = Literal["bilinear", "bicubic"]


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """Size, crops, augmentation and loading of a classification set."""

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
    flip: bool = False
    """Mirror half of the training images."""
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
    workers: int = 0
    """Loader processes of a streaming set; 0 loads in the training process."""
    in_memory: bool | None = None
    """Whether pixels live in memory; None: when they take at most 2 GB and can."""
    skip_broken: bool = False
    """Leave out image files that do not decode, and count them, instead of stopping."""
    classes: int | None = None
    """Keep the first n classes."""
    train_per_class: int | None = None
    """Keep at most the first n training images of each class, by sorted file name."""
    val_per_class: int | None = None
    """Keep at most the first n validation images of each class."""

    def __post_init__(self) -> None:
        for name, kind in (
            ("train_crop", TrainCrop),
            ("eval_crop", EvalCrop),
            ("train_interpolation", Interpolation),
        ):
            if getattr(self, name) not in get_args(kind):
                choices = ", ".join(get_args(kind))
                raise ValueError(f"{name} must be one of {choices} but got {getattr(self, name)!r}")
        check_least(
            self, image_size=1, padding=0, workers=0, classes=1, train_per_class=1, val_per_class=1
        )
        if not 0 < self.min_scale <= 1:
            raise ValueError(f"min_scale must be in (0, 1] but got {self.min_scale}")
        check_normalisation(self.mean, self.std)
        if self.in_memory and self.auto_augment is not None:
            raise ValueError(
                f"auto_augment={self.auto_augment!r} works on single images and in_memory=True on"
                " whole batches: leave in_memory unset or drop auto_augment"
            )
