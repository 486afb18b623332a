"""The four ways to train that the paper compares, each with what sets it apart.

==================  ==============================  ==================  =====================
name                the head                        norms are fixed of  weight decay is on
==================  ==============================  ==================  =====================
``fixnorm``         FixNorm-FC: W/‖W‖·min(g, α√C)   all weights         nothing
``wn-fc``           WN-FC: W/‖W‖·g                  all weights         nothing
``algorithm1``      plain                           all but the head    the head
``weight-decay``    plain                           nothing             all weights
==================  ==============================  ==================  =====================

A method has a name on the command line, in a recipe and in every file; code asks the
:class:`Method` what it does. (Tuning lr and weight decay by Bayesian optimisation,
``bo-weight-decay``, is a search for the last of them, not a method.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, get_args

__all__ = [
    "METHODS",
    "Length",
    "Method",
    "MethodName",
    "Scope",
    "checked_alpha",
    "checked_scope",
    "method_named",
    "under_cap",
]

MethodName = Literal["fixnorm", "wn-fc", "algorithm1", "weight-decay"]
Scope = Literal["global", "layer", "matrix"]
"""What has one norm that is kept: all fixed weights together, or each by itself; ``matrix``: each
by itself, with a step relative to it (:mod:`fixnorm.relative_step`)."""
Length = Literal["angle", "own"]
"""Of a step of scope ``matrix``: every matrix turns by lr, or by the optimizer's own length."""


@dataclass(frozen=True, slots=True)
class Method:
    """What a training of this name does to weights and head."""

    name: MethodName
    head: Literal["capped", "free", "plain"]
    """What the classifier is: its scale g capped, g free, or a plain layer."""
    fixes: bool
    """Whether the norm of the scale-invariant weights is kept."""
    decays: bool
    """Whether the weights that are not fixed decay."""
    tunes: Literal["alpha", "weight_decay"] | None
    """The number to be tuned beside lr."""

    @property
    def caps(self) -> bool:
        """Whether the head's scale has a cap, so that there is an alpha."""
        return self.head == "capped"

    @property
    def converts(self) -> bool:
        """Whether the head has a scale, which takes a converted model."""
        return self.head != "plain"


METHODS: Mapping[str, Method] = MappingProxyType(
    {
        method.name: method
        for method in (
            Method("fixnorm", head="capped", fixes=True, decays=False, tunes="alpha"),
            Method("wn-fc", head="free", fixes=True, decays=False, tunes=None),
            Method("algorithm1", head="plain", fixes=True, decays=True, tunes="weight_decay"),
            Method("weight-decay", head="plain", fixes=False, decays=True, tunes="weight_decay"),
        )
    }
)
"""All of them by name, the paper's own first."""


def method_named(name: Any) -> Method:
    """The method that a user has named; any other value is refused."""
    if not isinstance(name, str) or name not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)} but got {name!r}")
    return METHODS[name]


def checked_scope(scope: Any) -> Scope | None:
    """The scope that a user has named, or none; any other value is refused."""
    if scope is not None and scope not in get_args(Scope):
        raise ValueError(f"scope must be 'global', 'layer' or 'matrix' but got {scope!r}")
    return scope  # type: ignore[no-any-return]


def checked_alpha(alpha: float) -> float:
    """The value as a float; ``inf`` means no cap."""
    number = isinstance(alpha, int | float) and not isinstance(alpha, bool)
    if not number or not alpha > 0:
        raise ValueError(
            f"alpha must be a positive number but got {alpha!r}; the paper tries 0.5 to 16"
        )
    return float(alpha)


_TOUCHING = 1 - 1e-6
"""A scale this close to its cap may have met it: the largest is rounded to float32."""


def under_cap(largest_scale: float, alpha: float) -> bool:
    """Whether a training whose |g|/√C was never larger than that has not met the cap α√C.

    min(g, α√C) is g as long as g is under the cap: up to there the training does not depend on
    alpha.
    """
    return largest_scale < _TOUCHING * alpha
