"""Arguments that several functions take, refused in the same words."""

from __future__ import annotations

from torch import nn
from torch.optim import Optimizer

__all__ = ["need_module", "need_optimizer"]


def need_module(value: object, function: str) -> None:
    """Refuse what is no model."""
    if not isinstance(value, nn.Module):
        raise TypeError(f"{function} needs an nn.Module but got {_told(value)}")


def need_optimizer(value: object, function: str, *, hint: str = "") -> None:
    """Refuse what is no optimizer of torch's kind."""
    if not isinstance(value, Optimizer):
        raise TypeError(f"{function} needs a torch optimizer but got {_told(value)}{hint}")


def _told(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
