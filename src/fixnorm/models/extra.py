"""The `models` extra, imported when a model asks for it."""

import importlib
from types import ModuleType


def need_timm() -> ModuleType:
    """Import timm or say how to get it."""
    return _need("timm")


def need_torchvision() -> ModuleType:
    """Import torchvision or say how to get it."""
    return _need("torchvision")


def _need(module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        # A broken install of the module itself must show its own error.
        if error.name != module:
            raise
        raise ImportError(
            f"this model needs {module}, which is not installed: pip install 'fixnorm[train]'"
        ) from None
