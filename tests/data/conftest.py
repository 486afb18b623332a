from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

MakeFolder = Callable[..., Path]


@pytest.fixture
def make_folder(tmp_path: Path) -> MakeFolder:
    """ROOT/{train,val}/CLASS/NN.png of seeded noise; every image differs from every other."""

    def make(
        *,
        classes: tuple[str, ...] = ("ant", "bee", "cat"),
        train: int = 7,
        val: int = 5,
        size: tuple[int, int] = (12, 12),
    ) -> Path:
        rng = np.random.default_rng(0)
        root = tmp_path / "set"
        for split, count in (("train", train), ("val", val)):
            for name in classes:
                folder = root / split / name
                folder.mkdir(parents=True)
                for i in range(count):
                    pixels = rng.integers(0, 256, (*size, 3), dtype=np.uint8)
                    Image.fromarray(pixels).save(folder / f"{i:02}.png")
        return root

    return make
