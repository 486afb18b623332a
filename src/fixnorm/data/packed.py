"""Sets that come as arrays: scikit-learn's digits, CIFAR-10 in pickles, Fashion-MNIST in idx files.

torchvision's datasets read neither a cut-down set nor a zipped file nor a folder of another name,
and unpickle what they are given: these readers are our own, and run nothing that a file names.
"""

import gzip
import math
import pickle
import struct
import zlib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torchvision.datasets import FashionMNIST

from fixnorm.data.errors import DataError
from fixnorm.data.folder import open_folder
from fixnorm.data.images import ArrayImages, Source
from fixnorm.system.extras import needs

# -- digits: 1,797 grey images of 8×8 --------------------------------------------------------------


FEW = 20
"""Training images of each class in `few-digits`."""


def open_digits() -> Source:
    """Every fifth image of each class is validation, for any seed."""
    return _split_digits(slice(4, None, 5))


def open_few_digits() -> Source:
    """The first 20 images of each class train, the other 1,597 validate, for any seed."""
    return _split_digits(slice(FEW, None))


def _split_digits(val_of_class: slice) -> Source:
    """The digits have no split of their own: these of each class validate, the others train."""
    values, labels = _stored_digits()
    pixels = np.rint(values * (255 / 16)).astype(np.uint8)  # stored as 0..16
    images = ArrayImages(pixels, labels)
    is_val = np.zeros(len(pixels), dtype=bool)
    for label in range(10):
        is_val[np.flatnonzero(images.labels == label)[val_of_class]] = True
    train, val = (images.subset(np.flatnonzero(chosen)) for chosen in (~is_val, is_val))
    return Source("embedded", tuple("0123456789"), 1, train, val)


def _stored_digits() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Images and labels from the package's file; importing all of it takes a second or more."""
    package = find_spec("sklearn")
    if package is None or not package.submodule_search_locations:
        raise DataError(needs("digits", "scikit-learn", "train"))
    file = Path(package.submodule_search_locations[0]) / "datasets" / "data" / "digits.csv.gz"
    if file.exists():
        table = np.loadtxt(file, delimiter=",")
        return table[:, :-1].reshape(-1, 8, 8), table[:, -1].astype(np.int64)
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return bunch.images, bunch.target.astype(np.int64)


# -- CIFAR-10 as its authors pickled it (and torchvision keeps it), or as an image folder ----------

_CIFAR10 = "airplane automobile bird cat deer dog frog horse ship truck"
_BATCHES = "cifar-10-batches-py"


def open_cifar10(root: Path) -> Source:
    """`root` holds cifar-10-batches-py/ (or is it), or train/ and val/ folders."""
    for folder in (root / _BATCHES, root):
        if not (folder / "data_batch_1").is_file():
            continue
        names = [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]
        for name in names:
            if not (folder / name).is_file():
                raise DataError(f"no {folder / name}: unpack cifar-10-python.tar.gz wholly")
        *train, val = (_read_batch(folder / name) for name in names)
        joined = ArrayImages(
            np.concatenate([part.pixels for part in train]),
            np.concatenate([part.labels for part in train]),
        )
        return Source("batches", tuple(_CIFAR10.split()), 3, joined, val)
    if not (root / "train").is_dir():
        raise DataError(
            f"no CIFAR-10 in {root}: give the folder that holds {_BATCHES}/ or train/ and val/"
        )
    return open_folder(root)


def _read_batch(path: Path) -> ArrayImages:
    content = _read_pickle(path)
    pixels, labels = getattr(content.get("data"), "pixels", None), content.get("labels")
    if (
        pixels is None
        or not isinstance(labels, list)
        or pixels.shape != (len(labels), 3072)
        or not all(isinstance(label, int) and 0 <= label < 10 for label in labels)
    ):
        raise DataError(
            f"{path} is no CIFAR-10 batch: it needs data of shape (n, 3072) and n labels in 0..9;"
            " fetch cifar-10-python.tar.gz again"
        )
    planes = pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return ArrayImages(np.ascontiguousarray(planes), np.array(labels, dtype=np.int64))


def _read_pickle(path: Path) -> dict[str, Any]:
    """The pickled dict of `path`: uint8 arrays, lists, numbers and text."""
    try:
        with path.open("rb") as file:
            content = _ArraysOnly(file, encoding="latin1").load()
        if not isinstance(content, dict):
            raise pickle.UnpicklingError(f"it holds a {type(content).__name__}, not a dict")
        return {_bytes(key).decode("latin1"): value for key, value in content.items()}
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}; check the file") from error
    except Exception as error:  # a corrupt pickle trips over anything
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(
            f"refused pickle {path}: {reason}; fetch the original cifar-10-python.tar.gz again"
        ) from error


class _ArraysOnly(pickle.Unpickler):
    """A pickle is a program that names what it calls. The names that numpy writes for an array get
    stand-ins (numpy's own trust the pickle with memory); no other name is imported."""

    def find_class(self, module: str, name: str) -> Any:
        stand_in = _STAND_INS.get((module.replace("numpy._core", "numpy.core"), name))
        if stand_in is None:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which no array needs")
        return stand_in


class _Dtype:
    def __init__(self, code: str, *_: object) -> None:
        if code not in ("u1", "|u1", "uint8"):
            raise pickle.UnpicklingError(f"an array of {code!r} where uint8 is expected")

    def __setstate__(self, state: object) -> None:
        """Byte order and flags say nothing about uint8."""


class _Array:
    pixels: NDArray[np.uint8]

    @classmethod
    def reconstruct(cls, *_: object) -> "_Array":
        return cls()

    @classmethod
    def from_buffer(
        cls, raw: object, dtype: object, shape: tuple[int, ...], order: str
    ) -> "_Array":
        array = cls()
        array.__setstate__((1, shape, dtype, order == "F", raw))
        return array

    def __setstate__(self, state: tuple[int, tuple[int, ...], object, bool, object]) -> None:
        _, shape, dtype, fortran, raw = state
        if not isinstance(dtype, _Dtype):
            raise pickle.UnpicklingError("an array without a dtype")
        flat = np.frombuffer(_bytes(raw), dtype=np.uint8)
        self.pixels = flat.reshape(shape, order="F" if fortran else "C")


def _bytes(raw: object) -> bytes:
    # Python 2 wrote bytes as str, which the latin1 encoding maps one to one
    if isinstance(raw, str):
        return raw.encode("latin1")
    if isinstance(raw, bytes | bytearray):
        return bytes(raw)
    raise pickle.UnpicklingError("array data that is not bytes")


def _encode(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"text encoded as {encoding!r}")
    return text.encode("latin1")


_STAND_INS: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("numpy.core.multiarray", "_reconstruct"): _Array.reconstruct,
    ("numpy.core.numeric", "_frombuffer"): _Array.from_buffer,
    ("_codecs", "encode"): _encode,
}


# -- Fashion-MNIST (or MNIST's own digits) in the idx format, plain or gzipped ---------------------


def open_fashion_mnist(root: Path) -> Source:
    """The four files lie in `root`, `root`/raw or, as torchvision keeps them, FashionMNIST/raw."""
    train, val = (_read_split(root, prefix) for prefix in ("train", "t10k"))
    return Source("idx", tuple(FashionMNIST.classes), 1, train, val)


def _read_split(root: Path, prefix: str) -> ArrayImages:
    images_path = _find(root, f"{prefix}-images-idx3-ubyte")
    labels_path = _find(root, f"{prefix}-labels-idx1-ubyte")
    images, labels = _read_idx(images_path, dimensions=3), _read_idx(labels_path, dimensions=1)
    if len(images) != len(labels):
        raise DataError(
            f"{len(images)} images in {images_path} but {len(labels)} labels in {labels_path}:"
            " take both from one download"
        )
    if len(images) == 0:
        raise DataError(f"no images: {images_path} is empty; fetch it again")
    if labels.max() >= 10:
        raise DataError(f"{labels_path} holds label {labels.max()}, the classes end at 9")
    return ArrayImages(images, labels.astype(np.int64))


def _find(root: Path, name: str) -> Path:
    for folder in (root, root / "raw", root / "FashionMNIST" / "raw"):
        for path in (folder / name, folder / f"{name}.gz"):
            if path.is_file():
                return path
    raise DataError(
        f"no {name} or {name}.gz in {root} or {root / 'raw'}: fetch Fashion-MNIST there"
    )


def _read_idx(path: Path, *, dimensions: int) -> NDArray[np.uint8]:
    """Two zero bytes, type 8 (uint8), the number of dimensions, each as a big-endian uint32; then
    the bytes."""
    try:
        content = path.read_bytes()
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"broken gzip file {path}: {error}; fetch it again") from error
    header = 4 + 4 * dimensions
    if content[:4] != bytes((0, 0, 8, dimensions)) or len(content) < header:
        raise DataError(
            f"{path} is no idx file of uint8 in {dimensions} dimensions: fetch it again"
        )
    shape = struct.unpack(f">{dimensions}I", content[4:header])
    if len(content) - header != math.prod(shape):
        raise DataError(
            f"{path} holds {len(content) - header} bytes where its header says"
            f" {' × '.join(map(str, shape))}: fetch it again"
        )
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape)
