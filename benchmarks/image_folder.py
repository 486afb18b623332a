"""The data path at ImageNet's shape, without ImageNet: images/s, the start, memory of a worker.

    python benchmarks/image_folder.py                # about 20 minutes and 2 GB of disk, given back

1. 20,000 JPEGs of 500×375 (about 100 KB) in 100 classes, loaded as recipe ``resnet50d-star-350``
   does: random-resized crop to 224 px, flip, AutoAugment v0, normalised batches. timm's own loader
   (``timm.data.create_loader`` without the prefetcher, which is for GPUs) does the same with the
   same transforms; the two are alternated, epoch by epoch. What counts is processor time, that of
   the loader processes included: images/s of one core. There are ``--distinct`` pictures, all
   others are further names of them (hard links), so that the files stay in the page cache: this
   measures the processor, not the disk.
2. A folder of 1.28 million names in 1,000 classes (hard links to empty files): how long it takes to
   open it, without and with the index that the first start leaves in the user's cache, and what a
   loader process then holds (Linux): all that is in its memory, its share of it, what is its alone.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import PIL
import timm
import torch
from PIL import Image

from fixnorm import recipes
from fixnorm.data import Data, DataSettings, open_data
from fixnorm.data.folder import open_folder
from fixnorm.data.transforms import policy
from fixnorm.training import ClassificationRecipe, changed
from timing import report

# -- pictures --------------------------------------------------------------------------------------


def picture(rng: np.random.Generator, width: int = 500, height: int = 375) -> Image.Image:
    """Noise of all scales, the coarse ones strongest, as in photographs."""
    pixels = np.zeros((height, width, 3), dtype=np.float32)
    for octave in range(8):
        side = 2 ** (octave + 1)
        noise = rng.standard_normal((3, side * 3 // 4 + 1, side), dtype=np.float32)
        planes = [
            np.asarray(Image.fromarray(plane).resize((width, height), Image.Resampling.BICUBIC))
            for plane in noise
        ]
        pixels += np.stack(planes, axis=-1) * 2 ** (-octave / 2)
    pixels += 0.14 * rng.standard_normal((height, width, 1), dtype=np.float32)
    pixels = 118 + 55 * (pixels - pixels.mean()) / pixels.std()
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def make_pictures(root: Path, *, images: int, distinct: int, classes: int) -> None:
    rng = np.random.default_rng(0)
    kept = root / "distinct"
    kept.mkdir(parents=True)
    files = []
    for i in range(distinct):
        files.append(kept / f"{i}.jpg")
        picture(rng).save(files[-1], quality=95)
    size = statistics.mean(file.stat().st_size for file in files)
    print(f"{images:,} names of {distinct} JPEGs of 500×375, {size / 1e3:.0f} KB each on average")
    for split, count in (("train", images), ("val", classes)):
        for label in range(classes):
            folder = root / split / f"n{label:08d}"
            folder.mkdir(parents=True)
            for i in range(label, count, classes):
                os.link(files[i % distinct], folder / f"n{label:08d}_{i}.JPEG")


def make_names(root: Path, *, names: int, classes: int) -> None:
    """Empty files; those of a class are one, for a file system allows a file so many names."""
    for split, count in (("train", names // classes), ("val", 50)):
        for label in range(classes):
            folder = root / split / f"n{label:08d}"
            folder.mkdir(parents=True)
            first = folder / f"n{label:08d}_0.JPEG"
            first.touch()
            for i in range(1, count):
                os.link(first, f"{folder}/n{label:08d}_{i}.JPEG")


# -- images a second -------------------------------------------------------------------------------


def imagenet_recipe(workers: int, images: int | None = None) -> ClassificationRecipe:
    """With so many images of each class an epoch."""
    recipe = recipes.get("resnet50d-star-350")
    recipe = changed(recipe, workers=workers, train_per_class=images)
    assert isinstance(recipe, ClassificationRecipe)
    return recipe


def timm_loader(root: Path, recipe: ClassificationRecipe, batch_size: int) -> Any:
    from timm.data import ImageDataset, create_loader

    dataset: Any = ImageDataset(str(root / "train"))  # type: ignore[no-untyped-call]
    assert recipe.train_per_class is not None
    every = len(dataset) // (len(list((root / "train").iterdir())) * recipe.train_per_class)
    dataset.reader.samples = dataset.reader.samples[::every]
    loader = create_loader(
        dataset,
        input_size=(3, recipe.image_size, recipe.image_size),
        batch_size=batch_size,
        is_training=True,
        use_prefetcher=False,
        scale=(recipe.min_scale, 1.0),
        color_jitter=0.0,
        auto_augment=recipe.auto_augment,
        interpolation=recipe.train_interpolation,
        mean=recipe.mean,
        std=recipe.std,
        num_workers=recipe.workers,
        persistent_workers=recipe.workers > 0,
    )
    # its own v0 fails with newer Pillows (posterize to 0 bits); ours is timm's, with that mended
    steps = dataset.transform.transforms
    at = next(i for i, step in enumerate(steps) if type(step).__name__ == "AutoAugment")
    steps[at] = policy(recipe.data_settings())
    return loader


def processor_seconds() -> float:
    """Of this process and of its loader processes."""
    total = time.process_time()
    for child in multiprocessing.active_children():
        fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def compare_loaders(root: Path, *, workers: int, rounds: int, batch_size: int, images: int) -> None:
    recipe = imagenet_recipe(workers, images)
    data = open_data("imagefolder", root, settings=recipe.data_settings(), seed=0)
    theirs = timm_loader(root, recipe, batch_size)
    epochs: dict[str, Callable[[int], int]] = {
        "ours": lambda e: sum(
            len(batch.images) for batch in data.train.batches(epoch=e, batch_size=batch_size)
        ),
        "timm's": lambda _: sum(len(images) for images, _ in theirs),
    }
    seconds: dict[str, list[float]] = {name: [] for name in epochs}
    for epoch in range(rounds + 1):
        for name, run in epochs.items():
            start = processor_seconds()
            loaded = run(epoch)
            if epoch:  # the first starts the loader processes
                seconds[name].append((processor_seconds() - start) / loaded)
    data.close()
    speeds = {name: 1 / statistics.median(taken) for name, taken in seconds.items()}
    ratios = [a / b for a, b in zip(seconds["ours"], seconds["timm's"], strict=True)]
    print(
        f"{workers} loader processes: "
        + ", ".join(f"{name} {speed:.0f} images/s a core" for name, speed in speeds.items())
        + f" (median of {rounds} epochs of {loaded:,} images)"
    )
    what = f"{workers} loader processes: processor time by timm's"
    report(what, statistics.median(ratios), 1.0)


# -- the start -------------------------------------------------------------------------------------


def opened(root: Path, settings: DataSettings) -> tuple[Data, float, float]:
    """The set, seconds on the wall, seconds of the processor."""
    wall, processor = time.perf_counter(), time.process_time()
    data = open_data("imagefolder", root, settings=settings, seed=0)
    return data, time.perf_counter() - wall, time.process_time() - processor


def compare_starts(root: Path, cache: Path, starts: int) -> None:
    settings = imagenet_recipe(0).data_settings()
    with patch.dict(os.environ, XDG_CACHE_HOME=str(cache)):
        data, wall, processor = opened(root, settings)
        print(f"{len(data.train):,} names listed: {wall:.2f} s ({processor:.2f} s of processor)")
        found = sum(file.stat().st_size for file in cache.rglob("*.index"))
        print(f"index of {found / 1e6:.0f} MB in the user's cache")
        walls = []
        for _ in range(starts):
            _, wall, processor = opened(root, settings)
            walls.append(wall)
        print(f"with the index: {processor:.2f} s of processor")
        report("with the index: seconds to open it, the slowest", max(walls), 10.0, "s")


def worker_memory(root: Path, cache: Path) -> None:
    """Of a loader process that has read the names of 20,000 images all over the set."""
    with patch.dict(os.environ, XDG_CACHE_HOME=str(cache)):
        paths = open_folder(root).train
    here, there = multiprocessing.Pipe()

    def work() -> None:
        before = memory()
        for at in np.random.default_rng(0).integers(0, len(paths.labels), 20_000):
            paths.path(int(at))
        there.send((before, memory()))

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    before, after = here.recv()
    process.join()
    print(f"a loader process, MB: {before} at its start, {after} after reading 20,000 names")


def memory() -> str:
    """All that is in the process's memory, its share of it, and what is its alone."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]
    kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    alone = kilobytes["Private_Clean"] + kilobytes["Private_Dirty"]
    found = {"RSS": kilobytes["Rss"], "PSS": kilobytes["Pss"], "USS": alone}
    return ", ".join(f"{name} {size / 1024:.0f}" for name, size in found.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, help="where to make the folders [default: TMPDIR]")
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--distinct", type=int, default=500, help="pictures among them")
    parser.add_argument("--names", type=int, default=1_281_000)
    parser.add_argument("--workers", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--rounds", type=int, default=5, help="epochs to alternate")
    parser.add_argument("--epoch", type=int, default=12, help="images of a class in such an epoch")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, Pillow {PIL.__version__}, timm {timm.__version__}")
    with tempfile.TemporaryDirectory(dir=options.out) as folder:
        root = Path(folder)
        make_pictures(
            root / "pictures", images=options.images, distinct=options.distinct, classes=100
        )
        for workers in options.workers:
            compare_loaders(
                root / "pictures",
                workers=workers,
                rounds=options.rounds,
                batch_size=100,
                images=options.epoch,
            )
        make_names(root / "names", names=options.names, classes=1000)
        time.sleep(3)  # a folder that has just changed gets no index
        compare_starts(root / "names", root / "cache", starts=3)
        worker_memory(root / "names", root / "cache")


if __name__ == "__main__":
    main()
