"""Libraries that come with an extra of the package: what to say where one is missing."""

from __future__ import annotations

import importlib
from types import ModuleType

__all__ = ["EXTRAS", "imported", "missing", "needs"]

EXTRAS = {
    **dict.fromkeys(("typer", "rich", "pydantic", "numpy", "safetensors"), "train"),
    **dict.fromkeys(("timm", "torchvision", "PIL", "sklearn", "tensorboard"), "train"),
    **dict.fromkeys(("optuna", "sqlalchemy", "scipy", "matplotlib"), "tune"),
}
"""The extras of libraries that commands import wherever they are needed."""


def needs(what: str, library: str, extra: str) -> str:
    """The line for a part of the package whose library is not installed."""
    return f"{what} needs {library}: pip install 'fixnorm[{extra}]'"


def missing(what: str, error: ModuleNotFoundError, extra: str) -> ModuleNotFoundError:
    """The error of an import, with the line that mends it."""
    library = (error.name or extra).partition(".")[0]
    return ModuleNotFoundError(needs(what, library, extra), name=error.name)


def imported(module: str, *, what: str, extra: str) -> ModuleType:
    """The module, imported when it is asked for."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:  # a broken install of the module itself shows its own error
            raise
        raise missing(what, error, extra) from None
