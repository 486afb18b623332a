"""Where files lie that can be made again: the user's cache."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["cache_folder"]


def cache_folder() -> Path | None:
    """This package's folder in it, which need not be there yet; none where there is no home."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(given):  # the specification: others are to be ignored
        return Path(given) / "fixnorm"
    try:
        home = Path.home()
    except RuntimeError:
        return None
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "fixnorm"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", home / "AppData" / "Local")) / "fixnorm"
    return home / ".cache" / "fixnorm"
