"""Where a checkpoint that is folded comes from and goes to: checked before torch is loaded."""

from __future__ import annotations

from pathlib import Path

__all__ = ["FORMATS", "SAFETENSORS", "TORCH", "check_places"]

SAFETENSORS = ".safetensors"
TORCH = (".pt", ".pth", ".bin", ".ckpt", ".tar")
FORMATS = (SAFETENSORS, *TORCH)


def check_places(source: Path, out: Path, *, force: bool) -> None:
    """Refuse a checkpoint that is not there, and a place that is taken or has no format."""
    if not source.exists():
        raise ValueError(f"there is no {source}: give a checkpoint, or a folder of transformers")
    if source.resolve() == out.resolve():
        raise ValueError(f"{out} is the checkpoint itself, which can resume: give another place")
    if not source.is_dir() and out.suffix not in FORMATS:
        raise ValueError(f"OUT must end in one of {', '.join(FORMATS)} but got {out}")
    if out.is_dir() and (not source.is_dir() or out.suffix in FORMATS):
        raise ValueError(f"{out} is a folder: give a file")
    there = any(out.iterdir()) if out.is_dir() else out.exists()
    if there and not force:
        raise ValueError(f"{out} exists already: replace it with --force or give another place")
