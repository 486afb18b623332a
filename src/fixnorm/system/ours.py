"""What is ours may be written over; what is not is left alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from fixnorm.system.atomic import write_atomically
from fixnorm.system.regular import regular

__all__ = ["check_files", "write_files"]


def check_files(
    folder: Path, names: Iterable[str], *, sign: str, ours: Callable[[Path], bool]
) -> None:
    """Refuse to write ``names`` over what others have put there; changes nothing.

    One file of ours, the ``sign``, tells whose all of them are: it is written before the rest. A
    name that ends in ``/`` is a folder for files of ours.
    """
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: give another --out")
    known = regular(folder / sign) and ours(folder / sign)
    for name in (sign, *names):
        path = folder / name
        if (path.is_symlink() or path.exists()) and not _ours(path, name, known):
            raise ValueError(
                f"{path} is not of this command: move it away, or give another folder as --out"
            )


def write_files(
    folder: Path, contents: Mapping[str, bytes], *, ours: Callable[[Path], bool]
) -> list[Path]:
    """Write files of ours, the first of which is the sign; those of others stay as they are."""
    sign, *others = contents
    check_files(folder, others, sign=sign, ours=ours)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        with write_atomically(folder / name) as file:
            file.write(content)
    return [folder / name for name in contents]


def _ours(path: Path, name: str, known: bool) -> bool:
    if not name.endswith("/"):
        return known and regular(path)
    return path.is_dir() and (known or not any(path.iterdir()))
