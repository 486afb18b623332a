"""The scales by name: a wrong one is refused before what they are made of is loaded."""

from __future__ import annotations

from typing import Literal, get_args

__all__ = ["ScaleName", "check_scale"]

ScaleName = Literal["small", "paper"]


def check_scale(name: str) -> None:
    """The name must be that of a scale."""
    if name not in get_args(ScaleName):
        raise ValueError(f"scale must be {' or '.join(get_args(ScaleName))} but got {name!r}")
