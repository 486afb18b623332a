"""What happens to images: crops, flips, the augmentation policies."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.nn import functional
from torchvision.transforms import InterpolationMode, v2
from torchvision.transforms.v2 import functional as F

from fixnorm.data.crops import (
    Crops,
    ScaledCrop,
    flips,
    padded_crops,
    policy_seed,
    resized_crops,
)
from fixnorm.data.draws import seeded
from fixnorm.data.images import to_pixels
from fixnorm.data.settings import DataSettings, SegmentationSettings
from fixnorm.system.extras import needs

_BILINEAR, _BICUBIC = InterpolationMode.BILINEAR, InterpolationMode.BICUBIC


def _image(result: Any) -> Image.Image:
    assert isinstance(result, Image.Image)
    return result


def resized(
    image: Image.Image,
    height: int,
    width: int,
    mode: Image.Resampling = Image.Resampling.BILINEAR,
) -> Image.Image:
    """To height × width: along x, then y (Pillow's own order depends on its version)."""
    return image.resize((width, image.height), mode).resize((width, height), mode)


def fit(image: Image.Image, size: int) -> Image.Image:
    """Short side to `size`, centre crop; nothing happens to an image of that size."""
    return _image(F.center_crop(F.resize(image, [size], _BILINEAR), [size, size]))


def resnet_crop(image: Image.Image, size: int) -> Image.Image:
    """Short side to size/0.875 (256 for 224), centre crop."""
    return _image(F.center_crop(F.resize(image, [int(size / 0.875)], _BILINEAR), [size, size]))


def efficientnet_crop(image: Image.Image, size: int) -> Image.Image:
    """The centre square of side short × size/(size + 32), resized to `size` by bicubic."""
    side = max(1, int(size / (size + 32) * min(image.size)))
    # the reference rounds half pixels up, torchvision's center_crop to even
    top, left = (image.height - side + 1) // 2, (image.width - side + 1) // 2
    return _image(F.resized_crop(image, top, left, side, side, [size, size], _BICUBIC))


_EVAL_CROPS = {"none": fit, "resnet": resnet_crop, "efficientnet": efficientnet_crop}


def eval_image(image: Image.Image, settings: DataSettings) -> Image.Image:
    """The image that evaluation sees."""
    return _EVAL_CROPS[settings.eval_crop](image, settings.image_size)


def train_base(image: Image.Image, settings: DataSettings) -> Image.Image:
    """The part of the training transform that is the same in every epoch."""
    return image if settings.train_crop == "random-resized" else fit(image, settings.image_size)


def resized_crop(image: Image.Image, crops: Crops, at: int, settings: DataSettings) -> Image.Image:
    """Crop `at` of those, resized to what the model sees."""
    top, left, height, width = (int(side[at]) for side in crops)
    mode, size = Image.Resampling[settings.train_interpolation.upper()], settings.image_size
    return resized(image.crop((left, top, left + width, top + height)), size, size, mode)


def train_image(
    image: Image.Image, draws: NDArray[np.float64], settings: DataSettings
) -> Image.Image:
    """The image that one epoch of training sees: crop, flip, policy."""
    size = settings.image_size
    image = train_base(image, settings)
    if settings.train_crop == "pad":
        crops = padded_crops(draws, size=size, padding=settings.padding)
        top, left, height, width = (int(side[0]) for side in crops)
        image = _image(F.crop(F.pad(image, [settings.padding]), top, left, height, width))
    elif settings.train_crop == "random-resized":
        crops = resized_crops(
            draws, height=image.height, width=image.width, min_scale=settings.min_scale
        )
        image = resized_crop(image, crops, 0, settings)
    if settings.flip and flips(draws)[0]:
        image = _image(F.horizontal_flip(image))
    if settings.auto_augment is not None:
        image = _augmented(image, policy_seed(draws), settings)
    return image


def flipped(pixels: torch.Tensor, flip: NDArray[np.bool_]) -> torch.Tensor:
    """Mirror the chosen images of a batch."""
    if not flip.any():
        return pixels
    return torch.where(torch.from_numpy(flip)[:, None, None, None], pixels.flip(3), pixels)


def cropped(pixels: torch.Tensor, crops: Crops, flip: NDArray[np.bool_]) -> torch.Tensor:
    """Crop b of image b, all of one size, mirrored where `flip`: one gather for the batch."""
    batch, channels, _, full_width = pixels.shape
    height, width = int(crops.height[0]), int(crops.width[0])
    x = np.arange(width)
    columns = crops.left[:, None] + np.where(flip[:, None], x[::-1], x)
    rows = crops.top[:, None] + np.arange(height)
    index = torch.from_numpy(rows[:, :, None] * full_width + columns[:, None, :])
    return (
        pixels.flatten(2)
        .gather(2, index.view(batch, 1, -1).expand(-1, channels, -1))
        .view(batch, channels, height, width)
    )


# -- an image and its pixel labels: scale, crop, pad, flip -----------------------------------------


def image_crop(image: NDArray[np.uint8], at: ScaledCrop) -> torch.Tensor:
    """uint8 (3, rows, columns) of an image (h, w, 3), bilinear, not yet mirrored."""
    h = image.shape[0]
    wide = resized(Image.fromarray(image), h, at.width)
    # y is resized after x: columns that the crop leaves out can go before
    columns = wide.crop((at.left, 0, at.left + at.columns, h))
    tall = resized(columns, at.height, at.columns)
    return to_pixels(tall.crop((0, at.top, at.columns, at.top + at.rows)))


def label_crop(labels: NDArray[np.uint8], at: ScaledCrop) -> torch.Tensor:
    """(rows, columns) of the labels in which the scaled pixels' centres lie, not yet mirrored.

    The centre of scaled pixel i is in pixel floor((i + ½) · h/height).
    """
    h, w = labels.shape
    rows = (2 * np.arange(at.top, at.top + at.rows) + 1) * h // (2 * at.height)
    columns = (2 * np.arange(at.left, at.left + at.columns) + 1) * w // (2 * at.width)
    return torch.from_numpy(labels[rows[:, None], columns])


def completed(
    crop: torch.Tensor, at: ScaledCrop, settings: SegmentationSettings, *, fill: int
) -> torch.Tensor:
    """Padded at the bottom and the right to the size of a crop, then mirrored where it must be."""
    height, width = settings.crop_size
    padded = functional.pad(crop, (0, width - at.columns, 0, height - at.rows), value=fill)
    return padded.flip(-1) if at.flip else padded


# -- augmentation policies -------------------------------------------------------------------------


def _augmented(image: Image.Image, seed: int, settings: DataSettings) -> Image.Image:
    if image.mode != "RGB":  # the policies' colour operations and fill values are made for it
        return _augmented(image.convert("RGB"), seed, settings).convert(image.mode)
    with seeded(seed):
        return _image(policy(settings)(image))


@functools.lru_cache(maxsize=8)
def policy(settings: DataSettings) -> Callable[[Image.Image], Any]:
    """The transform that `settings.auto_augment` names."""
    name = settings.auto_augment
    assert name is not None
    if name in {kind.value for kind in v2.AutoAugmentPolicy}:
        transform: Callable[[Image.Image], Any] = v2.AutoAugment(v2.AutoAugmentPolicy(name))
        return transform
    try:
        from timm.data import auto_augment as timm_policies
    except ModuleNotFoundError as error:
        raise ValueError(needs(f"auto_augment={name!r}", "timm", "train")) from error
    mean = settings.mean if len(settings.mean) == 3 else settings.mean[:1] * 3
    options = {
        "translate_const": int(settings.image_size * 0.45),
        "img_mean": tuple(min(255, round(255 * m)) for m in mean),
    }
    build = timm_policies.auto_augment_transform
    if name.startswith("rand"):
        build = timm_policies.rand_augment_transform
    elif name.startswith("augmix"):
        build = timm_policies.augment_and_mix_transform
    try:
        transform = build(name, options)
    except (AssertionError, ValueError, KeyError, IndexError) as error:
        raise ValueError(
            f"auto_augment={name!r} is no policy: try imagenet, cifar10, svhn, v0, original,"
            " rand-m9-mstd0.5 or augmix-m3"
        ) from error
    _allow_zero_bits(transform, timm_policies.posterize)
    return transform


def _allow_zero_bits(transform: Any, posterize: Callable[..., Image.Image]) -> None:
    """Posterize to 0 bits is black in the reference; recent Pillow raises on it instead."""

    def patient(image: Image.Image, bits: int, **options: Any) -> Image.Image:
        if bits < 1:
            return Image.new(image.mode, image.size)
        return posterize(image, bits, **options)

    ops = getattr(transform, "ops", None)
    if ops is None:
        ops = [op for pair in transform.policy for op in pair]
    for op in ops:
        if op.aug_fn is posterize:
            op.aug_fn = patient
