"""What sets the four methods apart, said once and held by the core."""

from __future__ import annotations

from typing import get_args

import pytest
from torch import nn

import fixnorm
from fixnorm.groups import TARGET
from fixnorm.methods import METHODS, MethodName, method_named
from helpers.small_nets import ResNet


def test_every_name_has_its_method() -> None:
    assert tuple(METHODS) == get_args(MethodName)
    assert all(method_named(name) is METHODS[name] is method for name, method in METHODS.items())


@pytest.mark.parametrize("value", ["FixNorm", "bo-weight-decay", "", None, ["fixnorm"], 1])
def test_any_other_name_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"method must be one of fixnorm, wn-fc, .* but got "):
        method_named(value)


CONVS = {"stem.weight", "conv1.weight", "conv2.weight"}
ALL = CONVS | {"fc.weight"}
# The paper's: what the head is, which weights are fixed, which decay, what is tuned beside lr.
DOES: dict[str, tuple[type[nn.Module], set[str], set[str], str | None]] = {
    "fixnorm": (fixnorm.FixNormLinear, ALL, set(), "alpha"),
    "wn-fc": (fixnorm.WeightNormLinear, ALL, set(), None),
    "algorithm1": (nn.Linear, CONVS, {"fc.weight"}, "weight_decay"),
    "weight-decay": (nn.Linear, set(), ALL, "weight_decay"),
}


@pytest.mark.parametrize("name", DOES)
def test_a_method_does_what_the_paper_says(name: MethodName) -> None:
    method = METHODS[name]
    head, fixed, decayed, tuned = DOES[name]
    assert (method.fixes, method.decays) == (bool(fixed), bool(decayed))
    assert (method.caps, method.converts) == (tuned == "alpha", head is not nn.Linear)
    assert method.tunes == tuned

    model = ResNet()
    if method.fixes:
        fixnorm.convert(model, method=name, **({"alpha": 1.0} if method.caps else {}))
    assert type(model.fc) is head
    names = {parameter: own for own, parameter in model.named_parameters()}
    decay = 0.1 if method.decays else 0.0
    groups = fixnorm.param_groups(model, method=name, weight_decay=decay)
    assert {names[p] for group in groups if TARGET in group for p in group["params"]} == fixed
    assert {names[p] for g in groups if g["weight_decay"] for p in g["params"]} == decayed
