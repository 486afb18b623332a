"""Checkpoints that a kill at any moment cannot spoil.

A checkpoint is complete or it is not there: it is written beside its place, flushed to the disk
and renamed. The last few are kept, so that a damaged one (a full disk, a bad copy) costs the steps
since the one before, not the run.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from fixnorm.system import open_regular, regular, write_atomically

__all__ = ["Checkpoints", "Damaged", "read", "write"]

_MAGIC = b"fixnorm checkpoint 1\n"
_NAME = re.compile(r"step-(\d+)\.ckpt")


class Damaged(ValueError):
    """A file that is no whole checkpoint of ours."""


@dataclass
class Checkpoints:
    """The checkpoints of one run, in its folder ``checkpoints/``."""

    folder: Path
    keep: int = 2
    damaged: list[str] = field(default_factory=list)
    """What was wrong with files that :meth:`latest` passed over."""

    def save(self, step: int, state: dict[str, Any]) -> Path:
        """Write a checkpoint, then drop the oldest beyond ``keep``."""
        path = self.folder / f"step-{step:09d}.ckpt"
        write(path, state)
        paths = self._paths()
        here = paths.index(path) + 1
        for old in paths[: max(here - self.keep, 0)] + paths[here:]:  # later ones were passed over
            old.unlink()
        return path

    def latest(
        self, check: Callable[[Path, dict[str, Any]], None] | None = None
    ) -> tuple[Path, dict[str, Any]] | None:
        """The newest whole checkpoint, or none. Damaged files are named and passed over.

        ``check`` may find more damage, as :class:`Damaged`, than a checksum can.
        """
        for path in reversed(self._paths()):
            try:
                state = read(path)
                if check is not None:
                    check(path, state)
                return path, state
            except Damaged as error:
                self.damaged.append(str(error))
        return None

    @property
    def there(self) -> bool:
        """Whether there are any, whole or not."""
        return bool(self._paths())

    def _paths(self) -> list[Path]:
        if not self.folder.is_dir():
            return []
        files = (path for path in self.folder.iterdir() if regular(path))
        found = ((_NAME.fullmatch(path.name), path) for path in files)
        return [path for _, path in sorted((int(name[1]), path) for name, path in found if name)]


def write(path: Path, state: dict[str, Any]) -> None:
    """Write a state with its checksum; the file is complete or not there."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    content = buffer.getbuffer()
    digest = hashlib.sha256(content).hexdigest().encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(path) as file:
        file.write(_MAGIC + digest + b"\n")
        file.write(content)


def read(path: Path) -> dict[str, Any]:
    """The state in a checkpoint file; nothing but tensors and plain containers is ever built."""
    header = len(_MAGIC) + 65
    with open_regular(path) as file:
        content = file.read(header)
        if not content.startswith(_MAGIC):
            raise Damaged(f"{path} is not a fixnorm checkpoint")
        content += file.read()
    digest = content[len(_MAGIC) : header - 1].decode(errors="replace")
    body = memoryview(content)[header:]
    if hashlib.sha256(body).hexdigest() != digest:
        raise Damaged(f"{path} is damaged: it is {len(content):,} bytes and its checksum is wrong")
    try:
        state = torch.load(io.BytesIO(body), map_location="cpu", weights_only=True)
    except Exception as error:  # whatever bytes that are no such state lead the unpickler to
        raise Damaged(f"{path} is no state of a run: {type(error).__name__}") from None
    if not isinstance(state, dict) or not isinstance(state.get("recipe"), dict):
        raise Damaged(f"{path} is not a fixnorm checkpoint")
    return state
