"""Pickled uint8 arrays, read without running anything the file names.

A pickle is a program; `pickle.load` runs it. This reader knows the handful of names that numpy
writes for an array, gives each a stand-in of its own, and refuses every other name.
"""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fixnorm.data.errors import DataError


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


class _Dtype:
    def __init__(self, code: str, *_: object) -> None:
        if code not in ("u1", "|u1", "uint8"):
            raise pickle.UnpicklingError(f"an array of {code!r} where uint8 is expected")

    def __setstate__(self, state: object) -> None:
        """Byte order and flags say nothing about uint8."""


def _filled(raw: object, dtype: object, shape: tuple[int, ...], order: str) -> NDArray[np.uint8]:
    if not isinstance(dtype, _Dtype):
        raise pickle.UnpicklingError("an array without a dtype")
    flat = np.frombuffer(_bytes(raw), dtype=np.uint8)
    return flat.reshape(shape, order="F" if order == "F" else "C")


class _Array:
    """Stands for an ndarray until the pickle gives its state."""

    pixels: NDArray[np.uint8]

    def __setstate__(self, state: tuple[int, tuple[int, ...], object, bool, object]) -> None:
        _, shape, dtype, fortran, raw = state
        self.pixels = _filled(raw, dtype, shape, "F" if fortran else "C")


def _reconstruct(*_: object) -> _Array:
    return _Array()


def _from_buffer(raw: object, dtype: object, shape: tuple[int, ...], order: str) -> _Array:
    array = _Array()
    array.pixels = _filled(raw, dtype, shape, order)
    return array


_STAND_INS: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy.core.numeric", "_frombuffer"): _from_buffer,
    ("numpy._core.numeric", "_frombuffer"): _from_buffer,
    ("_codecs", "encode"): _encode,
}


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """The stand-in for a name numpy writes; no module is ever imported."""
        if (module, name) not in _STAND_INS:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which no array needs")
        return _STAND_INS[module, name]


def read_arrays(path: Path) -> dict[str, Any]:
    """The pickled dict of `path`: uint8 arrays, lists, numbers and text."""
    try:
        with path.open("rb") as file:
            content = _ArraysOnly(file, encoding="latin1").load()
        if not isinstance(content, dict):
            raise pickle.UnpicklingError(f"it holds a {type(content).__name__}, not a dict")
        return {
            _bytes(key).decode("latin1"): value.pixels if isinstance(value, _Array) else value
            for key, value in content.items()
        }
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}; check the file") from error
    except Exception as error:  # a corrupt pickle trips over anything
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(
            f"refused pickle {path}: {reason}; fetch the original cifar-10-python.tar.gz again"
        ) from error
