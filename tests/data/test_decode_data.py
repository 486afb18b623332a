"""Every image mode becomes the RGB a person would expect."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fixnorm.data import DataError
from fixnorm.data.images import read_image


def _read(path: Path) -> np.ndarray:
    image = read_image(path)
    assert image.mode == "RGB"
    return np.asarray(image).astype(int)


def test_cmyk_tiff_exactly(tmp_path: Path) -> None:
    # full magenta and yellow make red, full black makes black, no ink makes white
    inks = np.array([[[0, 255, 255, 0], [0, 0, 0, 255], [0, 0, 0, 0]]], dtype=np.uint8)
    Image.fromarray(inks, mode="CMYK").save(tmp_path / "a.tif")
    assert _read(tmp_path / "a.tif").tolist() == [[[255, 0, 0], [0, 0, 0], [255, 255, 255]]]


def test_cmyk_jpeg_is_not_inverted(tmp_path: Path) -> None:
    Image.new("CMYK", (16, 16), (255, 0, 255, 0)).save(tmp_path / "a.jpg", quality=95)
    pixels = _read(tmp_path / "a.jpg")
    assert np.abs(pixels - [0, 255, 0]).max() <= 3  # green, up to JPEG's rounding


@pytest.mark.parametrize("suffix", ["png", "tif", "pgm"])
def test_sixteen_bits_are_scaled_not_clipped(tmp_path: Path, suffix: str) -> None:
    # v/257: 0 → 0, 257 → 1, 32896 → 128, 65535 → 255; 385 = 1.498 · 257 rounds down, 386 up
    values = np.array([[0, 257, 385, 386, 32896, 65535]], dtype=np.uint16)
    Image.fromarray(values).save(tmp_path / f"a.{suffix}")
    assert _read(tmp_path / f"a.{suffix}")[0, :, 0].tolist() == [0, 1, 1, 2, 128, 255]


def test_palette_with_transparency(tmp_path: Path) -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([10, 20, 30, 200, 100, 50])
    image.putpixel((1, 0), 1)
    image.save(tmp_path / "a.png", transparency=b"\x00\xff")
    assert _read(tmp_path / "a.png").tolist() == [[[10, 20, 30], [200, 100, 50]]]


@pytest.mark.parametrize(
    ("mode", "colour", "expected"),
    [
        ("RGBA", (1, 2, 3, 0), [1, 2, 3]),
        ("LA", (7, 128), [7, 7, 7]),
        ("L", 9, [9, 9, 9]),
        ("1", 1, [255, 255, 255]),
    ],
)
def test_alpha_and_grey(
    tmp_path: Path, mode: str, colour: int | tuple[int, ...], expected: list[int]
) -> None:
    Image.new(mode, (1, 1), colour).save(tmp_path / "a.png")
    assert _read(tmp_path / "a.png")[0, 0].tolist() == expected


def test_float_pixels_are_refused(tmp_path: Path) -> None:
    Image.new("F", (2, 2), 0.5).save(tmp_path / "a.tif")
    with pytest.raises(DataError, match=r"a\.tif: float pixels have no known range"):
        read_image(tmp_path / "a.tif")


def test_thirty_two_bits_are_refused(tmp_path: Path) -> None:
    Image.new("I", (2, 2), 70000).save(tmp_path / "a.tif")
    with pytest.raises(DataError, match=r"a\.tif: pixels 70000\.\.70000 are outside 0\.\.65535"):
        read_image(tmp_path / "a.tif")


def test_a_file_that_is_gone_is_not_called_broken(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot read .*a\.png: No such file"):
        read_image(tmp_path / "a.png")
