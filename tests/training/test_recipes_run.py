"""Every row of Table 2 trains end to end on a few images laid out as ImageNet."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fixnorm import recipes
from fixnorm.training import changed, train
from helpers.processes import train_by_two

TABLE_2 = recipes.groups()["Table 2"]
SMALL = {
    "image_size": 32,
    "epochs": 1,
    "warmup_epochs": 0,
    "batch_size": 8,
    "workers": 0,
    "eval_batch_size": 4,
}


@pytest.fixture(scope="module")
def imagenet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("imagenet")
    draw = np.random.default_rng(0)
    for split, count in (("train", 8), ("val", 3)):
        for name in ("n01440764", "n01443537"):
            folder = root / split / name
            folder.mkdir(parents=True)
            for i in range(count):
                pixels = draw.integers(0, 256, (48, 40, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{name}_{i}.JPEG")
    return root


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLE_2)
def test_one_epoch_in_one_process(name: str, imagenet: Path, tmp_path: Path) -> None:
    result = train(changed(recipes.get(name), **SMALL), data=imagenet, out=tmp_path / "run")
    assert result["steps"] == 2
    assert result["accuracy"] in [pytest.approx(100 * k / 6) for k in range(7)]


@pytest.mark.slow
def test_one_epoch_by_two_processes(imagenet: Path, tmp_path: Path) -> None:
    """One of each family: squeeze and excitation, wide ResNets."""
    families = [name for name in TABLE_2 if name.startswith(("efficientnet-b0", "resnet50d-120"))]
    assert len(families) == 2
    trainings = {tmp_path / name: changed(recipes.get(name), **SMALL) for name in families}
    train_by_two(trainings, data=imagenet, place=tmp_path)
    for out in trainings:
        result = json.loads((out / "result.json").read_text())
        assert result["processes"] == 2
        assert result["steps"] == 2
        # all six validation images are counted, each once
        assert result["accuracy"] in [pytest.approx(100 * k / 6) for k in range(7)]
