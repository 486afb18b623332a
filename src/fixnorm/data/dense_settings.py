"""How images with pixel labels or boxes become tensors."""

import math
from dataclasses import dataclass

from fixnorm.data.checks import check_channels, check_least, check_normalisation


@dataclass(frozen=True, kw_only=True)
class DenseSettings:
    """What segmentation and detection have in common."""

    flip: bool = True
    """Mirror half of the training images."""
    workers: int = 0
    """Loader processes; 0 loads in the training process. A set in memory uses them too."""
    in_memory: bool | None = None
    """Whether decoded pixels live in memory; None: when they take at most 2 GB."""
    skip_broken: bool = False
    """Leave out, and count, images that do not decode or do not fit their labels, and those
    whose file or label file is missing, instead of stopping."""
    train_images: int | None = None
    """Keep the first n training images."""
    val_images: int | None = None
    """Keep the first n validation images."""

    def __post_init__(self) -> None:
        check_least(self, workers=0, train_images=1, val_images=1)


@dataclass(frozen=True, kw_only=True)
class SegmentationSettings(DenseSettings):
    """Scaling, crops and loading of a set with a class a pixel."""

    crop: int | tuple[int, int] = 769
    """Training crops: a side, or height and width. Smaller images are padded at the bottom and the
    right: with the mean, and with labels that are ignored."""
    scale: tuple[float, float] = (0.5, 2.0)
    """Training images are resized by a factor drawn uniformly between these before the crop."""
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    """Subtracted from pixels in 0..1; one value, or one a channel."""
    std: tuple[float, ...] = (0.229, 0.224, 0.225)
    """Divides them afterwards; one value, or one a channel."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.crop_size) != 2 or min(self.crop_size) < 1:
            raise ValueError(
                f"crop must be a side or (height, width) of at least 1 but got {self.crop}"
            )
        if len(self.scale) != 2 or not 0 < self.scale[0] <= self.scale[1] < math.inf:
            raise ValueError(f"scale must be (lowest, highest) above 0 but got {self.scale}")
        check_normalisation(self.mean, self.std)
        check_channels(self, channels=3, name="segmentation")

    @property
    def crop_size(self) -> tuple[int, int]:
        """Height and width of a training crop."""
        return (self.crop, self.crop) if isinstance(self.crop, int) else self.crop


@dataclass(frozen=True, kw_only=True)
class DetectionSettings(DenseSettings):
    """Size and loading of a set with boxes."""

    short_side: int | None = None
    """Resize images so that their short side has this many pixels; None keeps their size."""
    max_side: int | None = None
    """But to no more than this many pixels on the long side."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, short_side=1, max_side=1)
        if self.short_side is not None and (self.max_side or self.short_side) < self.short_side:
            raise ValueError(
                f"max_side must be at least short_side {self.short_side} but got {self.max_side}"
            )
