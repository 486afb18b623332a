"""`compile`: torch.compile of what a step calls, and whether this machine can do it."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from typing import Any

import torch
from torch import Tensor, nn

from fixnorm.system.machine import of_memory
from fixnorm.system.text import printable

__all__ = ["check_compiles", "compiled"]

_OPTIONS: dict[str, Any] = {"fallback_random": True}
"""Dropout and stochastic depth draw torch's own numbers, the same as without it."""
_ELSE = "or set compile=false"


def compiled(model: nn.Module) -> nn.Module:
    """The same parameters and buffers behind a faster call; compiled when it is first called."""
    faster: nn.Module = torch.compile(model, options=_OPTIONS)  # type: ignore[assignment]
    return faster


def check_compiles(device: torch.device) -> None:
    """Refuse a machine on which it would fail, by compiling something small."""
    if device.type == "cpu":
        _check_cpp_compiler()
    try:
        torch.compile(_something, options=_OPTIONS)(torch.ones(2, device=device))
    except Exception as error:  # of the compiler, its headers, torch's libraries
        if of_memory(error):
            raise
        raise ValueError(
            f"compile: torch.compile fails on this machine: {printable(error)}; install what is"
            f" missing, {_ELSE}"
        ) from error


def _something(x: Tensor) -> Tensor:
    return x.sin() + x.cos()


def _check_cpp_compiler() -> None:
    """What torch takes: the one in CXX, else the system's usual one."""
    usual = {"darwin": "clang++", "win32": "cl"}.get(sys.platform, "g++")
    command = os.environ.get("CXX", usual)
    program = next(iter(shlex.split(command)), "")
    if shutil.which(program) is None:
        raise ValueError(
            f"compile: torch.compile needs a C++ compiler but there is no {program or 'CXX'!r}:"
            f" install {usual}, name yours in CXX, {_ELSE}"
        )
