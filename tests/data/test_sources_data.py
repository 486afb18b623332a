"""The layouts: embedded digits, image folders, CIFAR-10 pickles, Fashion-MNIST idx files."""

import gzip
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fixnorm.data import Data, DataError, DataSettings, open_data
from fixnorm.data.images import PathTable

MakeFolder = Callable[..., Path]

PLAIN = DataSettings(image_size=32)


def _val(data: Data) -> tuple[torch.Tensor, torch.Tensor]:
    batches = list(data.val.eval_batches(batch_size=4))
    return torch.cat([b.images for b in batches]), torch.cat([b.labels for b in batches])


def test_digits() -> None:
    data = open_data("digits", None, settings=DataSettings(image_size=8), seed=0)
    assert data.classes == tuple("0123456789")
    assert data.channels == 1
    assert len(data.train) + len(data.val) == 1797
    images, labels = _val(data)
    assert images.shape == (len(data.val), 1, 8, 8)
    # every fifth of 174 to 183 images a class
    assert torch.bincount(labels).tolist() == [35, 36, 35, 36, 36, 36, 36, 35, 34, 36]
    assert images.min() == -1
    assert images.max() == 1
    assert data.describe().startswith("digits (embedded): 1,442 train and 355 val images, 10 cl")


def test_folder_labels_follow_sorted_names(make_folder: MakeFolder) -> None:
    root = make_folder(classes=("b", "a"), train=2, val=1)
    (root / "train" / "a" / "deep").mkdir()
    (root / "train" / "a" / "01.png").rename(root / "train" / "a" / "deep" / "01.JPEG")
    (root / "train" / "a" / "notes.txt").write_text("not an image")
    data = open_data("imagefolder", root, settings=DataSettings(image_size=12), seed=0)
    assert data.classes == ("a", "b")
    assert (len(data.train), len(data.val)) == (4, 2)
    images, labels = _val(data)
    assert labels.tolist() == [0, 1]
    pixels = np.asarray(Image.open(root / "val" / "a" / "00.png")).transpose(2, 0, 1)
    assert torch.allclose(images[0] * 0.5 + 0.5, torch.from_numpy(pixels.copy()) / 255)


def test_nothing_is_written_to_the_folder(make_folder: MakeFolder) -> None:
    root = make_folder()
    before = sorted(root.rglob("*"))
    data = open_data("imagefolder", root, settings=DataSettings(image_size=12), seed=0)
    list(data.train.batches(epoch=0, batch_size=4))
    assert sorted(root.rglob("*")) == before


def test_subsets_take_the_first(make_folder: MakeFolder) -> None:
    root = make_folder()
    options = DataSettings(image_size=12, classes=2, train_per_class=3, val_per_class=1)
    data = open_data("imagefolder", root, settings=options, seed=0)
    assert data.classes == ("ant", "bee")
    assert (len(data.train), len(data.val)) == (6, 2)
    whole = _val(open_data("imagefolder", root, settings=DataSettings(image_size=12), seed=0))
    images, labels = _val(data)
    assert torch.equal(images, whole[0][[0, 5]])
    assert labels.tolist() == [0, 1]


def test_progress_counts_to_the_end(make_folder: MakeFolder) -> None:
    seen: list[tuple[int, int]] = []
    open_data(
        "imagefolder",
        make_folder(train=30),
        settings=DataSettings(image_size=12),
        seed=0,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(64, 105), (90, 105), (105, 105)]  # chunks of 64 over 90 train and 15 val


def test_path_table_keeps_odd_names() -> None:
    names = ["a/b.jpg", "ä/ö .jpg", "x\udcff.jpg", ""]
    table = PathTable(names)
    assert [table[i] for i in range(len(table))] == [Path(name) for name in names]
    with pytest.raises(IndexError, match="path 4 of 4"):
        table[4]


def _cifar(
    folder: Path, *, protocol: int, data_key: Any = "data", labels_key: Any = "labels"
) -> None:
    folder.mkdir(parents=True)
    rng = np.random.default_rng(1)
    for name in [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]:
        content = {
            data_key: rng.integers(0, 256, (10, 3072), dtype=np.uint8),
            labels_key: list(range(10)),
        }
        (folder / name).write_bytes(pickle.dumps(content, protocol=protocol))


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("inside", [True, False], ids=["root", "batches folder"])
def test_cifar10_pickles(tmp_path: Path, protocol: int, inside: bool) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    _cifar(folder, protocol=protocol)
    data = open_data("cifar10", tmp_path if inside else folder, settings=PLAIN, seed=0)
    assert (len(data.train), len(data.val), data.channels) == (50, 10, 3)
    assert data.classes[0] == "airplane"
    assert data.classes[9] == "truck"
    images, labels = _val(data)
    assert labels.tolist() == list(range(10))
    content = pickle.loads((folder / "test_batch").read_bytes())
    expected = torch.from_numpy(content["data"].reshape(10, 3, 32, 32)) / 255
    assert torch.allclose(images * 0.5 + 0.5, expected, atol=1e-6)


def test_cifar10_pickles_of_python_2(tmp_path: Path) -> None:
    # str in Python 2 is bytes: opcodes SHORT_BINSTRING (U) and BINSTRING (T), as in the originals
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    raw = bytes(i % 256 for i in range(3072))
    batch = (
        b"\x80\x02}(U\x04datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85"
        b"U\x01b\x87R(K\x01K\x01M\x00\x0c\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R"
        b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T\x00\x0c\x00\x00"
        + raw
        + b"tbU\x06labels](K\x06eu."
    )
    for name in [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]:
        (folder / name).write_bytes(batch)
    images, labels = _val(open_data("cifar10", tmp_path, settings=PLAIN, seed=0))
    assert labels.tolist() == [6]
    assert ((images * 0.5 + 0.5) * 255).round().flatten().tolist() == list(raw)


def test_cifar10_as_an_image_folder(make_folder: MakeFolder) -> None:
    data = open_data("cifar10", make_folder(), settings=DataSettings(image_size=12), seed=0)
    assert data.classes == ("ant", "bee", "cat")


class _Malice:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.target,)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_malicious_pickle_is_refused_and_not_run(tmp_path: Path, protocol: int) -> None:
    _cifar(tmp_path / "c", protocol=4)
    target = tmp_path / "owned"
    evil = pickle.dumps({"data": _Malice(target), "labels": [0]}, protocol=protocol)
    (tmp_path / "c" / "data_batch_3").write_bytes(evil)
    with pytest.raises(DataError, match=r"refused pickle .*data_batch_3: it names \S+, which no"):
        open_data("cifar10", tmp_path / "c", settings=PLAIN, seed=0)
    assert not target.exists()
    pickle.loads(evil)
    assert target.exists()  # the file does what it is feared for


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (pickle.dumps([1]), "it holds a list, not a dict"),
        (pickle.dumps({"data": np.zeros((1, 3072))}), "an array of 'f8' where uint8"),
        (pickle.dumps({"data": np.zeros(2, dtype=object)}), "an array of 'O8' where uint8"),
        (b"\x80\x04", "Ran out of input|EOF|truncated"),
    ],
)
def test_pickles_of_other_things_are_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    _cifar(tmp_path / "c", protocol=4)
    (tmp_path / "c" / "test_batch").write_bytes(content)
    with pytest.raises(DataError, match=rf"refused pickle .*test_batch: .*({reason})"):
        open_data("cifar10", tmp_path / "c", settings=PLAIN, seed=0)


@pytest.mark.parametrize(
    "content",
    [
        {"data": np.zeros((2, 3072), dtype=np.uint8), "labels": [0]},
        {"data": np.zeros((1, 3072), dtype=np.uint8), "labels": [10]},
        {"data": np.zeros((1, 3072), dtype=np.uint8), "labels": ["cat"]},
        {"data": [0], "labels": [0]},
        {"labels": [0]},
    ],
)
def test_a_pickle_of_another_shape_is_no_batch(tmp_path: Path, content: object) -> None:
    _cifar(tmp_path / "c", protocol=4)
    (tmp_path / "c" / "test_batch").write_bytes(pickle.dumps(content))
    with pytest.raises(DataError, match=r"test_batch is no CIFAR-10 batch: it needs data of shape"):
        open_data("cifar10", tmp_path / "c", settings=PLAIN, seed=0)


def test_an_incomplete_cifar10(tmp_path: Path) -> None:
    _cifar(tmp_path / "c", protocol=4)
    (tmp_path / "c" / "data_batch_4").unlink()
    with pytest.raises(DataError, match=r"no .*data_batch_4: unpack cifar-10-python\.tar\.gz"):
        open_data("cifar10", tmp_path / "c", settings=PLAIN, seed=0)
    with pytest.raises(
        DataError, match=r"no CIFAR-10 in .*: give the folder that holds cifar-10-b"
    ):
        open_data("cifar10", tmp_path, settings=PLAIN, seed=0)


def _idx(path: Path, array: np.ndarray, *, zipped: bool) -> None:
    content = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    content += array.tobytes()
    if zipped:
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(content))
    else:
        path.write_bytes(content)


def _fashion(folder: Path, *, zipped: bool = False) -> np.ndarray:
    folder.mkdir(parents=True)
    images = np.random.default_rng(2).integers(0, 256, (6, 28, 28), dtype=np.uint8)
    labels = np.array([9, 0, 3, 3, 1, 2], dtype=np.uint8)
    for prefix in ("train", "t10k"):
        _idx(folder / f"{prefix}-images-idx3-ubyte", images, zipped=zipped)
        _idx(folder / f"{prefix}-labels-idx1-ubyte", labels, zipped=zipped)
    return images


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("sub", ["", "raw", "FashionMNIST/raw"])
def test_fashion_mnist(tmp_path: Path, zipped: bool, sub: str) -> None:
    pixels = _fashion(tmp_path / "f" / sub, zipped=zipped)
    data = open_data("fashion-mnist", tmp_path / "f", settings=DataSettings(image_size=28), seed=0)
    assert data.channels == 1
    assert data.classes[9] == "Ankle boot"
    images, labels = _val(data)
    assert labels.tolist() == [9, 0, 3, 3, 1, 2]
    expected = torch.from_numpy(pixels)[:, None] / 255
    assert torch.allclose(images * 0.5 + 0.5, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("train-images-idx3-ubyte", b"text", "is no idx file of uint8 in 3 dimensions"),
        (
            "train-images-idx3-ubyte",
            bytes((0, 0, 8, 3)) + struct.pack(">3I", 6, 28, 28) + bytes(100),
            "holds 100 bytes where its header says 6 × 28 × 28",
        ),
        ("train-images-idx3-ubyte", b"\x1f\x8bjunk", "broken gzip file"),
        (
            "t10k-labels-idx1-ubyte",
            bytes((0, 0, 8, 1)) + struct.pack(">I", 2) + b"\x00\x01",
            "6 images in .* but 2 labels in",
        ),
        (
            "t10k-labels-idx1-ubyte",
            bytes((0, 0, 8, 1)) + struct.pack(">I", 6) + b"\x0a" * 6,
            "holds label 10, the classes end at 9",
        ),
    ],
)
def test_broken_idx_files(tmp_path: Path, name: str, content: bytes, reason: str) -> None:
    _fashion(tmp_path / "f")
    (tmp_path / "f" / name).write_bytes(content)
    with pytest.raises(DataError, match=reason):
        open_data("fashion-mnist", tmp_path / "f", settings=DataSettings(image_size=28), seed=0)


def test_missing_idx_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no train-images-idx3-ubyte or .*\.gz in"):
        open_data("fashion-mnist", tmp_path, settings=DataSettings(image_size=28), seed=0)
