"""What to say when the library of an integration is not there."""

from __future__ import annotations

__all__ = ["missing"]


def missing(error: ModuleNotFoundError, extra: str) -> ModuleNotFoundError:
    """The error of an import, with the line that mends it."""
    library = (error.name or extra).partition(".")[0]
    return ModuleNotFoundError(
        f"this integration needs {library}: pip install 'fixnorm[{extra}]'", name=error.name
    )
