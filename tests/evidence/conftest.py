"""Landscapes small enough to work out by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

Write = Callable[..., Path]
Value = Callable[[float, float, int], float]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """A landscape's file: accuracy = value(lr, level, seed) at full length, growing by epochs."""

    def written(
        value: Value,
        *,
        axis: str = "weight_decay",
        lrs: Iterable[float] = (0.25, 1.0, 4.0),
        levels: Iterable[float] = (1e-4, 1e-2),
        seeds: int = 1,
        epochs: int = 8,
        short: float | None = None,
        lower: float = 20.0,
        scale: float | None = None,
        name: str = "small",
    ) -> Path:
        points: list[dict[str, Any]] = []
        levels = tuple(levels)
        for seed in range(seeds):
            for lr in lrs:
                for level in levels:
                    full = value(lr, level, seed)
                    point = {"lr": lr, axis: level, "seed": seed, "largest_scale": scale}
                    curve = [full * (e + 1) / epochs for e in range(epochs)]
                    points.append(point | {"fraction": 1.0, "accuracy": full, "curve": curve})
                    if short is not None and level == levels[0]:
                        early = full - lower
                        points.append(
                            point | {"fraction": short, "accuracy": early, "curve": [early]}
                        )
        file = tmp_path / f"{name}-{axis}.json"
        file.write_text(json.dumps({"name": name, "points": points}))
        return file

    return written
