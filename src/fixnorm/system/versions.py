"""What a result depends on beside its recipe: versions of the libraries, the commit of the code."""

from __future__ import annotations

import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

__all__ = ["commit", "versions"]


def versions() -> dict[str, str]:
    """Of everything that a result may depend on."""
    ours = sys.modules[__name__.partition(".")[0]]  # loaded before any part of it
    found = {"fixnorm": ours.__version__, "python": platform.python_version()}
    for name in ("torch", "torchvision", "timm", "numpy"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def commit() -> str | None:
    """The commit of the code, where it is run from a checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
