"""Small segmenters and detectors in training, on sets that the tests make."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fixnorm.training import DetectionRecipe, Recipe, SegmentationRecipe

STRIPES = {7: (200, 40, 40), 8: (40, 200, 40), 11: (40, 40, 200)}
"""Label ids of road, sidewalk and building, each with a colour that tells it."""


def striped_streets(root: Path, *, train: int = 6, val: int = 3) -> Path:
    """Images of three stripes in Cityscapes' layout; a border pixel is unlabelled."""
    rng = np.random.default_rng(0)
    for split, count in (("train", train), ("val", val)):
        images = root / "leftImg8bit" / split / "town"
        labels = root / "gtFine" / split / "town"
        images.mkdir(parents=True)
        labels.mkdir(parents=True)
        for k in range(count):
            ids = np.zeros((32, 48), dtype=np.uint8)
            for at, label in enumerate(rng.permutation(list(STRIPES))):
                ids[:, 16 * at : 16 * (at + 1)] = label
            pixels = np.zeros((32, 48, 3), dtype=np.uint8)
            for label, colour in STRIPES.items():
                pixels[ids == label] = colour
            noisy = np.clip(pixels + rng.integers(-30, 30, pixels.shape), 0, 255).astype(np.uint8)
            ids[0, 0] = 0  # "unlabeled"
            Image.fromarray(noisy).save(images / f"town_{k:06}_000000_leftImg8bit.png")
            Image.fromarray(ids).save(labels / f"town_{k:06}_000000_gtFine_labelIds.png")
    return root


def boxes_on_noise(root: Path, *, train: int = 6, val: int = 3) -> Path:
    """Red and blue squares on grey noise in COCO's layout, ids 3 (red) and 7 (blue)."""
    rng = np.random.default_rng(0)
    number = 0
    (root / "annotations").mkdir(parents=True)
    for split, count in (("train", train), ("val", val)):
        (root / f"{split}2017").mkdir()
        content: dict[str, Any] = {
            "images": [],
            "annotations": [],
            "categories": [{"id": 3, "name": "red"}, {"id": 7, "name": "blue"}],
        }
        for k in range(count):
            pixels = rng.integers(100, 140, (64, 64, 3), dtype=np.uint8)
            content["images"].append({"id": k, "file_name": f"{k}.png", "height": 64, "width": 64})
            for category, left in ((3, 2), (7, 34)):
                x, y = left + int(rng.integers(0, 6)), int(rng.integers(2, 38))
                pixels[y : y + 24, x : x + 24] = (220, 30, 30) if category == 3 else (30, 30, 220)
                number += 1
                content["annotations"].append(
                    {
                        "id": number,
                        "image_id": k,
                        "category_id": category,
                        "bbox": [x, y, 24, 24],
                        "area": 576,
                        "iscrowd": 0,
                    }
                )
            Image.fromarray(pixels).save(root / f"{split}2017" / f"{k}.png")
        (root / "annotations" / f"instances_{split}2017.json").write_text(json.dumps(content))
    return root


def segmenter(**fields: Any) -> SegmentationRecipe:
    values: dict[str, Any] = {
        "name": "cityscapes-small",
        "model": "base-oc/test_resnet",
        "width": 16,
        "crop": (32, 32),
        "scale": (1.0, 1.0),
        "lr": 0.1,
        "alpha": 1.0,
        "iterations": 4,
        "batch_size": 2,
        "eval_every": 2,
        "eval_batch_size": 2,
        "workers": 0,
        "mcbr_every": 1,
    }
    return SegmentationRecipe.validated(values | fields)


def detector(**fields: Any) -> DetectionRecipe:
    values: dict[str, Any] = {
        "name": "coco-small",
        "model": "retinanet/resnet18",
        "width": 16,
        "smallest_anchor": 16,
        "he_subnets": True,
        "short_side": 64,
        "max_side": 64,
        "lr": 0.02,
        "alpha": 0.5,
        "iterations": 4,
        "batch_size": 2,
        "eval_every": 2,
        "eval_batch_size": 2,
        "workers": 0,
        "mcbr_every": 1,
    }
    return DetectionRecipe.validated(values | fields)


def as_options(recipe: Recipe, *, without: Iterable[str] = ()) -> list[str]:
    """The recipe as ``--set`` options of the one of that name."""
    options: list[str] = []
    for key, value in recipe.to_dict().items():
        if key in {"name", "task", "data", *without}:
            continue
        told = ",".join(map(str, value)) if isinstance(value, list) else value
        options += ["--set", f"{key}={'none' if told is None else told}"]
    return options
