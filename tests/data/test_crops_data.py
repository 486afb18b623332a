"""Crops against numbers worked out by hand, Pillow and torchvision."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torchvision import transforms

from fixnorm.data import DataSettings
from fixnorm.data.crops import Crops, flips, padded_crops, resized_crops
from fixnorm.data.images import Normalize, to_pixels
from fixnorm.data.transforms import cropped, eval_image, fit, flipped, policy, train_image


def _noise(height: int, width: int, *, seed: int = 0) -> Image.Image:
    rng = np.random.default_rng(seed)
    return Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))


def _equal(left: Image.Image, right: Image.Image) -> bool:
    return np.array_equal(np.asarray(left), np.asarray(right))


def _row(*values: float) -> np.ndarray:
    return np.array([values + (0.0,) * (24 - len(values))])


def test_resnet_crop_is_torchvisions() -> None:
    image = _noise(300, 400)
    reference = transforms.Compose([transforms.Resize(256), transforms.CenterCrop(224)])
    ours = eval_image(image, DataSettings(image_size=224, eval_crop="resnet"))
    assert _equal(ours, reference(image))


def test_efficientnet_crop_by_hand() -> None:
    # 64/(64 + 32) × 49 = 32.7: rows (49 − 32 + 1)//2 = 9 … 41, columns (75 − 32 + 1)//2 = 22 … 54
    image = _noise(49, 75)
    expected = image.crop((22, 9, 54, 41)).resize((64, 64), Image.Resampling.BICUBIC)
    ours = eval_image(image, DataSettings(image_size=64, eval_crop="efficientnet"))
    assert _equal(ours, expected)


def test_no_crop_leaves_an_image_of_the_right_size_alone() -> None:
    image = _noise(32, 32)
    assert _equal(fit(image, 32), image)
    assert eval_image(_noise(40, 90), DataSettings(image_size=20)).size == (20, 20)


def test_padded_boxes_reach_both_ends() -> None:
    draws = np.array([[0, 0.0, 0.9999, 0], [0, 0.5, 0.12, 0]])
    boxes = padded_crops(draws, size=32, padding=4)
    assert boxes.top.tolist() == [0, 4]  # floor(0 · 9), floor(0.5 · 9)
    assert boxes.left.tolist() == [8, 1]  # floor(0.9999 · 9), floor(0.12 · 9)


def test_pad_and_crop_by_hand() -> None:
    # 2×2 in a ring of zeros: the box at (0, 1) holds the upper ring and the first row
    pixels = torch.tensor([[[[1, 2], [3, 4]]]], dtype=torch.uint8)
    padded = torch.nn.functional.pad(pixels, (1, 1, 1, 1))
    boxes = Crops(*(np.array([v]) for v in (0, 1, 2, 2)))
    assert cropped(padded, boxes, np.array([False])).tolist() == [[[[0, 0], [1, 2]]]]
    assert cropped(padded, boxes, np.array([True])).tolist() == [[[[0, 0], [2, 1]]]]


def test_half_of_the_draws_flip() -> None:
    assert flips(np.array([[0.0], [0.4999], [0.5], [0.9]])).tolist() == [True, True, False, False]


def test_flip_mirrors_only_the_chosen() -> None:
    pixels = torch.tensor([[[[1, 2, 3]]], [[[4, 5, 6]]]], dtype=torch.uint8)
    result = flipped(pixels, np.array([False, True]))
    assert result.flatten(1).tolist() == [[1, 2, 3], [6, 5, 4]]


def test_a_resized_box_by_hand() -> None:
    # area 0.2 + 0.8 · 0.0625 = 1/4 of 40×40 at ratio exp(0) = 1: 20×20, at floor(0.5 · 21) = 10
    # and floor(0.25 · 21) = 5
    draws = _row(0, 0.5, 0.25, 0, 0.0625, 0.5)
    boxes = resized_crops(draws, height=40, width=40, min_scale=0.2)
    assert [int(side[0]) for side in boxes] == [10, 5, 20, 20]


def test_the_second_attempt_counts_when_the_first_does_not_fit() -> None:
    # the whole area at ratio 4/3 is wider than the image; then the whole image
    draws = _row(0, 0.5, 0.5, 0, 1.0, 1.0, 1.0, 0.5)
    boxes = resized_crops(draws, height=30, width=30, min_scale=0.2)
    assert [int(side[0]) for side in boxes] == [0, 0, 30, 30]


@pytest.mark.parametrize(
    ("height", "width", "expected"),
    [
        (10, 100, [0, 43, 10, 13]),  # width round(10 · 4/3) = 13, centred: (100 − 13)//2
        (100, 10, [43, 0, 13, 10]),  # height round(10 / (3/4)) = 13
    ],
)
def test_a_box_that_never_fits_falls_back_to_the_centre(
    height: int, width: int, expected: list[int]
) -> None:
    boxes = resized_crops(np.full((1, 24), 0.5), height=height, width=width, min_scale=1.0)
    assert [int(side[0]) for side in boxes] == expected


@settings(max_examples=60, deadline=None)
@given(
    height=st.integers(1, 40),
    width=st.integers(1, 40),
    size=st.integers(1, 24),
    interpolation=st.sampled_from(["bilinear", "bicubic"]),
    seed=st.integers(0, 99),
)
def test_random_resized_crops_are_pillows_bit_for_bit(
    height: int, width: int, size: int, interpolation: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    images = [_noise(height, width, seed=seed + i) for i in range(3)]
    draws = rng.random((3, 24))
    boxes = resized_crops(draws, height=height, width=width, min_scale=0.08)
    assert (boxes.top >= 0).all()
    assert (boxes.top + boxes.height <= height).all()
    assert (boxes.left >= 0).all()
    assert (boxes.left + boxes.width <= width).all()
    options = DataSettings(
        image_size=size,
        train_crop="random-resized",
        train_interpolation=interpolation,  # type: ignore[arg-type]
    )
    result = [
        to_pixels(train_image(image, row[None], options))
        for image, row in zip(images, draws, strict=True)
    ]
    mode = Image.Resampling[interpolation.upper()]
    for image, top, left, h, w, ours in zip(images, *boxes, result, strict=True):
        part = image.crop((int(left), int(top), int(left + w), int(top + h)))
        expected = part.resize((size, int(h)), mode).resize((size, size), mode)
        assert torch.equal(ours, to_pixels(expected))


def test_random_resized_crops_are_torchvisions_up_to_rounding() -> None:
    # area share 0.2 + 0.8 · 0.0625 = 1/4: the box (10, 5, 20, 20) from above
    image = _noise(40, 40)
    options = DataSettings(image_size=16, train_crop="random-resized", min_scale=0.2)
    ours = np.array(train_image(image, _row(0.9, 0.5, 0.25, 0, 0.0625, 0.5), options))
    reference = transforms.functional.resized_crop(image, 10, 5, 20, 20, [16, 16])
    # the order of the two one-dimensional passes moves a value by one rounding at most
    assert np.abs(ours.astype(int) - np.array(reference).astype(int)).max() <= 1


def test_normalisation_is_torchvisions_bit_for_bit() -> None:
    image = _noise(8, 8)
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    reference = transforms.Compose([transforms.ToTensor(), transforms.Normalize(mean, std)])
    ours = Normalize(DataSettings(image_size=8, mean=mean, std=std), channels=3)
    assert torch.equal(ours(to_pixels(image)[None])[0], reference(image))


def test_one_mean_serves_all_channels() -> None:
    ours = Normalize(DataSettings(image_size=1), channels=3)
    pixels = torch.tensor([0, 255, 51], dtype=torch.uint8).view(1, 3, 1, 1)
    assert ours(pixels).flatten().tolist() == pytest.approx([-1.0, 1.0, -0.6])


@pytest.mark.parametrize("name", ["v0", "original", "rand-m10", "augmix-m10"])
def test_posterize_to_zero_bits_is_black(name: str) -> None:
    transform: Any = policy(DataSettings(image_size=4, auto_augment=name))
    pairs = [transform.ops] if hasattr(transform, "ops") else transform.policy
    ops = [op for pair in pairs for op in pair]
    functions = {op.aug_fn for op in ops if op.aug_fn.__name__ == "patient"}
    image = _noise(4, 4)
    assert functions
    for posterize in functions:
        assert np.asarray(posterize(image, 0)).max() == 0
        assert np.array_equal(posterize(image, 1), np.asarray(image) & 0x80)
        assert _equal(posterize(image, 8), image)
    assert not any(op.aug_fn.__name__ == "posterize" for op in ops)
