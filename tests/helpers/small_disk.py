"""A real disk of a few kilobytes; needs the right to mount."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


class SmallDisk:
    """A file system of a few hundred kilobytes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def resize(self, size: str, *, first: bool = False) -> str:
        """Mount it, or give it another size; what went wrong."""
        options = f"size={size}" if first else f"remount,size={size}"
        words = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self.path)]
        return subprocess.run(words, capture_output=True, text=True, check=False).stderr.strip()

    def fill(self) -> None:
        """Leave not one byte."""
        with (self.path / "filler").open("wb", buffering=0) as filler, suppress(OSError):
            while filler.write(b"\0" * 4096):
                pass
        assert shutil.disk_usage(self.path).free == 0

    def free(self) -> None:
        """Give back what was filled."""
        (self.path / "filler").unlink(missing_ok=True)


@contextmanager
def small_disk(path: Path, size: str) -> Iterator[SmallDisk]:
    """Mounted at a path, which is made; skips where that is not allowed."""
    if shutil.which("mount") is None:
        pytest.skip("there is no mount command to make a small disk with")
    path.mkdir()
    disk = SmallDisk(path)
    problem = disk.resize(size, first=True)
    if problem:
        pytest.skip(f"a small disk cannot be mounted here: {problem}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)
