"""The names in a big image folder, kept from one start to the next.

To list ImageNet's 1.28 million files takes seconds from a quick disk and minutes from a slow one;
to look at its 1,000 class folders takes neither. A folder's times change when a name in it comes or
goes, so what was found is good as long as every folder in it has the times it had. The index lies
in the user's cache, never among the images, and whatever is wrong with it means that there is
none: it is made again, or where it cannot be written, not at all.

The file: a line that tells what it is, the SHA-256 of the rest, a line of JSON, and the names, each
ended by a NUL. The names are mapped, not read: all processes of a machine share them.
"""

import hashlib
import json
import mmap
import os
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fixnorm.system import open_regular, write_atomically
from fixnorm.system.cache import cache_folder

MANY = 100_000
"""Images from which on an index is kept: fewer are listed in less than a second."""
_MAGIC = b"fixnorm folder index 1\n"
_SETTLED = 2 * 10**9
"""Nanoseconds: the coarsest clock of a file system. A folder that has changed since may change
again and show the same time."""

Stamp = tuple[int, int, int]
"""Which folder it is, when names in it changed last, and when anything of it did (ns)."""


class SplitNames(NamedTuple):
    """What was found below ROOT/train or ROOT/val."""

    classes: tuple[str, ...]
    """By name."""
    counts: tuple[int, ...]
    """Images of each."""
    names: NDArray[np.uint8]
    """Relative to ROOT, class by class, each ended by a NUL."""
    left_out: int
    folders: dict[str, Stamp]
    """All that was looked into, relative to ROOT."""


def stamp(folder: str) -> Stamp:
    """How the folder is now; take it before looking into it."""
    try:
        found = os.stat(folder)
    except OSError:  # looking into it will say so
        return 0, 0, 0
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns


def read_index(root: Path) -> list[SplitNames] | None:
    """What was found in `root` last time, if there is nothing new in it."""
    path = _place(root)
    try:
        return None if path is None else _read(path, os.path.abspath(root))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def write_index(root: Path, splits: list[SplitNames]) -> None:
    """Keep what was found in a big folder, unless its times would not tell of a change."""
    path = _place(root)
    stamps = [stamp for split in splits for stamp in split.folders.values()]
    if path is None or sum(sum(split.counts) for split in splits) < MANY or not _telling(stamps):
        return
    listed = [split._asdict() | {"names": len(split.names)} for split in splits]
    about = json.dumps({"root": os.path.abspath(root), "splits": listed}).encode() + b"\n"
    parts = [about, *(split.names.tobytes() for split in splits)]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with write_atomically(path) as file:
            file.writelines([_MAGIC, digest.hexdigest().encode(), b"\n", *parts])
    except OSError:
        return  # a cache that cannot be written is none


def _place(root: Path) -> Path | None:
    cache = cache_folder()
    key = hashlib.sha256(os.fsencode(os.path.abspath(root))).hexdigest()[:32]
    return None if cache is None else cache / "folders" / f"{key}.index"


def _telling(stamps: list[Stamp]) -> bool:
    """Whether the times are old enough, and a file system's own: some give all folders one."""
    times = {(changed, touched) for _, changed, touched in stamps}
    return len(times) > 1 and max(map(max, times)) < time.time_ns() - _SETTLED


def _read(path: Path, root: str) -> list[SplitNames] | None:
    with open_regular(path) as file:
        if hasattr(os, "getuid") and os.fstat(file.fileno()).st_uid != os.getuid():
            return None
        if file.read(len(_MAGIC)) != _MAGIC:
            return None
        digest = file.readline(65).decode("ascii").strip()
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        start = file.tell()
        header = file.readline()
    if hashlib.sha256(memoryview(content)[start:]).hexdigest() != digest:
        return None
    about = json.loads(header)
    if about["root"] != root:
        return None
    splits, at = [], start + len(header)
    for values in about["splits"]:
        names = np.frombuffer(content, np.uint8, count=values["names"], offset=at)
        at += len(names)
        folders = {name: tuple(times) for name, times in values["folders"].items()}
        if any(stamp(os.path.join(root, name)) != times for name, times in folders.items()):
            return None
        splits.append(
            SplitNames(
                classes=tuple(values["classes"]),
                counts=tuple(values["counts"]),
                names=names,
                left_out=values["left_out"],
                folders=folders,
            )
        )
    return splits
